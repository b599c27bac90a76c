//! One test for each row of the table, for each fatal check, and what holds for every view.

use ferrovirt_api::VirtualMachineInstanceMigration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fixtures::{SOURCE, TARGET, UID, guest, handed_off, migration, now, source, target, view};
use super::super::turn::{Limits, Standing};
use super::*;

fn deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:58Z");
    object
}

fn other(name: &str, phase: Option<&str>, created: &str, ended: Option<&str>) -> Arc<VirtualMachineInstanceMigration> {
    let mut object = migration(phase);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(name);
    object["metadata"]["creationTimestamp"] = json!(created);
    object["metadata"]["annotations"] = json!({"kubevirt.io/evacuationMigration": "n1"});
    if let Some(ended) = ended {
        object["status"]["phaseTransitionTimestamps"] = json!([{"phase": phase, "phaseTransitionTimestamp": ended}]);
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

fn phase(plan: &Decision) -> Option<Phase> {
    plan.status.as_ref().and_then(|status| status.phase)
}

/// The reason of the failure, which must be told in all three places.
fn failure(plan: &Decision) -> (String, String) {
    let status = plan.status.as_ref().unwrap_or_else(|| panic!("no status: {plan:?}"));
    assert_eq!(status.phase, Some(Phase::Failed), "{plan:?}");
    let condition = find_condition(&status.conditions, "Failure").expect("a condition");
    let state = status.migration_state.as_ref().expect("an account");
    assert!(state.failed && state.failure_reason.is_some() && state.end_timestamp.is_some());
    assert!(plan.actions.iter().any(|action| matches!(action, Action::Tell(note) if note.reason == "FailedMigration")));
    (condition.reason.clone().unwrap(), condition.message.clone().unwrap())
}

/// What people read at the guest.
fn tells_guest(plan: &Decision) -> Option<&str> {
    plan.actions.iter().find_map(|action| match action {
        Action::TellGuest(_, note) => {
            assert_eq!(note.reason, "Migrated");
            Some(note.message.as_str())
        }
        _ => None,
    })
}

fn names(plan: &Decision) -> Vec<&'static str> {
    use ferrovirt_reconcile::Act;
    plan.actions.iter().map(Act::name).collect()
}

fn is_quiet(view: &View, plan: &Decision) -> bool {
    plan.actions.is_empty() && plan.status.as_ref().is_none_or(|status| *status == view.status)
}

fn stamps(plan: &Decision) -> Vec<Phase> {
    let status = plan.status.as_ref().unwrap();
    status.phase_transition_timestamps.iter().filter_map(|stamp| stamp.phase).collect()
}

// ---- none, Pending ----

#[test]
fn a_move_whose_turn_it_is_gets_its_pod_at_once() {
    for given in [None, Some("Pending")] {
        let view = view(migration(given), guest(), vec![source()]);
        let plan = decide(&view);
        let [Action::CreateTarget(pod)] = plan.actions.as_slice() else { panic!("{plan:?}") };
        assert_eq!(pod.metadata.name.as_deref(), Some(TARGET));
        assert_eq!(phase(&plan), Some(Phase::Scheduling));
        assert_eq!(stamps(&plan), [Phase::Pending, Phase::Scheduling]);
    }
}

#[test]
fn what_has_to_pass_is_waited_for_in_pending() {
    let waits = |view: &View| {
        let plan = decide(view);
        assert!(plan.actions.is_empty(), "{plan:?}");
        phase(&plan) == Some(Phase::Pending)
    };
    let mut starting = guest();
    starting["status"]["phase"] = json!("Scheduled");
    assert!(waits(&view(migration(None), starting, vec![source()])));
    let mut unknown = guest();
    unknown["status"]["conditions"] = json!([]);
    assert!(waits(&view(migration(None), unknown, vec![source()])), "whether it can move is not known yet");
    assert!(waits(&view(migration(None), guest(), vec![])), "its pod is not in sight");
    let mut full = view(migration(None), guest(), vec![source()]);
    full.limits = Limits { per_cluster: 0, per_node: 2 };
    assert!(waits(&full));
    assert_eq!(decide(&full).requeue, Some(Duration::from_secs(5)));
    full.queue[0].standing = Standing::Holding;
    assert_eq!(names(&decide(&full)), ["create target pod"], "it has its slot");
}

#[test]
fn of_two_moves_of_a_guest_one_fails() {
    let mut view = view(migration(None), guest(), vec![source()]);
    view.siblings = vec![other("first", Some("Pending"), "2026-01-01T11:59:45Z", None)];
    let (reason, message) = failure(&decide(&view));
    assert_eq!(reason, "AnotherMigration");
    assert!(message.contains("first"), "{message}");
    view.siblings = vec![other("older", None, "2026-01-01T11:59:00Z", None)];
    assert_eq!(failure(&decide(&view)).0, "AnotherMigration");
    view.siblings = vec![other("younger", None, "2026-01-01T11:59:50Z", None)];
    assert_eq!(phase(&decide(&view)), Some(Phase::Scheduling), "the other one fails");
    view.siblings = vec![other("over", Some("Failed"), "2026-01-01T11:59:00Z", None)];
    assert_eq!(phase(&decide(&view)), Some(Phase::Scheduling));
}

#[test]
fn a_guest_that_cannot_move_is_refused_with_its_reason() {
    let mut stuck = guest();
    stuck["status"]["conditions"] =
        json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "disk a"}]);
    let (reason, message) = failure(&decide(&view(migration(None), stuck, vec![source()])));
    assert_eq!(reason, "NotMigratable");
    assert!(message.contains("DisksNotLiveMigratable: disk a"), "{message}");
}

