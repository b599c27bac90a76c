//! The black-box suite of virtual machines: what users do with them, with kubectl, with virtctl and through the API.
//!
//! | file | holds |
//! |---|---|
//! | `cases/` | what is tried, an area in each file, and the list of them |
//! | `stage` | what one case uses: its namespace, kubectl and virtctl |
//! | `machine` | a virtual machine under test: its object, the guest it has now, and what it becomes |
//!
//! The path of virtctl is a parameter: the cases below `virtctl/` hold for KubeVirt's own as well.

mod cases;
mod machine;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use blackbox::program::Program;
use blackbox::suite::{self, Arguments};
use clap::Parser;

use crate::stage::Stage;

/// Works with virtual machines on a cluster and checks what becomes of them.
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
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command = Command::parse();
    suite::run(&command.suite, cases::all(), |scene| Stage {
        virtctl: Program::new(&command.virtctl, &command.suite.kubeconfig, &scene.namespace),
        kubectl: Program::new(&command.kubectl, &command.suite.kubeconfig, &scene.namespace),
        scene,
    })
    .await
}
