//! Whoever drains a node: asks for the eviction of a guest's pods there, as `kubectl drain` does, again and again until none is left.
//!
//! virt-api answers "later" and has the guest moved instead, so no eviction of a pod that a guest needs may ever be accepted.

use std::sync::Arc;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::Peer;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

/// Drains a node of one guest.
pub(crate) async fn drain(world: Arc<World>, guest: String, node: String) {
    loop {
        let pods = world.pods();
        let is_there = |pod: &&Arc<Value>| {
            let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let is_its = pod["metadata"]["ownerReferences"][0]["name"] == *guest && pod["spec"]["nodeName"] == *node;
            is_its && !has_ended && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let mut left = pods.iter().filter(is_there).peekable();
        if left.peek().is_none() {
            return world.note(|| format!("{node} is drained of {guest}"));
        }
        for pod in left {
            evict(&world, &guest, pod).await;
        }
        world.pause(1_000..6_000).await;
    }
}

async fn evict(world: &Arc<World>, guest: &str, pod: &Value) {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, uid, owner) = (text("/metadata/name"), text("/metadata/uid"), text("/metadata/ownerReferences/0/uid"));
    let is_needed =
        world.machine.process(uid).is_none_or(|process| !process.is_left()) && !world.is_end_intended(guest, owner);
    let status = ask(world, name).await;
    world.note(|| format!("eviction of {name}: {status}"));
    if status.is_success() && is_needed {
        world.broken(|| format!("the eviction of {name} was accepted, and {guest} needs it"));
    }
}

async fn ask(world: &Arc<World>, pod: &str) -> StatusCode {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction");
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}});
    let body = kube::client::Body::from(serde_json::to_vec(&eviction).unwrap_or_default());
    let request = Request::post(path).header("content-type", "application/json").body(erase(body));
    let Ok(request) = request else { return StatusCode::BAD_REQUEST };
    let peer = Peer::Trusted(UserInfo::new("user", ["system:masters"]));
    world.server.handle(request, &peer).await.status()
}
