//! What is done about a guest that moves away: calls to its launcher.

use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_handover::Verdict;
use ferrovirt_launcher_rpc::migration::{CancelRequest, SourceRequest, VerdictRequest};
use ferrovirt_reconcile::{Failure, ObjectKey};

use super::{Guests, launcher_failed};
use crate::launcher::{Launcher, LauncherError};
use crate::migration::options::options;
use crate::migration::proxy::Route;
use crate::migration::record::{self, Move};

/// The guest, its launcher and its move; nothing if one of them is gone in the meantime.
fn leaving(guests: &Guests, key: &ObjectKey) -> Option<(Arc<VirtualMachineInstance>, Arc<dyn Launcher>, String)> {
    let vmi = guests.vmis.get_key(key)?;
    let pod = guests.pod_of(&vmi)?;
    let launcher = guests.followers.get(pod.metadata.uid.as_deref()?).launcher?;
    let id = Move::from_node(&vmi, &guests.node)?.id.to_owned();
    Some((vmi, launcher, id))
}

/// The move begins, and its connections are carried.
pub(super) async fn begin(guests: &Guests, key: &ObjectKey) -> Result<(), Failure> {
    let Some((vmi, launcher, id)) = leaving(guests, key) else { return Ok(()) };
    let wanted =
        vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()?.migration_configuration.clone());
    let copied_volumes = ferrovirt_domain::copied_volumes(&vmi);
    let options = options(&vmi, &wanted.unwrap_or_default(), &copied_volumes);
    match launcher.begin_move(SourceRequest { id: id.clone(), options, copied_volumes }).await {
        Ok(()) => carry(guests, key).await,
        Err(LauncherError::Refused(refusal)) => {
            // It would refuse again. Called off, it says so, and the move has an end.
            let cancelled = launcher.cancel_move(CancelRequest { id, reason: refusal.message }).await;
            cancelled.map_err(|error| launcher_failed("call the move off", error))
        }
        Err(error) => Err(launcher_failed("begin to move the guest", error)),
    }
}

/// Connections are carried from now on, if they are not yet.
pub(super) async fn carry(guests: &Guests, key: &ObjectKey) -> Result<(), Failure> {
    let Some((vmi, launcher, id)) = leaving(guests, key) else { return Ok(()) };
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let Some((address, node)) = state.and_then(|state| Some((record::address(state)?, state.target_node.clone()?)))
    else {
        return Ok(());
    };
    let guest = vmi.metadata.uid.clone().unwrap_or_default();
    guests.carriers.carry(Route { id, guest, node, address }, launcher);
    Ok(())
}

/// The move is called off.
pub(super) async fn cancel(guests: &Guests, key: &ObjectKey, reason: String) -> Result<(), Failure> {
    let Some((_, launcher, id)) = leaving(guests, key) else { return Ok(()) };
    let cancelled = launcher.cancel_move(CancelRequest { id, reason }).await;
    cancelled.map_err(|error| launcher_failed("call the move off", error))
}

/// The launcher is told how its move ended.
pub(super) async fn tell(guests: &Guests, key: &ObjectKey, id: String, verdict: Verdict) -> Result<(), Failure> {
    let Some((_, launcher, _)) = leaving(guests, key) else { return Ok(()) };
    let told = launcher.tell_verdict(VerdictRequest { id, verdict }).await;
    told.map_err(|error| launcher_failed("tell how the move ended", error))
}
