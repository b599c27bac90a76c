//! What the operator can do, one request or two at a time. Doing any of it twice is harmless.

use std::time::Duration;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::names::finalizers;
use ferrovirt_install::names;
use ferrovirt_install::rules::HANDLER_SIGNER;
use ferrovirt_kubernetes::Lease;
use ferrovirt_kubernetes::{Node, Secret};
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::{Act, Failure, ObjectKey};
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};

use super::{Installation, MarkedNode};
use crate::MANAGER;
use crate::certificates::{self, Lifetimes, Step};
use crate::kinds::Kind;
use crate::present::Id;

/// How long the API server may take for one request of ours, beyond its own limit.
const PATIENCE: Duration = Duration::from_secs(70);

/// Something that the operator does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the first `KubeVirt` object from this text.
    Begin(String),
    /// Keep the `KubeVirt` object until everything is removed.
    Hold,
    /// Let it go.
    Release,
    /// Tell a `KubeVirt` object that it does not count.
    Refuse(Box<KubeVirt>),
    /// Make an object, or bring it back to what it should be.
    Apply(Box<Value>),
    /// Remove this object.
    Delete {
        /// Which.
        id: Id,
        /// It and no other of its name.
        uid: String,
    },
    /// Do not hold this kind any longer.
    LetGo(Box<Value>),
    /// Make, renew or hand over a certificate.
    Certificate {
        /// What.
        step: Step,
        /// The authority's Secret.
        authority: Option<Box<Value>>,
        /// virt-api's Secret.
        api: Option<Box<Value>>,
        /// How long it lives.
        lifetimes: Lifetimes,
    },
    /// Fail while there are machines or guests.
    ForbidWorkloads,
    /// Remove our labels and annotations from a node.
    CleanNode(MarkedNode),
    /// Remove what components made for themselves: the lease, certificate requests.
    RemoveTraces,
}

impl Action {
    pub(super) fn apply(object: &Value) -> Self {
        Self::Apply(Box::new(object.clone()))
    }

    pub(super) fn delete(object: &Value) -> Self {
        Self::Delete { id: Id::of(object), uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned() }
    }

    pub(super) fn let_go(object: &Value) -> Self {
        Self::LetGo(Box::new(json!({"kind": object["kind"], "metadata": object["metadata"]})))
    }
}

impl Act<Installation> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Begin(_) => "begin",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Refuse(_) => "refuse",
            Self::Apply(_) => "apply",
            Self::Delete { .. } => "delete",
            Self::LetGo(_) => "let go",
            Self::Certificate { .. } => "certificate",
            Self::ForbidWorkloads => "forbid workloads",
            Self::CleanNode(_) => "clean node",
            Self::RemoveTraces => "remove traces",
        }
    }

    async fn act(self, controller: &Installation, _key: &ObjectKey) -> Result<(), Failure> {
        let what = self.name();
        let done = tokio::time::timeout(PATIENCE, self.carry_out(controller)).await;
        done.unwrap_or_else(|_| Err(Failure::new(Category::Unavailable, what, "the API server does not answer")))
    }
}

impl Action {
    async fn carry_out(self, controller: &Installation) -> Result<(), Failure> {
        match self {
            Self::Begin(text) => begin(controller, &text).await,
            Self::Hold => finalize(controller, true).await,
            Self::Release => finalize(controller, false).await,
            Self::Refuse(kubevirt) => {
                let namespace = kubevirt.namespace().unwrap_or_default();
                let api: Api<KubeVirt> = Api::namespaced(controller.client.clone(), &namespace);
                standard::replace_status(&api, &*kubevirt).await.map(drop)
            }
            Self::Apply(object) => apply(controller, &object).await,
            Self::Delete { id, uid } => delete(controller, &id, uid).await,
            Self::LetGo(object) => let_go(controller, &object).await,
            Self::Certificate { step, authority, api, lifetimes } => {
                issue(controller, &step, authority.as_deref(), api.as_deref(), &lifetimes).await
            }
            Self::ForbidWorkloads => forbid_workloads(controller).await,
            Self::CleanNode(node) => clean(controller, &node).await,
            Self::RemoveTraces => remove_traces(controller).await,
        }
    }
}

