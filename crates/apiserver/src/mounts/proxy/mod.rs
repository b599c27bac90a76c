//! Groups that other servers serve: `APIService` objects with a service, and the proxy to them.
//!
//! The caller is authenticated and authorised here; the extension server learns who it is from headers that it
//! believes because the connection shows the front proxy's certificate. Bodies stream both ways, and an upgraded
//! connection (websocket, SPDY) is joined to the client's.

pub(super) mod headers;
pub mod listing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{HeaderMap, LOCATION};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use serde_json::Value;

use self::listing::Listed;
use super::Mount;
use crate::auth::UserInfo;
use crate::http::body::RequestBody;
use crate::http::respond::{self, Answer};
use crate::outgoing::trust::{Trust, ca_bundle, client_config};
use crate::outgoing::{Client, Connector, Target, client, error_text};
use crate::serve::erase;
use crate::server::{Call, Server};
use crate::status::ApiResult;
use crate::store::{Event, Object, Revision, Store};

const STORAGE: &str = "apiregistration.k8s.io/apiservices";
/// Discovery must be quick, or every client of the cluster waits.
const DISCOVERY: Duration = Duration::from_secs(5);
/// The largest discovery document that is read.
const DOCUMENT_LIMIT: usize = 4 * 1024 * 1024;

/// The known `APIService`s that name a service.
#[derive(Default)]
pub struct Proxied {
    /// By name, which is `version.group`.
    remotes: RwLock<BTreeMap<Arc<str>, Arc<Remote>>>,
}

impl Proxied {
    /// Reads what the store has, before the first request.
    pub fn load(&self, store: &Store) {
        if let Ok(page) = store.list(STORAGE, None, None, None, None) {
            page.objects.iter().for_each(|object| self.set(object));
        }
    }

    /// Keeps the index.
    pub fn observe(&self, event: &Event) {
        if &*event.key.resource != STORAGE {
            return;
        }
        match &event.object {
            Some(object) => self.set(object),
            None => {
                let mut remotes = self.remotes.write();
                if remotes.get(&event.key.name).is_some_and(|known| known.revision < event.revision) {
                    remotes.remove(&event.key.name);
                }
            }
        }
    }

    fn set(&self, object: &Object) {
        let mut remotes = self.remotes.write();
        let known = remotes.get(&object.key.name);
        if known.is_some_and(|known| known.revision >= object.revision) {
            return;
        }
        let value = object.body.value();
        if !value["spec"]["service"].is_object() {
            remotes.remove(&object.key.name);
            return;
        }
        // A new status must not cost the connections.
        let link = match known {
            Some(known) if known.link.spec == value["spec"] => known.link.clone(),
            _ => Arc::new(Link::new(value["spec"].clone())),
        };
        let remote = Remote { revision: object.revision, available: is_available(&value), link };
        remotes.insert(object.key.name.clone(), Arc::new(remote));
    }

    /// The server behind a group version.
    pub fn find(&self, _server: &Arc<Server>, group: &str, version: &str) -> Option<Arc<dyn Mount>> {
        let remote = self.get(&format!("{version}.{group}"))?;
        Some(remote)
    }

    /// The server behind the `APIService` of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Remote>> {
        self.remotes.read().get(name).cloned()
    }

    /// The names of all `APIService`s with a service.
    pub fn names(&self) -> Vec<String> {
        self.remotes.read().keys().map(ToString::to_string).collect()
    }

    /// The names of those that are served by one service.
    pub fn names_of_service(&self, namespace: &str, service: &str) -> Vec<String> {
        let is_behind = |remote: &Remote| {
            let reference = &remote.link.spec["service"];
            reference["namespace"] == namespace && reference["name"] == service
        };
        let remotes = self.remotes.read();
        remotes.iter().filter(|(_, remote)| is_behind(remote)).map(|(name, _)| name.to_string()).collect()
    }

    /// `groupPriorityMinimum` of a proxied group version.
    pub fn priority(&self, group: &str, version: &str) -> Option<i64> {
        self.get(&format!("{version}.{group}"))?.link.spec["groupPriorityMinimum"].as_i64()
    }

    /// Everything that is proxied, for discovery.
    pub fn listing(&self) -> Vec<Listed> {
        self.remotes.read().values().map(|remote| remote.link.listed()).collect()
    }
}

