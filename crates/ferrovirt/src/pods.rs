//! The pods of the local cluster when it is to stop: guests are powered off, not cut off.
//!
//! Controllers go on meanwhile, and a machine that shall always run gets another pod for its guest at once. So the nodes are closed first:
//! such a pod waits without a node until the next `up` opens them.

use std::time::{Duration, Instant};

use anyhow::bail;
use ferrovirt_kubernetes::{Node, Pod};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Taint;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::local::Home;

/// What a pod may need beyond its own grace period.
const MARGIN: Duration = Duration::from_secs(15);
/// Between two looks at what others have to do.
const PAUSE: Duration = Duration::from_millis(100);
/// On a node that takes no pods because the cluster is being stopped. Not `unschedulable`, which is for whoever runs `kubectl cordon`.
const STOPPING: &str = "ferrovirt.io/stopping";

/// Deletes every pod and waits until the nodes have removed them.
pub(crate) fn remove_all(home: &Home) -> anyhow::Result<()> {
    with_client(home, async |client| {
        set_closed(&client, true).await?;
        remove(client).await
    })
}

/// Lets nodes take pods again that an earlier stop has closed.
///
/// The control plane that was found running may be about to end, and then the supervisor starts another one: it gets `patience` to answer.
pub(crate) fn admit(home: &Home, patience: Duration) -> anyhow::Result<()> {
    with_client(home, async |client| Ok(open(&client, patience).await?))
}

async fn open(client: &Client, patience: Duration) -> kube::Result<()> {
    let begin = Instant::now();
    loop {
        match set_closed(client, false).await {
            Err(error) if is_unanswered(&error) && begin.elapsed() < patience => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// Nobody was there, or whoever was there ended before the answer did.
fn is_unanswered(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

fn with_client(home: &Home, work: impl AsyncFnOnce(Client) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let path = home.kubeconfig()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &options).await?;
        work(Client::try_from(config)?).await
    })
}

async fn set_closed(client: &Client, closed: bool) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in nodes.list_metadata(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any) {
        // Others write to nodes too. The list of taints is replaced as a whole, so it has to be the newest one that is changed.
        while !set_closed_once(&nodes, &name, closed).await? {}
    }
    Ok(())
}

/// `false`: the node has changed in between.
async fn set_closed_once(nodes: &Api<Node>, name: &str, closed: bool) -> kube::Result<bool> {
    let Some(node) = nodes.get_opt(name).await? else { return Ok(true) };
    let before = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    if before.iter().any(|taint| taint.key == STOPPING) == closed {
        return Ok(true);
    }
    let patch = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": with_closed(before, closed)},
    });
    match nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        other => other.map(|_| true),
    }
}

fn with_closed(before: &[Taint], closed: bool) -> Vec<Taint> {
    let mut taints: Vec<_> = before.iter().filter(|taint| taint.key != STOPPING).cloned().collect();
    if closed {
        taints.push(Taint { key: STOPPING.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
    }
    taints
}

async fn remove(client: Client) -> anyhow::Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    // Those that no node has have nothing to power off, and are started after the next `up`.
    let on_nodes = ListParams::default().fields("spec.nodeName!=");
    let pods = all.list(&on_nodes).await?.items;
    if pods.is_empty() {
        return Ok(());
    }
    let grace = pods.iter().filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds).max().unwrap_or(30);
    let limit = Duration::from_secs(u64::try_from(grace).unwrap_or_default()) + MARGIN;
    println!("Powering off {} pods, which may take up to {} s ...", pods.len(), limit.as_secs());
    let deletions = futures::stream::iter(&pods).for_each_concurrent(16, |pod| {
        let one: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        // One that is gone already is what was wanted; whatever else is wrong shows in what is left.
        async move { drop(one.delete(&pod.name_any(), &DeleteParams::default()).await) }
    });
    deletions.await;
    let begin = Instant::now();
    loop {
        let left = all.list_metadata(&on_nodes).await?.items;
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > limit {
            let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
            bail!("these pods do not end: {}; nothing was stopped but the supervisor", names.join(", "));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_control_plane_that_ends_gives_way_to_the_next_one() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", server.local_addr().unwrap()).parse().unwrap();
        let client = Client::try_from(kube::Config::new(address)).unwrap();
        let answers = tokio::spawn(async move {
            // One ends without an answer, the next one has no nodes.
            drop(server.accept().await.unwrap());
            let (mut next, _) = server.accept().await.unwrap();
            let _ = next.read(&mut [0; 4096]).await.unwrap();
            let list = r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{list}",
                list.len()
            );
            next.write_all(answer.as_bytes()).await.unwrap();
        });
        open(&client, Duration::from_secs(60)).await.unwrap();
        answers.await.unwrap();
    }

    #[test]
    fn only_our_own_mark_is_set_and_removed() {
        let drain = Taint { key: "drain".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
        let closed = with_closed(std::slice::from_ref(&drain), true);
        assert_eq!(closed.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["drain", STOPPING]);
        assert_eq!(with_closed(&closed, true), closed);
        assert_eq!(with_closed(&closed, false), [drain]);
    }
}
