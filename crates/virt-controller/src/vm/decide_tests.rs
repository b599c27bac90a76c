//! One test for each outcome.

use ferrovirt_api::meta::{Condition, find_condition};
use ferrovirt_api::vm::StateChangeAction;
use ferrovirt_reconcile::controller::Category;

use super::super::fixtures::{GUEST_UID, UID, guest, leaving, machine, settled, view, vm};
use super::*;

/// The actions of a plan by name.
fn names(plan: &Decision) -> Vec<&'static str> {
    use ferrovirt_reconcile::Act;
    plan.actions.iter().map(Act::name).collect()
}

fn plan(vm: Value, guest: Option<Value>) -> Decision {
    decide(&view(vm, guest))
}

fn plan_for(machine: &Machine) -> Decision {
    decide(&View::Machine(Box::new(machine.clone())))
}

#[expect(clippy::needless_pass_by_value, reason = "a literal of JSON reads better without a reference")]
fn with_requests(strategy: &str, requests: Value) -> Value {
    let mut vm = vm(strategy);
    vm["status"] = json!({"stateChangeRequests": requests, "runStrategy": strategy});
    vm
}

fn word(plan: &Decision) -> PrintableStatus {
    plan.status.as_ref().unwrap().printable_status.unwrap()
}

fn condition<'a>(status: &'a VirtualMachineStatus, r#type: &str) -> Option<&'a Condition> {
    find_condition(&status.conditions, r#type)
}

fn made_guest(plan: &Decision) -> &VirtualMachineInstance {
    let made =
        plan.actions.iter().find_map(|action| if let Action::CreateGuest(vmi) = action { Some(vmi) } else { None });
    made.unwrap()
}

#[test]
fn a_first_start_makes_a_revision_and_a_guest_and_reads_nothing() {
    let plan = plan(vm("Always"), None);
    assert_eq!(names(&plan), ["create revision", "create guest"]);
    assert_eq!(plan.status, None);
    let vmi = made_guest(&plan);
    let meta = &vmi.metadata;
    assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("web"), Some("shop")));
    assert_eq!(meta.labels.as_ref().unwrap()["app"], "web");
    let notes = meta.annotations.as_ref().unwrap();
    assert_eq!((notes["note"].as_str(), notes["kubevirt.io/vm-generation"].as_str()), ("of the template", "3"));
    assert!(!notes.contains_key("ferrovirt.io/start-request"));
    assert_eq!(meta.owner_references.as_ref().unwrap()[0].uid, UID);
    assert_eq!(meta.finalizers.as_deref().unwrap(), [finalizers::VM_CONTROLLER]);
    let revision = vmi.status.as_ref().unwrap().virtual_machine_revision_name.clone();
    assert_eq!(revision, Some(format!("revision-start-vm-{UID}-3")));
}

#[test]
fn what_a_machine_lacks_comes_first_and_in_one_write() {
    let mut bare = vm("Always");
    bare["metadata"]["finalizers"] = json!(["somebody.else/holds"]);
    bare["spec"]["template"]["spec"]["domain"]["firmware"] = Value::Null;
    let plan = plan(bare, None);
    let [Action::PatchMachine { changes, .. }] = plan.actions.as_slice() else { panic!("{plan:?}") };
    let held = json!(["somebody.else/holds", finalizers::VM_CONTROLLER]);
    assert_eq!(changes["metadata"]["finalizers"], held);
    // As `uuid5` of the name says.
    let uuid = changes["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"].as_str().unwrap();
    assert_eq!(uuid.as_bytes()[14], b'5');
}

#[test]
fn an_adopted_guest_keeps_its_identity() {
    let mut bare = vm("Always");
    bare["spec"]["template"]["spec"]["domain"]["firmware"] = Value::Null;
    let mut orphan = guest("Running");
    orphan["metadata"]["ownerReferences"] = json!([]);
    orphan["spec"]["domain"]["firmware"]["uuid"] = json!("00000000-0000-4000-8000-000000000001");
    let plan = plan(bare, Some(orphan));
    let [Action::PatchMachine { changes, .. }] = plan.actions.as_slice() else { panic!("{plan:?}") };
    let uuid = &changes["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"];
    assert_eq!(uuid, "00000000-0000-4000-8000-000000000001");
}

#[test]
fn a_restart_reads_the_machine_first() {
    let mut vm = vm("Always");
    vm["status"] = json!({"runStrategy": "Always"});
    assert_eq!(names(&plan(vm, None)), ["confirm the machine", "create revision", "create guest"]);
}

