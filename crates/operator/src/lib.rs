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

use ferrovirt_install::Images;
use ferrovirt_reconcile::leader::InvalidTiming;
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Clock, LeaderConfig, Led, run_while_leader};
use kube::Client;
use tokio_util::sync::CancellationToken;

/// The name under which changes are recorded in `managedFields`.
pub(crate) const MANAGER: &str = "virt-operator";

/// How virt-operator is started.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// The namespace that it installs in, which is its own.
    pub namespace: String,
    /// What it installs, unless the `KubeVirt` object says otherwise.
    pub images: Images,
    /// Its own version.
    pub version: String,
    /// The lease to hold while working; without one this must be the only process.
    pub leader: Option<LeaderConfig>,
    /// Where timestamps come from.
    pub clock: Clock,
}

/// Why virt-operator could not work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Two caches of one kind: a mistake in this crate.
    #[error("cannot set up the watches of virt-operator")]
    Watches(#[from] DuplicateWatch),
    /// The times of the lease contradict each other.
    #[error("cannot take part in the election of a leader")]
    Election(#[from] InvalidTiming),
    /// The lease went to another process; whoever started this should start it again, as a candidate.
    #[error("another virt-operator has taken the lease; this one stopped working")]
    LeaseLost,
}

/// Works until `stop`, then finishes what has begun.
pub async fn run(client: Client, config: OperatorConfig, stop: CancellationToken) -> Result<(), RunError> {
    let Some(leader) = config.leader.clone() else {
        return work(client, config, stop).await;
    };
    match run_while_leader(client.clone(), leader, stop, |stop| work(client, config, stop)).await? {
        Led::Finished(result) => result,
        Led::Never => Ok(()),
        Led::Lost => Err(RunError::LeaseLost),
    }
}

async fn work(client: Client, config: OperatorConfig, stop: CancellationToken) -> Result<(), RunError> {
    let caches = installation::Caches::new(&config.namespace);
    let mut watches = caches.watches(&client)?;
    let synced = watches.synced();
    let installation = installation::runner(client.clone(), caches.clone(), &config);
    let requests = requests::runner(client, caches, &config);
    let controllers = async {
        tokio::select! {
            () = synced => { tokio::join!(installation.run(stop.clone()), requests.run(stop.clone())); }
            // A server that never answers must not keep this from ending.
            () = stop.cancelled() => {}
        }
    };
    tokio::select! {
        () = watches.run() => {}
        () = controllers => {}
    }
    Ok(())
}
