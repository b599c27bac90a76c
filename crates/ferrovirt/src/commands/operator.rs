//! `ferrovirt operator`: virt-operator, in the foreground.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ferrovirt_install::{Images, names};
use ferrovirt_operator::{Flags, OperatorConfig};
use ferrovirt_reconcile::{Clock, LeaderConfig};

use super::pod::{client, identity, until_stopped};

/// Arguments of `operator`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kubeconfig of the cluster. Default: the service account of the pod that this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Image of virt-api and virt-controller.
    #[arg(long, env = "CONTROL_PLANE_IMAGE")]
    control_plane_image: String,
    /// Image of launcher pods and of virt-handler.
    #[arg(long, env = "LAUNCHER_IMAGE")]
    launcher_image: String,
    /// Namespace to install in, which is also that of the lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::NAMESPACE)]
    namespace: String,
    /// Who this is, in the lease.
    #[arg(long, env = "POD_NAME", default_value = names::OPERATOR)]
    name: String,
    /// Where `/healthz` and `/readyz` are answered.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    health: SocketAddr,
}

/// Works whenever it has the lease, until SIGTERM or SIGINT. When the lease is lost this ends, and whoever started it starts it again.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::serve::log();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = client(args.kubeconfig.as_deref()).await?;
        let images = Images { control_plane: args.control_plane_image.clone(), launcher: args.launcher_image.clone() };
        let config = OperatorConfig {
            namespace: args.namespace.clone(),
            images,
            flags: Arc::new(component_flags()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            leader: Some(LeaderConfig::new(&args.namespace, names::OPERATOR, identity(&args.name))),
            clock: Clock::System,
        };
        until_stopped(args.health, |stop| ferrovirt_operator::run(client, config, stop)).await
    })
}

/// The flags that the components have in this version of them.
fn component_flags() -> Flags {
    fn flags<A: clap::Args>() -> BTreeSet<String> {
        let command = A::augment_args(clap::Command::new(names::PRODUCT));
        command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }
    Flags::from([
        (names::API, flags::<super::api::Args>()),
        (names::CONTROLLER, flags::<super::controller::Args>()),
        (names::HANDLER, flags::<super::handler::Args>()),
    ])
}

#[cfg(test)]
mod tests {
    use ferrovirt_install::names::{HANDLER, NODE_CERTIFICATE_SUFFIX};

    #[test]
    fn flags_of_components_are_known() {
        let flags = super::component_flags();
        assert!(flags[HANDLER].contains("max-devices") && !flags[HANDLER].contains("help"), "{flags:?}");
    }

    /// Who signs and who checks must mean the same name.
    #[test]
    fn nodes_are_certified_under_the_name_that_others_look_for() {
        let looked_for = ferrovirt_virt_handler::peers::certified_name("node-1");
        assert_eq!(looked_for, format!("node-1{NODE_CERTIFICATE_SUFFIX}"));
    }
}
