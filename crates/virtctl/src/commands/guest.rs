//! `virtctl reset`, `soft-reboot`, and what the guest's agent tells: `guestosinfo`, `userlist`, `fslist`.

use anyhow::Context;
use http::Method;
use serde_json::json;

use crate::cluster::Cluster;
use crate::output::{Format, print};
use crate::session::Session;
use crate::target::{Kind, Target};

/// A guest.
#[derive(clap::Args, Clone)]
pub(crate) struct Guest {
    /// The guest: `NAME`, `vmi/NAME` or `vm/NAME`.
    #[arg(value_name = "VMI")]
    name: String,
}

/// A guest, and how to print what it says.
#[derive(clap::Args, Clone)]
pub(crate) struct Question {
    #[command(flatten)]
    guest: Guest,
    /// Format of the result.
    #[arg(short, long, value_name = "FORMAT", default_value = "json")]
    output: Format,
}

/// `virtctl reset`
pub(crate) async fn reset(cluster: &Cluster, args: &Guest) -> anyhow::Result<()> {
    order(cluster, args, "reset", "reset", "Error reseting VirtualMachineInstance").await
}

/// `virtctl soft-reboot`
pub(crate) async fn soft_reboot(cluster: &Cluster, args: &Guest) -> anyhow::Result<()> {
    order(cluster, args, "softreboot", "soft-reboot", "Error soft rebooting VirtualMachineInstance").await
}

async fn order(cluster: &Cluster, args: &Guest, order: &str, word: &str, trouble: &str) -> anyhow::Result<()> {
    let name = Target::guest(&args.name)?;
    let session = cluster.session().await?;
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, order);
    session.send(Method::PUT, &path, &json!({})).await.with_context(|| format!("{trouble} {name}"))?;
    println!("VMI {name} was scheduled to {word}");
    Ok(())
}

/// `virtctl guestosinfo`
pub(crate) async fn os_info(cluster: &Cluster, args: &Question) -> anyhow::Result<()> {
    question(cluster, args, "guestosinfo", "Error getting guestosinfo of VirtualMachineInstance").await
}

/// `virtctl userlist`
pub(crate) async fn users(cluster: &Cluster, args: &Question) -> anyhow::Result<()> {
    question(cluster, args, "userlist", "Error listing users of VirtualMachineInstance").await
}

/// `virtctl fslist`
pub(crate) async fn filesystems(cluster: &Cluster, args: &Question) -> anyhow::Result<()> {
    question(cluster, args, "filesystemlist", "Error listing filesystems of VirtualMachineInstance").await
}

async fn question(cluster: &Cluster, args: &Question, what: &str, trouble: &str) -> anyhow::Result<()> {
    let name = Target::guest(&args.guest.name)?;
    let session = cluster.session().await?;
    let path = Session::subresource(&session.namespace, Kind::Guest.resource(), &name, what);
    let told = session.get(&path).await.with_context(|| format!("{trouble} {name}, "))?;
    print(&args.output.text(&told)?)
}
