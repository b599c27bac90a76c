//! Admission of guests: defaults when one is created, causes when one is wrong, a status that only components write, and agents that
//! write about their own node's guests only.

use ferrovirt_api::defaults::default_vmi;
use ferrovirt_api::gates;
use ferrovirt_api::names::{annotations, labels};
use ferrovirt_api::validation;
use ferrovirt_api::vmi::VirtualMachineInstanceSpec;
use ferrovirt_api::{VirtualMachineInstance, decode};
use kube::core::ObjectMeta;
use serde_json::Value;

use super::hyperv;
use super::review::{
    Admission, Facts, Failure, Judgement, Needs, Operation, Refusal, Request, Steps, none, read, write,
};

/// Some guests count on what not every node has.
pub(super) fn needs<'a>(request: &Request<'a>) -> Needs<'a> {
    if hyperv::asked_by(&request.object["spec"]).is_some() { Needs::Nodes } else { Needs::Nothing }
}

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    match request.operation {
        Operation::Create => create(request, facts, steps),
        Operation::Update if request.subresource.is_empty() => update(request, facts, steps),
        Operation::Update | Operation::Delete => Ok(Admission::default()),
    }
}

fn create(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let mut guest: VirtualMachineInstance = read(request.object)?;
    let mut admission = Admission::default();
    if steps.default {
        default_vmi(&mut guest, facts.cluster, &facts.inputs);
        admission.object = write(&guest, request.object);
    }
    if steps.check {
        none(request, validation::check_vmi(&guest, facts.cluster, request.user.is_component()))?;
        admission.warnings = validation::vmi_warnings(&guest, facts.cluster);
        admission.warnings.extend(hyperv::warning("spec", &request.object["spec"], facts));
    }
    Ok(admission)
}

fn update(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let component = request.user.is_component();
    let mut admission = Admission::default();
    if steps.default && !component {
        admission.object = with_old_status(request);
    }
    if steps.check {
        restrict_to_node(request, facts)?;
        if !component || request.object["spec"] != request.old_object["spec"] {
            let (old, new) = (read(request.old_object)?, read(request.object)?);
            none(request, validation::check_vmi_update(&old, &new, component))?;
        }
    }
    Ok(admission)
}

/// What a user writes into the status is dropped without a word, as on any Kubernetes object with a status of its own.
fn with_old_status(request: &Request<'_>) -> Option<Value> {
    let old = &request.old_object["status"];
    if request.object["status"] == *old {
        return None;
    }
    let mut object = request.object.clone();
    let fields = object.as_object_mut()?;
    if old.is_null() {
        fields.remove("status")
    } else {
        fields.insert("status".to_owned(), old.clone())
    };
    Some(object)
}

/// A virt-handler writes about guests of its own node, and about those that move to it. Where a guest moves is not its decision.
fn restrict_to_node(request: &Request<'_>, facts: &Facts<'_>) -> Result<(), Failure> {
    if !request.user.is_handler() || !gates::is_on(facts.cluster, gates::NODE_RESTRICTION) {
        return Ok(());
    }
    let Some(node) = request.user.node() else {
        let message = format!("{} has no node in its identity: it may not write guests", request.user.name);
        return Err(Refusal::forbidden(message).into());
    };
    may_write(node, request.old_object, request.object).map_err(|wrong| {
        let guest = format!("{}/{}", request.namespace, request.name);
        Refusal::forbidden(format!("virt-handler of node {node} {wrong}: {guest}")).into()
    })
}

/// What the virt-handler of a node may make of a guest's object; the error says what it may not.
///
/// | whose guest | may change |
/// |---|---|
/// | on the node | its status, labels and annotations, but for where it is and where it moves |
/// | moves to the node | the record of the move; and once all that goes with it: the object's node, to its own |
/// | had a pod on the node | that nothing of the pod runs there any more |
/// | another's | nothing |
fn may_write(node: &str, old: &Value, new: &Value) -> Result<(), &'static str> {
    if answers_for_its_pods(node, old, new)? {
        return Ok(());
    }
    let (was, is) = (&old["status"], &new["status"]);
    let moves_here = was["migrationState"]["targetNode"] == *node;
    if was["nodeName"] != *node && !moves_here {
        return Err("may only write guests that are on its node or move to it");
    }
    for field in ["migrationUid", "sourceNode", "sourcePod", "targetNode", "targetPod"] {
        if was["migrationState"][field] != is["migrationState"][field] {
            return Err("may not choose what moves where: only virt-controller hands a guest off");
        }
    }
    if spec(old) != spec(new)
        || ["ownerReferences", "finalizers"].iter().any(|it| old["metadata"][it] != new["metadata"][it])
    {
        return Err("may not change what a guest is, nor whose");
    }
    let label = |object: &Value| object["metadata"]["labels"][labels::NODE_NAME].clone();
    let stays = was["nodeName"] == is["nodeName"];
    if (!stays || label(old) != label(new)) && !(moves_here && is["nodeName"] == *node && label(new) == *node) {
        return Err("may only take over guests that move to its node");
    }
    if stays && was["nodeName"] != *node && apart_from_the_move(old) != apart_from_the_move(new) {
        return Err("may write nothing but the migration's record until it has taken the guest over");
    }
    Ok(())
}

