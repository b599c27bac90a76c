//! The suite of a hostile tenant: somebody with the ClusterRole `edit` in one namespace tries what must not work.
//!
//! Each case is one attempt, with what must happen instead. `tenant` is who tries; `cases/` holds what is tried.

mod cases;
mod tenant;

use std::process::ExitCode;

use anyhow::Result;
use blackbox::suite::{self, Arguments};
use clap::Parser;

/// Tries as a hostile tenant what must not work on a cluster.
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
