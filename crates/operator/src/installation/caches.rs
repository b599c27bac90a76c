//! What the operator sees: `KubeVirt` objects, everything that carries its label, nodes, and certificate requests.

use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::names::labels;
use ferrovirt_kubernetes::CertificateSigningRequest;
use ferrovirt_kubernetes::Node;
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Cache, ObjectKey, Queue, Watches};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::{MarkedNode, the_installation};
use crate::kinds::{KINDS, Kind, Place};
use crate::present::{Id, Present};

/// All caches of the process.
#[derive(Clone)]
pub struct Caches {
    namespace: String,
    kubevirts: Cache<KubeVirt>,
    managed: Vec<(&'static Kind, Cache<DynamicObject>)>,
    nodes: Cache<Node>,
    /// Requests for certificates, also those of others.
    pub requests: Cache<CertificateSigningRequest>,
}

impl Caches {
    /// Empty caches of an operator in a namespace.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        let mut nodes = Cache::<Node>::builder();
        nodes.trim(|node| (node.spec, node.status) = (None, None));
        Self {
            namespace: namespace.to_owned(),
            kubevirts: Cache::builder().build(),
            managed: KINDS.iter().map(|kind| (kind, Cache::builder().build())).collect(),
            nodes: nodes.build(),
            requests: Cache::builder().build(),
        }
    }

    /// The watches that fill them.
    pub fn watches(&self, client: &Client) -> Result<Watches, DuplicateWatch> {
        let all = watcher::Config::default;
        let ours = all().labels(&format!("{}={}", labels::MANAGED_BY, ferrovirt_install::names::OPERATOR));
        let mut watches = Watches::new();
        watches.add(Api::all(client.clone()), all(), &self.kubevirts)?;
        watches.add(Api::all(client.clone()), all(), &self.nodes)?;
        watches.add(Api::all(client.clone()), all(), &self.requests)?;
        for (kind, cache) in &self.managed {
            watches.add_read(self.api(client, kind), ours.clone(), cache, ferrovirt_kubernetes::json::read)?;
        }
        Ok(watches)
    }

    /// The objects of a kind, where they are.
    fn api(&self, client: &Client, kind: &Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        match kind.place {
            Place::Cluster => Api::all_with(client.clone(), &resource),
            Place::Own => Api::namespaced_with(client.clone(), &self.namespace, &resource),
            Place::System => Api::namespaced_with(client.clone(), "kube-system", &resource),
        }
    }

    /// Lets every change of an installation wake its controller. Nodes wake nobody: their heartbeats never end.
    pub(crate) fn feed(&self, queue: &Queue<ObjectKey>) {
        let key = the_installation(&self.namespace);
        let wake = key.clone();
        self.kubevirts.feed(queue, move |_| Some(wake.clone()));
        for (_, cache) in &self.managed {
            let key = key.clone();
            cache.feed(queue, move |_| Some(key.clone()));
        }
    }

    /// The operator's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The `KubeVirt` object that counts, and the others.
    #[must_use]
    pub fn kubevirts(&self) -> (Option<Arc<KubeVirt>>, Vec<Arc<KubeVirt>>) {
        let mut all = self.kubevirts.all();
        all.sort_by_key(|kubevirt| kubevirt.metadata.creation_timestamp.clone());
        let first = all.iter().position(|it| it.metadata.namespace.as_deref() == Some(&self.namespace));
        let counts = first.map(|first| all.remove(first));
        (counts, all)
    }

    /// Everything that carries the operator's label.
    #[must_use]
    pub fn present(&self) -> Present {
        let mut present = Present::new();
        for (kind, cache) in &self.managed {
            for object in cache.all() {
                let Ok(mut value) = serde_json::to_value(&*object) else { continue };
                value["kind"] = kind.kind.into();
                present.insert(Id::of(&value), value);
            }
        }
        present
    }

    /// One object of the operator's namespace.
    #[must_use]
    pub fn own(&self, kind: &str, name: &str) -> Option<Value> {
        let (_, cache) = self.managed.iter().find(|(it, _)| it.kind == kind && it.place == Place::Own)?;
        serde_json::to_value(&*cache.get(&self.namespace, name)?).ok()
    }

    /// Nodes and our marks on them.
    #[must_use]
    pub fn nodes(&self) -> Vec<MarkedNode> {
        let ours = |key: &&String| key.split('/').next().is_some_and(|domain| domain.ends_with("kubevirt.io"));
        let mark = |node: Arc<Node>| MarkedNode {
            name: node.name_any(),
            labels: node.labels().keys().filter(ours).cloned().collect(),
            annotations: node.annotations().keys().filter(ours).cloned().collect(),
        };
        self.nodes.all().into_iter().map(mark).collect()
    }
}
