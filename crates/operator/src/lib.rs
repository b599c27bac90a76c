//! virt-operator: makes what a `KubeVirt` object asks for, keeps it as it should be, and takes it away again.
//!
//! | module | what |
//! |---|---|
//! | [`installation`] | the `KubeVirt` object → every object of [`ferrovirt_install`], in an order that no guest notices |
//! | [`certificates`] | what to issue, renew and hand over, from the present secrets and the time |
//! | [`requests`] | certificate requests of virt-handlers: approved, signed, refused, removed |
//!
//! It writes nothing about guests. An update replaces the components around them; on removal, guests are ended by the components
//! before these go.

pub mod certificates;
pub mod installation;
pub mod kinds;
pub mod present;
pub mod requests;

use std::sync::Arc;

use ferrovirt_install::Images;
use ferrovirt_reconcile::component::{self, RunError};
use ferrovirt_reconcile::{Clock, LeaderConfig};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use installation::Flags;

/// The name under which changes are recorded in `managedFields`.
pub(crate) const MANAGER: &str = "virt-operator";

/// How virt-operator is started.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// The namespace that it installs in, which is its own.
    pub namespace: String,
    /// What it installs, unless the `KubeVirt` object says otherwise.
    pub images: Images,
    /// The flags that `spec.customizeComponents.flags` may have.
    pub flags: Arc<Flags>,
    /// Its own version.
    pub version: String,
    /// The lease to hold while working; without one this must be the only process.
    pub leader: Option<LeaderConfig>,
    /// Where timestamps come from.
    pub clock: Clock,
}

/// Works until `stop`, then finishes what has begun.
pub async fn run(client: Client, config: OperatorConfig, stop: CancellationToken) -> Result<(), RunError> {
    component::run(client.clone(), config.leader.clone(), stop, |stop| work(client, config, stop)).await
}

async fn work(client: Client, config: OperatorConfig, stop: CancellationToken) -> Result<(), RunError> {
    let caches = installation::Caches::new(&config.namespace);
    let watches = caches.watches(&client)?;
    let installation = installation::runner(client.clone(), caches.clone(), &config);
    let requests = requests::runner(client, caches, &config);
    let controllers = async {
        tokio::join!(installation.run(stop.clone()), requests.run(stop.clone()));
    };
    component::run_controllers(watches, &stop, controllers).await;
    Ok(())
}
