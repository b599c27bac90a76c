//! A simulated scheduler: any node is as good as any other.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::component::Life;
use crate::machine::node_name;
use crate::world::{NAMESPACE, World};

/// How long nothing may happen before it looks again.
const TICK: Duration = Duration::from_secs(2);

/// Runs until its life is over.
pub(crate) async fn run(world: Arc<World>, nodes: usize, client: Client, life: Life) {
    loop {
        let seen = world.server.store.revision();
        for pod in &*world.pods() {
            life.or_never().await;
            let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
            if pod["spec"]["nodeName"].is_null() && !is_deleted {
                let node = usize::try_from(world.roll(0..nodes as u64)).unwrap_or_default();
                bind(&client, pod["metadata"]["name"].as_str().unwrap_or_default(), &node_name(node)).await;
            }
        }
        tokio::select! {
            () = world.server.store.wait_for(seen + 1) => {}
            () = tokio::time::sleep(TICK) => {}
        }
        world.pause(5..100).await;
    }
}

/// Puts a pod on a node. What fails is tried again with the next look.
async fn bind(client: &Client, pod: &str, node: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
    if let Ok(request) =
        Request::post(path).header("content-type", "application/json").body(binding.to_string().into_bytes())
    {
        let _ = client.request::<Value>(request).await;
    }
}
