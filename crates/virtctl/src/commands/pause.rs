//! `virtctl pause` and `unpause`.

use anyhow::Context;
use http::Method;
use serde_json::json;

use super::dry_run;
use crate::cluster::Cluster;
use crate::session::Session;
use crate::target::{Kind, Target};

/// Arguments of `pause` and `unpause`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// `vm NAME`, `vmi NAME`, or `vm/NAME`.
    #[arg(value_name = "TARGET", num_args = 1..=2, required = true)]
    target: Vec<String>,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// `virtctl pause`
pub(crate) async fn pause(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    order(cluster, args, "pause", "pausing").await
}

/// `virtctl unpause`
pub(crate) async fn unpause(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    order(cluster, args, "unpause", "unpausing").await
}

async fn order(cluster: &Cluster, args: &Args, order: &str, doing: &str) -> anyhow::Result<()> {
    let Target { kind, name, .. } = Target::words(&args.target)?;
    let session = cluster.session().await?;
    let mut options = json!({});
    dry_run(&mut options, args.dry_run);
    if kind == Kind::Machine {
        // A machine that is missing is another mistake than one that is off.
        let path = format!("{}/{name}", Session::collection(&session.namespace, kind.resource()));
        session.get(&path).await.with_context(|| format!("Error getting VirtualMachine {name}"))?;
    }
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, order);
    let told = session.send(Method::PUT, &path, &options).await;
    match told {
        Err(refused) if refused.is_not_found() && kind == Kind::Machine => Err(refused).with_context(|| {
            format!("Error {doing} VirtualMachineInstance {name}. VirtualMachine {name} does not run: start it with \"virtctl start {name}\"")
        })?,
        told => told.with_context(|| format!("Error {doing} VirtualMachineInstance {name}"))?,
    };
    println!("VMI {name} was scheduled to {order}");
    Ok(())
}
