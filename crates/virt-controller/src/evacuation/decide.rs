//! The judgement about one node's guests: who gets a migration now. No IO, no clock.

use std::time::Duration;

use ferrovirt_api::meta::{ConditionStatus, find_condition};
use ferrovirt_api::migration::{MigrationPriority, VirtualMachineInstanceMigrationSpec};
use ferrovirt_api::names::{annotations, conditions, finalizers, labels};
use ferrovirt_api::vmi::{EvictionStrategy, VirtualMachineInstancePhase as Phase};
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_reconcile::{Note, Plan};
use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{Action, Guest, View};
use crate::caches::is_over;
use crate::migration::turn::{Entry, Free, Standing};

/// What the names of migrations begin with.
const PREFIX: &str = "kubevirt-evacuation-";
/// When to look again for a free slot, should nobody tell.
const PATIENCE: Duration = Duration::from_secs(5);
/// When to look whether a migration that was asked for is there: it may have been refused, and nothing tells when it would be taken.
const AGAIN: Duration = Duration::from_secs(30);
/// Who else evicts pods, without hurry.
const DESCHEDULER: &str = "descheduler";

/// What becomes of a guest.
#[derive(Debug, PartialEq)]
enum Wanted {
    /// Nothing, for now.
    Nothing,
    /// It moves.
    Move,
    /// It should and cannot, for this reason.
    Stuck(String),
}

/// The plan for a node.
pub fn decide(view: &View) -> Plan<Action, ()> {
    // Every unfinished move has a slot or will want one.
    let taken: Vec<_> = view.queue.iter().map(|it| Entry { standing: Standing::Holding, ..it.clone() }).collect();
    let mut free = Free::of(&taken, view.limits);
    let mut plan = Plan::nothing();
    for guest in &view.guests {
        match wanted(view, guest) {
            Wanted::Nothing => {}
            Wanted::Move if free.take(&view.node) => {
                plan = plan.then(Action::Create(Box::new(migration(&view.node, guest)))).look_again_after(AGAIN);
            }
            Wanted::Move => plan = plan.look_again_after(PATIENCE),
            Wanted::Stuck(why) => {
                let said = format!("{}: {why}", guest.vmi.metadata.uid.as_deref().unwrap_or_default());
                if !view.told.contains(&said) {
                    let note = Note::warning("EvacuationBlocked", why);
                    plan = plan.then(Action::Tell { vmi: guest.vmi.clone(), note, said });
                }
            }
        }
    }
    plan
}

fn wanted(view: &View, guest: &Guest) -> Wanted {
    let vmi = &guest.vmi;
    let Some(status) = vmi.status.as_ref() else { return Wanted::Nothing };
    let is_marked = status.evacuation_node_name.as_deref() == Some(&view.node);
    let strategy = vmi.spec.eviction_strategy.or(view.strategy).unwrap_or(EvictionStrategy::None);
    let is_here = status.node_name.as_deref() == Some(&view.node);
    let is_settled = status.phase == Some(Phase::Running) && vmi.metadata.deletion_timestamp.is_none();
    let is_asked = match strategy {
        EvictionStrategy::External => false,
        EvictionStrategy::None => is_marked,
        EvictionStrategy::LiveMigrate | EvictionStrategy::LiveMigrateIfPossible => is_marked || view.is_drained,
    };
    let is_moving = guest.migrations.iter().any(|migration| !is_over(migration));
    if !is_asked || !is_here || !is_settled || is_moving {
        return Wanted::Nothing;
    }
    let movable = find_condition(&status.conditions, conditions::LIVE_MIGRATABLE);
    match movable.map(|movable| (movable.status, movable)) {
        // A pod that an earlier move left behind has to go first.
        Some((ConditionStatus::True, _)) if guest.pods > 1 => Wanted::Nothing,
        Some((ConditionStatus::True, _)) => Wanted::Move,
        Some((ConditionStatus::False, stuck)) if strategy == EvictionStrategy::LiveMigrate => {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            let (reason, message) = (text(&stuck.reason), text(&stuck.message));
            Wanted::Stuck(format!(
                "the guest has to leave node {} and cannot move: {reason}: {message}; stop it, or set spec.evictionStrategy to LiveMigrateIfPossible",
                view.node
            ))
        }
        _ => Wanted::Nothing,
    }
}

