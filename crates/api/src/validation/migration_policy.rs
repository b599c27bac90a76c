//! Options of moves: numbers that mean something.

use super::Cause;
use super::Reason::{Invalid, NotSupported};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use crate::MigrationPolicy;
use crate::gates;
use crate::kubevirt::Configuration;

type PolicyRule = Row<fn(&PolicyOf<'_>) -> Problem>;

struct PolicyOf<'a> {
    policy: &'a MigrationPolicy,
    cluster: &'a Configuration,
}

const POLICY: &[PolicyRule] = &[
    ("policy-timeout-is-not-negative", "completionTimeoutPerGiB", Invalid, |it| {
        let seconds = it.policy.spec.completion_timeout_per_gib?;
        when(seconds < 0, || format!("is {seconds}: it cannot be negative"))
    }),
    ("policy-bandwidth-is-not-negative", "bandwidthPerMigration", Invalid, |it| {
        let bandwidth = it.policy.spec.bandwidth_per_migration.as_ref()?;
        when(bandwidth.nanos() < 0, || format!("is {bandwidth}: it cannot be negative; 0 is no limit"))
    }),
    ("policy-downtime-needs-its-gate", "maxDowntimeMs", NotSupported, |it| {
        it.policy.spec.max_downtime_ms?;
        if_so(!gates::is_on(it.cluster, gates::STALL_DETECTION), "needs the feature gate MigrationStallDetection")
    }),
    ("policy-stall-detector-needs-its-gate", "experimental.stallDetector", NotSupported, |it| {
        it.policy.spec.experimental.as_ref()?.stall_detector.as_ref()?;
        if_so(!gates::is_on(it.cluster, gates::STALL_DETECTION), "needs the feature gate MigrationStallDetection")
    }),
];

/// Everything that is wrong with a migration policy.
#[must_use]
pub fn check_migration_policy(policy: &MigrationPolicy, cluster: &Configuration) -> Vec<Cause> {
    let mut findings = Findings::default();
    findings.apply(POLICY, &PolicyOf { policy, cluster }, &Path::root("spec"));
    findings.causes
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(POLICY)
}
