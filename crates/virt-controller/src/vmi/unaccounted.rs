//! Which pods of a guest nobody has accounted for. Pure.
//!
//! `status.activePods` is the ledger: a pod is in it before the guest can come to run there, and leaves it only when it is certain that
//! nothing of it runs any more. A pod object that is gone is no such certainty: it may have been deleted by force, or with its node. So
//! the guest's object, and with it the place of the next guest of that name, is held until each pod is accounted for.
//!
//! | a pod of the ledger | |
//! |---|---|
//! | was seen to end | settled |
//! | was vouched for by somebody, by its uid | settled |
//! | has an object | in sight: its end will be seen |
//! | its node is fenced | settled, once that was read afresh |
//! | its node's virt-handler looked, and found nothing of it | gone from the ledger |
//! | none of these | **missing**: its node is asked, and people are told |
//!
//! Time alone settles nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::annotations;
use ferrovirt_pods::LauncherPod;

use crate::caches::Caches;

/// What is known about a guest's pods besides their objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Uids of pods that were seen to end.
    pub ended: BTreeSet<String>,
    /// Nodes of the ledger that are out of service, as far as the cache knows.
    pub fenced: BTreeSet<String>,
}

impl Known {
    pub(crate) fn of(caches: &Caches, vmi: &VirtualMachineInstance) -> Self {
        let nodes = vmi.status.iter().flat_map(|status| status.active_pods.values());
        let is_fenced = |node: &&String| caches.nodes.get("", node).is_some_and(|node| crate::node::is_fenced(&node));
        Self {
            ended: caches.ended.of(vmi.metadata.uid.as_deref().unwrap_or_default()),
            fenced: nodes.filter(is_fenced).cloned().collect(),
        }
    }
}

/// Pods of the ledger by what became of them; those in sight are in none of these.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Account {
    /// Nothing of them runs.
    pub(crate) settled: BTreeSet<String>,
    /// Nothing of them runs if their nodes are fenced, as the cache says.
    pub(crate) fenced: BTreeMap<String, String>,
    /// Nobody knows: their uids and nodes.
    pub(crate) missing: BTreeMap<String, String>,
}

impl Account {
    pub(crate) fn of(
        vmi: &VirtualMachineInstance,
        ledger: &BTreeMap<String, String>,
        pods: &[Arc<LauncherPod>],
        known: &Known,
    ) -> Self {
        let vouched = vouched(vmi);
        let mut account = Self::default();
        for (uid, node) in ledger {
            let pod = pods.iter().find(|pod| pod.metadata.uid.as_ref() == Some(uid));
            let has_ended = known.ended.contains(uid) || pod.is_some_and(|pod| pod.was_seen_to_end());
            if has_ended || vouched.contains(uid.as_str()) {
                account.settled.insert(uid.clone());
            } else if pod.is_none() {
                let fate = if known.fenced.contains(node) { &mut account.fenced } else { &mut account.missing };
                fate.insert(uid.clone(), node.clone());
            }
        }
        account
    }

    /// The node that is asked: one after the other, since all of them have to answer.
    pub(crate) fn asked(&self) -> Option<&String> {
        self.missing.values().min()
    }

    /// Whether nothing can run on this node but what has an object.
    pub(crate) fn is_missing_on(&self, node: &str) -> bool {
        self.missing.values().any(|on| on == node)
    }

    /// What it waits for, for people.
    pub(crate) fn message(&self, guest: &str) -> String {
        let pods = self.missing.iter().map(|(uid, node)| format!("pod {uid} on node {node}"));
        format!(
            "the object is gone of {}, and something of it may still run. Its node's virt-handler says so when nothing does; if the node \
             is dead, fence it and set the taint {}:NoExecute, or make sure that nothing runs there and \"virtctl vouch {guest}\"",
            pods.collect::<Vec<_>>().join(", "),
            crate::node::OUT_OF_SERVICE,
        )
    }
}

/// Uids of pods that somebody vouches for.
fn vouched(vmi: &VirtualMachineInstance) -> BTreeSet<&str> {
    let given = vmi.metadata.annotations.as_ref().and_then(|all| all.get(annotations::VOUCHED_PODS));
    given.map(|given| given.split(',').map(str::trim).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{NODE, compute, owned_guest, pod, running, view};
    use super::*;

    fn account(vouched: &str, pods: Vec<serde_json::Value>, known: &Known) -> Account {
        let mut vmi = owned_guest("Running");
        vmi["metadata"]["annotations"] = json!({"ferrovirt.io/vouched-pods": vouched});
        let view = view(vmi, pods);
        Account::of(&view.vmi, &view.record.status.active_pods, &view.pods, known)
    }

    fn fate(account: &Account) -> [bool; 3] {
        [!account.settled.is_empty(), !account.fenced.is_empty(), !account.missing.is_empty()]
    }

    #[test]
    fn a_pod_without_an_object_is_missing_until_somebody_knows() {
        let nobody = Known::default();
        let ended = Known { ended: ["pod-uid".to_owned()].into(), ..Known::default() };
        let fenced = Known { fenced: [NODE.to_owned()].into(), ..Known::default() };
        let (settled, by_fence, missing) = ([true, false, false], [false, true, false], [false, false, true]);
        assert_eq!(fate(&account("", vec![], &nobody)), missing);
        assert_eq!(fate(&account("", vec![pod(Some(NODE), running())], &nobody)), [false; 3], "it is in sight");
        assert_eq!(fate(&account("", vec![pod(Some(NODE), running())], &fenced)), [false; 3], "its object goes first");
        assert_eq!(fate(&account("", vec![], &fenced)), by_fence);
        assert_eq!(fate(&account("", vec![], &ended)), settled);
        let over = json!({"phase": "Failed", "containerStatuses": [compute(&json!({"terminated": {"exitCode": 1}}))]});
        assert_eq!(fate(&account("", vec![pod(Some(NODE), over)], &nobody)), settled);
        assert_eq!(fate(&account("other, pod-uid", vec![], &nobody)), settled);
        assert_eq!(fate(&account("other", vec![], &nobody)), missing, "it was another pod");
    }

    /// A cluster says so of the pods of a node that is gone from it, and knows nothing about them.
    #[test]
    fn a_phase_is_no_end_of_a_launcher_that_was_last_seen_running() {
        let mut failed = running();
        failed["phase"] = json!("Failed");
        assert_eq!(fate(&account("", vec![pod(Some(NODE), failed)], &Known::default())), [false; 3]);
    }

    #[test]
    fn the_message_names_the_pod_its_node_and_what_to_do() {
        let message = account("", vec![], &Known::default()).message("web");
        for part in ["pod pod-uid on node node-1", "node.kubernetes.io/out-of-service:NoExecute", "virtctl vouch web"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
