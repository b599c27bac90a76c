//! Whether a move that waits could begin, slots aside: its guest runs and can move, no other move is before it, its patience is over.
//! Pure.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::migration::MigrationPhase;
use ferrovirt_api::names::{annotations, conditions};
use ferrovirt_api::vmi::{MigrationState, VirtualMachineInstancePhase as GuestPhase};
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use jiff::Timestamp;

use super::observe::record_of;
use crate::caches::is_over;

/// The pause after the first failure of an automatic move; it doubles with each more.
const FIRST_PAUSE: Duration = Duration::from_secs(20);
/// Doublings at most.
const MOST_DOUBLINGS: u32 = 5;

/// What keeps a move from beginning.
#[derive(Debug, PartialEq)]
pub(super) enum Obstacle {
    /// It never will, for this reason and this sentence.
    Hopeless(&'static str, String),
    /// An earlier move has not ended, and nobody is left who would end it.
    Abandoned,
    /// Something that passes, told by the objects concerned.
    Wait(String),
    /// Time has to pass, after so many failures.
    Pause(Duration, usize),
}

pub(super) fn obstacle(
    migration: &VirtualMachineInstanceMigration,
    vmi: &VirtualMachineInstance,
    siblings: &[Arc<VirtualMachineInstanceMigration>],
    now: Timestamp,
) -> Option<Obstacle> {
    let status = vmi.status.as_ref();
    if let Some(rival) = rival(migration, siblings) {
        let name = rival.metadata.name.as_deref().unwrap_or_default();
        let message = format!("the guest moves already: wait for {name}, or delete it");
        return Some(Obstacle::Hopeless("AnotherMigration", message));
    }
    let phase = status.and_then(|status| status.phase);
    if phase != Some(GuestPhase::Running) {
        return Some(Obstacle::Wait("the guest does not run yet".to_owned()));
    }
    let movable = status.and_then(|status| find_condition(&status.conditions, conditions::LIVE_MIGRATABLE));
    match movable.map(|movable| movable.status) {
        Some(ConditionStatus::True) => {}
        Some(ConditionStatus::False) => {
            return Some(Obstacle::Hopeless("NotMigratable", format!("the guest cannot move: {}", said(movable))));
        }
        _ => return Some(Obstacle::Wait("virt-handler has not said yet whether the guest can move".to_owned())),
    }
    let earlier = status.and_then(|status| status.migration_state.as_ref());
    if earlier.is_some_and(|state| has_ended(vmi, state) && !is_settled(vmi, state)) {
        return Some(Obstacle::Wait("the source's node has not said yet that the guest goes on there".to_owned()));
    }
    if let Some(earlier) = earlier.filter(|state| !has_ended(vmi, state)) {
        let uid = earlier.migration_uid.as_deref();
        let is_known = siblings.iter().any(|sibling| sibling.metadata.uid.as_deref() == uid && !is_over(sibling));
        return match is_known {
            true => Some(Obstacle::Wait("an earlier move has not ended".to_owned())),
            false => Some(Obstacle::Abandoned),
        };
    }
    pause(migration, siblings, now)
}

fn said(condition: Option<&Condition>) -> String {
    let text = |part: Option<&String>| part.cloned().unwrap_or_default();
    let reason = text(condition.and_then(|condition| condition.reason.as_ref()));
    let message = text(condition.and_then(|condition| condition.message.as_ref()));
    if message.is_empty() { reason } else { format!("{reason}: {message}") }
}

/// Whether the guest's account of a move has come to an end.
pub(crate) fn has_ended(vmi: &VirtualMachineInstance, state: &MigrationState) -> bool {
    state.failed || state.completed || is_targets(vmi, state)
}

/// Whether its account of a move may give way to the next one's: the guest has moved, or goes on at the source for sure. Whoever is in
/// doubt about an older move relies on that.
pub(super) fn is_settled(vmi: &VirtualMachineInstance, state: &MigrationState) -> bool {
    is_targets(vmi, state) || state.completed || (state.failed && state.source_may_resume)
}

/// Whether the guest has moved: its object names the target's node.
pub(crate) fn is_targets(vmi: &VirtualMachineInstance, state: &MigrationState) -> bool {
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_ref());
    node.is_some() && node == state.target_node.as_ref()
}

/// An unfinished move of the same guest that goes before this one.
fn rival<'a>(
    migration: &VirtualMachineInstanceMigration,
    siblings: &'a [Arc<VirtualMachineInstanceMigration>],
) -> Option<&'a VirtualMachineInstanceMigration> {
    // How far it is, then its age; a uid settles what was made in the same second.
    let place = |of: &VirtualMachineInstanceMigration| {
        let phase = of.status.as_ref().and_then(|status| status.phase);
        let created = of.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let rank = match phase {
            None => 2,
            Some(MigrationPhase::Pending) => 1,
            Some(_) => 0,
        };
        (rank, created, of.metadata.uid.clone())
    };
    let unfinished = siblings.iter().map(|sibling| &**sibling).filter(|sibling| !is_over(sibling));
    unfinished.filter(|sibling| place(sibling) < place(migration)).min_by_key(|sibling| place(sibling))
}

/// An automatic move waits longer with each failure before it.
fn pause(
    migration: &VirtualMachineInstanceMigration,
    siblings: &[Arc<VirtualMachineInstanceMigration>],
    now: Timestamp,
) -> Option<Obstacle> {
    if !is_automatic(migration) {
        return None;
    }
    let mut ended: Vec<_> = siblings.iter().filter_map(|sibling| Some((ended_at(sibling)?, sibling))).collect();
    ended.sort_by_key(|(end, _)| std::cmp::Reverse(*end));
    let has_failed = |sibling: &VirtualMachineInstanceMigration| {
        is_automatic(sibling) && sibling.status.as_ref().and_then(|status| status.phase) == Some(MigrationPhase::Failed)
    };
    let failures = ended.iter().take_while(|(_, sibling)| has_failed(sibling)).count();
    let (last, _) = ended.first().filter(|_| failures > 0)?;
    let doublings = u32::try_from(failures - 1).unwrap_or(MOST_DOUBLINGS).min(MOST_DOUBLINGS);
    let pause = FIRST_PAUSE * 2_u32.pow(doublings);
    let waited = Duration::try_from(now.duration_since(*last)).unwrap_or_default();
    let rest = pause.checked_sub(waited).filter(|rest| !rest.is_zero())?;
    Some(Obstacle::Pause(rest, failures))
}

/// Whether nobody asked for it but a controller.
pub(super) fn is_automatic(migration: &VirtualMachineInstanceMigration) -> bool {
    let automatic = [annotations::EVACUATION_MIGRATION, annotations::WORKLOAD_UPDATE_MIGRATION];
    let present = migration.metadata.annotations.as_ref();
    automatic.iter().any(|key| present.is_some_and(|present| present.contains_key(*key)))
}

/// When a move ended.
pub(super) fn ended_at(migration: &VirtualMachineInstanceMigration) -> Option<Timestamp> {
    let status = migration.status.as_ref()?;
    let phase = status.phase.filter(|phase| phase.is_final())?;
    let stamp = status.phase_transition_timestamps.iter().find(|stamp| stamp.phase == Some(phase));
    let time = stamp.and_then(|stamp| stamp.phase_transition_timestamp.as_ref());
    time.or(migration.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Whether the guest's account of this move is still open.
pub(super) fn is_open(vmi: &VirtualMachineInstance, uid: &str) -> bool {
    record_of(vmi, uid).is_some_and(|state| !has_ended(vmi, state))
}
