//! One test for each row of the table, for each failure, and what holds for every view.

use ferrovirt_api::meta::Condition;
use ferrovirt_api::vmi::VirtualMachineInstanceStatus as Status;
use ferrovirt_kubernetes::Pod;
use ferrovirt_reconcile::controller::Category;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fixtures::{NODE, POD, UID, compute, guest, now, owned_guest, pod, running, view};
use super::*;

#[path = "vanished_tests.rs"]
mod vanished;

fn deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:58Z");
    object
}

/// The plan's record, which must differ from what is there.
fn written(view: &View, plan: &Decision) -> Record {
    let record = plan.status.clone().expect("a record to write");
    assert_ne!(record, view.record, "something to write");
    record
}

fn is_quiet(view: &View, plan: &Decision) -> bool {
    plan.actions.is_empty() && plan.status.as_ref().is_none_or(|record| *record == view.record)
}

fn condition<'a>(status: &'a Status, r#type: &str) -> Option<&'a Condition> {
    find_condition(&status.conditions, r#type)
}

fn said_of(status: &Status, r#type: &str) -> (ConditionStatus, String, String) {
    let condition = condition(status, r#type).unwrap_or_else(|| panic!("{type} is missing: {:?}", status.conditions));
    (condition.status, condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default())
}

fn told(plan: &Decision) -> Vec<&str> {
    let notes = plan.actions.iter().filter_map(|action| match action {
        Action::Tell(note) => Some(note.reason.as_str()),
        _ => None,
    });
    notes.collect()
}

fn created(plan: &Decision) -> Option<&Pod> {
    plan.actions.iter().find_map(|action| match action {
        Action::CreatePod(pod) => Some(&**pod),
        _ => None,
    })
}

fn confirms_gone(plan: &Decision) -> bool {
    let gone = Action::ConfirmGone { pods: vec![POD.to_owned()], owner: UID.to_owned() };
    plan.actions.first() == Some(&gone)
}

// ---- Pending ----

#[test]
fn a_new_guest_gets_its_pod_and_nothing_else_is_written() {
    for phase in [json!("Pending"), Value::Null] {
        let mut vmi = guest("Pending");
        vmi["status"]["phase"] = phase;
        let plan = decide(&view(vmi, vec![]));
        assert_eq!(created(&plan).unwrap().metadata.name.as_deref(), Some(POD));
        assert_eq!(plan.actions.len(), 1, "no event on the straight way");
        assert_eq!(plan.status, None);
    }
}

#[test]
fn without_kvm_on_any_node_the_pod_asks_for_none() {
    let asks = |view: &View| {
        let plan = decide(view);
        let resources = created(&plan).unwrap().spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        resources.limits.unwrap().contains_key("devices.kubevirt.io/kvm")
    };
    let mut view = view(guest("Pending"), vec![]);
    assert!(asks(&view));
    let emulate = json!({"spec": {"configuration": {"developerConfiguration": {"useEmulation": true}}}});
    view.cluster.kubevirt = Some(Arc::new(serde_json::from_value(emulate).unwrap()));
    assert!(!asks(&view));
    view.cluster.kubevirt = None;
    view.cluster.has_kvm = false;
    assert!(!asks(&view));
}

fn with_claim(claim: Option<Value>) -> View {
    let mut vmi = guest("Pending");
    vmi["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}, {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
    ]);
    let mut view = view(vmi, vec![]);
    view.claims = [("disk".to_owned(), claim.map(|claim| Arc::new(serde_json::from_value(claim).unwrap())))].into();
    view
}

fn claim(phase: &str, mode: &str) -> Value {
    json!({
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": mode, "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": phase, "capacity": {"storage": "2Gi"}},
    })
}

#[test]
fn a_missing_claim_is_named_and_no_pod_is_made() {
    let view = with_claim(None);
    let plan = decide(&view);
    assert!(created(&plan).is_none());
    let status = written(&view, &plan).status;
    assert_eq!(status.phase, Some(Phase::Pending));
    let expected =
        (ConditionStatus::False, "FailedPvcNotFound".to_owned(), "persistentvolumeclaim \"disk\" not found".to_owned());
    assert_eq!(said_of(&status, "Synchronized"), expected);
    assert_eq!(said_of(&status, "Ready").1, "PodNotExists");
    assert_eq!(told(&plan), ["FailedPvcNotFound"]);
}