#[test]
fn automatic_moves_wait_longer_with_each_failure() {
    let mut automatic = migration(None);
    automatic["metadata"]["annotations"] = json!({"kubevirt.io/evacuationMigration": "n1"});
    let rest = |ended: &[(&str, &str)]| {
        let mut view = view(automatic.clone(), guest(), vec![source()]);
        let sibling = |(phase, end): &(&str, &str)| other(end, Some(phase), "2026-01-01T11:00:00Z", Some(end));
        view.siblings = ended.iter().map(sibling).collect();
        let plan = decide(&view);
        let told = plan.actions.iter().any(|action| matches!(action, Action::Tell(note) if note.reason == BACKOFF));
        assert_eq!(told, plan.requeue.is_some());
        plan.requeue.map(|rest| rest.as_secs())
    };
    assert_eq!(rest(&[]), None);
    assert_eq!(rest(&[("Failed", "2026-01-01T11:59:55Z")]), Some(15));
    assert_eq!(rest(&[("Failed", "2026-01-01T11:59:40Z")]), None, "20 s are over");
    assert_eq!(rest(&[("Failed", "2026-01-01T11:59:40Z"), ("Failed", "2026-01-01T11:58:00Z")]), Some(20));
    assert_eq!(rest(&[("Failed", "2026-01-01T11:59:55Z"), ("Succeeded", "2026-01-01T11:58:00Z")]), Some(15));
    assert_eq!(rest(&[("Succeeded", "2026-01-01T11:59:55Z"), ("Failed", "2026-01-01T11:59:50Z")]), None);
    let mut by_hand = view(migration(None), guest(), vec![source()]);
    by_hand.siblings = vec![other("a", Some("Failed"), "2026-01-01T11:00:00Z", Some("2026-01-01T11:59:55Z"))];
    assert_eq!(phase(&decide(&by_hand)), Some(Phase::Scheduling), "whoever asks again gets it");
}

#[test]
fn an_abandoned_move_is_ended_first() {
    let mut abandoned = handed_off(&json!({}));
    abandoned["status"]["migrationState"]["migrationUid"] = json!("somebody");
    let view_of = |guest: Value| view(migration(None), guest, vec![source()]);
    assert_eq!(names(&decide(&view_of(abandoned.clone()))), ["ask for an abort"]);
    abandoned["status"]["migrationState"]["abortRequested"] = json!(true);
    assert_eq!(phase(&decide(&view_of(abandoned.clone()))), Some(Phase::Pending));
    assert!(decide(&view_of(abandoned.clone())).actions.is_empty());
    abandoned["status"]["migrationState"]["failed"] = json!(true);
    assert!(decide(&view_of(abandoned.clone())).actions.is_empty(), "a source in doubt would lose its word");
    abandoned["status"]["migrationState"]["sourceMayResume"] = json!(true);
    assert_eq!(names(&decide(&view_of(abandoned))), ["create target pod"]);
}