/// Whether a write says of pods that were on the node that nothing of them runs there, and nothing else. Nobody else can say that, and
/// a handler must not vouch for others, in whatever way.
fn answers_for_its_pods(node: &str, old: &Value, new: &Value) -> Result<bool, &'static str> {
    let vouched = |object: &Value| object["metadata"]["annotations"][annotations::VOUCHED_PODS].clone();
    if vouched(old) != vouched(new) {
        return Err("may not vouch for pods: only people do");
    }
    let ledger = |object: &Value| object["status"]["activePods"].as_object().cloned().unwrap_or_default();
    let (was, is) = (ledger(old), ledger(new));
    let foreign = was.iter().filter(|(_, on)| **on != node);
    if foreign.clone().any(|(uid, on)| is.get(uid) != Some(on)) || is.iter().any(|(uid, on)| was.get(uid) != Some(on)) {
        return Err("may only say of pods on its node that nothing of them runs any more");
    }
    if was == is {
        return Ok(false);
    }
    let mut rest = new.clone();
    rest["status"]["activePods"] = Value::Object(was);
    let held =
        |object: &Value| (object["metadata"]["finalizers"].clone(), object["metadata"]["ownerReferences"].clone());
    Ok(held(old) == held(&rest) && as_written(old) == as_written(&rest))
}

/// What the guest's owner wants. Pods of later moves are made from it, with whatever Secrets it names. As a type, since a value may be
/// written in several ways.
fn spec(object: &Value) -> Option<VirtualMachineInstanceSpec> {
    decode(&object["spec"]).ok()
}

/// What the target's handler leaves alone: everything that a writer can choose, but for the record of the move, and for pods that it may
/// answer for.
fn apart_from_the_move(object: &Value) -> Option<VirtualMachineInstance> {
    let mut guest = as_written(object)?;
    let status = guest.status.get_or_insert_default();
    status.migration_state = None;
    status.active_pods.clear();
    Some(guest)
}

