//! The controller on a real API server, with a node that the tests play.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machines;
mod moves;
mod world;

use ferrovirt_kubernetes::PersistentVolumeClaim;
use ferrovirt_virt_controller::ControllerConfig;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{ASKED, NODE, Running, World, condition, running, small};

const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/web";

#[tokio::test]
async fn two_writes_bring_a_guest_to_its_node_and_deletion_takes_all_away() {
    let world = World::new().await;
    let controller = world.controller();
    let pod = world.create_guest("web", small()).await;
    let made = world.pod(&pod, "the launcher pod", Value::is_object).await;
    assert_eq!(made["spec"]["containers"][0]["image"], "host.ferrovirt.io/usr");
    world.start_pod(&pod).await;
    let guest = world.guest("web", "the hand-over", |guest| guest["status"]["phase"] == "Scheduled").await;
    assert_eq!(guest["metadata"]["labels"]["kubevirt.io/nodeName"], NODE);
    assert_eq!(guest["status"]["nodeName"], NODE);
    assert_eq!(guest["status"]["activePods"], json!({ made["metadata"]["uid"].as_str().unwrap(): NODE }));
    let overhead = &made["metadata"]["annotations"]["kubevirt.io/memory-overhead-bytes"];
    let overhead: u64 = overhead.as_str().unwrap().parse().unwrap();
    assert_eq!(guest["status"]["memory"]["memoryOverhead"], format!("{}Mi", overhead >> 20));
    let patched = format!("PATCH {VMI}");
    assert_eq!(controller.requests.writes(), ["POST /api/v1/namespaces/default/pods", patched.as_str()]);

    // The handler takes over; nothing more is written.
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    world.patch_guest("web", json!({"status": {"phase": "Running", "conditions": conditions}})).await;
    world.vmis().delete("web", &DeleteParams::default()).await.unwrap();
    world.pod(&pod, "its deletion", |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    let guest =
        world.guest("web", "the end of its service", |guest| condition(guest, "Ready")["status"] == "False").await;
    assert_eq!(condition(&guest, "Ready")["reason"], "PodTerminating");
    assert_eq!(guest["metadata"]["finalizers"].as_array().map(Vec::len), Some(1), "held while the pod is there");
    world.remove_pod(&pod).await;
    world.guest("web", "nothing", Value::is_null).await;
    drop(controller);
    world.end().await;
}

#[tokio::test]
async fn what_the_api_server_does_with_image_volumes_is_found_out_before_the_first_pod() {
    let world = World::new().await;
    let spec = json!({
        "domain": {"memory": {"guest": "64Mi"}, "devices": {}},
        "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
    });
    let tried = "POST /api/v1/namespaces/default/pods";
    let asks =
        |namespace: &str| ControllerConfig { ask_in_namespace: Some(namespace.to_owned()), ..Default::default() };
    let controller = world.start(usize::MAX, asks("default"));
    let pod = world.create_guest("web", spec.clone()).await;
    let made = world.pod(&pod, "the launcher pod", Value::is_object).await;
    assert!(made["spec"]["initContainers"].is_null(), "this server keeps them");
    assert_eq!(controller.requests.writes()[..2], [tried, tried]);
    assert_eq!(world.pods().list(&ListParams::default()).await.unwrap().items.len(), 1, "it was only asked to try");
    drop(controller);
    // Nothing can be tried there: what works everywhere is taken.
    let _controller = world.start(usize::MAX, asks("missing"));
    let pod = world.create_guest("other", spec).await;
    let made = world.pod(&pod, "the launcher pod", Value::is_object).await;
    assert_eq!(made["spec"]["initContainers"][1]["name"], "volumeroot");
    world.end().await;
}

#[tokio::test]
async fn a_guest_waits_for_its_claim_and_says_so() {
    let world = World::new().await;
    let _controller = world.controller();
    let mut spec = small();
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let pod = world.create_guest("web", spec).await;
    let guest = world.guest("web", "the condition", |guest| !condition(guest, "Synchronized").is_null()).await;
    let synchronized = condition(&guest, "Synchronized");
    assert_eq!(synchronized["reason"], "FailedPvcNotFound");
    assert_eq!(synchronized["message"], "persistentvolumeclaim \"disk\" not found");
    assert!(world.pods().get_opt(&pod).await.unwrap().is_none());

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.admin());
    let claim = json!({"metadata": {"name": "disk"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}},
    }});
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let made = world.pod(&pod, "the launcher pod", Value::is_object).await;
    assert_eq!(made["spec"]["containers"][0]["volumeDevices"][0]["devicePath"], "/dev/data");
    world.start_pod(&pod).await;
    let guest = world.guest("web", "the hand-over", |guest| guest["status"]["phase"] == "Scheduled").await;
    assert_eq!(condition(&guest, "Synchronized"), Value::Null, "solved");
    let info = &guest["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"];
    assert_eq!((&info["claimName"], &info["volumeMode"]), (&json!("disk"), &json!("Block")));
    world.end().await;
}

