//! `virtctl completion`: what a shell needs to complete commands and flags.

use clap_complete::Shell;

/// Arguments of `completion`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

/// `virtctl completion`
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::command("virtctl"), "virtctl", &mut script);
    crate::output::print(&String::from_utf8_lossy(&script))
}
