//! Moves of guests on a real API server: the tests play scheduler, nodes and both virt-handlers.

use std::collections::BTreeMap;

use ferrovirt_api::names::finalizers;
use ferrovirt_kubernetes::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{ASKED, NODE, World, condition, ended, running, small};

const OTHER: &str = "node-2";

impl World {
    /// A guest that runs on `node` and can move; returns its pod.
    async fn movable_guest(&self, name: &str, node: &str) -> String {
        let pod = self.create_guest(name, small()).await;
        self.pod(&pod, "the launcher pod", Value::is_object).await;
        self.place_on(&pod, node).await;
        self.set_pod_status(&pod, running()).await;
        self.guest(name, "the hand-over", |guest| guest["status"]["phase"] == "Scheduled").await;
        let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "LiveMigratable", "status": "True"}]);
        self.patch_guest(name, json!({"status": {"phase": "Running", "conditions": conditions}})).await;
        pod
    }

    /// Asks for a move as virt-api lets it in.
    async fn ask_to_move(&self, name: &str, guest: &str, annotations: Value) {
        let object = json!({
            "metadata": {"name": name, "finalizers": [finalizers::MIGRATION], "annotations": annotations}, "spec": {"vmiName": guest},
        });
        self.migrations().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn all_pods(&self) -> Vec<Value> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        pods.iter().map(|pod| serde_json::to_value(pod).unwrap()).collect()
    }

    /// The pod of the move with this name.
    async fn target(&self, migration: &str) -> Option<Value> {
        let is_target = |pod: &Value| pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] == migration;
        self.all_pods().await.into_iter().find(is_target)
    }

    /// The target pod comes up on `node`.
    async fn start_target(&self, migration: &str, node: &str) -> String {
        self.until("the target pod", || async { self.target(migration).await.is_some() }).await;
        let pod = self.target(migration).await.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        self.place_on(&pod, node).await;
        self.set_pod_status(&pod, running()).await;
        pod
    }

    async fn patch_move(&self, guest: &str, state: Value) {
        self.patch_guest(guest, json!({"status": {"migrationState": state}})).await;
    }

    /// What the target's handler writes when its launcher runs the guest.
    async fn take_over(&self, guest: &str, node: &str) {
        let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
        let state = json!({"completed": true, "endTimestamp": now.to_string()});
        let status = json!({"nodeName": node, "migrationState": state, "evacuationNodeName": null});
        self.patch_guest(guest, json!({"metadata": {"labels": {"kubevirt.io/nodeName": node}}, "status": status}))
            .await;
    }
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_guest_moves_with_six_writes_and_its_old_pod_goes() {
    let world = World::new().await;
    let controller = world.controller();
    let source = world.movable_guest("web", NODE).await;
    let before = controller.requests.writes().len();
    world.ask_to_move("away", "web", Value::Null).await;
    let target = world.start_target("away", OTHER).await;
    let is_handed_off = |guest: &Value| guest["status"]["migrationState"]["targetNode"] == OTHER;
    let guest = world.guest("web", "the hand-off", is_handed_off).await;
    let state = &guest["status"]["migrationState"];
    assert_eq!((&state["sourceNode"], &state["sourcePod"]), (&json!(NODE), &json!(source)));
    assert_eq!(state["targetPod"], target.as_str());
    assert_eq!(state["migrationConfiguration"]["parallelMigrationsPerCluster"], 5);
    assert_eq!(guest["metadata"]["labels"]["kubevirt.io/migrationTargetNodeName"], OTHER);
    assert_eq!(guest["status"]["nodeName"], NODE, "the source owns the guest");
    world.migration("away", "its preparation", |it| phase(it) == "PreparingTarget").await;

    world.patch_move("web", json!({"targetNodeAddress": "192.0.2.2"})).await;
    world.patch_move("web", json!({"startTimestamp": "2026-01-01T00:00:00Z"})).await;
    world.migration("away", "its start", |it| phase(it) == "Running").await;
    world.take_over("web", OTHER).await;
    let done = world.migration("away", "its end", |it| phase(it) == "Succeeded").await;
    assert_eq!(done["status"]["migrationState"]["targetNode"], OTHER);
    let stamps = done["status"]["phaseTransitionTimestamps"].as_array().unwrap();
    assert_eq!(stamps.len(), 7, "every phase has its time: {stamps:?}");
    let writes = controller.requests.writes().split_off(before);
    let of_the_move: Vec<_> = writes.iter().filter(|write| !write.contains("/events")).collect();
    let kinds = |part: &str| of_the_move.iter().filter(|write| write.contains(part)).count();
    assert_eq!((kinds("POST /api/v1/namespaces/default/pods"), kinds("virtualmachineinstancemigrations")), (1, 4));
    assert!(kinds("virtualmachineinstances/") <= 2, "hand-off, and perhaps what is active: {of_the_move:?}");

    world.set_pod_status(&source, ended()).await;
    world.pod(&source, "its deletion", |pod| pod.is_null() || pod["metadata"]["deletionTimestamp"].is_string()).await;
    let kept = world.pod(&target, "the guest's pod", Value::is_object).await;
    assert!(kept["metadata"]["deletionTimestamp"].is_null());
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(phase(&guest), "Running");
    assert_eq!(condition(&guest, "Ready")["status"], "True");
    drop(controller);
    world.end().await;
}

