//! `virtctl addvolume` and `removevolume`.

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use super::dry_run;
use crate::cluster::Cluster;
use crate::session::Session;
use crate::target::{Kind, Target};

/// Arguments of `addvolume`.
#[derive(clap::Args, Clone)]
pub(crate) struct Add {
    /// The machine: `NAME`, `vm/NAME` or `vmi/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// The data volume or claim.
    #[arg(long, value_name = "NAME")]
    volume_name: String,
    /// Name of the disk in the machine. Default: the volume's.
    #[arg(long, value_name = "NAME")]
    disk_name: Option<String>,
    /// Serial number that the guest sees.
    #[arg(long)]
    serial: Option<String>,
    /// How writes are cached: none, writethrough or writeback.
    #[arg(long, value_parser = ["none", "writethrough", "writeback"])]
    cache: Option<String>,
    /// disk or lun.
    #[arg(long, value_name = "TYPE", default_value = "disk", value_parser = ["disk", "lun"])]
    disk_type: String,
    /// scsi or virtio.
    #[arg(long, default_value = "scsi", value_parser = ["scsi", "virtio"])]
    bus: String,
    /// Deprecated; has no effect.
    #[arg(long, hide_short_help = true)]
    persist: bool,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `removevolume`.
#[derive(clap::Args, Clone)]
pub(crate) struct Remove {
    /// The machine: `NAME`, `vm/NAME` or `vmi/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// The volume, by its name in the machine.
    #[arg(long, value_name = "NAME")]
    volume_name: String,
    /// Deprecated; has no effect.
    #[arg(long, hide_short_help = true)]
    persist: bool,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// `virtctl addvolume`
pub(crate) async fn add(cluster: &Cluster, args: &Add) -> anyhow::Result<()> {
    if args.disk_type == "lun" && args.bus != "scsi" {
        bail!("Invalid bus type '{}' for LUN disk. Only 'scsi' bus is supported.", args.bus);
    }
    let session = cluster.session().await?;
    let mut options = args.options(&source(&session, &args.volume_name).await?);
    dry_run(&mut options, args.dry_run);
    order(&session, &args.name, "addvolume", &options).await.context("error adding volume, ")?;
    println!("Successfully submitted add volume request to VM {} for volume {}", args.name, args.volume_name);
    Ok(())
}

impl Add {
    fn options(&self, source: &Value) -> Value {
        let mut disk = json!({self.disk_type.as_str(): {"bus": self.bus}});
        let name = self.disk_name.as_ref().unwrap_or(&self.volume_name);
        disk["serial"] = json!(self.serial.as_ref().unwrap_or(name));
        if let Some(cache) = &self.cache {
            disk["cache"] = json!(cache);
        }
        json!({"name": name, "disk": disk, "volumeSource": source})
    }
}

/// A data volume of this name, or else a claim.
async fn source(session: &Session, name: &str) -> anyhow::Result<Value> {
    let namespace = &session.namespace;
    let data_volume = format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes/{name}");
    if session.find(&data_volume).await?.is_some() {
        return Ok(json!({"dataVolume": {"name": name, "hotpluggable": true}}));
    }
    let claim = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
    if session.find(&claim).await?.is_some() {
        return Ok(json!({"persistentVolumeClaim": {"claimName": name, "hotpluggable": true}}));
    }
    bail!("Volume {name} is not a DataVolume or PersistentVolumeClaim: create it in namespace {namespace} first");
}

async fn order(session: &Session, name: &str, order: &str, options: &Value) -> anyhow::Result<()> {
    let target = Target::parse(name, Some(Kind::Machine))?;
    let path = Session::subresource(&session.namespace, target.kind.resource(), &target.name, order);
    session.send(Method::PUT, &path, options).await?;
    Ok(())
}

/// `virtctl removevolume`
pub(crate) async fn remove(cluster: &Cluster, args: &Remove) -> anyhow::Result<()> {
    let session = cluster.session().await?;
    let mut options = json!({"name": args.volume_name});
    dry_run(&mut options, args.dry_run);
    order(&session, &args.name, "removevolume", &options).await.context("error removing volume, ")?;
    println!("Successfully submitted remove volume request to VM {} for volume {}", args.name, args.volume_name);
    Ok(())
}
