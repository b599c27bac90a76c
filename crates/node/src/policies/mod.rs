//! Network policies of this node's pods: watched, made into rules, and given to the node's network.
//!
//! ```text
//!  policies, pods, namespaces ──► ruleset (pure) ──► one transaction of nftables
//!   (watched)      ▲
//!                  └── addresses of this node's pods, as the node gave them
//! ```
//!
//! Nothing is done by the clock: a change of an object, and a pod that gets its network, wake the task, and what comes meanwhile is done
//! in one go. Rules outlive this process, so a restart opens nothing; and while there are policies at all, a pod of this node that the
//! rules do not know yet is cut off, so that it begins with theirs.
//!
//! As long as a cluster has no policies its pods and namespaces are not watched.

mod ranges;
mod ruleset;
mod selector;
#[cfg(test)]
mod traffic_tests;

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_kubernetes::{Namespace, Pod};
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Cache, Watches};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use ruleset::View;

/// Time between attempts when nftables refuses. Too little fills the log, too much leaves pods without what they may do.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the rules of the node as the cluster's policies say, until `stop`.
pub(crate) async fn enforce(node: Arc<Context>, stop: CancellationToken) {
    let work = async {
        if let Err(error) = Enforcer::new(node).run().await {
            tracing::error!(%error, "network policies are not enforced");
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

struct Enforcer {
    node: Arc<Context>,
    policies: Cache<NetworkPolicy>,
    pods: Cache<Pod>,
    namespaces: Cache<Namespace>,
    /// Something is different.
    news: Arc<Notify>,
}

impl Enforcer {
    fn new(node: Arc<Context>) -> Self {
        let news = node.network_news.clone();
        let mut pods = Cache::<Pod>::builder();
        pods.trim(trim);
        let enforcer = Self {
            node,
            policies: Cache::builder().build(),
            pods: pods.build(),
            namespaces: Cache::builder().build(),
            news,
        };
        let wake = |news: &Arc<Notify>| {
            let news = news.clone();
            move || news.notify_one()
        };
        let (policies, pods, namespaces) = (wake(&enforcer.news), wake(&enforcer.news), wake(&enforcer.news));
        enforcer.policies.on_change(move |_| policies());
        enforcer.pods.on_change(move |_| pods());
        enforcer.namespaces.on_change(move |_| namespaces());
        enforcer
    }

    async fn run(self) -> Result<(), DuplicateWatch> {
        let mut watches = Watches::new();
        let all = Api::all(self.node.client.clone());
        watches.add_read(all, watcher::Config::default(), &self.policies, ferrovirt_kubernetes::json::read)?;
        let synced = watches.synced();
        let work = async {
            synced.await;
            if self.policies.is_empty() {
                // Those of an earlier process may have been removed since.
                self.forget().await;
            }
            while self.policies.is_empty() {
                self.news.notified().await;
            }
            self.with_policies().await
        };
        // What watches bring is taken in before anybody acts.
        tokio::select! {
            biased;
            () = watches.run() => Ok(()),
            ended = work => ended,
        }
    }

    /// There is a policy, or was one: from now on pods and namespaces count.
    async fn with_policies(&self) -> Result<(), DuplicateWatch> {
        let (client, config) = (&self.node.client, watcher::Config::default);
        let mut watches = Watches::new();
        watches.add(Api::all(client.clone()), config(), &self.pods)?;
        watches.add(Api::all(client.clone()), config(), &self.namespaces)?;
        let synced = watches.synced();
        let work = async {
            synced.await;
            let mut last = None;
            loop {
                let rules = self.rules().await;
                if last.as_ref() != Some(&rules) {
                    if let Err(error) = self.node.networks.restrict(rules.as_deref()).await {
                        tracing::warn!(error, "the rules of network policies are not in place");
                        tokio::time::sleep(RETRY).await;
                        // With what is true by then: what nftables refused may be gone.
                        continue;
                    }
                    last = Some(rules);
                }
                self.news.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = watches.run() => Ok(()),
            () = work => Ok(()),
        }
    }

    /// What the rules have to be now.
    async fn rules(&self) -> Option<String> {
        loop {
            let (policies, pods, namespaces) = (self.policies.all(), self.pods.all(), self.namespaces.all());
            let node = self.node.clone();
            // Users decide how long it takes: other work of the node does not wait for it.
            let made = tokio::task::spawn_blocking(move || {
                Ok::<_, String>(ruleset::ruleset(&View {
                    policies: &policies,
                    pods: &pods,
                    namespaces: &namespaces,
                    attached: &node.networks.addresses()?,
                    ranges: &node.config.pod_ranges,
                    hosts: &node.config.hosts,
                }))
            });
            match made.await.unwrap_or_else(|panic| Err(panic.to_string())) {
                Ok(rules) => return rules,
                Err(error) => tracing::warn!(error, "cannot tell what the rules of network policies are"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Takes away all rules, unless there is a policy by the time that nftables does so.
    async fn forget(&self) {
        while self.policies.is_empty() {
            match self.node.networks.restrict(None).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(error, "the rules of network policies are still in place"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Leaves of a pod what the rules are made of.
fn trim(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.metadata.owner_references = None;
    pod.metadata.finalizers = None;
    let spec = pod.spec.take().unwrap_or_default();
    let init = spec.init_containers.map(|containers| containers.into_iter().map(ports_of).collect());
    pod.spec = Some(PodSpec {
        containers: spec.containers.into_iter().map(ports_of).collect(),
        init_containers: init,
        host_network: spec.host_network,
        ..PodSpec::default()
    });
    let status = pod.status.take().unwrap_or_default();
    pod.status = Some(PodStatus { phase: status.phase, pod_ips: status.pod_ips, ..PodStatus::default() });
}

fn ports_of(container: Container) -> Container {
    Container { ports: container.ports, restart_policy: container.restart_policy, ..Container::default() }
}