fn is_available(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// One group version that another server serves.
pub struct Remote {
    revision: Revision,
    /// The last check found it working.
    available: bool,
    link: Arc<Link>,
}

/// What lasts as long as the `spec` stays the same.
struct Link {
    spec: Value,
    client: OnceLock<Result<Client, String>>,
    /// `APIResourceList.resources` of the last fetch; `None` when that failed.
    resources: RwLock<Option<Vec<Value>>>,
}

impl Link {
    fn new(spec: Value) -> Self {
        Self { spec, client: OnceLock::new(), resources: RwLock::new(None) }
    }

    fn text(&self, field: &str) -> &str {
        self.spec[field].as_str().unwrap_or_default()
    }

    fn target(&self) -> Target {
        let service = &self.spec["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        Target::Service { namespace: text("namespace"), name: text("name"), port }
    }

    fn client(&self, server: &Server) -> Result<&Client, String> {
        let made = self.client.get_or_init(|| {
            let pki = server.identity.pki();
            let bundle = ca_bundle(&self.spec["caBundle"]);
            let trust = if self.spec["insecureSkipTLSVerify"] == true {
                Trust::Anyone
            } else {
                Trust::Bundle(bundle.as_deref().unwrap_or(pki.ca_certificate().as_bytes()))
            };
            let tls = client_config(trust, Some(pki.front_proxy_client())).map_err(|error| error.to_string())?;
            Ok(client(Connector::new(server.store.clone(), self.target(), tls)))
        });
        made.as_ref().map_err(Clone::clone)
    }

    fn uri(&self, path: &str) -> Result<Uri, String> {
        let Target::Service { port, .. } = self.target() else { return Err("no service".to_owned()) };
        let text = format!("https://{}:{port}{path}", self.target().server_name());
        text.parse().map_err(|error: http::uri::InvalidUri| error.to_string())
    }

    fn listed(&self) -> Listed {
        let resources = self.resources.read().clone();
        Listed { group: self.text("group").to_owned(), version: self.text("version").to_owned(), resources }
    }
}

impl Remote {
    /// Fetches the resource list, which also shows whether the server works. The error is for the `Available`
    /// condition.
    pub async fn check(&self, server: &Server) -> Result<(), String> {
        let path = format!("/apis/{}/{}", self.link.text("group"), self.link.text("version"));
        let fetched = match tokio::time::timeout(DISCOVERY, self.fetch(server, &path)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(format!("Get \"{}\": context deadline exceeded", self.shown_address(server, &path))),
        };
        let address = self.shown_address(server, &path);
        match fetched {
            Ok(document) => {
                *self.link.resources.write() = Some(document["resources"].as_array().cloned().unwrap_or_default());
                Ok(())
            }
            Err(why) => {
                *self.link.resources.write() = None;
                Err(format!("failing or missing response from {address}: {why}"))
            }
        }
    }

    /// Whatever was fetched is not to be believed any more.
    pub fn forget_discovery(&self) {
        *self.link.resources.write() = None;
    }

    /// The address of an endpoint where there is one, since that is where a person would look.
    fn shown_address(&self, server: &Server, path: &str) -> String {
        let Target::Service { namespace, name, port } = self.link.target() else { return String::new() };
        match crate::outgoing::endpoints::resolve(&server.store, &namespace, &name, port) {
            Ok(address) => format!("https://{address}{path}"),
            Err(_) => format!("https://{name}.{namespace}.svc:{port}{path}"),
        }
    }

    async fn fetch(&self, server: &Server, path: &str) -> Result<Value, String> {
        let get = |why: String| format!("Get \"{}\": {why}", self.shown_address(server, path));
        let client = self.link.client(server)?;
        let user = UserInfo::new("system:kube-aggregator", ["system:masters"]);
        let mut request = Request::new(respond::full(bytes::Bytes::new()));
        *request.uri_mut() = self.link.uri(path)?;
        *request.headers_mut() = headers::request(HeaderMap::new(), &user, None);
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static("application/json"));
        let response = client.request(request).await.map_err(|error| get(error_text(&error)))?;
        let code = response.status();
        if !code.is_success() {
            return Err(format!("bad status from {}: {}", self.shown_address(server, path), code.as_u16()));
        }
        let body = Limited::new(response.into_body(), DOCUMENT_LIMIT).collect().await;
        let body = body.map_err(|error| get(error.to_string()))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| get(error.to_string()))
    }

    async fn forward(&self, server: &Server, call: Call, body: RequestBody) -> Answer {
        if !self.available {
            return unavailable("service unavailable");
        }
        let client = match self.link.client(server) {
            Ok(client) => client,
            Err(why) => return respond::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        };
        let upgrade = headers::upgrade_of(&call.headers);
        let mut extensions = call.extensions;
        let on_client = extensions.remove::<OnUpgrade>();
        let path = call.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let uri = match self.link.uri(path) {
            Ok(uri) => uri,
            Err(why) => return respond::text(StatusCode::BAD_REQUEST, format!("{why}\n")),
        };
        let is_discovery = call.info.resource.is_none() && call.method == Method::GET;
        let mut request = Request::new(body);
        *request.method_mut() = call.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::request(call.headers, &call.user, upgrade);
        let sent = client.request(request);
        let response = if is_discovery { tokio::time::timeout(DISCOVERY, sent).await } else { Ok(sent.await) };
        match response {
            Err(_) => unavailable("error trying to reach service: context deadline exceeded"),
            Ok(Err(error)) => unavailable(&format!("error trying to reach service: {}", error_text(&error))),
            Ok(Ok(response)) => pass_on(response, on_client),
        }
    }
}

