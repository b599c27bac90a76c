//! The server: everything a request needs, and the path every request takes.
//!
//! ```text
//! request → who is it → may they → discovery, health, OpenAPI
//!                               → an extension server (mounted or proxied)
//!                               → a resource: decode → default → admission → checks → store → answer
//! ```
//!
//! [`Server::handle`] is a plain async function from request to answer, so the TLS listener, an in-process client and
//! the simulator all run the same code.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};

use crate::admission::{Admission, warnings};
use crate::auth::UserInfo;
use crate::http::body::RequestBody;
use crate::http::info::{RequestInfo, ResourcePath, query_pairs};
use crate::http::options::Query;
use crate::http::respond::{self, Answer};
use crate::identity::Identity;
use crate::registry::{Registry, Resource};
use crate::status::{ApiError, ApiResult};
use crate::store::Store;
use crate::{discovery, handlers, mounts, openapi};

/// Time and randomness, so that a simulation can own both.
pub trait Environment: Send + Sync {
    /// The time now.
    fn now(&self) -> jiff::Timestamp;
    /// A new unique id.
    fn uid(&self) -> String;
    /// Five characters for `generateName`.
    fn name_suffix(&self) -> String;
    /// Whether it is recorded who set which field. Where nobody applies, such records would be half of each object for nothing.
    fn tracks_fields(&self) -> bool {
        true
    }
}

/// The real clock and the real dice.
pub struct Machine;

impl Environment for Machine {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn uid(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    fn name_suffix(&self) -> String {
        // Kubernetes leaves vowels and look-alikes out, so that no words appear.
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| ALPHABET[rand::random_range(0..ALPHABET.len())] as char).collect()
    }
}

/// Everything that requests share.
pub struct Server {
    /// The objects.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// Who may do what.
    pub identity: Identity,
    /// What is asked before a write.
    pub admission: Admission,
    /// Time and randomness.
    pub environment: Arc<dyn Environment>,
    /// API groups that are served by code in this process.
    pub mounts: mounts::Mounts,
}

/// What the transport knows about the caller.
#[derive(Debug, Clone)]
pub enum Peer {
    /// Somebody at the other end of a connection, by certificate; tokens come with the requests.
    Connected(crate::auth::Peer),
    /// A caller inside this process, which needs no proof.
    Trusted(UserInfo),
}

/// One request on its way through the server.
pub struct Call {
    /// Method, path and what they mean.
    pub info: RequestInfo,
    /// HTTP method.
    pub method: Method,
    /// The whole URI.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// Who asks.
    pub user: UserInfo,
    /// HTTP extensions, which carry the upgrade of a websocket.
    pub extensions: http::Extensions,
}

impl Call {
    /// The resource part of the path; only called where it is known to be there.
    pub fn path(&self) -> ApiResult<&ResourcePath> {
        self.info.resource.as_ref().ok_or_else(ApiError::no_such_path)
    }

    /// The name under which field changes are recorded: `fieldManager`, or the user agent's first word.
    pub fn manager(&self, asked: Option<&str>) -> String {
        if let Some(manager) = asked {
            return manager.to_owned();
        }
        let agent =
            self.headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("unknown");
        let manager = agent.split('/').next().unwrap_or(agent);
        manager.chars().filter(|c| !c.is_control()).take(128).collect()
    }
}

impl Server {
    /// Answers one request.
    pub async fn handle(self: &Arc<Self>, request: Request<RequestBody>, peer: &Peer) -> Answer {
        let (answer, warnings) = warnings::collect(self.try_handle(request, peer)).await;
        respond::with_warnings(answer.unwrap_or_else(|error| respond::error(&error)), &warnings)
    }

    async fn try_handle(self: &Arc<Self>, request: Request<RequestBody>, peer: &Peer) -> ApiResult<Answer> {
        let (parts, body) = request.into_parts();
        let call = self.identify(parts, peer)?;
        self.identity.authorize(&call)?;
        if let Some(mount) = self.mounts.find(self, &call) {
            return mount.serve(self, call, body).await;
        }
        let Some(path) = call.info.resource.clone() else {
            return self.serve_path(&call);
        };
        let snapshot = self.registry.snapshot();
        let resource = snapshot.find(&path.group, &path.version, &path.resource).cloned();
        let Some(resource) = resource else {
            return Err(unknown_resource(&snapshot, &path));
        };
        check_scope(&resource, &path)?;
        handlers::dispatch(self, resource, call, body).await
    }

    fn identify(&self, parts: Parts, peer: &Peer) -> ApiResult<Call> {
        let query = query_pairs(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let mut headers = parts.headers;
        let user = self.identity.authenticate(self, &mut headers, peer, &info)?;
        Ok(Call {
            info,
            method: parts.method,
            uri: parts.uri,
            headers,
            query: Query(query),
            user,
            extensions: parts.extensions,
        })
    }

    /// Everything that is not a resource.
    fn serve_path(&self, call: &Call) -> ApiResult<Answer> {
        if !matches!(call.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let path = call.info.path.trim_end_matches('/');
        match path {
            "/openapi/v2" => Ok(openapi::old_document(call)),
            "/openapi/v3" => Ok(openapi::index(self)),
            _ if path.starts_with("/openapi/v3/") => openapi::document(self, call),
            "/openid/v1/jwks" | "/.well-known/openid-configuration" => self.identity.key_document(path),
            _ => discovery::serve(self, call),
        }
    }
}

/// Groups that we serve ourselves answer with a `Status`, anything else is a page that is not there.
fn unknown_resource(snapshot: &crate::registry::Snapshot, path: &ResourcePath) -> ApiError {
    let custom = snapshot.groups().get(&path.group).is_some_and(|versions| {
        versions
            .iter()
            .any(|version| snapshot.of_group_version(&path.group, version).iter().any(|r| r.custom.is_none()))
    });
    if custom { ApiError::no_such_resource() } else { ApiError::no_such_path() }
}

/// A namespaced kind needs a namespace for single objects, a cluster-scoped one has none.
fn check_scope(resource: &Resource, path: &ResourcePath) -> ApiResult<()> {
    let wants_namespace = resource.namespaced && (!path.name.is_empty());
    let has_namespace = !path.namespace.is_empty() && path.resource != "namespaces";
    let misplaced = (wants_namespace && !has_namespace) || (!resource.namespaced && has_namespace);
    match (misplaced, &resource.custom) {
        (false, _) => Ok(()),
        (true, None) => Err(ApiError::no_such_resource()),
        (true, Some(_)) => Err(ApiError::no_such_path()),
    }
}
