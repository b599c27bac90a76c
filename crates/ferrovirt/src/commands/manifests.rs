//! `ferrovirt manifests`: what to apply to a Kubernetes cluster.

use std::io::{self, Write};

use ferrovirt_install::{Images, Parameters, components, names, operator};
use serde_json::Value;

/// Where images are unless somebody says so; nothing is published there.
const REGISTRY: &str = "ferrovirt.io";

/// Arguments of `manifests`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Namespace of the components.
    #[arg(long, default_value = names::NAMESPACE)]
    namespace: String,
    /// Registry of the images `control-plane` and `launcher`.
    #[arg(long, default_value = REGISTRY)]
    registry: String,
    /// Tag of the images.
    #[arg(long = "tag", default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,
    /// When images are pulled.
    #[arg(long, default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    image_pull_policy: String,
    /// Print only the `KubeVirt` object, which the operator makes by itself when it is installed.
    #[arg(long, conflicts_with = "components")]
    installation: bool,
    /// Print what the operator would make of the `KubeVirt` object, to look at: it is not to be applied, and certificates are
    /// missing.
    #[arg(long)]
    components: bool,
}

impl Args {
    fn objects(&self) -> Vec<Value> {
        let mut parameters = Parameters::new(&self.namespace, Images::of(&self.registry, &self.tag));
        parameters.pull_policy.clone_from(&self.image_pull_policy);
        match (self.installation, self.components) {
            (true, _) => vec![operator::installation(&parameters)],
            (_, true) => components(&parameters),
            _ => operator::objects(&parameters),
        }
    }
}

/// Prints the objects as YAML.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for object in args.objects() {
        write!(out, "---\n{}", serde_saphyr::to_string(&object)?)?;
    }
    Ok(())
}
