//! The API server in whose process this runs.

use std::sync::Arc;

use bytes::Bytes;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_apiserver::auth::{Attributes, Decision, UserInfo};
use ferrovirt_apiserver::serve;
use ferrovirt_apiserver::server::{Peer, Server};
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use ferrovirt_machinery::selector::LabelSelector;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::{Cluster, Kind, MANAGER, Object};

/// What a node offers when guests can run on its processor.
const KVM: &str = "devices.kubevirt.io/kvm";

/// A borrowed server: it owns virt-api, so virt-api must not own it.
pub(crate) struct InProcess<'a> {
    pub(crate) server: &'a Arc<Server>,
}

impl Cluster for InProcess<'_> {
    fn get<'a>(&'a self, object: Object<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        let (group, plural) = object.kind.resource();
        // Of a kind that is not served there is nothing.
        let all = self.server.internal(group, "v1", plural, MANAGER).ok();
        let found = all.and_then(|all| all.get(object.namespace, object.name));
        Box::pin(async move { Ok(found) })
    }

    fn list<'a>(&'a self, kind: Kind, namespace: &'a str, selector: &'a str) -> BoxFuture<'a, ApiResult<Vec<Value>>> {
        Box::pin(async move {
            let selector = LabelSelector::parse(selector).map_err(ApiError::internal)?;
            let (group, plural) = kind.resource();
            let mut objects =
                self.server.internal(group, "v1", plural, MANAGER)?.list(Some(namespace).filter(|it| !it.is_empty()));
            objects.retain(|object| selector.matches(|key| object["metadata"]["labels"][key].as_str()));
            Ok(objects)
        })
    }

    /// Writes take the path of any client's, so that admission, field checks and dry runs are the same.
    fn write<'a>(
        &'a self,
        method: Method,
        uri: &'a str,
        content_type: &'a str,
        body: &'a Value,
    ) -> BoxFuture<'a, ApiResult<Value>> {
        Box::pin(async move {
            let body = Full::new(Bytes::from(body.to_string()));
            let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, content_type);
            let request = request.body(serve::erase(body)).map_err(ApiError::internal)?;
            let answer = self.server.handle(request, &Peer::Trusted(UserInfo::apiserver())).await;
            let ok = answer.status().is_success();
            let body = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
            let value: Value = serde_json::from_slice(&body).map_err(ApiError::internal)?;
            if ok { Ok(value) } else { Err(ApiError::verbatim(value)) }
        })
    }

    fn decide<'a>(&'a self, user: &'a UserInfo, attributes: &'a Attributes) -> BoxFuture<'a, ApiResult<Decision>> {
        let decision = self.server.identity.decide(user, attributes);
        Box::pin(async move { Ok(decision) })
    }

    fn lacks_kvm(&self) -> bool {
        let Ok(nodes) = self.server.internal("", "v1", "nodes", MANAGER) else { return false };
        let nodes = nodes.list(None);
        let has_kvm = |node: &Value| !matches!(node["status"]["allocatable"][KVM].as_str(), None | Some("0"));
        !nodes.is_empty() && !nodes.iter().any(has_kvm)
    }

    fn configuration(&self) -> Arc<Configuration> {
        Arc::new(super::configuration(self.server))
    }

    fn installation(&self) -> &str {
        super::NAMESPACE
    }
}
