//! The cases: a list for each area.

mod backoff;
mod changes;
mod conflicts;
mod deletion;
mod ours;
mod power;
mod rights;
mod strategies;
mod virtctl;
mod why;

use blackbox::suite;

use crate::stage::Stage;

/// A case of this suite.
pub(crate) type Case = suite::Case<Stage>;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    // Those that mostly wait come first, so that others fill the time.
    [
        backoff::cases(),
        strategies::cases(),
        power::cases(),
        conflicts::cases(),
        deletion::cases(),
        changes::cases(),
        rights::cases(),
        virtctl::cases(),
        ours::cases(),
        why::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique_and_make_namespaces() {
        let names: std::collections::BTreeSet<_> = super::all().into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), super::all().len());
        assert!(names.iter().all(|name| name.len() < 50 && name.matches('/').count() == 1));
        assert!(names.iter().all(|name| name.chars().all(|c| matches!(c, 'a'..='z' | '/' | '-'))));
    }
}