/// Everything that a writer can choose. As types, since a value may be written in several ways.
fn as_written(object: &Value) -> Option<VirtualMachineInstance> {
    let mut guest: VirtualMachineInstance = decode(object).ok()?;
    guest.status.get_or_insert_default();
    let (labels, annotations) = (guest.metadata.labels.take(), guest.metadata.annotations.take());
    guest.metadata = ObjectMeta {
        labels: Some(labels.unwrap_or_default()),
        annotations: Some(annotations.unwrap_or_default()),
        ..ObjectMeta::default()
    };
    Some(guest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guest() -> Value {
        json!({
            "metadata": {"name": "db", "labels": {"kubevirt.io/nodeName": "node1"}},
            "spec": {"domain": {"devices": {}}},
            "status": {"nodeName": "node1", "phase": "Running", "migrationState": {
                "migrationUid": "m", "sourceNode": "node1", "targetNode": "node2",
            }},
        })
    }

    fn judged(node: &str, change: impl FnOnce(&mut Value)) -> bool {
        let (old, mut new) = (guest(), guest());
        change(&mut new);
        may_write(node, &old, &new).is_ok()
    }

    fn take_over(vmi: &mut Value, node: &str) {
        vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = node.into();
        vmi["status"]["nodeName"] = node.into();
        vmi["status"]["migrationState"]["completed"] = true.into();
        vmi["status"]["interfaces"] = json!([{"name": "default"}]);
    }

    #[test]
    fn the_owner_writes_the_status_but_for_where_the_guest_is_and_goes() {
        assert!(judged("node1", |vmi| vmi["status"]["phase"] = "Failed".into()));
        assert!(judged("node1", |vmi| vmi["status"]["migrationState"]["failed"] = true.into()));
        for node in ["node2", "node3"] {
            assert!(!judged("node1", |vmi| take_over(vmi, node)), "{node}");
        }
        assert!(!judged("node1", |vmi| vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = "node2".into()));
        assert!(!judged("node1", |vmi| vmi["status"]["migrationState"] = Value::Null));
    }

    /// Its pods are made from it: with a Secret that it names, and on nodes that it tolerates.
    #[test]
    fn no_handler_writes_what_a_guest_is() {
        let secret = json!([{"sshPublicKey": {
            "source": {"secret": {"secretName": "theirs"}}, "propagationMethod": {"noCloud": {}},
        }}]);
        assert!(!judged("node1", |vmi| vmi["spec"]["accessCredentials"] = secret));
        assert!(!judged("node1", |vmi| vmi["spec"]["tolerations"] = json!([{"operator": "Exists"}])));
        assert!(!judged("node1", |vmi| vmi["metadata"]["finalizers"] = json!([])));
        assert!(!judged("node2", |vmi| {
            take_over(vmi, "node2");
            vmi["spec"]["evictionStrategy"] = "LiveMigrate".into();
        }));
        assert!(
            judged("node1", |vmi| vmi["spec"]["domain"]["resources"] = Value::Null),
            "the same, as its client writes it"
        );
    }

    #[test]
    fn the_target_writes_the_record_and_takes_over_for_itself_only() {
        assert!(judged("node2", |vmi| vmi["status"]["migrationState"]["targetNodeAddress"] = "10.0.0.2".into()));
        assert!(
            judged("node2", |vmi| vmi["spec"]["domain"]["resources"] = Value::Null),
            "another way to write the same"
        );
        assert!(judged("node2", |vmi| take_over(vmi, "node2")));
        assert!(!judged("node2", |vmi| take_over(vmi, "node3")));
        assert!(!judged("node2", |vmi| vmi["status"]["nodeName"] = "node2".into()), "the label goes with it");
        assert!(!judged("node2", |vmi| vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = "node2".into()));
        assert!(!judged("node2", |vmi| vmi["status"]["phase"] = "Failed".into()), "not its own yet");
        assert!(!judged("node2", |vmi| vmi["metadata"]["labels"]["a"] = "b".into()), "not its own yet");
        for field in ["targetNode", "sourceNode", "migrationUid"] {
            assert!(!judged("node2", |vmi| vmi["status"]["migrationState"][field] = "node2x".into()), "{field}");
        }
    }

    #[test]
    fn a_node_says_of_its_own_pods_that_nothing_of_them_runs_and_of_no_others() {
        let of = |node: &str, change: &dyn Fn(&mut Value)| {
            let mut old = guest();
            old["metadata"]["annotations"] = json!({"ferrovirt.io/vouched-pods": "x"});
            old["status"]["activePods"] = json!({"a": "node1", "b": "node2", "c": "node3"});
            let mut new = old.clone();
            change(&mut new);
            may_write(node, &old, &new).is_ok()
        };
        let forget =
            |vmi: &mut Value, pod: &str| drop(vmi["status"]["activePods"].as_object_mut().unwrap().remove(pod));
        for (node, pod) in [("node1", "a"), ("node2", "b"), ("node3", "c")] {
            assert!(of(node, &|vmi| forget(vmi, pod)), "{node}");
            for other in ["a", "b", "c"].into_iter().filter(|other| *other != pod) {
                assert!(!of(node, &|vmi| forget(vmi, other)), "{node} for {other}");
            }
            assert!(!of(node, &|vmi| vmi["status"]["activePods"]["d"] = node.into()));
            assert!(!of(node, &|vmi| vmi["status"]["activePods"][pod] = "node4".into()));
            assert!(!of(node, &|vmi| vmi["metadata"]["annotations"]["ferrovirt.io/vouched-pods"] = "x,c".into()));
        }
        let and_more = |vmi: &mut Value| {
            forget(vmi, "c");
            vmi["status"]["phase"] = "Failed".into();
        };
        assert!(!of("node3", &and_more), "its pods and nothing else");
        assert!(!of("node4", &|_| {}));
    }

    #[test]
    fn others_write_nothing() {
        assert!(!judged("node3", |_| {}));
        assert!(!judged("node3", |vmi| take_over(vmi, "node3")));
    }
}
