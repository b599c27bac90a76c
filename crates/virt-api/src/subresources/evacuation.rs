//! Taking back the mark that a guest has to leave its node. Pure functions.

use ferrovirt_api::VirtualMachineInstance;
use serde_json::{Value, json};

use super::options::CancelOptions;

const PATH: &str = "/status/evacuationNodeName";

/// The node that decides whether a guest may stay: the one that it is marked to leave, or else its own.
pub(super) fn node(vmi: &VirtualMachineInstance) -> &str {
    let status = vmi.status.as_ref();
    let marked = status.and_then(|status| status.evacuation_node_name.as_deref()).filter(|name| !name.is_empty());
    marked.or_else(|| status.and_then(|status| status.node_name.as_deref())).unwrap_or_default()
}

/// Why guests have to leave a node: it has the cluster's taint for that.
pub(super) fn is_drained(node: &Value, taint_key: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["key"] == taint_key && taint["effect"] == "NoSchedule")
}

/// The patch that takes the mark back; none when there is no mark.
pub(super) fn decide_cancel(vmi: &VirtualMachineInstance, options: &CancelOptions) -> Option<Vec<Value>> {
    let marked = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
    let marked = marked.filter(|name| !name.is_empty())?;
    let meant = if options.evacuation_node_name.is_empty() { marked } else { &options.evacuation_node_name };
    Some(vec![json!({"op": "test", "path": PATH, "value": meant}), json!({"op": "remove", "path": PATH})])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(marked: Option<&str>) -> VirtualMachineInstance {
        let status = json!({"nodeName": "here", "evacuationNodeName": marked});
        serde_json::from_value(
            json!({"metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}}, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn only_the_mark_that_is_meant_is_taken_back() {
        let cancel = |marked, meant: &str| {
            let options = CancelOptions { evacuation_node_name: meant.to_owned(), ..CancelOptions::default() };
            decide_cancel(&guest(marked), &options).map(|operations| operations[0]["value"].clone())
        };
        assert_eq!(cancel(None, "there"), None);
        assert_eq!(cancel(Some(""), ""), None);
        assert_eq!(cancel(Some("there"), ""), Some(json!("there")));
        assert_eq!(cancel(Some("there"), "elsewhere"), Some(json!("elsewhere")), "the test will fail");
    }

    #[test]
    fn the_marked_node_counts_more_than_the_own() {
        assert_eq!(node(&guest(Some("there"))), "there");
        assert_eq!(node(&guest(None)), "here");
    }

    #[test]
    fn a_drained_node_has_the_taint_with_its_effect() {
        let node = |effect: &str| json!({"spec": {"taints": [{"key": "drain", "effect": effect}]}});
        assert!(is_drained(&node("NoSchedule"), "drain"));
        assert!(!is_drained(&node("NoExecute"), "drain"));
        assert!(!is_drained(&node("NoSchedule"), "other"));
        assert!(!is_drained(&json!({}), "drain"));
    }
}