// ---- Scheduling ----

#[test]
fn a_pod_that_starts_is_waited_for() {
    let plan = decide(&view(migration(None), guest(), vec![source(), target(None, "Pending")]));
    assert_eq!(phase(&plan), Some(Phase::Scheduling), "whoever made it died before saying so");
    assert_eq!(plan.requeue, Some(Duration::from_secs(280)), "until it has found no node for too long");
    let placed = decide(&view(migration(Some("Scheduling")), guest(), vec![source(), target(Some("n2"), "Pending")]));
    assert_eq!(placed.requeue, Some(Duration::from_secs(880)));
}

#[test]
fn a_pod_that_no_node_takes_is_told_of_while_it_is_waited_for() {
    let mut pod = target(None, "Pending");
    pod["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit"}]);
    let plan = decide(&view(migration(Some("Scheduling")), guest(), vec![source(), pod]));
    assert_eq!(phase(&plan), Some(Phase::Scheduling));
    let [Action::Tell(note)] = plan.actions.as_slice() else { panic!("{plan:?}") };
    assert_eq!(note.reason, "migrationTargetPodUnschedulable");
    assert!(note.message.contains("[shop/web]") && note.message.contains("0/2 nodes fit"), "{}", note.message);
}

#[test]
fn a_pod_that_takes_too_long_is_given_up_and_the_guest_is_untouched() {
    let late = |seconds: u64, node: Option<&str>, annotations: Value| {
        let mut move_ = migration(Some("Scheduling"));
        move_["metadata"]["annotations"] = annotations;
        let mut pod = target(node, "Pending");
        pod["status"]["conditions"] =
            json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit"}]);
        let mut view = view(move_, guest(), vec![source(), pod]);
        view.now = "2026-01-01T11:59:40Z".parse::<Timestamp>().unwrap() + Duration::from_secs(seconds);
        decide(&view)
    };
    assert_eq!(phase(&late(299, None, Value::Null)), Some(Phase::Scheduling));
    let plan = late(300, None, Value::Null);
    let (reason, message) = failure(&plan);
    assert_eq!(reason, "TargetUnschedulable");
    assert!(message.contains("0/2 nodes fit") && message.contains("Make room"), "{message}");
    assert_eq!(names(&plan), ["delete target pod", "record event", "record event"]);
    assert!(tells_guest(&plan).unwrap().contains("0/2 nodes fit"));
    assert_eq!(phase(&late(300, Some("n2"), Value::Null)), Some(Phase::Scheduling));
    assert_eq!(failure(&late(900, Some("n2"), Value::Null)).0, "TargetPending");
    let short = json!({"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "5"});
    assert_eq!(failure(&late(5, None, short)).0, "TargetUnschedulable");
    let short = json!({"kubevirt.io/migrationPendingPodTimeoutSeconds": "5"});
    assert_eq!(failure(&late(5, Some("n2"), short.clone())).0, "TargetPending");
    assert_eq!(failure(&late(5, None, short)).0, "TargetPending", "the shorter one holds");
}

#[test]
fn a_pod_that_ended_or_vanished_fails_the_move() {
    let ended = view(migration(Some("Scheduling")), guest(), vec![source(), target(Some("n2"), "Failed")]);
    let plan = decide(&ended);
    assert_eq!(failure(&plan).0, "TargetPodFailed");
    let gone = deleted(target(Some("n2"), "Running"));
    assert_eq!(
        failure(&decide(&view(migration(Some("Scheduling")), guest(), vec![source(), gone]))).0,
        "TargetPodFailed"
    );
    let vanished = decide(&view(migration(Some("Scheduling")), guest(), vec![source()]));
    assert_eq!(failure(&vanished).0, "TargetPodVanished");
    assert_eq!(names(&vanished)[0], "confirm that the target pod is gone");
}

// ---- the hand-off ----

#[test]
fn a_pod_that_runs_is_handed_off_in_one_write_of_the_guest() {
    let mut view = view(migration(Some("Scheduling")), guest(), vec![source(), target(Some("n2"), "Running")]);
    let policy = json!({
        "metadata": {"name": "fast"},
        "spec": {"selectors": {"virtualMachineInstanceSelector": {"tier": "front"}}, "allowPostCopy": true},
    });
    view.policies = vec![Arc::new(serde_json::from_value(policy).unwrap())];
    let plan = decide(&view);
    let [Action::HandOff(record)] = plan.actions.as_slice() else { panic!("{plan:?}") };
    let state = serde_json::to_value(&record.state).unwrap();
    assert_eq!(state["migrationUid"], UID);
    assert_eq!((&state["sourceNode"], &state["sourcePod"]), (&json!("n1"), &json!(SOURCE)));
    assert_eq!((&state["targetNode"], &state["targetPod"]), (&json!("n2"), &json!(TARGET)));
    assert_eq!((&state["sourceState"]["node"], &state["targetState"]["pod"]), (&json!("n1"), &json!(TARGET)));
    assert_eq!(state["migrationPolicyName"], "fast");
    assert_eq!(state["migrationConfiguration"]["allowPostCopy"], true);
    assert_eq!(record.active_pods.len(), 2);
    assert_eq!(phase(&plan), Some(Phase::PreparingTarget));
    assert!(stamps(&plan).contains(&Phase::Scheduled));
}

#[test]
fn nothing_is_handed_off_while_another_record_is_open_or_the_guest_does_not_run() {
    let mut busy = handed_off(&json!({}));
    busy["status"]["migrationState"]["migrationUid"] = json!("somebody");
    let mut starting = guest();
    starting["status"]["phase"] = json!("Scheduled");
    for guest in [busy, starting] {
        let plan = decide(&view(migration(Some("Scheduling")), guest, vec![source(), target(Some("n2"), "Running")]));
        assert!(plan.actions.is_empty());
        assert_eq!(phase(&plan), Some(Phase::Scheduled));
    }
}

// ---- after the hand-off ----

fn under_way(phase: &str, more: &Value) -> View {
    let mut move_ = migration(Some(phase));
    move_["status"]["phaseTransitionTimestamps"] =
        json!([{"phase": "PreparingTarget", "phaseTransitionTimestamp": "2026-01-01T11:59:59Z"}]);
    view(move_, handed_off(more), vec![source(), target(Some("n2"), "Running")])
}

#[test]
fn phases_follow_from_the_guests_record() {
    let address = json!({"targetNodeAddress": "192.0.2.1"});
    let started = json!({"targetNodeAddress": "192.0.2.1", "startTimestamp": "2026-01-01T11:59:59Z"});
    assert_eq!(
        phase(&decide(&under_way("Scheduling", &json!({})))),
        Some(Phase::PreparingTarget),
        "died after the hand-off"
    );
    let passing = under_way("PreparingTarget", &address);
    assert!(is_quiet(&passing, &decide(&passing)), "not worth a write");
    assert_eq!(decide(&passing).requeue, Some(Duration::from_secs(2)));
    let mut lasting = under_way("PreparingTarget", &address);
    lasting.now = now() + Duration::from_secs(5);
    assert_eq!(phase(&decide(&lasting)), Some(Phase::TargetReady));
    let plan = decide(&under_way("PreparingTarget", &started));
    assert_eq!(phase(&plan), Some(Phase::Running));
    assert!(stamps(&plan).contains(&Phase::TargetReady));
    let running = under_way("Running", &started);
    assert!(is_quiet(&running, &decide(&running)));
}

#[test]
fn a_guest_that_names_the_target_has_moved_whatever_else_is_said() {
    for more in
        [json!({"completed": true}), json!({"failed": true, "failureReason": "late"}), json!({"abortRequested": true})]
    {
        let mut moved = handed_off(&more);
        moved["status"]["nodeName"] = json!("n2");
        let plan = decide(&view(migration(Some("Running")), moved, vec![source(), target(Some("n2"), "Running")]));
        assert_eq!(phase(&plan), Some(Phase::Succeeded));
        let kept = plan.status.as_ref().unwrap().migration_state.as_ref().unwrap();
        assert_eq!(kept.target_node.as_deref(), Some("n2"), "the guest's account is kept");
        assert_eq!(names(&plan), ["record event"]);
    }
    let mut plugging = handed_off(&json!({"completed": true}));
    plugging["status"]["nodeName"] = json!("n2");
    plugging["status"]["conditions"] = json!([{"type": "HotVCPUChange", "status": "True"}]);
    let plan = decide(&view(migration(Some("Running")), plugging, vec![target(Some("n2"), "Running")]));
    assert_eq!(phase(&plan), Some(Phase::Running), "what it was made for is not done yet");
}

#[test]
fn what_the_nodes_say_of_a_failure_is_passed_on() {
    let plan = decide(&under_way("Running", &json!({"failed": true, "failureReason": "no progress for 150 s"})));
    assert_eq!(failure(&plan), ("MigrationFailed".into(), "no progress for 150 s".into()));
    assert_eq!(names(&plan), ["delete target pod", "record event"]);
    assert_eq!(tells_guest(&plan), None, "the nodes have told it there");
    let aborted =
        decide(&under_way("Running", &json!({"failed": true, "abortRequested": true, "failureReason": "asked"})));
    assert_eq!(failure(&aborted).0, "Aborted");
}

#[test]
fn a_record_that_is_lost_or_taken_fails_the_move() {
    let mut taken = handed_off(&json!({}));
    taken["status"]["migrationState"]["migrationUid"] = json!("somebody");
    for guest in [guest(), taken] {
        let plan = decide(&view(migration(Some("Running")), guest, vec![source(), target(Some("n2"), "Running")]));
        assert_eq!(failure(&plan).0, "RecordLost");
        assert_eq!(names(&plan)[0], "confirm that the move was not handed off");
    }
}

#[test]
fn the_guests_end_is_the_moves_end() {
    let mut ended = handed_off(&json!({}));
    ended["status"]["phase"] = json!("Failed");
    ended["status"]["reason"] = json!("GuestCrashed");
    let (reason, message) =
        failure(&decide(&view(migration(Some("Running")), ended, vec![source(), target(Some("n2"), "Running")])));
    assert_eq!(reason, "GuestEnded");
    assert!(message.contains("GuestCrashed"), "{message}");
    let mut over = guest();
    over["status"]["phase"] = json!("Succeeded");
    assert_eq!(failure(&decide(&view(migration(Some("Pending")), over, vec![]))).0, "GuestEnded");
    let plan = decide(&view(migration(Some("Pending")), deleted(guest()), vec![source()]));
    assert_eq!(failure(&plan).0, "GuestDeleted");
    // Handed off: the nodes have heard of the deletion, and say what comes of it.
    let leaving = view(
        migration(Some("Running")),
        deleted(handed_off(&json!({"startTimestamp": "2026-01-01T11:59:59Z"}))),
        vec![source(), target(Some("n2"), "Running")],
    );
    assert!(is_quiet(&leaving, &decide(&leaving)));
}

#[test]
fn only_a_target_that_nobody_can_speak_for_is_spoken_for() {
    let gone = view(migration(Some("Running")), handed_off(&json!({})), vec![source()]);
    assert_eq!(names(&decide(&gone)), ["confirm that the target pod is gone", "record the failure"]);
    // Its object may have been deleted by force: the guest may run in it until somebody knows.
    let mut guest = handed_off(&json!({"startTimestamp": "2026-01-01T11:59:59Z"}));
    guest["status"]["activePods"] = json!({"source-uid": "n1", "target-uid": "n2"});
    let mut vanished = view(migration(Some("Running")), guest, vec![source()]);
    assert!(is_quiet(&vanished, &decide(&vanished)));
    vanished.known.ended = ["target-uid".to_owned()].into();
    assert_eq!(names(&decide(&vanished)), ["confirm that the target pod is gone", "record the failure"]);
    let mut fenced = under_way("Running", &json!({}));
    fenced.is_target_fenced = true;
    let plan = decide(&fenced);
    let [Action::ConfirmFenced(_), Action::FailMove { reason, .. }] = plan.actions.as_slice() else {
        panic!("{plan:?}")
    };
    assert!(reason.contains("n2"), "{reason}");
    // One that ended is its handler's to speak for.
    let ended = view(
        migration(Some("Running")),
        handed_off(&json!({"startTimestamp": "2026-01-01T11:59:59Z"})),
        vec![source(), target(Some("n2"), "Failed")],
    );
    assert!(is_quiet(&ended, &decide(&ended)));
}

// ---- cancellation, deletion, history ----

#[test]
fn cancelled_before_the_hand_off_the_pod_goes_and_the_guest_is_untouched() {
    for pods in [vec![source()], vec![source(), target(None, "Pending")], vec![source(), target(Some("n2"), "Running")]]
    {
        let is_there = pods.len() > 1;
        let plan = decide(&view(deleted(migration(Some("Pending"))), guest(), pods));
        assert_eq!(failure(&plan).0, "Cancelled");
        assert_eq!(tells_guest(&plan), None, "its user knows");
        assert_eq!(names(&plan).contains(&"delete target pod"), is_there);
    }
    let over = view(deleted(migration(Some("Failed"))), guest(), vec![source()]);
    assert_eq!(names(&decide(&over)), ["remove finalizer"]);
    let held = view(deleted(migration(Some("Failed"))), guest(), vec![source(), target(None, "Pending")]);
    assert_eq!(names(&decide(&held)), ["delete target pod"], "the pod first");
    let going = view(deleted(migration(Some("Failed"))), guest(), vec![source(), deleted(target(None, "Pending"))]);
    assert_eq!(names(&decide(&going)), ["remove finalizer"]);
}

#[test]
fn cancelled_after_the_hand_off_the_nodes_are_asked_and_have_the_word() {
    let mut view = under_way("Running", &json!({"startTimestamp": "2026-01-01T11:59:59Z"}));
    let mut cancelled = (*view.migration).clone();
    cancelled.metadata.deletion_timestamp = cancelled.metadata.creation_timestamp.clone();
    view.migration = Arc::new(cancelled);
    let plan = decide(&view);
    assert_eq!(names(&plan), ["ask for an abort"]);
    let status = plan.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    assert!(find_condition(&status.conditions, "migrationAbortRequested").is_some_and(Condition::is_true));
    view.status = status;
    let mut asked = (**view.vmi.as_ref().unwrap()).clone();
    asked.status.as_mut().unwrap().migration_state.as_mut().unwrap().abort_requested = true;
    view.vmi = Some(Arc::new(asked));
    assert!(is_quiet(&view, &decide(&view)), "once is enough");
}

#[test]
fn a_move_goes_with_its_guest() {
    let gone = decide(&view(migration(Some("Running")), Value::Null, vec![]));
    assert_eq!(names(&gone), ["confirm that the guest is gone", "delete migration"]);
    let going = decide(&view(deleted(migration(Some("Running"))), Value::Null, vec![]));
    assert_eq!(names(&going), ["confirm that the guest is gone", "remove finalizer"]);
    let mut successor = guest();
    successor["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:31Z");
    let later = decide(&view(migration(Some("Pending")), successor, vec![]));
    assert_eq!(names(&later), ["confirm that the guest is gone", "delete migration"], "a later guest of that name");
}

#[test]
fn five_finished_moves_are_kept() {
    let kept = |count: usize| {
        let mut move_ = migration(Some("Failed"));
        move_["status"]["phaseTransitionTimestamps"] =
            json!([{"phase": "Failed", "phaseTransitionTimestamp": "2026-01-01T11:00:00Z"}]);
        let mut view = view(move_, guest(), vec![source()]);
        let newer = |index: usize| {
            let end = format!("2026-01-01T11:01:{index:02}Z");
            other(&format!("m{index}"), Some("Succeeded"), "2026-01-01T10:00:00Z", Some(&end))
        };
        view.siblings = (0..count).map(newer).collect();
        view.siblings.push(other("running", Some("Running"), "2026-01-01T11:59:00Z", None));
        view.siblings.push(other("old", Some("Failed"), "2026-01-01T09:00:00Z", Some("2026-01-01T09:00:00Z")));
        decide(&view).actions.is_empty()
    };
    assert!(kept(4));
    assert!(!kept(5));
}

#[test]
fn a_target_that_took_over_late_is_kept() {
    let mut moved = handed_off(&json!({"failed": true}));
    moved["status"]["nodeName"] = json!("n2");
    let view = view(migration(Some("Failed")), moved, vec![target(Some("n2"), "Running")]);
    assert!(decide(&view).actions.is_empty());
}

#[test]
fn a_quota_is_told_about_and_what_is_refused_for_good_fails() {
    let view = view(migration(None), guest(), vec![source()]);
    let refused =
        |category, message: &str| after_failure(&view, &Failure::new(category, "create a pod", message.to_owned()));
    let status = refused(Category::Forbidden, "exceeded quota: small").unwrap();
    assert_eq!(status.phase, Some(Phase::Pending));
    assert!(find_condition(&status.conditions, "migrationRejectedByResourceQuota").is_some_and(Condition::is_true));
    assert_eq!(refused(Category::Invalid, "no").unwrap().phase, Some(Phase::Failed));
    assert_eq!(refused(Category::Unavailable, "later"), None);
}

// ---- what holds for every view ----

fn any_view() -> impl Strategy<Value = View> {
    let phases = prop::sample::select(vec![
        None,
        Some("Pending"),
        Some("Scheduling"),
        Some("Scheduled"),
        Some("PreparingTarget"),
        Some("TargetReady"),
        Some("Running"),
        Some("Succeeded"),
        Some("Failed"),
    ]);
    let uids = prop::sample::select(vec![UID, "somebody"]);
    let pods = prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]);
    (phases, uids, pods, any::<[bool; 10]>()).prop_map(|(phase, uid, pod, flags)| {
        let [cancelled, has_record, has_pod, has_source, address, started, failed, moved, ended, fenced] = flags;
        let mut vmi = if has_record { handed_off(&json!({"failed": failed, "migrationUid": uid})) } else { guest() };
        if has_record && address {
            vmi["status"]["migrationState"]["targetNodeAddress"] = json!("192.0.2.1");
        }
        if has_record && started {
            vmi["status"]["migrationState"]["startTimestamp"] = json!("2026-01-01T11:59:59Z");
        }
        if moved {
            vmi["status"]["nodeName"] = json!("n2");
        }
        if ended {
            vmi["status"]["phase"] = json!("Failed");
        }
        let mut pods = if has_pod { vec![target(Some("n2"), pod)] } else { vec![] };
        pods.extend(has_source.then(source));
        let move_ = if cancelled { deleted(migration(phase)) } else { migration(phase) };
        let mut view = view(move_, vmi, pods);
        view.is_target_fenced = fenced;
        view
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_end_is_the_end_and_nothing_is_said_twice(view in any_view()) {
        let plan = decide(&view);
        prop_assert_eq!(&decide(&view), &plan, "the same view, the same plan");
        let vmi = view.vmi.as_ref().unwrap();
        let record = record_of(vmi, view.uid());
        let is_open = record.is_some_and(|state| !candidate::has_ended(vmi, state));
        let is_over = vmi.status.as_ref().unwrap().phase.is_some_and(GuestPhase::is_final);
        for action in &plan.actions {
            match action {
                Action::DeleteTarget(_) => prop_assert!(!is_open || is_over || view.phase() == Some(Phase::Failed), "the nodes have the word"),
                Action::HandOff(_) => prop_assert!(record.is_none() && !is_over),
                Action::FailMove { .. } => prop_assert!(view.is_target_fenced || target_of(&view).is_none()),
                _ => {}
            }
        }
        if let Some(status) = plan.status {
            if view.phase().is_some_and(Phase::is_final) {
                prop_assert_eq!(status.phase, view.phase());
            }
            let mut later = view.clone();
            later.status = status.clone();
            if status.phase != Some(Phase::PreparingTarget) || record.is_some() {
                let again = decide(&later).status;
                let created = plan.actions.iter().any(|action| matches!(action, Action::CreateTarget(_)));
                prop_assert!(created || again.is_none_or(|again| again == status), "a second look writes nothing new");
            }
        }
    }
}
