//! `virtctl`: what kubectl has no command for. Parses arguments and calls the command's function.

mod connect;
mod console;

use clap::{Parser, Subcommand};

/// Works with the virtual machines of a cluster.
#[derive(Parser)]
#[command(name = "virtctl", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    cluster: connect::Cluster,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Connect to the serial console of a running guest.
    ///
    /// Type Ctrl-] to leave it. A guest has one console: whoever connects last has it.
    Console(console::Args),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Console(args) => console::run(&cli.cluster, &args).await,
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
