//! `ferrovirt bench`: measurements of a running cluster, for people and for comparisons. Tests never assert on them.

mod admission;
mod apiserver;
mod control_plane;
mod memory;
mod migrate;
mod vmi;

/// What to measure.
#[derive(clap::Subcommand, Clone)]
pub(crate) enum Bench {
    /// Measure what it costs to default and to check a virtual machine: in a function call, and in webhooks over TLS.
    ///
    /// Needs no cluster: it starts an API server and a virt-api of its own.
    Admission(admission::Args),
    /// Measure an API server: writes, reads, watches and memory while it holds more and more VirtualMachineInstances.
    ///
    /// Works with any Kubernetes API server. Everything happens in a namespace of its own, which is deleted at the end,
    /// after a failure and after Ctrl-C.
    Apiserver(Box<apiserver::Args>),
    /// Measure virt-controller: many guests are wished for at once, on a cluster that has no nodes to run them.
    ///
    /// Works with a Kubernetes API server whose requests it can count. It starts a virt-controller of its own, and refuses a cluster
    /// that has one, or that has nodes or guests. Everything is removed at the end, after a failure and after Ctrl-C.
    ControlPlane(control_plane::Args),
    /// Measure live migrations between two nodes of the local cluster, beside `virsh migrate` of the same guest in the same namespaces.
    ///
    /// Needs root and a cluster with two nodes: `ferrovirt up --nodes 2`. Everything is removed at the end, after a failure and after
    /// Ctrl-C.
    Migrate(migrate::Args),
    /// Measure how guests start: bursts of them, the stages of each, and what our processes around them cost.
    ///
    /// Runs on the machine of the nodes. The guests are in a namespace of their own, which is deleted at the end, after a failure and after
    /// Ctrl-C.
    Vmi(vmi::Args),
}

/// How results are printed.
#[derive(clap::ValueEnum, Clone, Copy)]
pub(crate) enum Format {
    /// A table.
    Text,
    /// Plain numbers, in seconds and bytes.
    Json,
}

/// Runs a benchmark.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Admission(args) => admission::run(args),
        Bench::Apiserver(args) => apiserver::run(args),
        Bench::ControlPlane(args) => control_plane::run(args),
        Bench::Migrate(args) => migrate::run(args),
        Bench::Vmi(args) => vmi::run(args),
    }
}
