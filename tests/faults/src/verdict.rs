//! When a move with a fault is settled, and how it ended: a pure function of the two objects that tell about it.
//!
//! A move that is `Failed` is not settled by that: as long as nobody can say whether the target ran the guest, the source's copy stands
//! still, and what becomes of it comes later.

use serde_json::Value;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The guest is on its new node.
    Moved,
    /// It goes on where it was.
    Stayed,
    /// No copy is left.
    Lost,
}

/// How a move ended, of which the guest's object has an account unless it was never handed to the nodes; `None`: that is still open, or
/// the two objects do not tell the same yet. A migration that is gone was deleted or is long over.
pub(crate) fn verdict(guest: &Value, migration: Option<&Value>, uid: &str) -> Option<Verdict> {
    let status = &guest["status"];
    if status["phase"] == "Failed" {
        return Some(Verdict::Lost);
    }
    let phase = migration.map(|object| object["status"]["phase"].as_str().unwrap_or_default());
    let record = Some(&status["migrationState"]).filter(|record| record["migrationUid"] == uid);
    let Some(record) = record else {
        return matches!(phase, None | Some("Failed")).then_some(Verdict::Stayed);
    };
    let is_moved = record["completed"] == true && status["nodeName"] == record["targetNode"];
    let has_stayed = record["failed"] == true && record["sourceMayResume"] == true;
    match phase {
        None | Some("Succeeded") if is_moved => Some(Verdict::Moved),
        None | Some("Failed") if has_stayed => Some(Verdict::Stayed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guest(node: &str, record: Value) -> Value {
        let mut record = record;
        record["targetNode"] = json!("there");
        json!({"status": {"phase": "Running", "nodeName": node, "migrationState": record}})
    }

    fn migration(phase: &str) -> Value {
        json!({"status": {"phase": phase}})
    }

    #[test]
    fn a_move_that_failed_is_open_until_the_source_may_go_on_or_the_guest_is_lost() {
        let failed = migration("Failed");
        let mut doubtful = guest("here", json!({"migrationUid": "a", "failed": true}));
        assert_eq!(verdict(&doubtful, Some(&failed), "a"), None);
        doubtful["status"]["migrationState"]["sourceMayResume"] = json!(true);
        assert_eq!(verdict(&doubtful, Some(&failed), "a"), Some(Verdict::Stayed));
        assert_eq!(verdict(&doubtful, Some(&migration("Running")), "a"), None, "the migration has not heard of it");
        doubtful["status"]["phase"] = json!("Failed");
        assert_eq!(verdict(&doubtful, Some(&failed), "a"), Some(Verdict::Lost));
    }

    #[test]
    fn a_move_that_succeeded_has_the_guest_on_its_new_node() {
        let done = migration("Succeeded");
        let record = json!({"migrationUid": "a", "completed": true});
        assert_eq!(verdict(&guest("there", record.clone()), Some(&done), "a"), Some(Verdict::Moved));
        assert_eq!(verdict(&guest("there", record.clone()), Some(&migration("Running")), "a"), None);
        assert_eq!(verdict(&guest("here", record), Some(&done), "a"), None);
    }

    #[test]
    fn a_move_that_never_reached_the_nodes_has_no_account() {
        let other = guest("here", json!({"migrationUid": "before", "failed": true}));
        assert_eq!(verdict(&other, Some(&migration("Failed")), "a"), Some(Verdict::Stayed));
        assert_eq!(verdict(&other, Some(&migration("Scheduling")), "a"), None);
        assert_eq!(verdict(&other, None, "a"), Some(Verdict::Stayed));
    }
}