#[test]
fn a_data_volume_without_a_claim_is_not_ready() {
    let mut vmi = guest("Pending");
    vmi["spec"]["volumes"] = json!([{"name": "data", "dataVolume": {"name": "filled"}}]);
    let mut view = view(vmi, vec![]);
    view.claims = [("filled".to_owned(), None)].into();
    let status = written(&view, &decide(&view)).status;
    assert_eq!(said_of(&status, "DataVolumesReady").1, "NotAllDVsReady");
    assert_eq!(said_of(&status, "Synchronized").1, "FailedPvcNotFound");
}

#[test]
fn a_claim_in_block_mode_is_a_device_of_the_pod() {
    let view = with_claim(Some(claim("Bound", "Block")));
    let plan = decide(&view);
    let spec = created(&plan).unwrap().spec.clone().unwrap();
    assert_eq!(spec.containers[0].volume_devices.as_ref().unwrap()[0].device_path, "/dev/data");
}

#[test]
fn what_cannot_be_run_is_said_once() {
    let mut vmi = guest("Pending");
    vmi["spec"]["domain"]["devices"]["gpus"] = json!([{"name": "a", "deviceName": "b"}]);
    let mut view = view(vmi, vec![]);
    let plan = decide(&view);
    let record = written(&view, &plan);
    let (_, reason, message) = said_of(&record.status, "Synchronized");
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("spec.domain.devices.gpus"), "{message}");
    assert_eq!(told(&plan), ["FailedCreate"]);
    view.record = record;
    assert!(is_quiet(&view, &decide(&view)), "the second look finds nothing new");
}

// ---- Pending and Scheduling, with a pod ----

#[test]
fn a_young_pod_is_waited_for_in_silence() {
    let view = view(guest("Pending"), vec![pod(None, json!({"phase": "Pending"}))]);
    let plan = decide(&view);
    assert!(is_quiet(&view, &plan));
    assert_eq!(plan.requeue, Some(Duration::from_secs(2)));
}

#[test]
fn a_slow_pod_makes_the_guest_scheduling() {
    let mut slow = pod(Some(NODE), json!({"phase": "Pending"}));
    slow["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:50Z");
    let mut view = view(guest("Pending"), vec![slow]);
    let plan = decide(&view);
    let record = written(&view, &plan);
    assert_eq!(record.status.phase, Some(Phase::Scheduling));
    assert_eq!(said_of(&record.status, "Ready").1, "GuestNotRunning");
    assert_eq!(condition(&record.status, "Synchronized"), None);
    let stamps = serde_json::to_value(&record.status.phase_transition_timestamps).unwrap();
    assert_eq!(stamps[1], json!({"phase": "Scheduling", "phaseTransitionTimestamp": "2026-01-01T11:59:50Z"}));
    assert_eq!(told(&plan), ["SuccessfulCreate"]);
    view.record = record;
    assert!(is_quiet(&view, &decide(&view)), "once is enough");
}

#[test]
fn a_pod_that_no_node_takes_is_unschedulable_and_the_missing_label_is_named() {
    let unschedulable = json!({
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes fit"}],
    });
    let mut view = view(guest("Pending"), vec![pod(None, unschedulable)]);
    view.missing_node_labels = vec!["machine-type.node.kubevirt.io/odd=true".to_owned()];
    let plan = decide(&view);
    let record = written(&view, &plan);
    assert_eq!(record.status.phase, Some(Phase::Scheduling), "trouble is told at once");
    let (status, reason, message) = said_of(&record.status, "PodScheduled");
    assert_eq!((status, reason.as_str()), (ConditionStatus::False, "Unschedulable"));
    assert_eq!(message, "0/1 nodes fit (no node has the label machine-type.node.kubevirt.io/odd=true)");
    assert_eq!(told(&plan), ["SuccessfulCreate", "Unschedulable"]);

    // Room was made: the condition goes.
    view.record = record;
    view.pods = super::super::fixtures::view(guest("Pending"), vec![pod(Some(NODE), json!({"phase": "Pending"}))]).pods;
    let plan = decide(&view);
    assert_eq!(condition(&written(&view, &plan).status, "PodScheduled"), None);
    assert_eq!(told(&plan), Vec::<&str>::new());
}

