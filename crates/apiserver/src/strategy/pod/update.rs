//! What may change in a pod after its creation.

use ferrovirt_machinery::error::FieldError;
use serde_json::Value;

use crate::strategy::check::{Errors, list, text};
use crate::strategy::defaults::{each, remove};

/// What is wrong with a change of a pod's spec.
pub(super) fn errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for name in ["containers", "initContainers"] {
        let at = format!("spec.{name}");
        if list(&new[name]).len() != list(&old[name]).len() {
            errors.forbidden(at, "pod updates may not add or remove containers");
            return errors.into_vec();
        }
        for (index, container) in list(&new[name]).iter().enumerate() {
            let image = text(&container["image"]);
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.invalid(format!("{at}[{index}].image"), &container["image"], why);
            }
        }
    }
    if !deadline(&new["activeDeadlineSeconds"], &old["activeDeadlineSeconds"], &mut errors) {
        return errors.into_vec();
    }
    let kept = list(&old["tolerations"])
        .iter()
        .all(|before| list(&new["tolerations"]).iter().any(|after| same_but_seconds(before, after)));
    if !kept {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", why);
    }
    if list(&new["schedulingGates"]).iter().any(|gate| !list(&old["schedulingGates"]).contains(gate)) {
        errors.forbidden("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate");
    }
    if without_mutable(new, old) != without_mutable(old, old) {
        const WHY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.forbidden("spec", WHY);
    }
    errors.into_vec()
}

/// A deadline may come nearer; `false` when the rest of the checks says nothing new.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    const AT: &str = "spec.activeDeadlineSeconds";
    match (new.as_i64(), old.as_i64()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(AT, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(after), Some(before)) if after > before => {
            errors.invalid(AT, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(AT, &Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn same_but_seconds(before: &Value, after: &Value) -> bool {
    ["key", "operator", "value", "effect"].iter().all(|field| before[*field] == after[*field])
}

/// The spec without what an update may change.
fn without_mutable(spec: &Value, old: &Value) -> Value {
    let mut spec = spec.clone();
    for name in ["containers", "initContainers"] {
        for container in each(&mut spec, name) {
            remove(container, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "ephemeralContainers", "schedulingGates"] {
        remove(&mut spec, name);
    }
    // While gates keep the scheduler away, the choice of nodes may be narrowed.
    if !list(&old["schedulingGates"]).is_empty() {
        remove(&mut spec, "nodeSelector");
        remove(&mut spec["affinity"], "nodeAffinity");
        if spec["affinity"].as_object().is_none_or(serde_json::Map::is_empty) {
            remove(&mut spec, "affinity");
        }
    }
    let was_negative = old["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0);
    if was_negative && spec["terminationGracePeriodSeconds"] == 1 {
        spec["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"].clone();
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(change: impl Fn(&mut Value)) -> Vec<String> {
        let old = json!({
            "containers": [{"name": "a", "image": "i"}], "activeDeadlineSeconds": 10,
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 1}],
        });
        let mut new = old.clone();
        change(&mut new);
        errors(&new, &old).into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn images_and_more_tolerations_are_fine() {
        let change = |spec: &mut Value| {
            spec["containers"][0]["image"] = "j".into();
            spec["tolerations"] = json!([{"operator": "Exists"}, {"key": "k", "operator": "Exists"}]);
            spec["activeDeadlineSeconds"] = 5.into();
        };
        assert!(changed(change).is_empty());
    }

    #[test]
    fn the_rest_is_not() {
        assert_eq!(changed(|spec| spec["tolerations"] = json!([])), ["spec.tolerations"]);
        assert_eq!(changed(|spec| spec["activeDeadlineSeconds"] = 11.into()), ["spec.activeDeadlineSeconds"]);
        assert_eq!(changed(|spec| spec["containers"] = json!([])), ["spec.containers"]);
        assert_eq!(changed(|spec| spec["nodeName"] = "n".into()), ["spec"]);
    }
}