#[tokio::test]
async fn a_move_is_cancelled_before_and_after_the_nodes_were_told() {
    let world = World::new().await;
    let _controller = world.controller();
    let source = world.movable_guest("web", NODE).await;
    world.ask_to_move("early", "web", Value::Null).await;
    world.until("the target pod", || async { world.target("early").await.is_some() }).await;
    world.migrations().delete("early", &DeleteParams::default()).await.unwrap();
    let is_gone = |pod: Option<Value>| pod.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    world.until("the pod's end", || async { is_gone(world.target("early").await) }).await;
    world.migration("early", "its end", Value::is_null).await;
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(guest["status"]["migrationState"], Value::Null, "the guest never heard of it");

    world.ask_to_move("late", "web", Value::Null).await;
    let target = world.start_target("late", OTHER).await;
    world.guest("web", "the hand-off", |guest| guest["status"]["migrationState"]["targetNode"] == OTHER).await;
    world.migrations().delete("late", &DeleteParams::default()).await.unwrap();
    let asked = |guest: &Value| guest["status"]["migrationState"]["abortRequested"] == true;
    world.guest("web", "the request", asked).await;
    let aborting =
        world.migration("late", "the condition", |it| !condition(it, "migrationAbortRequested").is_null()).await;
    assert_ne!(phase(&aborting), "Failed", "the nodes have the word");
    let pod = world.pod(&target, "the target pod", Value::is_object).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "the target may have the guest");
    world.patch_move("web", json!({"failed": true, "failureReason": "asked to stop"})).await;
    world.pod(&target, "its end", |pod| pod.is_null() || pod["metadata"]["deletionTimestamp"].is_string()).await;
    world.migration("late", "its end", Value::is_null).await;
    let pod = world.pod(&source, "the guest's pod", Value::is_object).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    world.end().await;
}

