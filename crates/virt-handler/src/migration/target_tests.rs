//! What the target's handler makes of a move, row by row.

use ferrovirt_launcher_rpc::messages::{DomainState, FinalWords, OffReason};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Mode, Stage};
use serde_json::{Value, json};

use super::*;

fn vmi(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut value = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "db", "namespace": "shop", "uid": "1-2-3",
            "labels": {"kubevirt.io/nodeName": "node1", "kubevirt.io/outdatedLauncherImage": "", "mine": "kept"},
            "annotations": {"kubevirt.io/eviction-source": "descheduler"},
        },
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {
            "phase": "Running", "nodeName": "node1", "evacuationNodeName": "node1", "activePods": {"a": "node1", "pod-2": "node2"},
            "interfaces": [{"name": "default", "ipAddress": "10.244.1.7", "ipAddresses": ["10.244.1.7"]}],
            "migrationState": {
                "migrationUid": "m", "sourceNode": "node1", "sourcePod": "from", "targetNode": "node2", "targetPod": "to",
                "progress": {"percent": 70},
            },
        },
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn announced(value: &mut Value) {
    value["status"]["migrationState"]["targetNodeAddress"] = "10.0.255.3".into();
    value["status"]["migrationState"]["targetDirectMigrationNodePorts"] = json!({"8189": 0});
}

fn aborted(value: &mut Value) {
    value["status"]["migrationState"]["abortRequested"] = true.into();
}

fn move_report(stage: TargetStage) -> MigrationReport {
    MigrationReport { id: "m".into(), stage: Stage::Target(stage), mode: Mode::PreCopy, progress: None, doubt: None }
}

fn pod(ended: Option<FinalWords>) -> Pod {
    let message = ended.map(|words| serde_json::to_string(&words).unwrap());
    let phase = if message.is_some() { "Failed" } else { "Running" };
    serde_json::from_value(json!({
        "metadata": {"name": "to", "namespace": "shop", "uid": "pod-2"},
        "spec": {"containers": [{"name": "compute", "image": "launcher:2"}]},
        "status": {
            "phase": phase, "podIPs": [{"ip": "10.244.2.9"}], "startTime": "2026-11-16T01:02:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": message.map_or(json!({}), |message| json!({"terminated": {"exitCode": 1, "message": message}})),
            }],
        },
    }))
    .unwrap()
}

fn view(vmi: VirtualMachineInstance, stage: Option<TargetStage>) -> View {
    let report =
        DomainReport { state: DomainState::Running, migration: stage.map(move_report), ..DomainReport::default() };
    View {
        vmi: Arc::new(vmi),
        pod: Some(Arc::new(pod(None))),
        report: Some(report),
        reachable: true,
        node: "node2".into(),
        address: ("10.0.255.3".parse().unwrap(), 8189),
        now: "2026-11-16T01:02:03Z".parse().unwrap(),
    }
}

fn ended(words: Option<TargetStage>, vmi: VirtualMachineInstance) -> View {
    let words = FinalWords { reason: OffReason::Crashed, message: "".into(), migration: words.map(move_report) };
    let mut view = view(vmi, None);
    (view.report, view.reachable, view.pod) = (None, false, Some(Arc::new(pod(Some(words)))));
    view
}

fn state_after(view: &View) -> MigrationState {
    *decide(view).status.unwrap().status.unwrap().migration_state.unwrap()
}

#[test]
fn a_target_is_prepared_and_then_announced_once() {
    assert_eq!(decide(&view(vmi(|_| {}), None)).actions, [Action::Prepare]);
    let waiting = view(vmi(|_| {}), Some(TargetStage::Waiting));
    let state = state_after(&waiting);
    assert_eq!(state.target_node_address.as_deref(), Some("10.0.255.3"));
    assert_eq!(state.target_direct_migration_node_ports.into_iter().collect::<Vec<_>>(), [("8189".to_owned(), 0)]);
    assert!(decide(&view(vmi(announced), Some(TargetStage::Waiting))).is_idle());
    assert!(decide(&view(vmi(announced), Some(TargetStage::Receiving))).is_idle());
}

#[test]
fn silence_is_no_reason_for_anything() {
    for stage in [None, Some(TargetStage::Waiting), Some(TargetStage::Receiving), Some(TargetStage::Starting)] {
        let mut silent = view(vmi(aborted), stage);
        silent.reachable = false;
        assert!(decide(&silent).is_idle());
        (silent.report, silent.pod) = (None, None);
        assert!(decide(&silent).is_idle());
    }
}

#[test]
fn a_move_of_other_nodes_or_another_time_is_none_of_ours() {
    for (field, value) in [("targetNode", "node3"), ("migrationUid", "")] {
        let other = vmi(|vmi| vmi["status"]["migrationState"][field] = value.into());
        assert!(decide(&view(other, None)).is_idle(), "{field}");
    }
    let next = vmi(|vmi| vmi["status"]["migrationState"]["migrationUid"] = "next".into());
    assert_eq!(
        decide(&view(next, Some(TargetStage::Started))).actions,
        [Action::Prepare],
        "an old word does not count"
    );
    let ours = vmi(|vmi| vmi["status"]["nodeName"] = "node2".into());
    assert!(decide(&view(ours, Some(TargetStage::Started))).is_idle());
}

