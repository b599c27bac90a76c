//! What the source's handler makes of a move, row by row.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_handover::Verdict;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{DomainReport, FinalWords};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Progress, Stage};
use serde_json::{Value, json};

use super::*;
use crate::vmi::decide as judge;

fn vmi(change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut value = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "db", "namespace": "shop", "uid": "1-2-3"},
        "spec": {"domain": {"devices": {}}},
        "status": {
            "phase": "Running", "nodeName": "node1",
            "migrationState": {
                "migrationUid": "m", "sourceNode": "node1", "sourcePod": "from", "targetNode": "node2", "targetPod": "to",
                "targetNodeAddress": "10.0.255.3", "targetDirectMigrationNodePorts": {"8189": 0},
            },
        },
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn state(field: &'static str, value: Value) -> impl Fn(&mut Value) {
    move |vmi| vmi["status"]["migrationState"][field] = value.clone()
}

fn pod(words: Option<&str>) -> Arc<Pod> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": "from", "namespace": "shop", "uid": "pod-1"},
            "status": {
                "phase": if words.is_some() { "Failed" } else { "Running" },
                "containerStatuses": [{
                    "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": words.map_or(json!({}), |words| json!({"terminated": {"exitCode": 1, "message": words}})),
                }],
            },
        }))
        .unwrap(),
    )
}

fn report(state: DomainState, stage: Option<SourceStage>) -> DomainReport {
    let migration = stage.map(|stage| MigrationReport {
        id: "m".into(),
        stage: Stage::Source(stage),
        mode: Mode::PreCopy,
        progress: Some(Progress { total_bytes: 100, remaining_bytes: 60, ..Progress::default() }),
        doubt: None,
    });
    DomainReport { uid: Some("1-2-3".into()), state, migration, ..DomainReport::default() }
}

fn view(vmi: VirtualMachineInstance, stage: Option<SourceStage>) -> View {
    View {
        vmi: Arc::new(vmi),
        pod: Some(pod(None)),
        report: Some(report(DomainState::Running, stage)),
        reachable: true,
        node: "node1".into(),
        host_model: Some(true),
        since_progress: None,
        now: "2026-11-16T01:02:03Z".parse().unwrap(),
    }
}

/// A view after the pod's end.
fn ended(vmi: VirtualMachineInstance, words: Option<(OffReason, Option<SourceStage>)>) -> View {
    let words = words.map(|(reason, stage)| {
        let migration = report(DomainState::Running, stage).migration;
        serde_json::to_string(&FinalWords { reason, message: String::new(), migration }).unwrap()
    });
    let mut view = view(vmi, None);
    (view.report, view.reachable) = (None, false);
    view.pod = Some(pod(Some(words.as_deref().unwrap_or("killed"))));
    view
}

fn after(view: &View) -> Option<Status> {
    judge(view).status
}

fn state_after(view: &View) -> MigrationState {
    *after(view).unwrap().migration_state.unwrap()
}

#[test]
fn a_move_begins_when_the_target_listens() {
    let plan = judge(&view(vmi(|_| {}), None));
    assert_eq!(plan.actions, [Action::BeginMove]);
    assert!(plan.status.unwrap().migration_state.unwrap().start_timestamp.is_some());
    let silent = vmi(state("targetNodeAddress", Value::Null));
    assert!(judge(&view(silent, None)).actions.is_empty());
    let mut unheard = view(vmi(|_| {}), None);
    unheard.reachable = false;
    assert!(judge(&unheard).actions.is_empty());
}

#[test]
fn progress_is_shown_now_and_then() {
    for stage in [SourceStage::Connecting, SourceStage::Copying] {
        let mut copying = view(vmi(|_| {}), Some(stage));
        let plan = judge(&copying);
        assert_eq!(plan.actions, [Action::Carry]);
        let state = plan.status.unwrap().migration_state.unwrap();
        assert_eq!(state.progress.unwrap().percent, Some(40));
        copying.since_progress = Some(Duration::from_secs(1));
        let plan = judge(&copying);
        assert_eq!(plan.requeue, Some(Duration::from_secs(2)));
        assert_eq!(plan.status.unwrap().migration_state.unwrap().progress, None);
        copying.since_progress = Some(Duration::from_secs(4));
        assert!(state_after(&copying).progress.is_some());
    }
}

