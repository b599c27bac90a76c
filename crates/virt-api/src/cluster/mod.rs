//! What virt-api needs from the cluster that it serves: a few reads, patches, questions of access and the configuration.
//!
//! On the local cluster [`InProcess`] asks the API server in whose process this runs; on Kubernetes a client does.

mod in_process;
mod kubernetes;

use std::sync::Arc;

use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::names::groups;
use ferrovirt_api::{KubeVirt, decode};
use ferrovirt_apiserver::auth::{Attributes, Decision, UserInfo};
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use ferrovirt_machinery::names;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use serde_json::Value;

pub(crate) use in_process::InProcess;
pub use kubernetes::Kubernetes;

/// The name under which virt-api's changes are recorded in `managedFields`.
pub(crate) const MANAGER: &str = "virt-api";

/// The namespace of the components on the local cluster.
pub(crate) const NAMESPACE: &str = "kubevirt";

/// Kinds that virt-api reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `VirtualMachine`
    Machine,
    /// `VirtualMachineInstance`
    Guest,
    /// `VirtualMachineInstanceMigration`
    Migration,
    /// `Pod`
    Pod,
    /// `Node`
    Node,
    /// `KubeVirt`
    Configuration,
}

impl Kind {
    /// Group and plural name; all of them are served in `v1`.
    #[must_use]
    pub const fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Machine => (groups::KUBEVIRT, "virtualmachines"),
            Self::Guest => (groups::KUBEVIRT, "virtualmachineinstances"),
            Self::Migration => (groups::KUBEVIRT, "virtualmachineinstancemigrations"),
            Self::Pod => ("", "pods"),
            Self::Node => ("", "nodes"),
            Self::Configuration => (groups::KUBEVIRT, "kubevirts"),
        }
    }

    /// The path of the collection in a namespace, or in all for an empty one.
    pub(crate) fn path(self, namespace: &str) -> ApiResult<String> {
        let (group, plural) = self.resource();
        let base = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        match namespace {
            "" => Ok(format!("{base}/{plural}")),
            namespace => Ok(format!("{base}/namespaces/{}/{plural}", segment(namespace)?)),
        }
    }
}

/// A name that can stand in a path. Names come from callers, and these requests are made with rights that callers do not have:
/// one with a slash in it would be another object.
fn segment(name: &str) -> ApiResult<&str> {
    if names::dns_subdomain(name).is_empty() {
        return Ok(name);
    }
    Err(ApiError::bad_request(format!("\"{name}\" is no name of an object")))
}

/// One object of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, empty for kinds without.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Object<'_> {
    /// Its path.
    pub(crate) fn path(&self) -> ApiResult<String> {
        Ok(format!("{}/{}", self.kind.path(self.namespace)?, segment(self.name)?))
    }
}

/// The cluster, as virt-api uses it.
pub trait Cluster: Send + Sync {
    /// The object, if it is there.
    fn get<'a>(&'a self, object: Object<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>>;

    /// The objects of a namespace that a label selector matches.
    fn list<'a>(&'a self, kind: Kind, namespace: &'a str, selector: &'a str) -> BoxFuture<'a, ApiResult<Vec<Value>>>;

    /// Writes with virt-api's own rights to a path of the API; the answer is the object as it is then.
    fn write<'a>(
        &'a self,
        method: Method,
        uri: &'a str,
        content_type: &'a str,
        body: &'a Value,
    ) -> BoxFuture<'a, ApiResult<Value>>;

    /// Creates an object, or only checks whether that would work.
    fn create<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
        object: &'a Value,
        dry_run: bool,
    ) -> BoxFuture<'a, ApiResult<Value>> {
        Box::pin(async move {
            let uri = change(&kind.path(namespace)?, dry_run);
            self.write(Method::POST, &uri, "application/json", object).await
        })
    }

    /// Runs a JSON patch on an object or its `status`, or only checks whether that would work.
    fn patch<'a>(
        &'a self,
        object: Object<'a>,
        subresource: &'a str,
        operations: &'a [Value],
        dry_run: bool,
    ) -> BoxFuture<'a, ApiResult<Value>> {
        Box::pin(async move {
            let mut path = object.path()?;
            if !subresource.is_empty() {
                path = format!("{path}/{subresource}");
            }
            let uri = change(&path, dry_run);
            self.write(Method::PATCH, &uri, "application/json-patch+json", &operations.into()).await
        })
    }

    /// Whether somebody may do something.
    fn decide<'a>(&'a self, user: &'a UserInfo, attributes: &'a Attributes) -> BoxFuture<'a, ApiResult<Decision>>;

    /// The cluster's configuration, without a request.
    fn configuration(&self) -> Arc<Configuration>;

    /// There are nodes, and none has KVM. Where that would take a right that virt-api does not have, nobody knows.
    fn lacks_kvm(&self) -> bool {
        false
    }

    /// The namespace that the components are installed in.
    fn installation(&self) -> &str;
}

/// The URI of a change.
fn change(path: &str, dry_run: bool) -> String {
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    format!("{path}?fieldManager={MANAGER}{dry_run}")
}

/// Whether a JSON patch failed because one of its `test`s did: somebody else was faster. The API server has one sentence for
/// every operation that does not apply.
pub(crate) fn lost_race(error: &ApiError) -> bool {
    error.code() == StatusCode::UNPROCESSABLE_ENTITY
        && error.message() == "the server rejected our request due to an error in our request"
}

/// The configuration of the oldest `KubeVirt` object; a cluster without one has none.
pub(crate) fn configuration(server: &Arc<Server>) -> Configuration {
    let Ok(kubevirts) = server.internal(groups::KUBEVIRT, "v1", "kubevirts", MANAGER) else {
        return Configuration::default();
    };
    oldest(kubevirts.list(None))
}

fn oldest(objects: Vec<Value>) -> Configuration {
    let objects = objects.into_iter().filter_map(|value| decode::<KubeVirt>(&value).ok());
    let oldest = objects.min_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    oldest.and_then(|kubevirt| kubevirt.spec.configuration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(kind: Kind, namespace: &str, name: &str) -> Option<String> {
        Object { kind, namespace, name }.path().ok()
    }

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(Kind::Pod.path("a").unwrap(), "/api/v1/namespaces/a/pods");
        assert_eq!(Kind::Configuration.path("").unwrap(), "/apis/kubevirt.io/v1/kubevirts");
        assert_eq!(path(Kind::Node, "", "n").unwrap(), "/api/v1/nodes/n");
        let machine = "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b.c-1";
        assert_eq!(path(Kind::Machine, "a", "b.c-1").unwrap(), machine);
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for hostile in ["", ".", "..", "a/b", "../x", "a%2Fb", "a?b", "a#b", "a b", "A", "a\n", "-a", &"a".repeat(254)]
        {
            assert_eq!(path(Kind::Guest, "a", hostile), None, "{hostile}");
        }
        assert_eq!(path(Kind::Guest, "a/../b", "c"), None);
    }
}
