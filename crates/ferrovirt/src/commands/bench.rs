//! `ferrovirt bench`

/// What to measure.
#[derive(clap::Subcommand, Clone)]
pub enum Bench {}

/// Runs a benchmark.
pub fn run(_bench: &Bench) -> anyhow::Result<()> {
    Ok(())
}