#[test]
fn an_image_that_cannot_be_pulled_is_told() {
    for reason in ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"] {
        let waiting = compute(&json!({"waiting": {"reason": reason, "message": "no such image"}}));
        let trouble = json!({"phase": "Pending", "containerStatuses": [waiting]});
        let view = view(guest("Scheduling"), vec![pod(Some(NODE), trouble)]);
        let plan = decide(&view);
        let expected = (ConditionStatus::False, reason.to_owned(), "no such image".to_owned());
        assert_eq!(said_of(&written(&view, &plan).status, "Synchronized"), expected);
        assert_eq!(told(&plan), [reason]);
    }
}

#[test]
fn claims_that_wait_for_their_pod_are_being_provisioned() {
    let mut view = with_claim(Some(claim("Pending", "Filesystem")));
    let mut slow = pod(None, json!({"phase": "Pending"}));
    slow["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:50Z");
    view.pods = super::super::fixtures::view(guest("Pending"), vec![slow]).pods;
    let status = written(&view, &decide(&view)).status;
    let (status, _, message) = said_of(&status, "Provisioning");
    assert_eq!((status, message.as_str()), (ConditionStatus::True, "waiting for claims to be bound: disk"));
}

#[test]
fn a_running_launcher_is_handed_over_in_one_write() {
    for phase in ["Pending", "Scheduling"] {
        let mut view = with_claim(Some(claim("Bound", "Filesystem")));
        let mut vmi = serde_json::to_value(&*view.vmi).unwrap();
        vmi["status"]["phase"] = json!(phase);
        vmi["status"]["conditions"] = json!([
            {"type": "Synchronized", "status": "False", "reason": "ErrImagePull"}, {"type": "PodScheduled", "status": "False"},
        ]);
        vmi["spec"]["networks"] = json!([{"name": "default", "pod": {}}]);
        vmi["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "default", "masquerade": {}}]);
        vmi["spec"]["domain"]["devices"]["autoattachVSOCK"] = json!(true);
        let fresh = super::super::fixtures::view(vmi, vec![pod(Some(NODE), running())]);
        (view.vmi, view.record, view.pods) = (fresh.vmi, fresh.record, fresh.pods);
        let plan = decide(&view);
        assert_eq!(plan.actions, [], "no event, no other write");
        let record = written(&view, &plan);
        assert_eq!(record.node_label.as_deref(), Some(NODE));
        let status = serde_json::to_value(&record.status).unwrap();
        let expected = json!({
            "phase": "Scheduled", "nodeName": NODE, "activePods": {"pod-uid": NODE}, "qosClass": "Burstable",
            "launcherContainerImageVersion": "launcher:1", "runtimeUser": 107, "migrationTransport": "Unix",
            "memory": {"memoryOverhead": "1Mi"}, "VSOCKCID": status["VSOCKCID"],
            "interfaces": [{"name": "default", "podInterfaceName": "eth0"}],
            "volumeStatus": [
                {"name": "data", "target": "", "persistentVolumeClaimInfo": {
                    "claimName": "disk", "accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem",
                    "capacity": {"storage": "2Gi"}, "requests": {"storage": "1Gi"},
                }},
                {"name": "seed", "target": ""},
            ],
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "GuestNotRunning",
                "message": "the guest has not been started yet",
                "lastProbeTime": "2026-01-01T12:00:00Z", "lastTransitionTime": "2026-01-01T12:00:00Z",
            }],
            "phaseTransitionTimestamps": [
                {"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T11:59:00Z"},
                {"phase": "Scheduling", "phaseTransitionTimestamp": "2026-01-01T11:59:59Z"},
                {"phase": "Scheduled", "phaseTransitionTimestamp": "2026-01-01T12:00:00Z"},
            ],
        });
        assert_eq!(status, expected);
        assert!(status["VSOCKCID"].as_u64().unwrap() >= 3);
    }
}

#[test]
fn a_socket_address_is_not_given_twice() {
    let mut vmi = guest("Pending");
    vmi["spec"]["domain"]["devices"]["autoattachVSOCK"] = json!(true);
    let mut view = view(vmi, vec![pod(Some(NODE), running())]);
    let first = written(&view, &decide(&view)).status.vsock_cid.unwrap();
    view.taken_vsock_cids.insert(first);
    let second = written(&view, &decide(&view)).status.vsock_cid.unwrap();
    assert_ne!(first, second);
}