#[tokio::test]
async fn a_target_that_finds_no_node_is_given_up_and_another_move_is_refused_meanwhile() {
    let world = World::new().await;
    let _controller = world.controller();
    world.movable_guest("web", NODE).await;
    let short = json!({"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "2"});
    world.ask_to_move("stuck", "web", short).await;
    world.migration("stuck", "its pod", |it| phase(it) == "Scheduling").await;
    world.ask_to_move("second", "web", Value::Null).await;
    let second = world.migration("second", "its refusal", |it| phase(it) == "Failed").await;
    assert_eq!(condition(&second, "Failure")["reason"], "AnotherMigration");
    let failed = world.migration("stuck", "its end", |it| phase(it) == "Failed").await;
    assert_eq!(condition(&failed, "Failure")["reason"], "TargetUnschedulable");
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!((phase(&guest), &guest["status"]["nodeName"]), ("Running", &json!(NODE)));
    world.end().await;
}

#[tokio::test]
async fn a_lost_target_is_spoken_for_without_a_word_about_the_guest() {
    let world = World::new().await;
    let _controller = world.controller();
    world.movable_guest("web", NODE).await;
    world.ask_to_move("away", "web", Value::Null).await;
    let target = world.start_target("away", OTHER).await;
    world.guest("web", "the hand-off", |guest| guest["status"]["migrationState"]["targetNode"] == OTHER).await;
    world.lose_pod(&target).await;
    let guest = world.guest("web", "the question", |guest| guest["metadata"]["labels"][ASKED] == OTHER).await;
    assert_eq!(guest["status"]["migrationState"]["failed"], Value::Null, "it may run there");
    world.answer("web", OTHER).await;
    let guest = world.guest("web", "the failure", |guest| guest["status"]["migrationState"]["failed"] == true).await;
    assert_eq!(guest["status"]["migrationState"]["sourceMayResume"], Value::Null, "nobody knows whether it ran");
    assert_eq!(phase(&guest), "Running", "the source's handler says what became of the guest");
    world.migration("away", "its end", |it| phase(it) == "Failed").await;
    world.end().await;
}

#[tokio::test]
async fn a_marked_guest_is_moved_and_one_that_cannot_move_says_why() {
    let world = World::new().await;
    let _controller = world.controller();
    world.movable_guest("web", NODE).await;
    world.movable_guest("stuck", NODE).await;
    let stuck =
        json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "disk a"}]);
    let status = json!({"evacuationNodeName": NODE, "conditions": stuck});
    world.patch_guest("stuck", json!({"spec": {"evictionStrategy": "LiveMigrate"}, "status": status})).await;
    world
        .patch_guest(
            "web",
            json!({"spec": {"evictionStrategy": "LiveMigrate"}, "status": {"evacuationNodeName": NODE}}),
        )
        .await;
    let list = || async { world.migrations().list(&ListParams::default()).await.unwrap().items };
    world.until("a migration", || async { !list().await.is_empty() }).await;
    let made = list().await.remove(0);
    let name = made.metadata.name.clone().unwrap();
    assert!(name.starts_with("kubevirt-evacuation-"), "{name}");
    assert_eq!(made.spec.vmi_name, "web");
    world.start_target(&name, OTHER).await;
    world.guest("web", "the hand-off", |guest| guest["status"]["migrationState"]["targetNode"] == OTHER).await;
    world.take_over("web", OTHER).await;
    world.migration(&name, "its end", |it| phase(it) == "Succeeded").await;
    let blocked = |guest: &Value| {
        condition(guest, "EvictionRequested")["message"].as_str().is_some_and(|message| message.contains("disk a"))
    };
    world.guest("stuck", "the reason", blocked).await;
    assert_eq!(list().await.len(), 1, "nothing was made for the one that cannot move");
    world.end().await;
}

#[tokio::test]
async fn a_guest_whose_migration_is_refused_keeps_nobody_else_on_its_node() {
    let world = World::new().await;
    let _controller = world.controller();
    // The migration would have the name as a label, and labels have at most 63 characters.
    let refused = "a".repeat(70);
    for name in [refused.as_str(), "web"] {
        world.movable_guest(name, NODE).await;
        let marked = json!({"spec": {"evictionStrategy": "LiveMigrate"}, "status": {"evacuationNodeName": NODE}});
        world.patch_guest(name, marked).await;
    }
    let list = || async { world.migrations().list(&ListParams::default()).await.unwrap().items };
    world.until("a migration", || async { !list().await.is_empty() }).await;
    assert_eq!(list().await[0].spec.vmi_name, "web");
    world.end().await;
}

