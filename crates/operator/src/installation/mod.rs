//! The `KubeVirt` object becomes an installation.
//!
//! ```text
//!   install: rights ─► certificates ─► webhooks ─► kinds ─► virt-api … ready ─► its API ─► virt-controller, virt-handler … ready
//!   update:  rights ─► certificates ─► webhooks ─► kinds ─► virt-handler … ─► virt-controller … ─► virt-api …
//!   removal: webhooks ─► kinds and their objects … ─► API, components … ─► marks of nodes, everything else
//! ```
//!
//! The webhooks are there before the kinds are: until virt-api answers, nothing unchecked can be created. On an update the node agents
//! know what is new before virt-api lets anybody ask for it. On removal the webhooks go first, so that nothing they depend on can hold
//! it up; then the kinds are deleted, which ends every guest through the components that still run.

mod act;
mod caches;
mod customize;
mod decide;
mod rollout;
mod status;
mod uninstall;

use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::KubeVirtStatus;
use ferrovirt_install::{Images, Parameters, names};
use ferrovirt_reconcile::controller::standard;
use ferrovirt_reconcile::{Clock, Controller, Failure, ObjectKey, Plan, Queue, Runner};
use jiff::Timestamp;
use kube::{Api, Client};
use serde_json::Value;

pub use act::Action;
pub use caches::Caches;
pub use customize::Flags;
pub(crate) use decide::lifetimes;

use crate::OperatorConfig;
use crate::present::{Id, Present};

/// What a decision depends on.
#[derive(Debug, Clone)]
pub struct View {
    /// The object that counts: the oldest in the operator's namespace.
    pub kubevirt: Option<Arc<KubeVirt>>,
    /// Others, which do not.
    pub surplus: Vec<Arc<KubeVirt>>,
    /// What the operator has made.
    pub present: Present,
    /// Nodes, with the keys of our labels and annotations on them.
    pub nodes: Vec<MarkedNode>,
    /// The operator's namespace.
    pub namespace: String,
    /// What it installs by itself.
    pub images: Images,
    /// Flags that components know.
    pub flags: Arc<Flags>,
    /// Its version.
    pub version: String,
    /// The time.
    pub now: Timestamp,
}

/// A node and what our components wrote on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedNode {
    /// Its name.
    pub name: String,
    /// Keys of labels.
    pub labels: Vec<String>,
    /// Keys of annotations.
    pub annotations: Vec<String>,
}

impl View {
    /// Something that the operator has made in its namespace.
    pub(crate) fn own(&self, kind: &str, name: &str) -> Option<&Value> {
        self.present.get(&Id::new(kind, &self.namespace, name))
    }
}

/// The controller of the one installation.
pub struct Installation {
    client: Client,
    caches: Caches,
    images: Images,
    flags: Arc<Flags>,
    version: String,
    clock: Clock,
}

/// The runner of the controller.
pub(crate) fn runner(client: Client, caches: Caches, config: &OperatorConfig) -> Runner<Installation> {
    let queue = Queue::default();
    caches.feed(&queue);
    let (images, flags) = (config.images.clone(), config.flags.clone());
    let (version, clock) = (config.version.clone(), config.clock);
    Runner::new(Installation { client, caches, images, flags, version, clock }, queue)
}

impl Controller for Installation {
    const NAME: &'static str = "installation";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = KubeVirtStatus;

    fn observe(&self, _key: &ObjectKey) -> Option<View> {
        let (kubevirt, surplus) = self.caches.kubevirts();
        Some(View {
            kubevirt,
            surplus,
            present: self.caches.present(),
            nodes: self.caches.nodes(),
            namespace: self.caches.namespace().to_owned(),
            images: self.images.clone(),
            flags: self.flags.clone(),
            version: self.version.clone(),
            now: self.clock.now(),
        })
    }

    fn decide(view: &View) -> Plan<Action, KubeVirtStatus> {
        decide::decide(view)
    }

    fn observed_status(view: &View) -> Option<&KubeVirtStatus> {
        view.kubevirt.as_ref()?.status.as_ref()
    }

    fn status_after(view: &View, failure: &Failure) -> Option<KubeVirtStatus> {
        // A view that was behind is no failure of the installation.
        let kubevirt = view.kubevirt.as_ref().filter(|_| !failure.category().is_quiet())?;
        Some(status::failed(kubevirt, &failure.message(), view.now))
    }

    async fn write_status(&self, view: &View, status: KubeVirtStatus) -> Result<(), Failure> {
        let Some(kubevirt) = &view.kubevirt else { return Ok(()) };
        let namespace = kubevirt.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<KubeVirt> = Api::namespaced(self.client.clone(), namespace);
        let object = KubeVirt { status: Some(status), ..KubeVirt::clone(kubevirt) };
        standard::replace_status(&api, &object).await.map(drop)
    }
}

/// What a `KubeVirt` object asks for.
pub(crate) fn parameters(view: &View, kubevirt: &KubeVirt) -> Parameters {
    let spec = &kubevirt.spec;
    let images = view.images.moved(spec.image_registry.as_deref(), spec.image_tag.as_deref());
    let mut parameters = Parameters::new(&view.namespace, images);
    if let Some(policy) = &spec.image_pull_policy {
        parameters.pull_policy = policy.to_string();
    }
    parameters.pull_secrets = spec.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect();
    parameters.infra = placement(spec.infra.as_ref());
    parameters.workloads = placement(spec.workloads.as_ref());
    let chosen = spec.infra.as_ref().and_then(|infra| infra.replicas).map(u32::from);
    parameters.api_replicas = chosen.unwrap_or_else(|| api_replicas(view.nodes.len()));
    parameters.controller_replicas = chosen.unwrap_or(2);
    let configuration = spec.configuration.as_ref();
    let strategy = configuration.and_then(|it| it.role_aggregation_strategy.as_ref());
    parameters.aggregate_roles = strategy.is_none_or(|strategy| strategy.to_string() != "Manual");
    parameters
}

/// One for each ten nodes, at least two; a cluster of one node has no use for a second.
fn api_replicas(nodes: usize) -> u32 {
    match nodes {
        1 => 1,
        nodes => u32::try_from(nodes / 10).unwrap_or(u32::MAX).max(2),
    }
}

fn placement(component: Option<&ferrovirt_api::kubevirt::ComponentConfig>) -> ferrovirt_install::Placement {
    let Some(placement) = component.and_then(|component| component.node_placement.as_ref()) else {
        return ferrovirt_install::Placement::default();
    };
    let value = |value: serde_json::Result<Value>| value.ok().filter(|value| !value.is_null());
    let filled = |value: Option<Value>| value.filter(|value| value.as_array().is_none_or(|list| !list.is_empty()));
    ferrovirt_install::Placement {
        node_selector: Some(&placement.node_selector)
            .filter(|selector| !selector.is_empty())
            .and_then(|selector| value(serde_json::to_value(selector))),
        affinity: value(serde_json::to_value(&placement.affinity)),
        tolerations: filled(value(serde_json::to_value(&placement.tolerations))),
    }
}

/// The one key: there is one installation.
pub(crate) fn the_installation(namespace: &str) -> ObjectKey {
    ObjectKey::new(namespace, names::PRODUCT)
}