#[test]
fn dedicated_processors_need_a_guaranteed_pod() {
    let mut vmi = guest("Pending");
    vmi["spec"]["domain"]["cpu"] = json!({"dedicatedCpuPlacement": true});
    let mut guaranteed = running();
    guaranteed["qosClass"] = json!("Guaranteed");
    let bad = view(vmi.clone(), vec![pod(Some(NODE), running())]);
    let status = written(&bad, &decide(&bad)).status;
    assert_eq!(status.phase, Some(Phase::Scheduling));
    assert_eq!(said_of(&status, "Synchronized").1, "FailedGuaranteeResources");
    let good = view(vmi, vec![pod(Some(NODE), guaranteed)]);
    assert_eq!(written(&good, &decide(&good)).status.phase, Some(Phase::Scheduled));
}

#[test]
fn a_pod_that_ends_early_fails_the_guest_with_its_last_words() {
    let words = r#"{"reason":"failed","message":"libvirtd is not installed"}"#;
    let ended = json!({
        "phase": "Failed", "containerStatuses": [compute(&json!({"terminated": {"exitCode": 1, "message": words}}))],
    });
    for phase in ["Pending", "Scheduling"] {
        let view = view(guest(phase), vec![pod(Some(NODE), ended.clone())]);
        let plan = decide(&view);
        let status = written(&view, &plan).status;
        assert_eq!(status.phase, Some(Phase::Failed));
        let (_, reason, message) = said_of(&status, "Synchronized");
        assert_eq!(reason, "FailedHandOver");
        assert!(message.ends_with("libvirtd is not installed"), "{message}");
        assert_eq!(told(&plan), ["FailedHandOver"]);
    }
}

#[test]
fn a_pod_that_is_deleted_before_the_hand_over_fails_the_guest() {
    let view = view(guest("Scheduling"), vec![deleted(pod(Some(NODE), running()))]);
    assert_eq!(written(&view, &decide(&view)).status.phase, Some(Phase::Failed));
}

#[test]
fn a_pod_that_vanished_fails_a_scheduling_guest() {
    let view = view(guest("Scheduling"), vec![]);
    let plan = decide(&view);
    assert!(confirms_gone(&plan) && created(&plan).is_none());
    let status = written(&view, &plan).status;
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(said_of(&status, "Ready").1, "PodNotExists");
}

#[test]
fn a_pod_of_another_name_does_not_get_the_guest() {
    let mut other = pod(Some(NODE), running());
    other["metadata"]["name"] = json!("virt-launcher-web-xk2p9");
    for labels in [json!({}), json!({"kubevirt.io/migrationJobUID": "m"})] {
        other["metadata"]["labels"] = labels;
        let view = view(guest("Pending"), vec![other.clone()]);
        assert!(created(&decide(&view)).is_some());
    }
}

#[test]
fn an_object_without_a_finalizer_gets_it_with_the_next_write() {
    let mut vmi = guest("Pending");
    vmi["metadata"]["finalizers"] = json!(["somebody/else"]);
    let view = view(vmi, vec![pod(Some(NODE), running())]);
    let record = written(&view, &decide(&view));
    assert_eq!(record.finalizers, ["somebody/else", finalizers::VMI]);
}

// ---- Scheduled and Running ----

#[test]
fn a_guest_that_its_node_owns_is_left_alone() {
    for phase in ["Scheduled", "Running"] {
        let view = view(owned_guest(phase), vec![pod(Some(NODE), running())]);
        assert!(is_quiet(&view, &decide(&view)), "{phase}");
    }
}

#[test]
fn how_a_guest_ended_is_for_its_handler_to_say() {
    let ended = json!({"phase": "Failed", "containerStatuses": [compute(&json!({"terminated": {"exitCode": 1}}))]});
    let view = view(owned_guest("Running"), vec![pod(Some(NODE), ended)]);
    let status = written(&view, &decide(&view)).status;
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(said_of(&status, "Ready").1, "PodTerminating");
}