async fn begin(controller: &Installation, text: &str) -> Result<(), Failure> {
    let operation = "make the first KubeVirt object";
    let unreadable = |error: serde_json::Error| Failure::new(Category::Hopeless, operation, error);
    let object: KubeVirt = serde_json::from_str(text).map_err(unreadable)?;
    let api: Api<KubeVirt> = Api::namespaced(controller.client.clone(), controller.caches.namespace());
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(Failure::api(operation, error)),
    }
}

/// Adds or removes the operator's finalizer, on the object as it was seen.
async fn finalize(controller: &Installation, hold: bool) -> Result<(), Failure> {
    let (Some(kubevirt), _) = controller.caches.kubevirts() else { return Ok(()) };
    let ours = [finalizers::KUBEVIRT, finalizers::KUBEVIRT_OLD];
    let mut list = kubevirt.metadata.finalizers.clone().unwrap_or_default();
    list.retain(|finalizer| !ours.contains(&finalizer.as_str()));
    if hold {
        list.push(finalizers::KUBEVIRT.to_owned());
    }
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": kubevirt.resource_version()}});
    let api: Api<KubeVirt> = Api::namespaced(controller.client.clone(), controller.caches.namespace());
    let name = kubevirt.name_any();
    let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| Failure::api(format!("change the finalizers of KubeVirt {name}"), error))
}

/// The objects of a kind in a namespace.
fn api(controller: &Installation, id: &Id) -> Result<Api<DynamicObject>, Failure> {
    let unknown = || Failure::new(Category::Hopeless, format!("find {id}"), "its kind is not managed");
    let resource = Kind::named(&id.kind).ok_or_else(unknown)?.resource();
    let client = controller.client.clone();
    Ok(match id.namespace.as_str() {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    })
}

async fn apply(controller: &Installation, object: &Value) -> Result<(), Failure> {
    let id = Id::of(object);
    let params = PatchParams::apply(MANAGER).force();
    match api(controller, &id)?.patch(&id.name, &params, &Patch::Apply(object)).await {
        Ok(_) => {
            tracing::info!(object = %id, "applied");
            Ok(())
        }
        Err(error) => Err(Failure::api(format!("apply {id}"), error)),
    }
}

/// Deployments and DaemonSets stay until their pods are gone: who waits for them waits for those.
async fn delete(controller: &Installation, id: &Id, uid: String) -> Result<(), Failure> {
    let foreground = ["Deployment", "DaemonSet"].contains(&id.kind.as_str());
    let policy = if foreground { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, propagation_policy: Some(policy), ..DeleteParams::default() };
    match api(controller, id)?.delete(&id.name, &params).await {
        Ok(_) => {
            tracing::info!(object = %id, "deleted");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Failure::api(format!("delete {id}"), error)),
    }
}

async fn let_go(controller: &Installation, object: &Value) -> Result<(), Failure> {
    let id = Id::of(object);
    let held = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let others: Vec<&Value> = held.filter(|finalizer| **finalizer != finalizers::CRD).collect();
    let patch = json!({"metadata": {"finalizers": others, "resourceVersion": object["metadata"]["resourceVersion"]}});
    match api(controller, &id)?.patch(&id.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Failure::api(format!("let {id} go"), error)),
    }
}

async fn issue(
    controller: &Installation,
    step: &Step,
    authority: Option<&Value>,
    api: Option<&Value>,
    lifetimes: &Lifetimes,
) -> Result<(), Failure> {
    let (now, none) = (controller.clock.now(), Value::Null);
    let present = authority.unwrap_or(&none);
    let names = names::api_certificate_names(controller.caches.namespace());
    let made = match step {
        Step::MakeAuthority => certificates::authority_data(lifetimes, now),
        Step::MakeSuccessor => certificates::successor_data(present, lifetimes, now),
        Step::Promote => certificates::promoted_data(present, now),
        Step::IssueApi => certificates::leaf_data(present, &names, lifetimes, now),
    };
    let data = made.map_err(|error| Failure::new(Category::Internal, "make a certificate", error))?;
    let (name, old) = if *step == Step::IssueApi { (names::API_CERTIFICATE, api) } else { (names::CA, authority) };
    tracing::info!(secret = name, ?step, "certificates change");
    keep(controller, name, old, data).await
}