fn migration(node: &str, guest: &Guest) -> VirtualMachineInstanceMigration {
    let vmi = &guest.vmi;
    let source = vmi.metadata.annotations.as_ref().and_then(|all| all.get(annotations::EVICTION_SOURCE));
    let priority = match source.map(String::as_str) {
        Some(DESCHEDULER) => MigrationPriority::SystemMaintenance,
        _ => MigrationPriority::SystemCritical,
    };
    let name = vmi.metadata.name.clone().unwrap_or_default();
    VirtualMachineInstanceMigration {
        metadata: ObjectMeta {
            name: Some(format!("{PREFIX}{}", derived(guest))),
            namespace: vmi.metadata.namespace.clone(),
            labels: Some([(labels::MIGRATION_SELECTOR.to_owned(), name.clone())].into()),
            annotations: Some([(annotations::EVACUATION_MIGRATION.to_owned(), node.to_owned())].into()),
            finalizers: Some(vec![finalizers::MIGRATION.to_owned()]),
            owner_references: Some(vec![owner(vmi)]),
            ..ObjectMeta::default()
        },
        spec: VirtualMachineInstanceMigrationSpec {
            vmi_name: name,
            priority: Some(priority),
            ..VirtualMachineInstanceMigrationSpec::default()
        },
        status: None,
    }
}

fn owner(vmi: &VirtualMachineInstance) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineInstance::API_VERSION.to_owned(),
        kind: VirtualMachineInstance::KIND.to_owned(),
        name: vmi.metadata.name.clone().unwrap_or_default(),
        uid: vmi.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Ten characters from the guest and its newest move.
