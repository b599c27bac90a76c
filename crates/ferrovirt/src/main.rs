//! The `ferrovirt` command: parses arguments and calls the command's function.

mod commands;
mod control_plane;
mod local;
mod pods;
mod requirements;
mod wiring;

use clap::{Parser, Subcommand};

/// A third of what an API server does for a write is to allocate, and glibc's allocator makes it a third slower; musl's makes virt-controller
/// compute up to twice as long. Without huge pages, of which a small process would fill little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Virtual machines as Kubernetes objects.
///
/// Without a Kubernetes cluster, `ferrovirt up` starts a small Kubernetes-compatible control plane on this machine;
/// kubectl works with it through the kubeconfig that it writes.
#[derive(Parser)]
#[command(name = "ferrovirt", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the local cluster in the background.
    ///
    /// Waits until the API server answers, prints where the kubeconfig is, and exits. Starting it again is harmless.
    Up(commands::up::UpArgs),
    /// Stop the local cluster. Its state stays and is there again after the next `up`.
    Down(commands::down::Args),
    /// Tell whether the local cluster runs, and where.
    Status(local::Home),
    /// Print the kubeconfig of the running local cluster.
    Kubeconfig(local::Home),
    /// Print Ferrovirt's CustomResourceDefinitions as YAML, ready for `kubectl apply -f -`.
    Crds(commands::crds::Args),
    /// Run the local control plane in the foreground.
    ///
    /// `up` does this in the background; use it directly under a service manager. The first line on standard output
    /// says `ready` and the address once clients are served.
    Serve(commands::serve::Args),
    /// Run virt-api for a Kubernetes cluster: admission webhooks and the subresources of virtual machines.
    ///
    /// The local cluster has both inside of its API server and needs no process for them.
    Api(commands::api::Args),
    /// Run virt-controller for a Kubernetes cluster: machines become guests, and guests become pods.
    ///
    /// Of several, the one that holds the lease works. The local cluster has it inside of its control plane.
    Controller(commands::controller::Args),
    /// Run virt-operator for a Kubernetes cluster: it installs, updates and removes what a `KubeVirt` object asks for.
    Operator(commands::operator::Args),
    /// Print what installs Ferrovirt on a Kubernetes cluster, ready for `kubectl apply -f -`.
    Manifests(commands::manifests::Args),
    /// Run virt-handler on a node of a Kubernetes cluster: the guests of the node, and its devices.
    ///
    /// It needs the node's network, processes and devices, and QEMU and nft beside it. Guests go on when it ends.
    Handler(commands::handler::Args),
    /// Run one node of the local cluster in the foreground: the node runtime and virt-handler.
    ///
    /// `up` does this in the background. Guests go on when it ends, and it finds them again when it starts.
    Node(commands::node::Args),
    /// Start the parts of the local cluster and start them again when they end.
    #[command(hide = true)]
    Supervise(commands::supervise::SuperviseArgs),
    /// Start a small guest and show each step until it has booted.
    Demo(commands::demo::Args),
    /// Container images of this machine, for container disks and kernels.
    #[command(subcommand)]
    Images(commands::images::Images),
    /// Measure a running cluster.
    #[command(subcommand)]
    Bench(commands::bench::Bench),
}

fn main() -> std::process::ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => commands::up::run(&args),
        Command::Down(args) => commands::down::run(&args),
        Command::Status(home) => commands::status::run(&home),
        Command::Kubeconfig(home) => commands::kubeconfig::run(&home),
        Command::Crds(args) => commands::crds::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Api(args) => commands::api::run(&args),
        Command::Controller(args) => commands::controller::run(&args),
        Command::Operator(args) => commands::operator::run(&args),
        Command::Manifests(args) => commands::manifests::run(&args),
        Command::Handler(args) => commands::handler::run(&args),
        Command::Node(args) => commands::node::run(&args),
        Command::Supervise(args) => commands::supervise::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Images(images) => commands::images::run(&images),
        Command::Bench(bench) => commands::bench::run(&bench),
    }
}