#[tokio::test]
async fn a_fenced_node_fails_its_guests_and_a_silent_one_does_not() {
    let world = World::new().await;
    let _controller = world.controller();
    let pod = world.movable_guest("web", NODE).await;
    let nodes: Api<Node> = Api::all(world.admin());
    for name in [NODE, "empty"] {
        let node = json!({"metadata": {
            "name": name, "labels": {"kubevirt.io/schedulable": "true"}, "annotations": {"kubevirt.io/heartbeat": "\"2026-01-01T00:00:00Z\""},
        }});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    let unknown = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    nodes.patch_status(NODE, &PatchParams::default(), &unknown).await.unwrap();
    let label =
        async |name: &str| nodes.get(name).await.unwrap().0.metadata.labels.unwrap()["kubevirt.io/schedulable"].clone();
    world.until("the closed node", || async { label("empty").await == "false" }).await;
    assert_eq!(label(NODE).await, "true", "a guest runs there");
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(phase(&guest), "Running", "silence is no evidence");
    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
    let guest = world.guest("web", "the failure", |guest| phase(guest) == "Failed").await;
    assert_eq!(guest["status"]["reason"], "NodeUnresponsive");
    assert!(world.pods().get_opt(&pod).await.unwrap().is_some());
    world.end().await;
}

/// Counts moves that hold a slot, and checks them against the limits.
fn check_limits(pods: &[Value], guests: &BTreeMap<String, String>, finished: &[String]) -> usize {
    let mut by_node = BTreeMap::<&str, usize>::new();
    for pod in pods {
        let job = pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"].as_str();
        let Some(job) = job.filter(|job| !finished.contains(&(*job).to_owned())) else { continue };
        *by_node.entry(&guests[job]).or_default() += 1;
    }
    let total = by_node.values().sum();
    assert!(total <= 5, "{by_node:?}");
    assert!(by_node.values().all(|count| *count <= 2), "{by_node:?}");
    total
}

#[tokio::test]
async fn twelve_moves_never_take_more_than_their_slots() {
    let world = World::new().await;
    let _controller = world.controller();
    let mut guests = BTreeMap::new();
    for index in 0..12 {
        let (guest, node) = (format!("g{index}"), format!("from-{}", index % 3));
        world.movable_guest(&guest, &node).await;
        guests.insert(format!("m{index}"), node);
    }
    for index in 0..12 {
        world.ask_to_move(&format!("m{index}"), &format!("g{index}"), Value::Null).await;
    }
    let mut most = 0;
    loop {
        let revision = world.revision();
        let moves = world.migrations().list(&ListParams::default()).await.unwrap().items;
        let moves: Vec<_> = moves.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        let done = |it: &&Value| phase(it) == "Succeeded";
        let finished: Vec<String> =
            moves.iter().filter(done).map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        // Read after the moves: a pod that is new here is one of a move that was not over then.
        let pods = world.all_pods().await;
        most = most.max(check_limits(&pods, &guests, &finished));
        if finished.len() == 12 {
            break;
        }
        if !play_one(&world, &moves, &pods).await {
            world.changed_since(revision).await;
        }
    }
    assert_eq!(most, 5, "all slots were used at some time");
    world.end().await;
}

/// Scheduler, nodes and handlers: somebody does the next thing that is theirs to do.
async fn play_one(world: &World, moves: &[Value], pods: &[Value]) -> bool {
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if pod["spec"]["nodeName"].is_null() {
            world.place_on(name, "to").await;
            return true;
        }
        if phase(pod) == "Pending" {
            world.set_pod_status(name, running()).await;
            return true;
        }
    }
    for it in moves.iter().filter(|it| phase(it) == "PreparingTarget") {
        let guest = it["spec"]["vmiName"].as_str().unwrap();
        let object = serde_json::to_value(world.vmis().get(guest).await.unwrap()).unwrap();
        if object["status"]["nodeName"] != "to" {
            world.take_over(guest, "to").await;
            return true;
        }
    }
    false
}

/// The controller is killed after its k-th write, for every k, and another one goes on.
#[tokio::test]
async fn a_move_ends_the_same_way_whenever_the_controller_dies() {
    for deadly_write in 1..=8 {
        let world = World::new().await;
        let prologue = world.controller();
        let source = world.movable_guest("web", NODE).await;
        drop(prologue);
        let first = world.controller_that_dies_after(deadly_write);
        let mut second = None;
        world.ask_to_move("away", "web", Value::Null).await;
        for step in 0.. {
            let revision = world.revision();
            if first.requests.writes().len() >= deadly_write && second.is_none() {
                second = Some(world.controller());
            }
            let moves = [serde_json::to_value(world.migrations().get("away").await.unwrap()).unwrap()];
            let pods = world.all_pods().await;
            assert!(pods.len() <= 2, "a third pod after write {deadly_write}");
            if phase(&moves[0]) == "Succeeded" {
                break;
            }
            assert_ne!(phase(&moves[0]), "Failed", "write {deadly_write}: {}", moves[0]);
            assert!(step < 1000, "write {deadly_write}: stuck with {}", moves[0]);
            if !play_one(&world, &moves, &pods).await {
                world.changed_since(revision).await;
            }
        }
        let left: Option<Pod> = world.pods().get_opt(&source).await.unwrap();
        assert!(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_none()), "the old pod ends by itself");
        drop((first, second));
        world.end().await;
    }
}