fn derived(guest: &Guest) -> String {
    let newest =
        guest.migrations.iter().max_by_key(|it| (it.metadata.creation_timestamp.clone(), it.metadata.uid.clone()));
    let newest = newest.and_then(|newest| newest.metadata.uid.as_deref()).unwrap_or_default();
    let seed = format!("{}/{newest}", guest.vmi.metadata.uid.as_deref().unwrap_or_default());
    let digest = ring::digest::digest(&ring::digest::SHA256, seed.as_bytes());
    digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::migration::turn::Limits;

    fn guest(name: &str, strategy: Option<&str>, movable: Option<bool>, more: &Value) -> Guest {
        let mut status = json!({"phase": "Running", "nodeName": "n1"});
        if let Some(movable) = movable {
            let word = if movable { "True" } else { "False" };
            status["conditions"] = json!([{"type": "LiveMigratable", "status": word, "reason": "DisksNotLiveMigratable", "message": "disk a"}]);
        }
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        let vmi = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
            "spec": {"domain": {"devices": {}}, "evictionStrategy": strategy}, "status": status,
        });
        Guest { vmi: Arc::new(serde_json::from_value(vmi).unwrap()), migrations: Vec::new(), pods: 1 }
    }

    fn view(is_drained: bool, guests: Vec<Guest>) -> View {
        View {
            node: "n1".to_owned(),
            is_drained,
            strategy: None,
            guests,
            queue: Vec::new(),
            limits: Limits { per_cluster: 5, per_node: 2 },
            told: [].into(),
        }
    }

    fn made(plan: &Plan<Action, ()>) -> Vec<&VirtualMachineInstanceMigration> {
        let made = plan.actions.iter().filter_map(|action| match action {
            Action::Create(migration) => Some(&**migration),
            Action::Tell { .. } => None,
        });
        made.collect()
    }

    #[test]
    fn each_strategy_has_its_answer() {
        let marked = json!({"evacuationNodeName": "n1"});
        let stuck = |wanted: &Wanted| matches!(wanted, Wanted::Stuck(why) if why.contains("disk a"));
        // Strategy; drained and movable, marked and movable; drained and unmovable, marked and unmovable.
        for (strategy, drained, asked, is_stuck) in [
            (None, Wanted::Nothing, Wanted::Move, false),
            (Some("None"), Wanted::Nothing, Wanted::Move, false),
            (Some("LiveMigrate"), Wanted::Move, Wanted::Move, true),
            (Some("LiveMigrateIfPossible"), Wanted::Move, Wanted::Move, false),
            (Some("External"), Wanted::Nothing, Wanted::Nothing, false),
        ] {
            let of = |is_drained, movable, more: &Value| {
                wanted(&view(is_drained, vec![]), &guest("g", strategy, movable, more))
            };
            assert_eq!(of(true, Some(true), &json!({})), drained, "{strategy:?}");
            assert_eq!(of(false, Some(true), &marked), asked, "{strategy:?}");
            assert_eq!(of(false, Some(true), &json!({})), Wanted::Nothing, "{strategy:?}");
            assert_eq!(stuck(&of(true, Some(false), &json!({}))), is_stuck, "{strategy:?}");
            assert_eq!(stuck(&of(false, Some(false), &marked)), is_stuck, "{strategy:?}");
            assert_eq!(of(true, None, &marked), Wanted::Nothing, "nobody knows yet");
            assert_eq!(of(true, Some(true), &json!({"phase": "Succeeded"})), Wanted::Nothing);
            assert_eq!(of(true, Some(true), &json!({"nodeName": "n2", "evacuationNodeName": "n1"})), Wanted::Nothing);
        }
        let mut inherits = view(true, vec![]);
        inherits.strategy = Some(EvictionStrategy::LiveMigrate);
        assert_eq!(wanted(&inherits, &guest("g", None, Some(true), &json!({}))), Wanted::Move, "the cluster's counts");
        assert_eq!(wanted(&inherits, &guest("g", Some("None"), Some(true), &json!({}))), Wanted::Nothing);
    }

    #[test]
    fn not_more_leave_than_there_are_slots() {
        let guests = ["a", "b", "c", "d"].map(|name| guest(name, Some("LiveMigrate"), Some(true), &json!({})));
        let plan = decide(&view(true, guests.to_vec()));
        assert_eq!(made(&plan).len(), 2);
        assert_eq!(plan.requeue, Some(PATIENCE));
        let mut busy = view(true, guests.to_vec());
        let waiting = |node: &str| Entry {
            uid: "m".into(),
            node: node.into(),
            standing: Standing::Blocked,
            priority: 0,
            created: jiff::Timestamp::UNIX_EPOCH,
        };
        busy.queue = vec![waiting("n1"), waiting("n2"), waiting("n3")];
        assert_eq!(made(&decide(&busy)).len(), 1, "one that waits will want its slot");
    }

    #[test]
    fn a_migration_says_why_it_was_made_and_has_one_name_until_it_is_over() {
        let mut one = guest("a", Some("LiveMigrate"), Some(true), &json!({"evacuationNodeName": "n1"}));
        let plan = decide(&view(false, vec![one.clone()]));
        assert_eq!(decide(&view(false, vec![one.clone()])), plan, "the same view, the same name");
        let first = made(&plan)[0].clone();
        let object = serde_json::to_value(&first).unwrap();
        assert!(first.metadata.name.as_ref().unwrap().starts_with("kubevirt-evacuation-"));
        assert_eq!(object["metadata"]["annotations"]["kubevirt.io/evacuationMigration"], "n1");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-a");
        assert_eq!((&object["spec"]["vmiName"], &object["spec"]["priority"]), (&json!("a"), &json!("system-critical")));
        let failed =
            json!({"metadata": {"name": "x", "uid": "x"}, "spec": {"vmiName": "a"}, "status": {"phase": "Failed"}});
        one.migrations.push(Arc::new(serde_json::from_value(failed).unwrap()));
        let again = decide(&view(false, vec![one.clone()]));
        assert_ne!(made(&again)[0].metadata.name, first.metadata.name, "another attempt has another name");
        let mut running = first;
        running.status = None;
        one.migrations.push(Arc::new(running));
        assert!(decide(&view(false, vec![one.clone()])).is_idle(), "one at a time");
        let mut vmi = (*one.vmi).clone();
        vmi.metadata.annotations = Some([("kubevirt.io/eviction-source".to_owned(), "descheduler".to_owned())].into());
        let patient = Guest { vmi: Arc::new(vmi), migrations: vec![], pods: 1 };
        let plan = decide(&view(false, vec![patient.clone()]));
        assert_eq!(made(&plan)[0].spec.priority, Some(MigrationPriority::SystemMaintenance));
        let crowded = Guest { pods: 2, ..patient };
        assert!(decide(&view(false, vec![crowded])).is_idle(), "a pod of an earlier move has to go first");
    }

    #[test]
    fn what_cannot_move_is_said_once() {
        let stuck = || vec![guest("a", Some("LiveMigrate"), Some(false), &json!({"evacuationNodeName": "n1"}))];
        let plan = decide(&view(false, stuck()));
        let [Action::Tell { said, note, .. }] = plan.actions.as_slice() else { panic!("{plan:?}") };
        assert!(note.message.contains("DisksNotLiveMigratable"), "{note:?}");
        let mut again = view(false, stuck());
        again.told = [said.clone()].into();
        assert!(decide(&again).is_idle());
    }
}
