//! A component: a process of controllers that share their watches, works while it holds a lease, and ends when it is told to.

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    leader::{InvalidTiming, LeaderConfig, Led, run_while_leader},
    watch::{DuplicateWatch, Watches},
};

/// Why a component could not work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Two caches of one kind: a mistake of the component.
    #[error("cannot set up the watches")]
    Watches(#[from] DuplicateWatch),
    /// The times of the lease contradict each other.
    #[error("cannot take part in the election of a leader")]
    Election(#[from] InvalidTiming),
    /// The lease went to another process; whoever started this should start it again, as a candidate.
    #[error("another {component} has taken the lease; this one stopped working")]
    LeaseLost {
        /// The name of the lease, which is the component's.
        component: String,
    },
}

/// Runs `work` while this process holds the lease; at once when there is none, which must then be the only process.
pub async fn run<W>(
    client: Client,
    lease: Option<LeaderConfig>,
    stop: CancellationToken,
    work: impl FnOnce(CancellationToken) -> W,
) -> Result<(), RunError>
where
    W: Future<Output = Result<(), RunError>>,
{
    let Some(lease) = lease else { return work(stop).await };
    let component = lease.name.clone();
    match run_while_leader(client, lease, stop, work).await? {
        Led::Finished(result) => result,
        Led::Never => Ok(()),
        Led::Lost => Err(RunError::LeaseLost { component }),
    }
}

/// Runs `watches`, and `controllers` as soon as every cache has seen its first listing. Ends with the controllers, which `stop` ends.
pub async fn run_controllers(mut watches: Watches, stop: &CancellationToken, controllers: impl Future<Output = ()>) {
    let synced = watches.synced();
    let controllers = async {
        tokio::select! {
            biased;
            () = synced => controllers.await,
            // A server that never answers must not keep this from ending.
            () = stop.cancelled() => {}
        }
    };
    // What watches bring is taken in before anybody acts.
    tokio::select! {
        biased;
        () = watches.run() => {}
        () = controllers => {}
    }
}
