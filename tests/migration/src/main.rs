//! The black-box suite of live migration: guests that count and write are moved between the nodes of a cluster, and nothing of their
//! work may be lost.
//!
//! | file | holds |
//! |---|---|
//! | `cases/` | what is tried, an area in each file, and the list of them |
//! | `stage` | what one case uses: its namespace, kubectl, virtctl, policies and settings that are taken back |
//!
//! The cluster needs two nodes: `ferrovirt up --nodes 2`.

mod cases;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use blackbox::program::Program;
use blackbox::suite::{self, Arguments};
use clap::Parser;

use crate::stage::Stage;

/// Moves guests between the nodes of a cluster and checks what becomes of them.
#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    suite: Arguments,
    /// The virtctl that is used.
    #[arg(long, default_value = "virtctl")]
    virtctl: PathBuf,
    /// The kubectl that is used.
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// How often a guest moves in cases of many moves.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    moves: u32,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command = Command::parse();
    suite::run(&command.suite, cases::all(), |scene| Stage {
        virtctl: Program::new(&command.virtctl, &command.suite.kubeconfig, &scene.namespace),
        kubectl: Program::new(&command.kubectl, &command.suite.kubeconfig, &scene.namespace),
        scene,
        moves: command.moves,
    })
    .await
}