#[test]
fn ready_follows_the_pod_while_the_guest_runs() {
    let ready = |edit: &dyn Fn(&mut Value, &mut Value)| {
        let (mut vmi, mut pod) = (owned_guest("Running"), pod(Some(NODE), running()));
        edit(&mut vmi, &mut pod);
        let view = view(vmi, vec![pod]);
        let status = decide(&view).status.unwrap().status;
        let (status, reason, _) = said_of(&status, "Ready");
        (status, reason)
    };
    let no = |reason: &str| (ConditionStatus::False, reason.to_owned());
    assert_eq!(ready(&|_, _| {}), (ConditionStatus::True, String::new()));
    assert_eq!(ready(&|vmi, _| vmi["status"]["conditions"] = json!([])), (ConditionStatus::True, String::new()));
    assert_eq!(
        ready(&|_, pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z")),
        no("PodTerminating")
    );
    assert_eq!(ready(&|_, pod| pod["status"]["conditions"] = json!([])), no("PodConditionMissing"));
    let probe_failed = json!([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]);
    assert_eq!(ready(&|_, pod| pod["status"]["conditions"] = probe_failed.clone()), no("ContainersNotReady"));
    let paused = json!([{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "True"}]);
    assert_eq!(ready(&|vmi, _| vmi["status"]["conditions"] = paused.clone()), no("GuestNotRunning"));
}

// ---- moves ----

/// The pod that a guest moves to.
fn target(node: &str) -> Value {
    let mut target = pod(Some(node), running());
    target["metadata"]["name"] = json!("virt-launcher-web-target");
    target["metadata"]["uid"] = json!("target-uid");
    target["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": "m"});
    target
}

/// A guest with the record of a move from the first node to the second.
fn moving(more: &Value) -> Value {
    let mut vmi = owned_guest("Running");
    let mut state = json!({
        "migrationUid": "m", "sourceNode": NODE, "sourcePod": POD, "targetNode": "node-2", "targetPod": "virt-launcher-web-target",
    });
    for (key, value) in more.as_object().unwrap() {
        state[key] = value.clone();
    }
    vmi["status"]["migrationState"] = state;
    vmi["status"]["activePods"] = json!({"pod-uid": NODE, "target-uid": "node-2"});
    vmi
}

fn moved(more: &Value) -> Value {
    let mut vmi = moving(more);
    vmi["status"]["nodeName"] = json!("node-2");
    vmi["status"]["migrationState"]["completed"] = json!(true);
    vmi
}

#[test]
fn the_pod_of_a_move_becomes_active_when_the_nodes_are_told() {
    let pods = || vec![pod(Some(NODE), running()), target("node-2")];
    let before = view(owned_guest("Running"), pods());
    assert!(is_quiet(&before, &decide(&before)));
    let mut told = moving(&json!({}));
    told["status"]["activePods"] = json!({"pod-uid": NODE});
    let told = view(told, pods());
    assert_eq!(written(&told, &decide(&told)).status.active_pods.len(), 2);
    let under_way = view(moving(&json!({})), pods());
    assert!(is_quiet(&under_way, &decide(&under_way)));
}

/// With the pod of the guest gone, the target of a move that was not handed off may come to the same node.
#[test]
fn a_target_that_no_node_was_told_of_is_no_home() {
    let mut view = view(owned_guest("Running"), vec![target(NODE)]);
    let record = written(&view, &decide(&view));
    assert_eq!(record.asked_node.as_deref(), Some(NODE));
    assert_eq!(record.status.active_pods, view.record.status.active_pods, "and it is not recorded");
    view.record.status.active_pods.clear();
    assert_eq!(written(&view, &decide(&view)).status.phase, Some(Phase::Failed));
}

#[test]
fn a_target_of_a_failed_move_is_no_home() {
    let stayed = view(moving(&json!({"failed": true})), vec![pod(Some(NODE), running()), target("node-2")]);
    assert!(is_quiet(&stayed, &decide(&stayed)), "its own pod serves");
}

#[test]
fn after_a_move_the_pod_that_was_left_goes() {
    let ended = json!({"phase": "Succeeded", "containerStatuses": [compute(&json!({"terminated": {"exitCode": 0}}))]});
    let deletes = |vmi: Value, source: Value| {
        let view = view(vmi, vec![pod(Some(NODE), source), target("node-2")]);
        let plan = decide(&view);
        let record = plan.status.clone().unwrap();
        assert_eq!(said_of(&record.status, "Ready").0, ConditionStatus::True, "the target serves");
        let source = plan
            .actions
            .iter()
            .any(|action| matches!(action, Action::DeleteSource(pod) if pod.metadata.name.as_deref() == Some(POD)));
        (source, plan.requeue)
    };
    let end = json!({"endTimestamp": "2026-01-01T11:59:50Z"});
    assert_eq!(deletes(moved(&end), ended), (true, None));
    assert_eq!(deletes(moved(&end), running()), (false, Some(Duration::from_secs(50))), "it ends by itself");
    let late = json!({"endTimestamp": "2026-01-01T11:58:00Z"});
    assert_eq!(deletes(moved(&late), running()), (true, None), "it did not");
    let post_copy = json!({"endTimestamp": "2026-01-01T11:58:00Z", "mode": "PostCopy"});
    assert_eq!(deletes(moved(&post_copy), running()), (false, None), "the target may still fetch memory");
    assert_eq!(deletes(moving(&end), running()), (false, None), "the guest names the source");
    // What is left is written down.
    let mut alone = view(moved(&end), vec![target("node-2")]);
    let asked = written(&alone, &decide(&alone));
    assert_eq!((asked.status.active_pods.len(), asked.asked_node.as_deref()), (2, Some(NODE)), "did it end?");
    alone.known.ended = ["pod-uid".to_owned()].into();
    let status = written(&alone, &decide(&alone)).status;
    assert_eq!(status.active_pods, [("target-uid".to_owned(), "node-2".to_owned())].into());
}

