//! What is tried, by what it is tried with.

mod guests;
mod inside;
mod machine;
mod pods;
mod requests;
mod rights;

use blackbox::scene::Scene;
use blackbox::suite::Case;

/// All cases.
pub(crate) fn all() -> Vec<Case<Scene>> {
    [rights::all(), requests::all(), pods::all(), guests::all(), inside::all(), machine::all()]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn each_attempt_has_a_name_of_its_own_that_a_namespace_can_have() {
        let cases = super::all();
        let names: BTreeSet<&String> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| case.name.len() < 50), "the namespace has the name, and more");
    }
}
