//! Labels and annotations of a guest, or of the template that one is made from.

use super::Guest;
use super::Reason::{Invalid, NotSupported};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names};
use super::text::unprintable;
use crate::gates;
use crate::names::{annotations, labels};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;

/// Labels through which components find what is theirs.
pub(super) const RESERVED_LABELS: [&str; 6] = [
    labels::CREATED_BY,
    labels::MIGRATION_JOB,
    labels::NODE_NAME,
    labels::MIGRATION_TARGET_NODE_NAME,
    labels::NODE_SCHEDULABLE,
    labels::INSTALL_STRATEGY,
];
/// The rule about them, which also holds for updates.
pub(super) const RESERVED: &str = "reserved-labels-belong-to-the-system";
/// What it says.
pub(super) const RESERVED_PROBLEM: &str = "is set by the system: leave it as it is";

const GUEST: &[GuestRule] = &[
    ("ignition-needs-its-gate", "annotations[kubevirt.io/ignitiondata]", NotSupported, |it| {
        it.annotation(annotations::IGNITION_DATA)?;
        if_so(!gates::is_on(it.cluster, gates::IGNITION), "needs the feature gate ExperimentalIgnitionSupport")
    }),
    ("ignition-data-is-printable", "annotations[kubevirt.io/ignitiondata]", Invalid, |it| {
        let wrong = unprintable(it.annotation(annotations::IGNITION_DATA)?)?;
        Some(format!("has the character {}: remove it", wrong.escape_unicode()))
    }),
];

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, component: bool, findings: &mut Findings) {
    findings.apply(GUEST, guest, path);
    if component {
        return;
    }
    for name in RESERVED_LABELS.into_iter().filter(|name| guest.label(name).is_some()) {
        findings.add(RESERVED, NotSupported, &path.field("labels").field(name), RESERVED_PROBLEM);
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST).chain([RuleInfo { name: RESERVED, field: "labels", reason: NotSupported }])
}
