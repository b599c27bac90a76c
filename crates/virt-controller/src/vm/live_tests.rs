//! Changes of a machine under a living guest.

use ferrovirt_api::KubeVirt;
use ferrovirt_api::meta::find_condition;

use super::super::Action;
use super::super::decide::decide;
use super::super::fixtures::{guest, machine, vm};
use super::super::observe::View;
use super::*;

/// A running guest's machine that has changed since.
fn changed(path: &str, value: Value) -> Machine {
    let mut machine = machine(vm("Always"), Some(guest("Running")));
    let mut changed = vm("Always");
    changed["metadata"]["generation"] = json!(4);
    let (parent, field) = path.rsplit_once('/').unwrap();
    changed.pointer_mut(parent).unwrap()[field] = value;
    machine.vm = std::sync::Arc::new(serde_json::from_value(changed).unwrap());
    machine
}

fn drift_of(machine: &Machine) -> Drift {
    drift(machine, machine.own_guest().unwrap())
}

#[test]
fn a_machine_that_has_not_changed_has_not_drifted() {
    let machine = machine(vm("Always"), Some(guest("Running")));
    assert_eq!(drift_of(&machine), Drift::None);
}

#[test]
fn placement_reaches_a_living_guest() {
    let machine = changed("/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    assert_eq!(drift_of(&machine), Drift::Followed(json!({"spec": {"nodeSelector": {"zone": "a"}}})));
    let plan = decide(&View::Machine(Box::new(machine)));
    assert!(matches!(plan.actions.as_slice(), [Action::PatchGuest { .. }]), "{plan:?}");
    let tolerations = json!([{"key": "slow", "operator": "Exists"}]);
    let machine = changed("/spec/template/spec/tolerations", tolerations.clone());
    assert_eq!(drift_of(&machine), Drift::Followed(json!({"spec": {"tolerations": tolerations}})));
}

#[test]
fn with_stage_everything_waits_for_a_restart() {
    let mut machine = changed("/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let spec = json!({"spec": {"configuration": {"vmRolloutStrategy": "Stage"}}});
    machine.kubevirt = Some(std::sync::Arc::new(serde_json::from_value::<KubeVirt>(spec).unwrap()));
    assert_eq!(drift_of(&machine), Drift::NeedsRestart("spec.template.spec.nodeSelector".to_owned()));
}

#[test]
fn a_guest_on_the_move_is_left_alone() {
    let mut machine = changed("/spec/template/spec/nodeSelector", json!({"zone": "a"}));
    let mut moving = guest("Running");
    moving["status"]["migrationState"] = json!({"startTimestamp": "2026-01-01T11:59:59Z"});
    machine.namesake = Some(std::sync::Arc::new(serde_json::from_value(moving).unwrap()));
    assert_eq!(drift_of(&machine), Drift::None);
}

#[test]
fn other_changes_need_a_restart_and_name_their_fields() {
    let machine = changed("/spec/template/spec/domain/cpu", json!({"sockets": 2}));
    let fields = "spec.template.spec.domain.cpu".to_owned();
    assert_eq!(drift_of(&machine), Drift::NeedsRestart(fields));
    let plan = decide(&View::Machine(Box::new(machine)));
    let status = plan.status.unwrap();
    let condition = find_condition(&status.conditions, "RestartRequired").unwrap();
    assert!(condition.is_true() && condition.message.as_ref().unwrap().contains("domain.cpu"), "{condition:?}");
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(4)));
}

#[test]
fn a_change_outside_of_the_template_moves_the_generation_on() {
    let machine = changed("/spec/runStrategy", json!("RerunOnFailure"));
    let annotation = json!({"metadata": {"annotations": {"kubevirt.io/vm-generation": "4"}}});
    assert_eq!(drift_of(&machine), Drift::Followed(annotation));
}

#[test]
fn a_change_of_the_template_s_metadata_leaves_the_generation_of_the_guest() {
    for (field, value) in [("labels", json!({"tier": "back"})), ("annotations", json!({"note": "new"}))] {
        let machine = changed("/spec/template/metadata", json!({field: value}));
        assert_eq!(drift_of(&machine), Drift::None, "{field}");
    }
}

#[test]
fn what_the_guest_was_started_from_may_be_unknown() {
    let mut machine = changed("/spec/template/spec/domain/cpu", json!({"sockets": 2}));
    machine.revisions.clear();
    assert_eq!(drift_of(&machine), Drift::Unknown);
}

#[test]
fn long_lists_are_cut() {
    let fields: Vec<String> = (0..7).map(|number| format!("f{number}")).collect();
    assert_eq!(listed(&fields), "f0, f1, f2, f3, f4 and 2 more");
}