#[tokio::test]
async fn trouble_of_the_pod_is_trouble_of_the_guest() {
    let world = World::new().await;
    let _controller = world.controller();
    let mut spec = small();
    spec["domain"]["machine"] = json!({"type": "odd"});
    let pod = world.create_guest("web", spec).await;
    world.pod(&pod, "the launcher pod", Value::is_object).await;
    let unschedulable = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]);
    world.set_pod_status(&pod, json!({ "conditions": unschedulable })).await;
    let guest = world.guest("web", "the condition", |guest| !condition(guest, "PodScheduled").is_null()).await;
    assert_eq!(guest["status"]["phase"], "Scheduling");
    let message = condition(&guest, "PodScheduled")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("machine-type.node.kubevirt.io/odd=true"), "{message}");

    world.place(&pod).await;
    let ended = json!({"phase": "Failed", "containerStatuses": [{
        "name": "compute", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "message": r#"{"reason":"failed","message":"libvirt did not start"}"#}},
    }]});
    world.set_pod_status(&pod, ended).await;
    let guest = world.guest("web", "the failure", |guest| guest["status"]["phase"] == "Failed").await;
    let message = condition(&guest, "Synchronized")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("libvirt did not start"), "{message}");
    world.end().await;
}

#[tokio::test]
async fn the_configuration_is_followed() {
    let world = World::new().await;
    let _controller = world.controller();
    let mut spec = small();
    spec["volumes"] = json!([{"name": "data", "hostDisk": {"path": "/var/vms/a.img", "type": "Disk"}}]);
    let pod = world.create_guest("web", spec).await;
    let guest = world.guest("web", "the refusal", |guest| !condition(guest, "Synchronized").is_null()).await;
    assert_eq!(condition(&guest, "Synchronized")["reason"], "FailedCreate");
    let kubevirts: Api<ferrovirt_api::KubeVirt> = Api::default_namespaced(world.admin());
    let configuration = json!({"developerConfiguration": {"featureGates": ["HostDisk"]}});
    let kubevirt = json!({"metadata": {"name": "kubevirt"}, "spec": {"configuration": configuration}});
    kubevirts.create(&PostParams::default(), &serde_json::from_value(kubevirt).unwrap()).await.unwrap();
    world.pod(&pod, "the launcher pod", Value::is_object).await;
    world.end().await;
}