#[test]
fn services_send_to_the_target_once_the_guest_is_there_and_the_source_is_not_served() {
    let gated = |gate: &str| {
        let mut target = target("node-2");
        target["spec"]["readinessGates"] = json!([{"conditionType": "kubevirt.io/virtual-machine-unpaused"}]);
        target["status"]["conditions"] = json!([
            {"type": "ContainersReady", "status": "True"},
            {"type": "Ready", "status": gate},
            {"type": "kubevirt.io/virtual-machine-unpaused", "status": gate},
        ]);
        target
    };
    let opens = |vmi: Value, pods: Vec<Value>| {
        let view = view(vmi, pods);
        let plan = decide(&view);
        let record = plan.status.clone().unwrap();
        assert_eq!(said_of(&record.status, "Ready").0, ConditionStatus::True, "the guest serves all the time");
        plan.actions
            .iter()
            .any(|action| matches!(action, Action::OpenGate(pod) if pod.metadata.uid.as_deref() == Some("target-uid")))
    };
    let source = || pod(Some(NODE), running());
    let end = json!({"endTimestamp": "2026-01-01T11:59:50Z"});
    assert!(!opens(moving(&json!({})), vec![source(), gated("False")]), "it is not there yet");
    assert!(!opens(moved(&end), vec![source(), gated("False")]), "the source still gets traffic");
    let mut ended = source();
    ended["status"]["phase"] = json!("Succeeded");
    ended["status"]["containerStatuses"] = json!([compute(&json!({"terminated": {"exitCode": 0}}))]);
    assert!(opens(moved(&end), vec![ended, gated("False")]));
    let mut leaving = source();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    assert!(opens(moved(&end), vec![leaving, gated("False")]));
    assert!(opens(moved(&end), vec![gated("False")]));
    assert!(!opens(moved(&end), vec![gated("True")]), "once");
    let post_copy = json!({"endTimestamp": "2026-01-01T11:59:50Z", "mode": "PostCopy"});
    assert!(opens(moved(&post_copy), vec![source(), gated("False")]), "the source waits for the last page");
}

#[test]
fn a_guest_that_is_asked_to_leave_says_so_and_why_it_cannot() {
    let mut vmi = owned_guest("Running");
    vmi["status"]["evacuationNodeName"] = json!(NODE);
    let mut view = view(vmi, vec![pod(Some(NODE), running())]);
    let status = written(&view, &decide(&view)).status;
    assert_eq!(
        said_of(&status, "EvictionRequested"),
        (ConditionStatus::True, "EvictionRequested".into(), String::new())
    );
    view.record.status.conditions.push(Condition {
        reason: Some("DisksNotLiveMigratable".into()),
        message: Some("disk data is not shared".into()),
        ..Condition::new("LiveMigratable", ConditionStatus::False)
    });
    let record = written(&view, &decide(&view));
    assert!(said_of(&record.status, "EvictionRequested").2.contains("disk data is not shared"));
    view.record = record;
    assert!(is_quiet(&view, &decide(&view)), "once is enough");
    view.record.status.evacuation_node_name = None;
    assert_eq!(condition(&written(&view, &decide(&view)).status, "EvictionRequested"), None);
}

// ---- final ----

#[test]
fn a_final_guest_keeps_its_finalizer_until_it_is_deleted() {
    for phase in ["Succeeded", "Failed"] {
        let view = view(owned_guest(phase), vec![]);
        assert!(is_quiet(&view, &decide(&view)), "{phase}");
    }
}

