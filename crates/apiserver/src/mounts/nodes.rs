//! `log`, `exec`, `attach` and `portforward` of a pod go to the node that runs it.
//!
//! A node is reached through whatever [`NodeCalls`] dials, and speaks HTTP/1.1 there. The paths are those of a kubelet, with the pod's
//! uid: `/containerLogs/<namespace>/<pod>/<uid>/<container>`, `/exec/…`, `/attach/…` and `/portForward/<namespace>/<pod>/<uid>`.

use std::io;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use http::{Request, Uri};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use super::proxy::{headers, pass_on};
use crate::http::body::RequestBody;
use crate::http::respond::Answer;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult, Subject};

/// Connects to nodes.
pub trait NodeCalls: Send + Sync {
    /// A new connection to the node of this name.
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<UnixStream>>;
}

/// How nodes are reached, once somebody said so.
#[derive(Default)]
pub struct Nodes {
    calls: OnceLock<Arc<dyn NodeCalls>>,
}

impl Nodes {
    /// Nodes are reached like this from now on. The first one to say so stays.
    pub fn reach_through(&self, calls: Arc<dyn NodeCalls>) {
        let _ = self.calls.set(calls);
    }
}

/// Serves a subresource of a pod that only its node can.
pub async fn serve(server: &Arc<Server>, call: Call, body: RequestBody) -> ApiResult<Answer> {
    let path = call.path()?.clone();
    let pods = server.internal("", "v1", "pods", "kube-apiserver")?;
    let subject = Subject { group: "", resource: "pods" };
    let pod = pods.get(&path.namespace, &path.name).ok_or_else(|| ApiError::not_found(subject, &path.name))?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let target = node_path(&path.subresource, &path.namespace, &path.name, &pod, call.query.get("container"))?;
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", path.name)));
    }
    let closed = || ApiError::unavailable(format!("node {node} takes no connections"));
    let calls = server.mounts.nodes.calls.get().cloned().ok_or_else(closed)?;
    let stream = calls.dial(node).await.map_err(|error| {
        ApiError::unavailable(format!("node {node} takes no connections: {error}; does its process run?"))
    })?;
    forward(stream, &target, call, body).await.map_err(|error| ApiError::unavailable(format!("node {node}: {error}")))
}

/// The node's path for a subresource; `log` and `exec` are of one container.
fn node_path(
    subresource: &str,
    namespace: &str,
    name: &str,
    pod: &Value,
    container: Option<&str>,
) -> ApiResult<String> {
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let place = format!("{namespace}/{name}/{uid}");
    let of_container = |action: &str| Ok(format!("/{action}/{place}/{}", choose(name, pod, container)?));
    match subresource {
        "log" => of_container("containerLogs"),
        "exec" => of_container("exec"),
        "attach" => of_container("attach"),
        "portforward" => Ok(format!("/portForward/{place}")),
        _ => Err(ApiError::no_such_path()),
    }
}

/// The container that is meant: the one that is named, or the only one.
fn choose<'a>(name: &str, pod: &'a Value, asked: Option<&str>) -> ApiResult<&'a str> {
    let names = |field: &str| -> Vec<&'a str> {
        let list = pod["spec"][field].as_array();
        list.into_iter().flatten().filter_map(|container| container["name"].as_str()).collect()
    };
    let (regular, init) = (names("containers"), names("initContainers"));
    match asked.filter(|asked| !asked.is_empty()) {
        Some(asked) => {
            let known = regular.iter().chain(&init).find(|name| **name == asked);
            known
                .copied()
                .ok_or_else(|| ApiError::bad_request(format!("container {asked} is not valid for pod {name}")))
        }
        None if regular.len() == 1 => Ok(regular[0]),
        None => {
            let mut message =
                format!("a container name must be specified for pod {name}, choose one of: [{}]", regular.join(" "));
            if !init.is_empty() {
                message += &format!(" or one of the init containers: [{}]", init.join(" "));
            }
            Err(ApiError::bad_request(message))
        }
    }
}

async fn forward(stream: UnixStream, path: &str, call: Call, body: RequestBody) -> Result<Answer, String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    // Ends with the last byte of the answer, or with the client.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    let mut extensions = call.extensions;
    let on_client = extensions.remove::<OnUpgrade>();
    let query = call.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let uri: Uri = format!("{path}{query}").parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let mut request = Request::new(body);
    *request.method_mut() = call.method;
    *request.uri_mut() = uri;
    let upgrade = headers::upgrade_of(&call.headers);
    *request.headers_mut() = headers::request(call.headers, &call.user, upgrade);
    request.headers_mut().insert(http::header::HOST, http::HeaderValue::from_static("node"));
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    Ok(pass_on(response, on_client))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"uid": "u"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
        })
    }

    #[test]
    fn paths_name_the_pod_by_uid() {
        let path = |subresource, container| node_path(subresource, "n", "p", &pod(), container);
        assert_eq!(path("log", Some("i")).ok().as_deref(), Some("/containerLogs/n/p/u/i"));
        assert_eq!(path("exec", Some("b")).ok().as_deref(), Some("/exec/n/p/u/b"));
        assert_eq!(path("portforward", None).ok().as_deref(), Some("/portForward/n/p/u"));
    }

    #[test]
    fn a_container_must_be_named_where_there_are_several() {
        let message = |asked| choose("p", &pod(), asked).err().map(|error| error.message().to_owned());
        let expected =
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]";
        assert_eq!(message(None).as_deref(), Some(expected));
        assert_eq!(message(Some("x")).as_deref(), Some("container x is not valid for pod p"));
        let single = json!({"spec": {"containers": [{"name": "only"}]}});
        assert_eq!(choose("p", &single, None).ok(), Some("only"));
    }
}
