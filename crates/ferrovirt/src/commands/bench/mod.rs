//! `ferrovirt bench`: measurements of a running cluster, for people and for comparisons. Tests never assert on them.

mod apiserver;

/// What to measure.
#[derive(clap::Subcommand, Clone)]
pub(crate) enum Bench {
    /// Measure an API server: writes, reads, watches and memory while it holds more and more VirtualMachineInstances.
    ///
    /// Works with any Kubernetes API server. Everything happens in a namespace of its own, which is deleted at the end,
    /// after a failure and after Ctrl-C.
    Apiserver(Box<apiserver::Args>),
}

/// Runs a benchmark.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Apiserver(args) => apiserver::run(args),
    }
}
