//! A Kubernetes cluster, through its API.
//!
//! The configuration and the aggregation layer's identity come from watches, so that no webhook call asks the API server for them.

use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_apiserver::auth::{Attributes, Decision, UserInfo};
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use ferrovirt_kubernetes::ConfigMap;
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Cache, Watches};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Cluster, Kind, Object};
use crate::server::trust::Trust;

/// Where the API server tells extension servers how to recognise it.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");

/// A cluster that is reached by a client.
pub struct Kubernetes {
    client: Client,
    installation: String,
    watched: Arc<Watched>,
}

/// What is kept up to date.
struct Watched {
    kubevirts: Cache<KubeVirt>,
    authentication: Cache<ConfigMap>,
    configuration: RwLock<Arc<Configuration>>,
    trust: RwLock<Arc<Trust>>,
    changed: Notify,
}

impl Kubernetes {
    /// A cluster whose components are in the namespace `installation`, and the task that keeps what is known about it up to date for as
    /// long as it is polled.
    pub fn watch(
        client: Client,
        installation: &str,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), DuplicateWatch> {
        let watched = Arc::new(Watched {
            kubevirts: Cache::builder().build(),
            authentication: Cache::builder().build(),
            configuration: RwLock::default(),
            trust: RwLock::new(Arc::new(Trust::nobody())),
            changed: Notify::new(),
        });
        let mut watches = Watches::new();
        watches.add(Api::all(client.clone()), watcher::Config::default(), &watched.kubevirts)?;
        let (namespace, name) = AUTHENTICATION;
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        watches.add(Api::namespaced(client.clone(), namespace), only, &watched.authentication)?;
        let wake = |watched: &Arc<Watched>| {
            let watched = Arc::downgrade(watched);
            move || watched.upgrade().iter().for_each(|watched| watched.changed.notify_one())
        };
        let (kubevirts, authentication) = (wake(&watched), wake(&watched));
        watched.kubevirts.on_change(move |_| kubevirts());
        watched.authentication.on_change(move |_| authentication());
        let refreshed = watched.clone();
        let run = async move {
            let refresh = async {
                loop {
                    refreshed.changed.notified().await;
                    refreshed.refresh();
                }
            };
            tokio::select! {
                () = watches.run() => {}
                () = refresh => {}
            }
        };
        Ok((Self { client, installation: installation.to_owned(), watched }, run))
    }

    /// Waits until everything has been seen once.
    pub async fn synced(&self) {
        self.watched.kubevirts.synced().await;
        self.watched.authentication.synced().await;
        self.watched.refresh();
    }

    /// Whose word about callers is taken.
    #[must_use]
    pub fn trust(&self) -> Arc<Trust> {
        self.watched.trust.read().clone()
    }

    async fn send(&self, method: Method, uri: &str, kind: &str, body: Option<&Value>) -> ApiResult<Value> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, kind).body(body);
        let answered = self.client.request::<Value>(request.map_err(ApiError::internal)?).await;
        answered.map_err(|error| match error {
            kube::Error::Api(status) => match serde_json::to_value(&status) {
                Ok(status) => ApiError::verbatim(status),
                Err(error) => ApiError::internal(error),
            },
            other => ApiError::unavailable(format!("the API server cannot be reached: {other}")),
        })
    }
}

impl Watched {
    fn refresh(&self) {
        let oldest = self.kubevirts.all().into_iter().min_by(|a, b| {
            let made = |kubevirt: &KubeVirt| kubevirt.metadata.creation_timestamp.clone();
            made(a).cmp(&made(b))
        });
        let configuration = oldest.and_then(|kubevirt| kubevirt.spec.configuration.clone()).unwrap_or_default();
        *self.configuration.write() = Arc::new(configuration);
        let map = self.authentication.get(AUTHENTICATION.0, AUTHENTICATION.1);
        let trust = map.as_ref().and_then(|map| map.data.as_ref()).map_or_else(|| Ok(Trust::nobody()), Trust::parse);
        match trust {
            Ok(trust) => *self.trust.write() = Arc::new(trust),
            // What was true a moment ago is better than nothing: nobody could use the API otherwise.
            Err(error) => tracing::warn!(%error, "{}/{} cannot be used", AUTHENTICATION.0, AUTHENTICATION.1),
        }
    }
}

impl Cluster for Kubernetes {
    fn get<'a>(&'a self, object: Object<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async move {
            let Ok(path) = object.path() else { return Ok(None) };
            match self.send(Method::GET, &path, "application/json", None).await {
                Ok(value) => Ok(Some(value)),
                Err(error) if error.code() == StatusCode::NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn list<'a>(&'a self, kind: Kind, namespace: &'a str, selector: &'a str) -> BoxFuture<'a, ApiResult<Vec<Value>>> {
        Box::pin(async move {
            // The characters of label keys and uids need no escaping but these.
            let selector = selector.replace('/', "%2F").replace('=', "%3D").replace(',', "%2C");
            let path = format!("{}?labelSelector={selector}", kind.path(namespace)?);
            let mut list = self.send(Method::GET, &path, "application/json", None).await?;
            match list["items"].take() {
                Value::Array(items) => Ok(items),
                _ => Ok(Vec::new()),
            }
        })
    }

    fn write<'a>(
        &'a self,
        method: Method,
        uri: &'a str,
        content_type: &'a str,
        body: &'a Value,
    ) -> BoxFuture<'a, ApiResult<Value>> {
        Box::pin(self.send(method, uri, content_type, Some(body)))
    }

    fn decide<'a>(&'a self, user: &'a UserInfo, attributes: &'a Attributes) -> BoxFuture<'a, ApiResult<Decision>> {
        Box::pin(async move {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                    "resourceAttributes": {
                        "verb": attributes.verb, "group": attributes.group, "version": attributes.version,
                        "resource": attributes.resource, "subresource": attributes.subresource,
                        "namespace": attributes.namespace, "name": attributes.name,
                    },
                },
            });
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = self.send(Method::POST, path, "application/json", Some(&review)).await?;
            let status = &answer["status"];
            // Only an explicit yes is a yes.
            let allowed = status["allowed"] == true && status["denied"] != true;
            Ok(Decision { allowed, reason: status["reason"].as_str().unwrap_or_default().to_owned() })
        })
    }

    fn configuration(&self) -> Arc<Configuration> {
        self.watched.configuration.read().clone()
    }

    fn installation(&self) -> &str {
        &self.installation
    }
}
