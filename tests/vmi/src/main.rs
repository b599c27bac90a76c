//! The black-box suite of guests: takes a kubeconfig, runs real guests on the cluster and talks to them over their serial consoles.
//!
//! `cases/` holds what is tried; how guests are made, watched and spoken to is in the `blackbox` library.

mod cases;

use std::process::ExitCode;

use anyhow::Result;
use blackbox::suite::{self, Arguments};
use clap::Parser;

/// Runs real guests on a cluster and checks what becomes of them.
#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    suite: Arguments,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command = Command::parse();
    suite::run(&command.suite, cases::all(), |scene| scene).await
}
