//! Certificate requests of virt-handlers.
//!
//! A virt-handler proves who it is by the token that it asks with: it names the service account and the node of its pod. It gets a
//! certificate for that node's name and nothing else. Whatever else asks this signer is denied with the reason.

mod decide;

use std::sync::Arc;

use ferrovirt_install::names;
use ferrovirt_install::rules::HANDLER_SIGNER;
use ferrovirt_kubernetes::CertificateSigningRequest;
use ferrovirt_reconcile::controller::Category;
use ferrovirt_reconcile::{Act, Clock, Controller, Failure, ObjectKey, Plan, Queue, Runner};
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

pub use decide::{Action, judge};

use crate::OperatorConfig;
use crate::certificates::{self, Lifetimes, Request};
use crate::installation::Caches;

/// What a decision depends on.
#[derive(Debug, Clone)]
pub struct View {
    /// The request.
    pub request: Arc<CertificateSigningRequest>,
    /// The namespace whose virt-handlers are known.
    pub namespace: String,
    /// The authority's Secret, once its certificate is published.
    pub authority: Option<Value>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// The time.
    pub now: Timestamp,
}

/// The controller of certificate requests.
pub struct Requests {
    client: Client,
    caches: Caches,
    clock: Clock,
}

/// The runner of the controller.
pub(crate) fn runner(client: Client, caches: Caches, config: &OperatorConfig) -> Runner<Requests> {
    let queue = Queue::default();
    let ours = |request: &CertificateSigningRequest| request.spec.signer_name == HANDLER_SIGNER;
    caches.requests.feed(&queue, move |request| ObjectKey::of(request).filter(|_| ours(request)));
    Runner::new(Requests { client, caches, clock: config.clock }, queue)
}

impl Controller for Requests {
    const NAME: &'static str = "certificate-requests";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let request = self.caches.requests.get_key(key)?;
        let (kubevirt, _) = self.caches.kubevirts();
        let bundle = self.caches.own("ConfigMap", names::CA).unwrap_or_default();
        let bundle = bundle["data"][names::CA_BUNDLE_KEY].as_str().unwrap_or_default().to_owned();
        let published = |secret: &Value| {
            certificates::Authorities::of(secret).is_some_and(|authorities| bundle.contains(&authorities.current.pem))
        };
        Some(View {
            request,
            namespace: self.caches.namespace().to_owned(),
            authority: self.caches.own("Secret", names::CA).filter(published),
            lifetimes: kubevirt.map(|it| crate::installation::lifetimes(&it)).unwrap_or_default(),
            now: self.clock.now(),
        })
    }

    fn decide(view: &View) -> Plan<Action, ()> {
        decide::decide(view)
    }

    fn observed_status(_view: &View) -> Option<&()> {
        None
    }

    async fn write_status(&self, _view: &View, _status: ()) -> Result<(), Failure> {
        Ok(())
    }
}

impl Act<Requests> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny(_) => "deny",
            Self::Sign { .. } => "sign",
            Self::Delete => "delete",
        }
    }

    async fn act(self, controller: &Requests, key: &ObjectKey) -> Result<(), Failure> {
        let api: Api<CertificateSigningRequest> = Api::all(controller.client.clone());
        let name = key.name();
        let failed = |what: &str, error| Failure::api(format!("{what} certificate request {name}"), error);
        match self {
            Self::Approve => {
                approve(controller, &api, name, "Approved", "VirtHandler", "a virt-handler asks for its node").await
            }
            Self::Deny(why) => {
                tracing::warn!(request = name, why, "denied a certificate");
                approve(controller, &api, name, "Denied", "NotAVirtHandler", &why).await
            }
            Self::Sign { pem, node, authority, lifetime } => {
                let refused = |error: certificates::IssueError| {
                    Failure::new(Category::Internal, format!("sign certificate request {name}"), error)
                };
                let parsed = Request::parse(&pem).map_err(|error| refused(error.into()))?;
                let certified = format!("{node}{}", names::NODE_CERTIFICATE_SUFFIX);
                let now = controller.clock.now();
                let certificate =
                    certificates::sign_request(&authority, &parsed, &certified, lifetime, now).map_err(refused)?;
                let bytes = k8s_openapi::ByteString(certificate.into_bytes());
                let patch = Patch::Merge(json!({"status": {"certificate": bytes}}));
                let signed = api.patch_status(name, &PatchParams::default(), &patch).await;
                tracing::info!(request = name, node, "signed a virt-handler's certificate");
                signed.map(drop).map_err(|error| failed("sign", error))
            }
            Self::Delete => match api.delete(name, &DeleteParams::default()).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(failed("delete", error)),
            },
        }
    }
}

async fn approve(
    controller: &Requests,
    api: &Api<CertificateSigningRequest>,
    name: &str,
    kind: &str,
    reason: &str,
    message: &str,
) -> Result<(), Failure> {
    let now = controller.clock.now().to_string();
    let condition = json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now,
    });
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let patched = api.patch_subresource("approval", name, &PatchParams::default(), &patch).await;
    patched.map(drop).map_err(|error| Failure::api(format!("approve or deny certificate request {name}"), error))
}

/// The age of a request.
fn age(request: &CertificateSigningRequest, now: Timestamp) -> jiff::SignedDuration {
    request.creation_timestamp().map(|made| now.duration_since(made.0)).unwrap_or_default()
}
