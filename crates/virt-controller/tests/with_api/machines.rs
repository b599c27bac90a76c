//! Machines on a real API server, from their first start to their end.

use ferrovirt_api::vm::DataVolume;
use ferrovirt_kubernetes::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::world::{World, condition, small};

const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const GUESTS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

fn status_is(word: &'static str) -> impl Fn(&Value) -> bool {
    move |machine| machine["status"]["printableStatus"] == word
}

#[tokio::test]
async fn three_writes_of_its_own_bring_a_machine_up() {
    let world = World::new().await;
    let controller = world.controller();
    world.create_machine("web", "Always").await;
    let uid = world.bring_up("web").await;
    let machine = world.machine("web", "a running guest", status_is("Running")).await;
    assert_eq!((&machine["status"]["created"], &machine["status"]["ready"]), (&json!(true), &json!(true)));
    assert_eq!(condition(&machine, "Ready")["status"], "True");
    assert_eq!(machine["status"]["runStrategy"], "Always");
    assert_eq!(machine["status"]["observedGeneration"], machine["metadata"]["generation"]);

    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(guest["metadata"]["ownerReferences"][0]["uid"], machine["metadata"]["uid"]);
    assert_eq!(guest["metadata"]["annotations"]["kubevirt.io/vm-generation"], "1");
    let revision = format!("revision-start-vm-{}-1", machine["metadata"]["uid"].as_str().unwrap());
    assert_eq!(guest["status"]["virtualMachineRevisionName"], revision.as_str());

    // On a slow machine `Starting` and its event may have been written as well.
    let writes = controller.requests.writes();
    let own = |write: &&String| {
        write.contains("controllerrevisions") || write.contains("virtualmachines/") || write.ends_with(GUESTS)
    };
    let own: Vec<&String> = writes.iter().filter(own).collect();
    assert!((3..=4).contains(&own.len()), "{writes:#?}");
    let reads: Vec<String> = controller
        .requests
        .all()
        .into_iter()
        .filter(|request| request.ends_with("/web") && request.starts_with("GET"))
        .collect();
    assert!(reads.is_empty(), "a first start reads nothing: {reads:?}");

    world.patch_machine("web", json!({"spec": {"runStrategy": "Halted"}})).await;
    world.take_down("web", &uid).await;
    let machine = world.machine("web", "the end", status_is("Stopped")).await;
    assert_eq!(condition(&machine, "Ready")["reason"], "VMINotExists");
    assert_eq!(machine["status"]["created"], Value::Null);
    assert!(world.get(&format!("{GUESTS}/web")).await.is_none());
    world.end().await;
}

#[tokio::test]
async fn a_manual_machine_is_started_restarted_and_stopped_by_requests() {
    let world = World::new().await;
    let _controller = world.controller();
    world.create_machine("web", "Manual").await;
    world.machine("web", "a word about it", status_is("Stopped")).await;
    world.request("web", json!([{"action": "Start", "data": {"paused": "true"}}])).await;
    let first = world.bring_up("web").await;
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(guest["spec"]["startStrategy"], "Paused");
    let no_requests = |machine: &Value| machine["status"]["stateChangeRequests"].as_array().is_none_or(Vec::is_empty);
    world.machine("web", "the start served", |machine| no_requests(machine) && status_is("Running")(machine)).await;

    world.request("web", json!([{"action": "Stop", "uid": first}, {"action": "Start"}])).await;
    world.take_down("web", &first).await;
    world.guest("web", "the next guest", |guest| guest.is_object() && guest["metadata"]["uid"] != first.as_str()).await;
    let second = world.bring_up("web").await;
    world.machine("web", "the restart served", |machine| no_requests(machine) && status_is("Running")(machine)).await;

    world.request("web", json!([{"action": "Stop", "uid": second}])).await;
    world.take_down("web", &second).await;
    world.machine("web", "the stop served", |machine| no_requests(machine) && status_is("Stopped")(machine)).await;
    world.end().await;
}

#[tokio::test]
async fn a_machine_that_reruns_on_failure_does_and_rests_after_a_power_off() {
    let world = World::new().await;
    let _controller = world.controller();
    world.create_machine("web", "RerunOnFailure").await;
    let first = world.bring_up("web").await;
    world.end_guest("web", "Failed").await;
    world.take_down("web", &first).await;
    world.guest("web", "the next guest", |guest| guest.is_object() && guest["metadata"]["uid"] != first.as_str()).await;
    let second = world.bring_up("web").await;
    world.machine("web", "the next guest runs", status_is("Running")).await;
    world.end_guest("web", "Succeeded").await;
    world.take_down("web", &second).await;
    world.machine("web", "rest", status_is("Stopped")).await;
    assert!(world.get(&format!("{GUESTS}/web")).await.is_none());
    world.end().await;
}

#[tokio::test]
async fn a_start_that_fails_is_followed_by_a_pause() {
    let world = World::new().await;
    let _controller = world.controller();
    world.create_machine("web", "Always").await;
    let guest = world.guest("web", "a guest", Value::is_object).await;
    let uid = guest["metadata"]["uid"].as_str().unwrap();
    let pod = ferrovirt_pods::pod_name(&serde_json::from_value(guest.clone()).unwrap());
    world.pod(&pod, "its pod", Value::is_object).await;
    world.end_guest("web", "Failed").await;
    // A pod that no node has goes at once.
    let machine = world.machine("web", "the pause", status_is("CrashLoopBackOff")).await;
    let failure = &machine["status"]["startFailure"];
    assert_eq!((&failure["consecutiveFailCount"], &failure["lastFailedVMIUID"]), (&json!(1), &json!(uid)));
    assert!(failure["retryAfterTimestamp"].is_string());
    world.end().await;
}