#[test]
fn older_revisions_go_at_a_start() {
    let mut machine = machine(vm("Always"), Some(guest("Running")));
    machine.namesake = None;
    let mut older = (*machine.revisions[0]).clone();
    older.metadata.name = Some(format!("revision-start-vm-{UID}-2"));
    let mut foreign = older.clone();
    foreign.metadata.name = Some("web-u1.small-v1beta1".to_owned());
    machine.revisions.extend([older.clone().into(), foreign.into()]);
    let plan = plan_for(&machine);
    assert_eq!(names(&plan), ["create guest", "delete revision"], "today's is there");
    let Some(Action::DeleteRevision(deleted)) = plan.actions.last() else { panic!("{plan:?}") };
    assert_eq!(deleted.metadata.name, older.metadata.name);
}

#[test]
fn a_start_request_is_served_and_says_so() {
    let requests = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let plan = plan(with_requests("Manual", requests), None);
    assert_eq!(names(&plan), ["confirm the machine", "create revision", "create guest"]);
    let vmi = made_guest(&plan);
    assert!(vmi.metadata.annotations.as_ref().unwrap().contains_key("ferrovirt.io/start-request"));
    assert_eq!(vmi.spec.start_strategy.unwrap().as_str(), "Paused");
}

#[test]
fn a_served_request_is_crossed_off_after_a_look_at_the_guest() {
    let started = plan(with_requests("Manual", json!([{"action": "Start"}])), Some(guest("Running")));
    assert_eq!(names(&started), ["confirm the guest"]);
    assert_eq!(started.status.unwrap().state_change_requests, []);
    let stopped = plan(with_requests("Manual", json!([{"action": "Stop", "uid": GUEST_UID}])), None);
    assert_eq!(stopped.actions, [Action::ConfirmGuest(None)]);
    assert_eq!(stopped.status.unwrap().state_change_requests, []);
}

#[test]
fn a_restart_crosses_its_stop_off_before_it_starts() {
    let requests = json!([{"action": "Stop", "uid": GUEST_UID}, {"action": "Start"}]);
    let plan = plan(with_requests("Manual", requests), None);
    assert_eq!(names(&plan), ["confirm the guest"]);
    let left = plan.status.unwrap().state_change_requests;
    assert_eq!(left.iter().map(|request| request.action).collect::<Vec<_>>(), [StateChangeAction::Start]);
}

#[test]
fn a_stop_reads_the_machine_and_ends_the_guest_that_was_seen() {
    let vm = with_requests("Manual", json!([{"action": "Stop", "uid": GUEST_UID}]));
    let plan = plan(vm, Some(guest("Running")));
    assert_eq!(names(&plan), ["confirm the machine", "delete guest", "record event"]);
    assert_eq!(plan.status, None);
}

#[test]
fn what_is_to_be_remembered_is_written_before_the_guest_goes() {
    // Nobody has written yet that this guest ran under this strategy.
    let first = plan(vm("RerunOnFailure"), Some(guest("Succeeded")));
    assert_eq!(names(&first), [""; 0]);
    let status = first.status.unwrap();
    assert_eq!(status.run_strategy, Some(RunStrategy::RerunOnFailure));
    let mut machine = machine(vm("RerunOnFailure"), Some(guest("Succeeded")));
    machine.status = status;
    assert_eq!(names(&plan_for(&machine)), ["delete guest"]);
}

#[test]
fn a_crash_asks_for_a_start_before_the_guest_goes() {
    let mut failed = guest("Failed");
    failed["status"]["phaseTransitionTimestamps"] = json!([{"phase": "Running"}]);
    let machine = machine(with_requests("RerunOnFailure", json!([])), Some(failed));
    let asked = plan_for(&machine);
    assert_eq!(names(&asked), ["confirm the guest"]);
    let requests = asked.status.clone().unwrap().state_change_requests;
    assert_eq!(requests[0].action, StateChangeAction::Start);
    let mut next = machine;
    next.status = asked.status.unwrap();
    assert_eq!(names(&plan_for(&next)), ["delete guest"]);
    next.namesake = None;
    assert_eq!(names(&plan_for(&next)), ["confirm the machine", "create guest"], "it never stays down");
}

#[test]
fn a_deleted_guest_that_fails_does_not_come_back() {
    let machine = machine(with_requests("RerunOnFailure", json!([])), Some(leaving("Failed")));
    assert_eq!(names(&plan_for(&machine)), ["release guest"]);
}