/// Writes a Secret that is exactly as it was seen, or is not there: a view that is behind never replaces a key.
async fn keep(
    controller: &Installation,
    name: &str,
    old: Option<&Value>,
    data: Map<String, Value>,
) -> Result<(), Failure> {
    let namespace = controller.caches.namespace();
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": name}, "type": "Opaque", "data": data,
    });
    ferrovirt_install::manage(&mut object);
    let operation = format!("write Secret {name}");
    if let Some(old) = old {
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        object["type"] = old["type"].clone();
    }
    let wrong = |error: serde_json::Error| Failure::new(Category::Internal, operation.clone(), error);
    let secret: Secret = serde_json::from_value(object).map_err(wrong)?;
    let api: Api<Secret> = Api::namespaced(controller.client.clone(), namespace);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let written = match old {
        Some(_) => api.replace(name, &params, &secret).await,
        None => api.create(&params, &secret).await,
    };
    match written {
        Ok(_) => Ok(()),
        // Somebody else's Secret of this name would keep us waiting for ever; one of ours shows up in a moment.
        Err(error) => Err(Failure::api(operation, error)),
    }
}

/// The last look before a removal that the user wants only when nothing is lost by it.
async fn forbid_workloads(controller: &Installation) -> Result<(), Failure> {
    for (kind, plural) in [("VirtualMachine", "virtualmachines"), ("VirtualMachineInstance", "virtualmachineinstances")]
    {
        let resource =
            Kind { group: "kubevirt.io", version: "v1", kind: "", plural, place: crate::kinds::Place::Cluster };
        let api: Api<DynamicObject> = Api::all_with(controller.client.clone(), &resource.resource());
        let operation = "remove the installation";
        match api.list(&ListParams::default().limit(1)).await {
            Ok(list) => {
                if let Some(first) = list.items.first() {
                    let place = format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any());
                    let why =
                        format!("{kind} {place} is there, and uninstallStrategy is BlockUninstallIfWorkloadsExist");
                    return Err(Failure::new(Category::Internal, operation, why));
                }
            }
            // The kind itself is gone.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(Failure::api(operation, error)),
        }
    }
    Ok(())
}

async fn clean(controller: &Installation, node: &MarkedNode) -> Result<(), Failure> {
    let none = |keys: &[String]| keys.iter().map(|key| (key.clone(), Value::Null)).collect::<Map<_, _>>();
    let patch = json!({"metadata": {"labels": none(&node.labels), "annotations": none(&node.annotations)}});
    let nodes: Api<Node> = Api::all(controller.client.clone());
    match nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(Failure::api(format!("remove our labels from node {}", node.name), error)),
    }
}

async fn remove_traces(controller: &Installation) -> Result<(), Failure> {
    let leases: Api<Lease> = Api::namespaced(controller.client.clone(), controller.caches.namespace());
    let gone = |deleted: Result<(), kube::Error>, operation: &str| match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map_err(|error| Failure::api(operation, error)),
    };
    let deleted = leases.delete(names::CONTROLLER, &DeleteParams::default()).await.map(drop);
    gone(deleted, "delete the lease of virt-controller")?;
    let requests = Api::<ferrovirt_kubernetes::CertificateSigningRequest>::all(controller.client.clone());
    for request in controller.caches.requests.all() {
        if request.spec.signer_name == HANDLER_SIGNER {
            let deleted = requests.delete(&request.name_any(), &DeleteParams::default()).await.map(drop);
            gone(deleted, "delete a certificate request")?;
        }
    }
    Ok(())
}