#[tokio::test]
async fn a_deleted_machine_takes_its_guest_along_or_leaves_it() {
    let world = World::new().await;
    let _controller = world.controller();
    world.create_machine("web", "Always").await;
    let uid = world.bring_up("web").await;
    world.machine("web", "a running guest", status_is("Running")).await;
    world.vms().delete("web", &DeleteParams::default()).await.unwrap();
    world.machine("web", "its end", status_is("Terminating")).await;
    world.take_down("web", &uid).await;
    world.machine("web", "nothing", Value::is_null).await;
    assert!(world.get(&format!("{GUESTS}/web")).await.is_none());

    world.create_machine("db", "Always").await;
    world.bring_up("db").await;
    world.machine("db", "a running guest", status_is("Running")).await;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    world.vms().delete("db", &orphan).await.unwrap();
    world.machine("db", "nothing", Value::is_null).await;
    let guest = world.guest("db", "its guest alone", |guest| guest["metadata"]["ownerReferences"].is_null()).await;
    assert_eq!(guest["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(guest["metadata"]["finalizers"], json!(["kubevirt.io/foregroundDeleteVirtualMachine"]));

    // Made again, the machine finds its guest.
    world.create_machine("db", "Always").await;
    let machine = world.machine("db", "the adoption", status_is("Running")).await;
    let guest = world.guest("db", "the guest", Value::is_object).await;
    assert_eq!(guest["metadata"]["ownerReferences"][0]["uid"], machine["metadata"]["uid"]);
    world.end().await;
}

#[tokio::test]
async fn what_a_machine_lacks_it_gets_and_says() {
    let world = World::new().await;
    let _controller = world.controller();
    let bare = json!({"metadata": {"name": "bare"}, "spec": {"running": false, "template": {"spec": small()}}});
    world.vms().create(&Default::default(), &serde_json::from_value(bare).unwrap()).await.unwrap();
    let machine = world.machine("bare", "a word about it", status_is("Stopped")).await;
    assert_eq!(machine["metadata"]["finalizers"], json!(["kubevirt.io/virtualMachineControllerFinalize"]));
    let uuid = &machine["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"];
    assert_eq!(uuid.as_str().map(str::len), Some(36));
    world.request("bare", json!([{"action": "Start", "data": {"paused": "true"}}])).await;
    let guest = world.guest("bare", "a guest", Value::is_object).await;
    assert_eq!(
        (&guest["spec"]["startStrategy"], &guest["spec"]["domain"]["firmware"]["uuid"]),
        (&json!("Paused"), uuid)
    );
    let machine = world.get(&format!("{MACHINES}/bare")).await.unwrap();
    assert_eq!(machine["spec"]["running"], true, "the start was asked for");

    let mut spec = small();
    spec["volumes"] = json!([{"name": "disk", "dataVolume": {"name": "data"}}]);
    let source = json!({"blank": {}});
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"source": source, "storage": {}}}]);
    let spec = json!({"runStrategy": "Always", "dataVolumeTemplates": templates, "template": {"spec": spec}});
    world.create_machine_with("imported", spec).await;
    let machine = world.machine("imported", "the trouble", |machine| !condition(machine, "Failure").is_null()).await;
    let message = condition(&machine, "Failure")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("does not serve DataVolumes") && message.contains("data"), "{message}");
    world.end().await;
}

/// The importer's kind, as far as anybody here looks at it.
fn data_volume_definition() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}});
    let names =
        json!({"kind": "DataVolume", "listKind": "DataVolumeList", "plural": "datavolumes", "singular": "datavolume"});
    let spec = json!({"group": "cdi.kubevirt.io", "scope": "Namespaced", "names": names, "versions": [version]});
    serde_json::from_value(json!({"metadata": {"name": "datavolumes.cdi.kubevirt.io"}, "spec": spec})).unwrap()
}

#[tokio::test]
async fn an_importer_that_comes_later_is_noticed() {
    let world = World::new().await;
    let _controller = world.controller();
    let mut spec = small();
    spec["volumes"] = json!([{"name": "disk", "dataVolume": {"name": "data"}}]);
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}, "storage": {}}}]);
    let spec = json!({"runStrategy": "Always", "dataVolumeTemplates": templates, "template": {"spec": spec}});
    world.create_machine_with("web", spec).await;
    world.machine("web", "the trouble", |machine| !condition(machine, "Failure").is_null()).await;

    let definitions: Api<CustomResourceDefinition> = Api::all(world.admin());
    definitions.create(&PostParams::default(), &data_volume_definition()).await.unwrap();
    let machine = world.machine("web", "the wait", status_is("Provisioning")).await;
    assert_eq!(condition(&machine, "Failure"), Value::Null, "solved");
    let volumes: Api<DataVolume> = Api::default_namespaced(world.admin());
    let volume = volumes.get("data").await.unwrap();
    assert_eq!(volume.metadata.owner_references.unwrap()[0].uid, machine["metadata"]["uid"].as_str().unwrap());

    let filled = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    volumes.patch("data", &PatchParams::default(), &filled).await.unwrap();
    world.guest("web", "a guest", Value::is_object).await;
    world.end().await;
}
