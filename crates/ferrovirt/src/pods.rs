//! The pods of the local cluster when it is to stop: guests are powered off, not cut off.

use std::time::{Duration, Instant};

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};

use crate::local::Home;

/// What a pod may need beyond its own grace period.
const MARGIN: Duration = Duration::from_secs(15);

/// Deletes every pod and waits until the nodes have removed them.
pub(crate) fn remove_all(home: &Home) -> anyhow::Result<()> {
    let path = home.kubeconfig()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &options).await?;
        remove(Client::try_from(config)?).await
    })
}

async fn remove(client: Client) -> anyhow::Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let pods = all.list(&ListParams::default()).await?.items;
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
        let left = all.list_metadata(&ListParams::default()).await?.items;
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > limit {
            let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
            bail!("these pods do not end: {}; nothing was stopped but the supervisor", names.join(", "));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
