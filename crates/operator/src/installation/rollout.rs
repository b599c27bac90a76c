//! How far a component has come.

use serde_json::Value;

use crate::present::Id;

/// What keeps a Deployment or DaemonSet from being ready; nothing when all of it runs as it should.
pub(super) fn waits_for(object: &Value) -> Option<String> {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let status = &object["status"];
    let (wanted, updated, available) = if object["kind"] == "DaemonSet" {
        let field = |name: &str| number(&status[name]);
        (field("desiredNumberScheduled"), field("updatedNumberScheduled"), field("numberAvailable"))
    } else {
        let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
        (wanted, number(&status["updatedReplicas"]), number(&status["availableReplicas"]))
    };
    let id = Id::of(object);
    if number(&status["observedGeneration"]) < number(&object["metadata"]["generation"]) {
        return Some(format!("{id} is not taken up by its controller yet"));
    }
    if updated < wanted {
        return Some(format!("{id}: {updated} of {wanted} pods are of this version"));
    }
    (available < wanted).then(|| format!("{id}: {available} of {wanted} pods are ready"))
}

/// Whether it does its work at all.
pub(super) fn serves(object: &Value) -> bool {
    let status = &object["status"];
    let available = [&status["availableReplicas"], &status["numberAvailable"]];
    status["desiredNumberScheduled"] == 0 || available.iter().any(|number| number.as_i64() > Some(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_runs_everywhere_in_this_version_is_ready() {
        let deployment = |status: Value| json!({"kind": "Deployment", "metadata": {"name": "a", "generation": 2}, "spec": {"replicas": 2}, "status": status});
        let ready = json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(waits_for(&deployment(ready.clone())), None);
        for (field, value, word) in [
            ("observedGeneration", 1, "Deployment a is not taken up"),
            ("updatedReplicas", 1, "1 of 2 pods are of this version"),
            ("availableReplicas", 0, "0 of 2 pods are ready"),
        ] {
            let mut status = ready.clone();
            status[field] = value.into();
            let why = waits_for(&deployment(status)).unwrap();
            assert!(why.contains(word), "{why}");
        }
        assert!(waits_for(&deployment(json!({}))).is_some());
        let daemons = json!({"kind": "DaemonSet", "metadata": {"name": "d", "generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}});
        assert_eq!(waits_for(&daemons), None);
        assert!(serves(&daemons) && serves(&deployment(ready)) && !serves(&deployment(json!({}))));
    }
}
