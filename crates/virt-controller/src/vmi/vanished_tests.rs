//! Pods whose objects are gone: nothing follows a guest before each is accounted for, and what is known is not asked again.

use super::*;

#[test]
fn a_vanished_pod_fails_an_owned_guest_when_nothing_of_it_runs() {
    for phase in ["Scheduled", "Running"] {
        let mut view = view(owned_guest(phase), vec![]);
        view.record.asked_node = Some(NODE.to_owned());
        view.known.ended = ["pod-uid".to_owned()].into();
        let plan = decide(&view);
        assert!(confirms_gone(&plan), "{phase}");
        assert_eq!(written(&view, &plan).asked_node, None);
        let record = written(&view, &plan);
        assert_eq!(record.status.phase, Some(Phase::Failed));
        assert_eq!(record.status.reason.as_deref(), Some("PodNotExists"));
        assert_eq!(said_of(&record.status, "Ready").1, "PodNotExists");
        assert!(record.status.active_pods.is_empty());
        assert_eq!(told(&plan), ["PodNotExists"]);
        assert_eq!(record.finalizers, view.record.finalizers, "it was not deleted");
    }
}

/// Its object may have been deleted by force, or with its node, and time tells nothing.
#[test]
fn a_pod_that_vanished_may_run_until_somebody_knows() {
    for vmi in [owned_guest("Scheduled"), owned_guest("Running"), deleted(owned_guest("Running"))] {
        let mut view = view(vmi, vec![]);
        let plan = decide(&view);
        assert!(confirms_gone(&plan), "not on the word of a cache: {plan:?}");
        assert_eq!(told(&plan), ["PodUnaccounted"]);
        let record = written(&view, &plan);
        assert_eq!(record.asked_node.as_deref(), Some(NODE));
        assert_eq!(record.status.phase, view.record.status.phase);
        assert_eq!(record.finalizers, view.record.finalizers);
        assert_eq!(record.status.active_pods, view.record.status.active_pods);
        let (status, _, message) = said_of(&record.status, "PodUnaccounted");
        assert_eq!(status, ConditionStatus::True);
        assert!(message.contains("virtctl vouch web"), "{message}");
        view.record = record;
        view.now = now() + Duration::from_secs(1_000_000);
        assert!(is_quiet(&view, &decide(&view)), "however long it takes");
        // Its handler has looked.
        let mut answered = view.clone();
        answered.record.status.active_pods.clear();
        let record = written(&answered, &decide(&answered));
        assert_eq!((record.status.phase, record.asked_node), (Some(Phase::Failed), None));
        assert_eq!(condition(&record.status, "PodUnaccounted"), None);
        // Or its node is fenced, which is read afresh.
        view.known.fenced = [NODE.to_owned()].into();
        let plan = decide(&view);
        assert!(plan.actions.contains(&Action::ConfirmFenced(vec![NODE.to_owned()])), "{plan:?}");
        let record = written(&view, &plan);
        assert_eq!(record.status.phase, Some(Phase::Failed));
        assert!(record.status.active_pods.is_empty());
    }
}

#[test]
fn a_final_guest_is_held_too_until_its_pods_are_accounted_for() {
    let mut view = view(deleted(owned_guest("Succeeded")), vec![]);
    let record = written(&view, &decide(&view));
    assert_eq!((record.finalizers.len(), record.asked_node.as_deref()), (1, Some(NODE)));
    view.known.ended = ["pod-uid".to_owned()].into();
    assert!(written(&view, &decide(&view)).finalizers.is_empty());
}

/// The node of a guest's past that is fenced may be let back later, and knows nothing then.
#[test]
fn a_fenced_node_of_an_old_move_is_struck_out_while_the_guest_lives() {
    let mut view = view(moved(&json!({})), vec![target("node-2")]);
    let plan = decide(&view);
    assert_eq!(written(&view, &plan).asked_node.as_deref(), Some(NODE), "nobody knows yet");
    view.known.fenced = [NODE.to_owned()].into();
    let plan = decide(&view);
    assert!(plan.actions.contains(&Action::ConfirmFenced(vec![NODE.to_owned()])), "{plan:?}");
    let status = written(&view, &plan).status;
    assert_eq!(status.active_pods, [("target-uid".to_owned(), "node-2".to_owned())].into());
    assert_eq!(status.phase, Some(Phase::Running));
}