#[test]
fn whoever_wants_the_end_of_a_move_gets_it_unless_it_is_too_late() {
    let deleted = |vmi: &mut Value| vmi["metadata"]["deletionTimestamp"] = "2026-11-16T01:00:00Z".into();
    for stage in [None, Some(SourceStage::Connecting), Some(SourceStage::Copying)] {
        let aborted = view(vmi(state("abortRequested", json!(true))), stage.clone());
        assert!(judge(&aborted).actions.contains(&Action::CancelMove("it was aborted".into())));
        assert_eq!(state_after(&aborted).abort_status, Some(MigrationAbortStatus::Aborting));
        let over = |vmi: &mut Value| {
            let state = &mut vmi["status"]["migrationState"];
            state["abortRequested"] = true.into();
            state["failed"] = true.into();
            state["abortStatus"] = "Succeeded".into();
        };
        let status = judge(&view(vmi(over), stage.clone())).status;
        let kept =
            status.is_none_or(|it| it.migration_state.unwrap().abort_status == Some(MigrationAbortStatus::Succeeded));
        assert!(kept, "the target has said how it ended");
        let plan = judge(&view(vmi(deleted), stage));
        assert!(plan.actions.iter().any(|action| matches!(action, Action::CancelMove(_))));
    }
    for change in [&deleted as &dyn Fn(&mut Value), &state("abortRequested", json!(true))] {
        let doubtful = view(vmi(change), Some(SourceStage::Doubtful));
        assert_eq!(judge(&doubtful).actions, [Action::Carry], "neither cancelled nor shut down");
        assert_eq!(after(&doubtful), None);
    }
    let copying = judge(&view(vmi(deleted), Some(SourceStage::Copying)));
    assert!(
        !copying.actions.iter().any(|action| matches!(action, Action::Command(_))),
        "first it has to be here alone"
    );
}

#[test]
fn a_guest_that_stayed_fails_the_move_and_goes_on() {
    let stayed = SourceStage::Over(Outcome::Stayed("no room".into()));
    let view = view(vmi(state("abortRequested", json!(true))), Some(stayed));
    let status = after(&view).unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    let state = status.migration_state.unwrap();
    assert_eq!((state.failed, state.failure_reason.as_deref()), (true, Some("no room")));
    assert_eq!(state.abort_status, Some(MigrationAbortStatus::Succeeded));
    assert!(state.source_may_resume && state.end_timestamp.is_some());
}

#[test]
fn a_launcher_in_doubt_is_told_what_the_object_says() {
    let verdict = |change: &dyn Fn(&mut Value)| judge(&view(vmi(change), Some(SourceStage::Doubtful))).actions;
    let failed = state("failed", json!(true));
    assert_eq!(verdict(&failed), [Action::TellVerdict("m".into(), Verdict::Lost)]);
    let resumed = |vmi: &mut Value| {
        failed(vmi);
        state("sourceMayResume", json!(true))(vmi);
    };
    assert_eq!(verdict(&resumed), [Action::TellVerdict("m".into(), Verdict::Never)]);
}

#[test]
fn a_doubt_that_lasts_is_told_and_taken_back_when_it_ends() {
    let mut doubtful = view(vmi(|_| {}), Some(SourceStage::Doubtful));
    assert_eq!(after(&doubtful), None, "every move passes this stage");
    let migration = doubtful.report.as_mut().unwrap().migration.as_mut().unwrap();
    migration.doubt = Some("the connection to the target was lost".into());
    let plan = judge(&doubtful);
    assert_eq!(plan.actions, [Action::Carry]);
    let status = plan.status.unwrap();
    let said = status.migration_state.as_ref().unwrap().progress.clone().unwrap().message.unwrap();
    assert!(said.starts_with("in doubt: node1 has told node2"), "{said}");
    let mut stayed = view(vmi(|_| {}), Some(SourceStage::Over(Outcome::Stayed("never ran".into()))));
    Arc::get_mut(&mut stayed.vmi).unwrap().status = Some(status);
    assert_eq!(state_after(&stayed).progress.unwrap().message, None);
}

