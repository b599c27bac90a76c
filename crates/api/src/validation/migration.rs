//! Moves of guests: only a guest that runs and can move, one move at a time, and nothing changes on the way.

use super::Reason::{Invalid, NotFound, NotSupported, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::{Cause, unsupported};
use crate::meta::{ConditionStatus, find_condition};
use crate::migration::VirtualMachineInstanceMigration;
use crate::names::{conditions, labels};
use crate::vmi::VirtualMachineInstance;

type NewRule = Row<fn(&New<'_>) -> Problem>;
type ChangeRule = Row<fn(&Change<'_>) -> Problem>;

/// A move, and what is known about its guest.
struct New<'a> {
    migration: &'a VirtualMachineInstanceMigration,
    guest: Option<&'a VirtualMachineInstance>,
    others: &'a [VirtualMachineInstanceMigration],
    controller: bool,
}

const NEW: &[NewRule] = &[
    ("migration-names-a-guest", "vmiName", Required, |it| {
        if_so(it.migration.spec.vmi_name.is_empty(), "is missing: name the guest that shall move")
    }),
    ("migrated-guest-exists", "vmiName", NotFound, |it| {
        let name = &it.migration.spec.vmi_name;
        when(it.guest.is_none() && !name.is_empty() && it.migration.spec.receive.is_none(), || {
            format!("is '{name}', and there is no such VirtualMachineInstance in this namespace")
        })
    }),
    ("migrated-guest-is-alive", "vmiName", Invalid, |it| {
        let phase = it.guest?.status.as_ref()?.phase?;
        when(phase.is_final(), || {
            format!("is '{}', which has ended ({}): start it first", it.migration.spec.vmi_name, phase.as_str())
        })
    }),
    ("migrated-guest-can-move", "vmiName", Invalid, |it| {
        let conditions = &it.guest?.status.as_ref()?.conditions;
        let stuck = find_condition(conditions, conditions::LIVE_MIGRATABLE)?;
        when(stuck.status == ConditionStatus::False, || {
            let why = |text: &Option<String>| text.clone().unwrap_or_default();
            format!(
                "is '{}', which cannot move: {}: {}",
                it.migration.spec.vmi_name,
                why(&stuck.reason),
                why(&stuck.message)
            )
        })
    }),
    ("guest-moves-once-at-a-time", "vmiName", Invalid, |it| {
        let own = it.migration.metadata.name.as_deref();
        let unfinished = |other: &&VirtualMachineInstanceMigration| {
            let phase = other.status.as_ref().and_then(|status| status.phase);
            other.spec.vmi_name == it.migration.spec.vmi_name
                && other.metadata.name.as_deref() != own
                && !phase.is_some_and(crate::migration::MigrationPhase::is_final)
        };
        let other = it.others.iter().find(unfinished)?;
        let name = other.metadata.name.as_deref().unwrap_or_default();
        Some(format!("is '{}', which moves already: wait for {name}, or delete it", it.migration.spec.vmi_name))
    }),
    ("priority-is-the-systems", "priority", NotSupported, |it| {
        if_so(it.migration.spec.priority.is_some() && !it.controller, "is set by the system: leave it out")
    }),
    ("both-ends-have-one-migration-id", "receive.migrationID", Invalid, |it| {
        let (source, target) = (it.migration.spec.send_to.as_ref()?, it.migration.spec.receive.as_ref()?);
        when(source.migration_id != target.migration_id, || {
            format!("is '{}', and sendTo has '{}': both must be equal", target.migration_id, source.migration_id)
        })
    }),
];

/// Everything that is wrong with a new move. `others` are moves of the same guest; `controller` when its author is virt-controller.
#[must_use]
pub fn check_new_migration(
    migration: &VirtualMachineInstanceMigration,
    guest: Option<&VirtualMachineInstance>,
    others: &[VirtualMachineInstanceMigration],
    controller: bool,
) -> Vec<Cause> {
    let mut findings = Findings::default();
    let path = Path::root("spec");
    findings.apply(NEW, &New { migration, guest, others, controller }, &path);
    let decentralized = [("sendTo", migration.spec.send_to.is_some()), ("receive", migration.spec.receive.is_some())];
    for (field, _) in decentralized.into_iter().filter(|(_, set)| *set) {
        unsupported::refuse(&path.field(field), &mut findings);
    }
    findings.causes
}

struct Change<'a> {
    old: &'a VirtualMachineInstanceMigration,
    new: &'a VirtualMachineInstanceMigration,
}

const CHANGE: &[ChangeRule] = &[
    ("migration-spec-is-immutable", "spec", NotSupported, |it| {
        if_so(it.old.spec != it.new.spec, "cannot be changed: delete this and create another")
    }),
    ("migration-selector-stays-in-flight", "metadata.labels", NotSupported, |it| {
        let label = |it: &VirtualMachineInstanceMigration| {
            it.metadata.labels.as_ref()?.get(labels::MIGRATION_SELECTOR).cloned()
        };
        let phase = it.old.status.as_ref().and_then(|status| status.phase);
        let over = phase.is_some_and(crate::migration::MigrationPhase::is_final);
        if_so(
            !over && label(it.old).is_some() && label(it.old) != label(it.new),
            "must keep kubevirt.io/vmi-name until the move is over",
        )
    }),
];

/// Everything that is wrong with a change of a move.
#[must_use]
pub fn check_migration_update(
    old: &VirtualMachineInstanceMigration,
    new: &VirtualMachineInstanceMigration,
) -> Vec<Cause> {
    let mut findings = Findings::default();
    findings.apply(CHANGE, &Change { old, new }, &Path::root(""));
    findings.causes
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(NEW).chain(names(CHANGE))
}