/// That a pod was seen to end is forgotten with this process.
#[test]
fn the_ledger_of_a_final_guest_says_what_was_seen() {
    let mut view = view(owned_guest("Succeeded"), vec![]);
    assert!(is_quiet(&view, &decide(&view)), "nobody knows yet");
    view.known.ended = ["pod-uid".to_owned()].into();
    assert!(written(&view, &decide(&view)).status.active_pods.is_empty());
    let mut fenced = view.clone();
    fenced.known.ended.clear();
    fenced.known.fenced = [NODE.to_owned()].into();
    let plan = decide(&fenced);
    assert_eq!(plan.actions, [Action::ConfirmFenced(vec![NODE.to_owned()])]);
    assert!(written(&fenced, &plan).status.active_pods.is_empty());
}

#[test]
fn a_source_that_vanished_in_a_move_is_no_end_of_the_guest() {
    let open = view(moving(&json!({"targetNodeAddress": "192.0.2.1"})), vec![target("node-2")]);
    let plan = decide(&open);
    let status = written(&open, &plan).status;
    assert_eq!(status.phase, Some(Phase::Running));
    assert!(status.migration_state.unwrap().abort_requested, "the target's handler has to say where the guest is");
    assert_eq!(told(&plan), ["PodUnaccounted"], "and the source's what became of the pod");
    assert_eq!(plan.status.unwrap().asked_node.as_deref(), Some(NODE));
    // The move has failed: nobody has the guest.
    let mut failed = view(moving(&json!({"failed": true})), vec![target("node-2")]);
    assert_eq!(
        written(&failed, &decide(&failed)).status.phase,
        Some(Phase::Running),
        "something of the source may run"
    );
    failed.known.ended = ["pod-uid".to_owned()].into();
    let plan = decide(&failed);
    assert!(confirms_gone(&plan), "{plan:?}");
    assert!(written(&failed, &plan).status.active_pods.contains_key("target-uid"), "it has not ended");
    assert_eq!(written(&failed, &plan).status.phase, Some(Phase::Failed));
    // Both pods are gone: there is nobody to wait for, and all names are asked for.
    let mut nobody = view(moving(&json!({})), vec![]);
    let names = vec![POD.to_owned(), "virt-launcher-web-target".to_owned()];
    let confirm = Action::ConfirmGone { pods: names, owner: UID.to_owned() };
    for (ended, phase) in
        [(vec![], Phase::Running), (vec!["pod-uid"], Phase::Running), (vec!["pod-uid", "target-uid"], Phase::Failed)]
    {
        nobody.known.ended = ended.into_iter().map(str::to_owned).collect();
        let plan = decide(&nobody);
        assert_eq!(plan.actions.first(), Some(&confirm));
        assert_eq!(written(&nobody, &plan).status.phase, Some(phase));
    }
}

#[test]
fn a_guest_that_moved_and_lost_its_pod_has_ended() {
    let mut vmi = moved(&json!({}));
    vmi["status"]["activePods"] = json!({"target-uid": "node-2"});
    let mut view = view(vmi, vec![pod(Some(NODE), running())]);
    let gone = Action::ConfirmGone { pods: vec!["virt-launcher-web-target".to_owned()], owner: UID.to_owned() };
    let plan = decide(&view);
    assert_eq!(plan.actions.first(), Some(&gone));
    let asked = written(&view, &plan);
    assert_eq!((asked.status.phase, asked.asked_node.as_deref()), (Some(Phase::Running), Some("node-2")));
    view.record.status.active_pods.clear();
    let plan = decide(&view);
    assert_eq!(plan.actions.first(), Some(&gone));
    assert_eq!(written(&view, &plan).status.phase, Some(Phase::Failed));
}
