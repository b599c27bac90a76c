//! `virtctl why`: what keeps a machine from running well, and what to do about it.
//!
//! [`collect`] reads the objects that a running machine is made of: VM → VMI → pod → node, its claims and data volumes, and the events
//! about them. [`judge`] is a pure function over that [`Snapshot`]: it follows the same path and stops at the first thing that blocks.
//! All knowledge about failures is in it and in the files next to it, one for each part of the path.

mod claims;
mod collect;
mod guest;
mod judge;
mod machine;
mod migration;
mod node;
mod object;
mod pod;
mod snapshot;
#[cfg(test)]
mod tests;
mod verdict;

use crate::cluster::Cluster;
use crate::output::{Format, print};
use crate::target::{Kind, Target};

use self::snapshot::Snapshot;
use self::verdict::Verdict;

/// Arguments of `why`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// The machine or guest: `NAME`, `vm/NAME`, `vmi/NAME` or `vm/NAME/NAMESPACE`.
    #[arg(value_name = "VM")]
    target: String,
    /// Format of the result. Default: a few lines of text.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// `virtctl why`: 0 when the machine is healthy, 1 otherwise.
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<i32> {
    let target = Target::parse(&args.target, Some(Kind::Machine))?;
    let mut session = cluster.session().await?;
    if let Some(namespace) = target.namespace {
        session.namespace = namespace;
    }
    let snapshot: Snapshot = collect::collect(&session, &target.name).await?;
    let verdict: Verdict = judge::judge(&snapshot);
    print(&match args.output {
        Some(format) => format.text(&verdict.to_json())?,
        None => verdict.to_string(),
    })?;
    Ok(i32::from(!verdict.is_healthy()))
}