impl Mount for Remote {
    fn resources(&self) -> Vec<Value> {
        self.link.resources.read().clone().unwrap_or_default()
    }

    fn serve<'a>(&'a self, server: &'a Arc<Server>, call: Call, body: RequestBody) -> BoxFuture<'a, ApiResult<Answer>> {
        Box::pin(async move { Ok(self.forward(server, call, body).await) })
    }
}

fn unavailable(why: &str) -> Answer {
    respond::text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

/// The extension server's answer as the client gets it.
pub(super) fn pass_on(mut response: Response<Incoming>, on_client: Option<OnUpgrade>) -> Answer {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(on_client) = on_client else {
            return respond::text(StatusCode::BAD_GATEWAY, "the backend switched protocols without being asked\n");
        };
        let on_server = hyper::upgrade::on(&mut response);
        tokio::spawn(join(on_client, on_server));
    } else if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        // A redirect could send clients, with their credentials, to wherever the backend likes.
        let why = "the backend attempted to redirect this request, which is not permitted";
        return respond::text(StatusCode::BAD_GATEWAY, why);
    }
    let (mut parts, body) = response.into_parts();
    let upgrade = headers::upgrade_of(&parts.headers).filter(|_| parts.status == StatusCode::SWITCHING_PROTOCOLS);
    parts.headers = headers::end_to_end(parts.headers, upgrade);
    let mut answer = Response::new(erase(body));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = parts.headers;
    answer
}

/// Copies between two connections that left HTTP behind, until one of them ends.
async fn join(client: OnUpgrade, server: OnUpgrade) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
                tracing::debug!(%error, "a proxied connection ended");
            }
        }
        Err(error) => tracing::debug!(%error, "a proxied connection was not upgraded"),
    }
}