#[test]
fn a_failed_start_is_counted_and_waited_for() {
    let machine = machine(with_requests("Always", json!([])), Some(guest("Failed")));
    let counted = plan_for(&machine);
    assert_eq!(names(&counted), [""; 0]);
    let mut next = machine;
    next.status = counted.status.unwrap();
    let failure = next.status.start_failure.clone().unwrap();
    assert_eq!((failure.consecutive_fail_count, failure.last_failed_vmi_uid.as_deref()), (Some(1), Some(GUEST_UID)));
    assert_eq!(names(&plan_for(&next)), ["delete guest"]);
    next.namesake = None;
    let waiting = plan_for(&next);
    assert_eq!((names(&waiting), word(&waiting)), (vec![], PrintableStatus::CrashLoopBackOff));
    assert!((10..=15).contains(&waiting.requeue.unwrap().as_secs()), "{:?}", waiting.requeue);
    next.now += Duration::from_secs(20);
    assert_eq!(names(&plan_for(&next)), ["confirm the machine", "create guest"]);
}

#[test]
fn a_guest_that_leaves_is_held_until_it_has_ended() {
    let running = settled(with_requests("Always", json!([])), Some(leaving("Running")));
    assert_eq!((names(&plan_for(&running)), word(&plan_for(&running))), (vec![], PrintableStatus::Stopping));
    let ended = machine(with_requests("Always", json!([])), Some(leaving("Succeeded")));
    assert_eq!(names(&plan_for(&ended)), ["release guest"]);
    let mut released = leaving("Succeeded");
    released["metadata"]["finalizers"] = json!([finalizers::VMI]);
    assert!(plan(with_requests("Always", json!([])), Some(released)).is_idle(), "the next one waits");
}

#[test]
fn a_smooth_start_is_told_once_it_runs() {
    let mut young = guest("Scheduled");
    young["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:59Z");
    let waiting = plan(vm("Always"), Some(young.clone()));
    assert!(waiting.is_idle());
    assert_eq!(waiting.requeue, Some(Duration::from_secs(2)));
    let slow = plan(vm("Always"), Some(guest("Scheduled")));
    assert_eq!((names(&slow), word(&slow)), (vec!["record event"], PrintableStatus::Starting));
    let runs = plan(vm("Always"), Some(guest("Running")));
    assert_eq!((names(&runs), word(&runs)), (vec![], PrintableStatus::Running));
    let status = runs.status.unwrap();
    assert!(status.created && status.ready);
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(3)));
    // Trouble does not wait.
    young["status"]["conditions"] = json!([{"type": "Synchronized", "status": "False", "reason": "ErrImagePull"}]);
    assert_eq!(word(&plan(vm("Always"), Some(young))), PrintableStatus::ErrImagePull);
}