#[test]
fn a_final_guest_is_not_ready() {
    let mut vmi = owned_guest("Running");
    vmi["status"]["phase"] = json!("Succeeded");
    let view = view(vmi, vec![pod(Some(NODE), running())]);
    let status = written(&view, &decide(&view)).status;
    assert_eq!(said_of(&status, "Ready").1, "GuestNotRunning");
}

#[test]
fn a_receiver_is_moved_by_its_migration() {
    let view = view(guest("WaitingForSync"), vec![]);
    assert!(is_quiet(&view, &decide(&view)));
}

// ---- deletion ----

#[test]
fn a_deleted_guest_takes_its_pods_with_it_and_waits_for_them() {
    for phase in ["Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"] {
        let staying = view(deleted(owned_guest(phase)), vec![pod(Some(NODE), running())]);
        let plan = decide(&staying);
        assert!(matches!(&plan.actions[..], [Action::DeletePod(_), Action::Tell(_)]), "{phase}: {plan:?}");
        assert_eq!(plan.status.unwrap().finalizers, staying.record.finalizers);

        let leaving = view(deleted(owned_guest(phase)), vec![deleted(pod(Some(NODE), running()))]);
        let plan = decide(&leaving);
        assert_eq!(plan.actions, [], "{phase}: asked once");
        assert_eq!(plan.status.unwrap().finalizers, leaving.record.finalizers);
    }
}

#[test]
fn the_finalizer_goes_when_no_pod_is_left() {
    for (phase, end) in [("Pending", Phase::Failed), ("Running", Phase::Failed), ("Succeeded", Phase::Succeeded)] {
        let mut vmi = deleted(guest(phase));
        vmi["metadata"]["finalizers"] = json!([finalizers::VMI_OLD, "somebody/else", finalizers::VMI]);
        let view = view(vmi, vec![]);
        let plan = decide(&view);
        assert!(confirms_gone(&plan), "{phase}");
        let record = written(&view, &plan);
        assert_eq!(record.finalizers, ["somebody/else"]);
        assert_eq!(record.status.phase, Some(end));
    }
    let mut held_by_others = deleted(guest("Failed"));
    held_by_others["metadata"]["finalizers"] = json!(["somebody/else"]);
    let view = view(held_by_others, vec![]);
    assert!(is_quiet(&view, &decide(&view)));
}

// ---- failures of actions ----

#[test]
fn a_refused_pod_is_told_and_a_lagging_cache_is_not() {
    let creating = view(guest("Pending"), vec![]);
    let refused = Failure::new(Category::Forbidden, "create pod", "exceeded quota");
    let record = after_failure(&creating, &refused).unwrap();
    let (_, reason, message) = said_of(&record.status, "Synchronized");
    assert_eq!((reason.as_str(), message.as_str()), ("FailedCreate", "cannot create pod: exceeded quota"));
    assert_eq!(said_of(&record.status, "Ready").1, "PodNotExists");
    let leaving = view(deleted(guest("Running")), vec![pod(Some(NODE), running())]);
    let record = after_failure(&leaving, &refused).unwrap();
    assert_eq!(said_of(&record.status, "Synchronized").1, "FailedDelete");
    let owned = view(owned_guest("Running"), vec![]);
    assert_eq!(after_failure(&owned, &refused), None, "nothing was to be created");
    let stale = Failure::new(Category::Conflict, "create pod", "changed");
    assert_eq!(after_failure(&creating, &stale), None);
}

#[test]
fn times_of_a_condition_move_only_with_what_it_says() {
    let mut view = with_claim(None);
    let first = decide(&view).status.unwrap();
    view.record = first.clone();
    view.now = now() + Duration::from_secs(60);
    assert_eq!(decide(&view).status.unwrap(), first, "nothing to write a minute later");
}

// ---- what holds for every view ----