#[tokio::test]
async fn a_pod_of_somebody_else_is_left_alone() {
    let world = World::new().await;
    let pod = world.create_guest("web", small()).await;
    let foreign = json!({"metadata": {"name": pod}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.pods().create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let _controller = world.controller();
    let guest = world.guest("web", "the refusal", |guest| !condition(guest, "Synchronized").is_null()).await;
    assert_eq!(condition(&guest, "Synchronized")["reason"], "FailedCreate");
    assert_eq!(guest["status"]["phase"], "Pending");
    world.vmis().delete("web", &DeleteParams::default()).await.unwrap();
    world.guest("web", "nothing", Value::is_null).await;
    assert!(world.pods().get_opt(&pod).await.unwrap().unwrap().metadata.deletion_timestamp.is_none());
    world.end().await;
}

#[tokio::test]
async fn a_pod_that_only_lost_its_label_does_not_end_a_guest() {
    let world = World::new().await;
    let controller = world.controller();
    let pod = world.create_guest("web", small()).await;
    world.pod(&pod, "the launcher pod", Value::is_object).await;
    world.start_pod(&pod).await;
    world.guest("web", "the hand-over", |guest| guest["status"]["phase"] == "Scheduled").await;
    let hidden = Patch::Merge(json!({"metadata": {"labels": {"kubevirt.io": null}}}));
    world.pods().patch(&pod, &PatchParams::default(), &hidden).await.unwrap();
    let look = format!("GET /api/v1/namespaces/default/pods/{pod}");
    world.until("a second look", || async { controller.requests.all().contains(&look) }).await;
    let guest = world.guest("web", "the guest", Value::is_object).await;
    assert_eq!(guest["status"]["phase"], "Scheduled");

    // Gone for good: now it is true, once its node says that nothing of it runs.
    world.lose_pod(&pod).await;
    let guest = world.guest("web", "the question", |guest| guest["metadata"]["labels"][ASKED] == NODE).await;
    assert_eq!(condition(&guest, "PodUnaccounted")["status"], "True");
    assert_eq!(guest["status"]["phase"], "Scheduled");
    world.answer("web", NODE).await;
    let guest = world.guest("web", "the failure", |guest| guest["status"]["phase"] == "Failed").await;
    assert_eq!(guest["status"]["reason"], "PodNotExists");
    world.end().await;
}

#[tokio::test]
async fn of_two_candidates_one_works() {
    let world = World::new().await;
    let candidates = [world.candidate("first"), world.candidate("second")];
    let pod = world.create_guest("web", small()).await;
    world.pod(&pod, "the launcher pod", Value::is_object).await;
    let made_pods = |running: &&Running| running.requests.writes().iter().any(|write| write.ends_with("/pods"));
    assert_eq!(candidates.iter().filter(made_pods).count(), 1);
    world.end().await;
}

/// The controller is killed after its k-th write, for every k, and another one goes on.
#[tokio::test]
async fn whoever_dies_after_any_write_is_followed_by_one_that_ends_the_same_way() {
    for deadly_write in 1..=5 {
        let world = World::new().await;
        let first = world.controller_that_dies_after(deadly_write);
        let mut second = None;
        let pod = world.create_guest("web", small()).await;
        for step in 0.. {
            let revision = world.revision();
            if first.requests.writes().len() >= deadly_write && second.is_none() {
                second = Some(world.controller());
            }
            let pods = world.pods().list(&ListParams::default()).await.unwrap().items;
            assert!(pods.len() <= 1, "two pods after write {deadly_write}");
            let guest = serde_json::to_value(world.vmis().get_opt("web").await.unwrap()).unwrap();
            let launcher = serde_json::to_value(pods.first()).unwrap();
            if guest.is_null() {
                assert!(pods.is_empty(), "the pod outlived its guest");
                break;
            }
            play(&world, &pod, &guest, &launcher).await;
            assert!(step < 1000, "write {deadly_write}: stuck with {guest} {launcher}");
            world.changed_since(revision).await;
        }
        drop((first, second));
        world.end().await;
    }
}

/// Scheduler, node and user: each does the next thing that is its to do.
async fn play(world: &World, pod: &str, guest: &Value, launcher: &Value) {
    let is_deleted = launcher["metadata"]["deletionTimestamp"].is_string();
    let has_pods = guest["status"]["activePods"].as_object().is_some_and(|pods| !pods.is_empty());
    if launcher.is_null() && guest["metadata"]["labels"][ASKED] == NODE && has_pods {
        return world.answer("web", NODE).await;
    }
    if launcher.is_object() && launcher["spec"]["nodeName"].is_null() {
        world.place(pod).await;
    } else if launcher["status"]["phase"] == "Pending" && !is_deleted {
        world.set_pod_status(pod, running()).await;
    } else if is_deleted {
        world.remove_pod(pod).await;
    } else if guest["status"]["phase"] == "Scheduled" && guest["metadata"]["deletionTimestamp"].is_null() {
        world.vmis().delete("web", &DeleteParams::default()).await.unwrap();
    }
}
