//! A simulated kubelet: it starts launchers, tells how they are, and ends them when their pods are deleted.
//!
//! It sees the store as it is, at its own pace; what lagging watches do to controllers is tested with the real ones.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{FinalWords, OffReason};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::component::Life;
use crate::machine::{Machine, node_name};
use crate::world::{NAMESPACE, World};

/// How long nothing may happen before it looks again.
const TICK: Duration = Duration::from_secs(2);

/// Runs until its life is over.
pub(crate) async fn run(world: Arc<World>, node: usize, client: Client, life: Life) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    loop {
        let seen = world.server.store.revision();
        for pod in world.pods().iter().filter(|pod| pod["spec"]["nodeName"] == node_name(node)) {
            life.or_never().await;
            // What fails is tried again with the next look.
            let _ = step(&world, node, &pods, pod).await;
        }
        end_orphans(&world, node, &life).await;
        tokio::select! {
            biased;
            () = world.server.store.wait_for(seen + 1) => {}
            () = world.machine.ended.notified() => {}
            () = tokio::time::sleep(TICK) => {}
        }
        world.pause(10..300).await;
    }
}

async fn step(world: &Arc<World>, node: usize, pods: &Api<Pod>, pod: &Value) -> Result<(), kube::Error> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, uid, phase) = (text("/metadata/name"), text("/metadata/uid"), text("/status/phase"));
    let is_deleted = !text("/metadata/deletionTimestamp").is_empty();
    let Some(process) = world.machine.process(uid) else {
        if is_deleted {
            return remove(pods, name, uid).await;
        }
        world.pause(50..1_500).await;
        let owner = &pod["metadata"]["ownerReferences"][0];
        let guest = |field: &str| owner[field].as_str().unwrap_or_default();
        Machine::start(world, uid, node, guest("name"), guest("uid"));
        return tell(pods, name, &running()).await;
    };
    if let Some(ending) = process.ended() {
        if !matches!(phase, "Succeeded" | "Failed") {
            tell(pods, name, &ended(ending.words.as_ref())).await?;
        }
        return if is_deleted { remove(pods, name, uid).await } else { Ok(()) };
    }
    if is_deleted {
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
        process.ask_to_end(world, Duration::from_secs(grace), "the kubelet");
    }
    if phase == "Pending" { tell(pods, name, &running()).await } else { Ok(()) }
}

/// What runs without a pod's object is ended, some time after the object has gone.
async fn end_orphans(world: &Arc<World>, node: usize, life: &Life) {
    for process in world.machine.living().into_iter().filter(|process| process.node == node) {
        let pods = world.pods();
        if pods.iter().all(|pod| pod["metadata"]["uid"] != *process.pod_uid) && !process.was_asked_to_end() {
            world.pause(0..5_000).await;
            life.or_never().await;
            process.ask_to_end(world, Duration::from_millis(world.roll(0..30_000)), "the kubelet");
        }
    }
}

async fn tell(pods: &Api<Pod>, name: &str, status: &Value) -> Result<(), kube::Error> {
    let patch = json!({"status": status});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// Nothing of the pod is left: its object may go.
async fn remove(pods: &Api<Pod>, name: &str, uid: &str) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
    pods.delete(name, &params).await.map(drop)
}

fn container(ready: bool, state: &Value) -> Value {
    json!({"name": "compute", "image": "i", "imageID": "i", "ready": ready, "restartCount": 0, "state": state})
}

fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.0.0.2",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [container(true, &json!({"running": {}}))],
    })
}

fn ended(words: Option<&FinalWords>) -> Value {
    let fine =
        |words: &FinalWords| matches!(words.reason, OffReason::Shutdown | OffReason::Destroyed | OffReason::Migrated);
    let fine = words.is_some_and(fine);
    let message = words.map_or(String::new(), |words| serde_json::to_string(words).unwrap_or_default());
    let state = json!({"terminated": {"exitCode": i32::from(!fine), "message": message}});
    json!({
        "phase": if fine { "Succeeded" } else { "Failed" },
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [container(false, &state)],
    })
}