fn any_pod() -> impl Strategy<Value = Value> {
    let names =
        prop_oneof![4 => Just(POD), 1 => Just("virt-launcher-web-older"), 1 => Just("virt-launcher-web-target")];
    let statuses = prop_oneof![
        Just(json!({"phase": "Pending"})),
        Just(running()),
        Just(json!({"phase": "Failed"})),
        Just(json!({"phase": "Succeeded", "containerStatuses": [compute(&json!({"terminated": {"exitCode": 0}}))]})),
        Just(
            json!({"phase": "Pending", "containerStatuses": [compute(&json!({"waiting": {"reason": "ErrImagePull"}}))]})
        ),
        Just(json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})),
        Just(json!({})),
    ];
    let nodes = prop_oneof![Just(None), Just(Some(NODE)), Just(Some("node-2"))];
    (names, statuses, nodes, any::<bool>(), 0..60_u32).prop_map(|(name, status, node, is_deleted, second)| {
        let mut pod = pod(node, status);
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T11:59:{second:02}Z"));
        if name.ends_with("target") {
            pod["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": "m"});
        }
        if is_deleted { deleted(pod) } else { pod }
    })
}

fn any_view() -> impl Strategy<Value = View> {
    let phases = prop::sample::select(vec![
        "Pending",
        "Scheduling",
        "Scheduled",
        "Running",
        "Succeeded",
        "Failed",
        "Unknown",
        "WaitingForSync",
    ]);
    let pods = prop::collection::vec(any_pod(), 0..3);
    (phases, pods, any::<[bool; 4]>()).prop_map(|(phase, pods, [is_owned, is_deleted, has_claim, is_held])| {
        let mut vmi = if is_owned { owned_guest(phase) } else { guest(phase) };
        if !has_claim {
            vmi["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
        }
        if !is_held {
            vmi["metadata"]["finalizers"] = json!(["somebody/else"]);
        }
        let mut view = view(if is_deleted { deleted(vmi) } else { vmi }, pods);
        if !has_claim {
            view.claims = [("disk".to_owned(), None)].into();
        }
        view
    })
}

/// What may change in an object that a node owns.
fn without_what_is_shared(record: &Record) -> Record {
    let mut rest = record.clone();
    rest.asked_node = None;
    rest.status.conditions.clear();
    rest.status.active_pods.clear();
    rest.status.phase_transition_timestamps.clear();
    (rest.status.phase, rest.status.reason) = (None, None);
    rest
}

fn has_first_pod(view: &View) -> bool {
    view.pods.iter().any(|pod| pod.metadata.name.as_deref() == Some(POD))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A guest's pods come and go, in any order; each step sees the record that the one before has written.
    #[test]
    fn one_name_and_no_early_release(first in any_view(), later in prop::collection::vec(prop::collection::vec(any_pod(), 0..3), 0..6)) {
        let mut view = first;
        let mut pods = vec![view.pods.clone()];
        pods.extend(later.into_iter().map(|pods| super::super::fixtures::view(guest("Pending"), pods).pods));
        for pods in pods {
            view.pods = pods;
            let plan = decide(&view);
            prop_assert_eq!(&decide(&view), &plan, "the same view, the same plan");
            for action in &plan.actions {
                match action {
                    Action::CreatePod(pod) => {
                        prop_assert_eq!(pod.metadata.name.as_deref(), Some(POD));
                        prop_assert!(!has_first_pod(&view), "created next to another");
                    }
                    Action::DeletePod(_) => prop_assert!(view.vmi.metadata.deletion_timestamp.is_some(), "nobody wanted that"),
                    Action::DeleteSource(_) | Action::OpenGate(_) => prop_assert!(false, "nothing has moved"),
                    Action::ConfirmFenced(_) => prop_assert!(false, "nothing is fenced"),
                    Action::ConfirmGone { .. } | Action::Tell(_) => {}
                }
            }
            let Some(record) = plan.status else { continue };
            if view.record.finalizers.iter().any(|finalizer| !record.finalizers.contains(finalizer)) {
                prop_assert!(view.pods.is_empty() && view.vmi.metadata.deletion_timestamp.is_some());
                prop_assert!(view.record.status.active_pods.is_empty(), "something of it may run");
            }
            if matches!(view.record.status.phase, Some(Phase::Scheduled | Phase::Running)) && view.vmi.metadata.deletion_timestamp.is_none() {
                prop_assert_eq!(without_what_is_shared(&record), without_what_is_shared(&view.record));
            }
            if view.record.status.phase.is_some_and(Phase::is_final) {
                prop_assert_eq!(record.status.phase, view.record.status.phase, "the end is the end");
            }
            view.record = record.clone();
            let again = decide(&view);
            prop_assert!(created(&again).is_none() || !has_first_pod(&view));
            let settled = again.status.is_none_or(|again| again == record);
            prop_assert!(settled, "a second look at the same world writes nothing new");
        }
    }
}
