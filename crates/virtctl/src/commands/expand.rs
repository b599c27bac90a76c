//! `virtctl expand`: a machine with everything that its instancetype and preference say written out.

use anyhow::{Context, bail};
use http::Method;

use super::objects::manifests::Sources;
use crate::cluster::Cluster;
use crate::output::{Format, print};
use crate::session::Session;
use crate::target::{Kind, Target};

/// Arguments of `expand`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// A machine of the cluster.
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    vm: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// Format of the result.
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

/// `virtctl expand`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    if let Some(name) = &args.vm {
        let name = Target::machine(name)?;
        let session = cluster.session().await?;
        let path = Session::subresource(&session.namespace, Kind::Machine.resource(), &name, "expand-spec");
        let told = session.get(&path).await;
        let told = told
            .with_context(|| format!("error expanding VirtualMachine - {name} in namespace - {}", session.namespace))?;
        return print(&args.output.text(&told)?);
    }
    if args.sources.is_empty() {
        bail!("error invalid arguments - VirtualMachine name or file must be provided: give --vm NAME or -f FILE");
    }
    let manifests = args.sources.read()?;
    let session = cluster.session().await?;
    for (index, manifest) in manifests.iter().enumerate() {
        let namespace = manifest.object["metadata"]["namespace"].as_str().unwrap_or(&session.namespace);
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/expand-vm-spec");
        let told = session.send(Method::PUT, &path, &manifest.object).await;
        let told = told.with_context(|| format!("{}: error expanding VirtualMachine", manifest.place))?;
        let gap = if index > 0 && args.output == Format::Yaml { "---\n" } else { "" };
        print(&format!("{gap}{}", args.output.text(&told)?))?;
    }
    Ok(())
}