#[test]
fn a_launcher_in_doubt_about_an_older_move_may_go_on_before_the_next_begins() {
    let mut next = view(vmi(|_| {}), Some(SourceStage::Doubtful));
    next.report.as_mut().unwrap().migration.as_mut().unwrap().id = "older".into();
    assert_eq!(judge(&next).actions, [Action::TellVerdict("older".into(), Verdict::Never)]);
}

#[test]
fn a_move_that_failed_elsewhere_is_settled_here_before_another_may_begin() {
    let failed = |vmi: &mut Value| {
        state("failed", json!(true))(vmi);
        state("failureReason", json!("the node is gone"))(vmi);
    };
    let unknown = judge(&view(vmi(failed), None));
    assert!(matches!(unknown.actions.last(), Some(Action::CancelMove(_))), "{:?}", unknown.actions);
    let stayed = SourceStage::Over(Outcome::Stayed("called off".into()));
    let record = after(&view(vmi(failed), Some(stayed))).unwrap().migration_state.unwrap();
    assert!(record.source_may_resume);
    assert_eq!(record.failure_reason.as_deref(), Some("the node is gone"), "the first reason stays");
}

#[test]
fn the_standstill_of_the_switch_is_not_shown() {
    let mut switching = view(vmi(|_| {}), Some(SourceStage::Copying));
    switching.report.as_mut().unwrap().state = DomainState::Paused(PauseReason::Migration);
    assert!(after(&switching).unwrap().conditions.is_empty());
    switching.report.as_mut().unwrap().migration.as_mut().unwrap().mode = Mode::Paused;
    let conditions = after(&switching).unwrap().conditions;
    assert!(conditions.iter().any(|condition| condition.r#type == "Paused"));
}

#[test]
fn a_guest_that_ends_before_the_target_was_told_has_ended() {
    for stage in [None, Some(SourceStage::Connecting), Some(SourceStage::Copying)] {
        let mut off = view(vmi(|_| {}), None);
        off.report = Some(report(DomainState::Off(OffReason::Shutdown), stage.clone()));
        let status = after(&off).unwrap();
        assert_eq!(status.phase, Some(Phase::Succeeded), "{stage:?}");
        assert!(status.migration_state.unwrap().failed);
    }
    let known = ended(vmi(|_| {}), Some((OffReason::Crashed, Some(SourceStage::Copying))));
    assert_eq!(after(&known).unwrap().phase, Some(Phase::Failed));
    let early = ended(vmi(state("targetNodeAddress", Value::Null)), None);
    assert_eq!(after(&early).unwrap().phase, Some(Phase::Failed), "nobody can have called the target");
}

#[test]
fn an_end_that_may_not_be_the_guests_waits_for_the_targets_word() {
    let rows = [None, Some((OffReason::Crashed, None)), Some((OffReason::Crashed, Some(SourceStage::Doubtful)))];
    for words in rows {
        let status = after(&ended(vmi(|_| {}), words.clone())).unwrap();
        assert_eq!(status.phase, Some(Phase::Running), "{words:?}");
        assert!(status.migration_state.unwrap().abort_requested, "the target shall not wait for a word: {words:?}");
        let asked = vmi(state("abortRequested", json!(true)));
        assert!(judge(&ended(asked, words.clone())).is_idle());
        let failed = after(&ended(vmi(state("failed", json!(true))), words)).unwrap();
        assert_eq!(failed.phase, Some(Phase::Failed));
    }
    let mut off = view(vmi(|_| {}), None);
    off.report = Some(report(DomainState::Off(OffReason::Destroyed), Some(SourceStage::Doubtful)));
    assert_eq!(after(&off).unwrap().phase, Some(Phase::Running));
}

#[test]
fn a_guest_that_moved_is_waited_for_and_lost_only_if_the_target_failed() {
    let moved = Some((OffReason::Migrated, Some(SourceStage::Over(Outcome::Moved))));
    assert!(judge(&ended(vmi(|_| {}), moved.clone())).is_idle());
    let failed = after(&ended(vmi(state("failed", json!(true))), moved)).unwrap();
    assert_eq!(failed.phase, Some(Phase::Failed));
    let lost = judge(&view(vmi(state("failed", json!(true))), Some(SourceStage::Over(Outcome::Lost))));
    assert_eq!(lost.status.unwrap().phase, Some(Phase::Failed));
    assert!(matches!(lost.actions.as_slice(), [Action::Tell { warning: true, reason: "Stopped", .. }]));
}