#[test]
fn volumes_say_why_they_cannot_be_in_a_snapshot() {
    let mut with_volumes = vm("Halted");
    with_volumes["spec"]["template"]["spec"]["volumes"] = json!([
        {"name": "disk", "persistentVolumeClaim": {"claimName": "claim"}}, {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
    ]);
    let statuses = plan(with_volumes, None).status.unwrap().volume_snapshot_statuses;
    let said: Vec<_> = statuses.iter().map(|status| (status.name.as_str(), status.enabled)).collect();
    assert_eq!(said, [("disk", false), ("scratch", false)]);
    assert!(statuses[0].reason.as_ref().unwrap().contains("not supported yet"));
}

#[test]
fn a_start_request_turns_a_halted_machine() {
    let requests = json!([{"action": "Start", "data": {"paused": "true"}}]);
    let turned = plan(with_requests("Halted", requests.clone()), None);
    let [Action::PatchMachine { changes, .. }] = turned.actions.as_slice() else { panic!("{turned:?}") };
    assert_eq!(*changes, json!({"spec": {"runStrategy": "Always"}}));
    let mut old = with_requests("Halted", requests);
    old["spec"]["runStrategy"] = Value::Null;
    old["spec"]["running"] = json!(false);
    let turned = plan(old, None);
    let [Action::PatchMachine { changes, .. }] = turned.actions.as_slice() else { panic!("{turned:?}") };
    assert_eq!(*changes, json!({"spec": {"running": true}}));
}

#[test]
fn an_orphan_is_adopted_and_somebody_elses_guest_is_not() {
    let mut orphan = guest("Running");
    orphan["metadata"]["ownerReferences"] = json!([]);
    orphan["metadata"]["finalizers"] = json!([finalizers::VMI]);
    let adopted = plan(vm("Always"), Some(orphan.clone()));
    let [Action::ConfirmMachine(_), Action::PatchGuest { changes, .. }] = adopted.actions.as_slice() else {
        panic!("{adopted:?}")
    };
    assert_eq!(changes["metadata"]["ownerReferences"][0]["uid"], UID);
    assert_eq!(changes["metadata"]["finalizers"], json!([finalizers::VMI, finalizers::VM_CONTROLLER]));

    orphan["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "pool.kubevirt.io/v1", "kind": "Pool", "name": "p", "uid": "other", "controller": true}]);
    let foreign = plan(vm("Always"), Some(orphan.clone()));
    assert_eq!(names(&foreign), ["record event"]);
    let status = foreign.status.unwrap();
    assert_eq!(condition(&status, "Failure").unwrap().reason.as_deref(), Some("FailedCreate"));
    assert!(!status.created);
    assert_eq!(names(&plan(vm("Halted"), Some(orphan))), [""; 0]);
}

#[test]
fn a_deleted_machine_ends_its_guest_first_and_then_goes() {
    let mut deleted = vm("Always");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    assert_eq!(names(&plan(deleted.clone(), Some(guest("Running")))), ["delete guest", "record event"]);
    let going = plan(deleted.clone(), Some(leaving("Running")));
    assert_eq!((names(&going), word(&going)), (vec![], PrintableStatus::Terminating));
    assert_eq!(names(&plan(deleted.clone(), Some(leaving("Failed")))), ["release guest"]);
    let gone = plan(deleted, None);
    assert_eq!(names(&gone), ["confirm the guest", "patch machine"]);
    let Some(Action::PatchMachine { changes, .. }) = gone.actions.last() else { panic!("{gone:?}") };
    assert_eq!(*changes, json!({"metadata": {"finalizers": []}}));
}

#[test]
fn a_machine_that_is_deleted_alone_leaves_its_guest() {
    let mut deleted = vm("Always");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    let mut alone = deleted.clone();
    alone["metadata"]["finalizers"] = json!([ORPHAN, finalizers::VM_CONTROLLER]);
    assert_eq!(names(&plan(alone, Some(guest("Running")))), ["release guest", "patch machine"]);
    // The garbage collector was faster: the guest is nobody's already.
    let mut free = guest("Running");
    free["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(names(&plan(deleted, Some(free))), ["release guest", "patch machine"]);
}

#[test]
fn a_guest_that_outlives_its_machine_is_let_go() {
    let vmi = serde_json::from_value(guest("Running")).unwrap();
    assert_eq!(names(&decide(&View::Widow(Arc::new(vmi)))), ["confirm that the machine is gone", "release guest"]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let receiver = plan(vm("WaitAsReceiver"), None);
    let message = condition(receiver.status.as_ref().unwrap(), "Failure").unwrap().message.clone().unwrap();
    assert!(message.contains("not supported yet"), "{message}");
    let mut sized = vm("Always");
    sized["spec"]["instancetype"] = json!({"name": "u1.small"});
    let plan = plan(sized, None);
    let status = plan.status.as_ref().unwrap();
    assert_eq!(condition(status, "Failure").unwrap().reason.as_deref(), Some("FailedFindInstancetype"));
    assert_eq!(names(&plan), ["record event"]);
}

#[test]
fn a_failure_is_a_condition_until_it_is_over() {
    let machine = machine(vm("Always"), None);
    let failure = Failure::new(Category::Forbidden, "create the guest", "the quota is used up");
    let status = after_failure(&machine, &failure).unwrap();
    let condition_of = |status: &VirtualMachineStatus| condition(status, "Failure").cloned();
    let told = condition_of(&status).unwrap();
    assert_eq!(told.reason.as_deref(), Some("FailedCreate"));
    assert_eq!(told.message.as_deref(), Some("cannot create the guest: the quota is used up"));
    let stale = Failure::new(Category::Conflict, "create the guest", "the cache is behind");
    assert_eq!(after_failure(&machine, &stale), None);
    let mut vm = vm("Always");
    vm["status"] = serde_json::to_value(&status).unwrap();
    assert_eq!(condition_of(&plan(vm, Some(guest("Running"))).status.unwrap()), None);
}

#[test]
fn the_guests_conditions_are_repeated_and_dropped_with_it() {
    let mut running = guest("Running");
    let agent = json!({"type": "AgentConnected", "status": "True", "lastProbeTime": "2026-01-01T11:00:00Z"});
    running["status"]["conditions"] =
        json!([{"type": "Ready", "status": "True"}, agent, {"type": "Failure", "status": "True"}]);
    let with_agent = settled(vm("Always"), Some(running.clone()));
    let repeated = condition(&with_agent.status, "AgentConnected").unwrap();
    assert_eq!(repeated.last_probe_time, serde_json::from_value(json!("2026-01-01T11:00:00Z")).unwrap());
    assert_eq!(condition(&with_agent.status, "Failure"), None, "that name is the machine's own");

    // Another time alone is no news.
    running["status"]["conditions"][1]["lastProbeTime"] = json!("2026-01-01T11:30:00Z");
    let mut later = machine(vm("Always"), Some(running));
    later.status = with_agent.status.clone();
    assert_eq!(plan_for(&later).status, Some(with_agent.status.clone()));

    let mut without = machine(vm("Halted"), None);
    without.status = with_agent.status;
    let status = plan_for(&without).status.unwrap();
    assert_eq!(condition(&status, "AgentConnected"), None);
    assert_eq!(condition(&status, "Ready").unwrap().reason.as_deref(), Some("VMINotExists"));
}

#[test]
fn without_data_volumes_in_the_cluster_claims_of_the_same_names_do() {
    let mut wanting = vm("Always");
    wanting["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}}}]);
    let refused = plan(wanting.clone(), None);
    let message = condition(refused.status.as_ref().unwrap(), "Failure").unwrap().message.clone().unwrap();
    assert!(message.contains("disk") && message.contains("cdi.kubevirt.io/v1beta1"), "{message}");
    let mut machine = machine(wanting, None);
    machine.claims = [("disk".to_owned(), Some(Arc::default()))].into();
    assert_eq!(names(&plan_for(&machine)), ["create revision", "create guest"]);
}

fn importing(volume: Option<Value>, strategy: &str) -> Decision {
    let mut wanting = vm(strategy);
    wanting["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}}}]);
    let mut machine = machine(wanting, None);
    let volume = volume.map(|volume| Arc::new(serde_json::from_value(volume).unwrap()));
    machine.data_volumes = super::super::DataVolumes::Listed([("disk".to_owned(), volume)].into());
    plan_for(&machine)
}

#[test]
fn data_volumes_are_made_and_awaited() {
    let volume = |phase: Option<&str>, age: &str| json!({"metadata": {"name": "disk", "creationTimestamp": age}, "spec": {}, "status": {"phase": phase}});
    let (young, old) = ("2026-01-01T11:59:50Z", "2026-01-01T11:00:00Z");
    let missing = importing(None, "Always");
    assert_eq!((names(&missing), word(&missing)), (vec!["create data volume"], PrintableStatus::Provisioning));
    assert_eq!(names(&importing(None, "Halted")), ["create data volume"], "also before the first start");
    let Some(Action::CreateDataVolume(made)) = missing.actions.first() else { panic!("{missing:?}") };
    assert_eq!(made.metadata.labels.as_ref().unwrap()["kubevirt.io/created-by"], UID);

    let importing_now = importing(Some(volume(Some("ImportInProgress"), young)), "Always");
    assert_eq!((names(&importing_now), word(&importing_now)), (vec![], PrintableStatus::Provisioning));
    let silent = importing(Some(volume(None, young)), "Always");
    assert_eq!(silent.requeue, Some(Duration::from_secs(50)), "somebody has to say that nobody works");
    let abandoned = importing(Some(volume(None, old)), "Always");
    let said = condition(abandoned.status.as_ref().unwrap(), "DataVolumesReady").unwrap();
    assert!(said.message.as_ref().unwrap().contains("no importer answers"), "{said:?}");
    let failed = importing(Some(volume(Some("Failed"), old)), "Always");
    assert_eq!(word(&failed), PrintableStatus::DataVolumeError);
    for ready in ["Succeeded", "WaitForFirstConsumer", "PendingPopulation"] {
        assert_eq!(names(&importing(Some(volume(Some(ready), old)), "Always")), ["create revision", "create guest"]);
    }
}

#[test]
fn content_of_other_namespaces_is_not_read_with_our_rights() {
    let mut thief = vm("Always");
    let source = json!({"pvc": {"namespace": "payroll", "name": "salaries"}});
    thief["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "disk"}, "spec": {"source": source}}]);
    let mut machine = machine(thief, None);
    machine.data_volumes = super::super::DataVolumes::Listed([("disk".to_owned(), None)].into());
    let plan = plan_for(&machine);
    assert_eq!(names(&plan), ["record event"]);
    let message = condition(plan.status.as_ref().unwrap(), "Failure").unwrap().message.clone().unwrap();
    assert!(message.contains("payroll"), "{message}");
}