#[test]
fn a_started_guest_is_taken_over_with_all_that_changes() {
    for change in [
        |_: &mut Value| {},
        |vmi: &mut Value| {
            vmi["status"]["migrationState"]["failed"] = true.into();
            vmi["status"]["migrationState"]["failureReason"] = "somebody gave up".into();
            aborted(vmi);
        },
    ] {
        let mut view = view(vmi(change), Some(TargetStage::Started));
        view.reachable = false;
        let plan = decide(&view);
        assert!(plan.actions.is_empty());
        let after = plan.status.unwrap();
        let labels = after.metadata.labels.unwrap();
        assert_eq!(labels.get("kubevirt.io/nodeName").map(String::as_str), Some("node2"));
        assert_eq!(labels.get("mine").map(String::as_str), Some("kept"));
        assert!(!labels.contains_key("kubevirt.io/outdatedLauncherImage"));
        assert!(after.metadata.annotations.unwrap().is_empty());
        let status = after.status.unwrap();
        assert_eq!((status.node_name.as_deref(), status.evacuation_node_name), (Some("node2"), None));
        assert_eq!(status.interfaces[0].ip_address.as_deref(), Some("10.244.2.9"));
        assert_eq!(status.active_pods.len(), 2, "not ours to write");
        assert_eq!(status.launcher_container_image_version.as_deref(), Some("launcher:2"));
        let state = status.migration_state.unwrap();
        assert!(state.completed && !state.failed && state.target_node_domain_detected && state.end_timestamp.is_some());
        assert_eq!(state.progress.unwrap().percent, Some(100));
        assert_eq!(state.abort_status, state.abort_requested.then_some(MigrationAbortStatus::Failed));
    }
}

#[test]
fn a_guest_that_has_ended_by_its_object_is_taken_over_as_ended() {
    let over = vmi(|vmi| vmi["status"]["phase"] = "Failed".into());
    let status = decide(&view(over, Some(TargetStage::Started))).status.unwrap().status.unwrap();
    assert_eq!((status.node_name.as_deref(), status.phase), (Some("node2"), Some(VirtualMachineInstancePhase::Failed)));
}

#[test]
fn a_guest_that_never_runs_here_fails_the_move_and_frees_the_source() {
    let state = state_after(&view(vmi(announced), Some(TargetStage::Never("full".into()))));
    assert!(state.failed && state.source_may_resume && !state.completed);
    assert_eq!(state.failure_reason.as_deref(), Some("full"));
    let known = vmi(|vmi| vmi["status"]["migrationState"]["failed"] = true.into());
    assert!(decide(&view(known, Some(TargetStage::Never("full".into())))).is_idle());
}

#[test]
fn what_is_called_off_is_discarded_unless_it_was_told_to_run() {
    let failed = |vmi: &mut Value| vmi["status"]["migrationState"]["failed"] = true.into();
    let deleted = |vmi: &mut Value| vmi["metadata"]["deletionTimestamp"] = "2026-11-16T01:00:00Z".into();
    let over = |vmi: &mut Value| vmi["status"]["phase"] = "Succeeded".into();
    for change in [aborted, failed, deleted, over] {
        for stage in [None, Some(TargetStage::Waiting), Some(TargetStage::Receiving)] {
            assert!(matches!(decide(&view(vmi(change), stage)).actions.as_slice(), [Action::Discard(_)]));
        }
        assert!(decide(&view(vmi(change), Some(TargetStage::Starting))).is_idle());
    }
}

#[test]
fn the_last_words_of_a_pod_say_whether_the_source_may_go_on() {
    let rows = [
        (Some(TargetStage::Waiting), true),
        (Some(TargetStage::Receiving), true),
        (Some(TargetStage::Never("x".into())), true),
        (Some(TargetStage::Starting), false),
        (Some(TargetStage::Started), false),
        (None, false),
    ];
    for (words, may_resume) in rows {
        let state = state_after(&ended(words.clone(), vmi(announced)));
        assert_eq!((state.failed, state.source_may_resume), (true, may_resume), "{words:?}");
    }
    assert!(state_after(&ended(None, vmi(|_| {}))).source_may_resume, "nobody can have called it");
}

#[test]
fn what_cannot_be_prepared_fails_at_once_or_after_a_while() {
    let failure = |category| Failure::new(category, "receive the guest", "its disk is broken");
    let mut idle = view(vmi(|_| {}), None);
    let after = Arriving::status_after(&idle, &failure(Category::Hopeless)).unwrap().status.unwrap();
    let state = after.migration_state.unwrap();
    assert!(state.failed && state.source_may_resume && state.failure_reason.unwrap().contains("disk is broken"));
    assert!(Arriving::status_after(&idle, &failure(Category::Unavailable)).is_none());
    idle.now = "2026-11-16T01:10:00Z".parse().unwrap();
    assert!(Arriving::status_after(&idle, &failure(Category::Unavailable)).is_some());
    let listening = view(vmi(announced), None);
    assert!(Arriving::status_after(&listening, &failure(Category::Hopeless)).is_none(), "it may have been called");
}
