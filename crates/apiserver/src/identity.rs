//! Who may do what on this server: credentials, RBAC and reviews over the stored objects.
//!
//! The rules are pure functions in [`crate::auth`]; this file feeds them with the connection, the headers and an index
//! of the stored roles and bindings.

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;
use serde_json::Value;

use crate::auth::rbac::escalation::{self, EscalationError};
use crate::auth::rbac::{RbacKind, ResolvedRules, forbidden_message};
use crate::auth::reviews::Reviewer;
use crate::auth::token::{Binding, ObjectRef, TokenSpec};
use crate::auth::{self, Attributes, Authorizer, Decision, Lookup, Pki, RbacIndex, Tokens, UserInfo};
use crate::http::info::RequestInfo;
use crate::http::negotiate::Output;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::server::{Call, Peer, Server};
use crate::status::{ApiError, ApiResult, Subject};
use crate::store::{Event, Key, Store};

/// Identities of one server.
pub struct Identity {
    pki: Pki,
    tokens: Tokens,
    rbac: RwLock<RbacIndex>,
    /// The address that discovery of the token issuer names.
    server_url: String,
}

/// What tokens may know about stored objects.
struct Objects<'a>(&'a Store);

impl Lookup for Objects<'_> {
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let object = self.0.current(&Key::new(format!("/{resource}"), namespace, name))?;
        object.body.value()["metadata"]["uid"].as_str().map(str::to_owned)
    }

    fn deleting_since(&self, resource: &str, namespace: &str, name: &str) -> Option<i64> {
        let object = self.0.current(&Key::new(format!("/{resource}"), namespace, name))?;
        let value = object.body.value();
        let time: jiff::Timestamp = value["metadata"]["deletionTimestamp"].as_str()?.parse().ok()?;
        Some(time.as_second())
    }
}

impl Identity {
    /// Identities from the cluster's keys and token issuers.
    pub fn new(pki: Pki, tokens: Tokens, server_url: &str) -> Self {
        Self { pki, tokens, rbac: RwLock::new(RbacIndex::new()), server_url: server_url.to_owned() }
    }

    /// The cluster's keys.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The CA's certificate as PEM.
    pub fn ca_certificate(&self) -> &str {
        self.pki.ca_certificate()
    }

    /// Who a connection is from.
    pub fn peer(&self, certificates: &[CertificateDer<'_>]) -> Peer {
        Peer::Connected(self.pki.peer(certificates, SystemTime::now()))
    }

    /// Who asks. Credentials are taken out of the headers, so that nothing behind can leak them.
    pub fn authenticate(
        &self,
        server: &Server,
        headers: &mut HeaderMap,
        peer: &Peer,
        info: &RequestInfo,
    ) -> ApiResult<UserInfo> {
        let user = match peer {
            Peer::Trusted(user) => user.clone(),
            Peer::Connected(peer) => {
                let now = server.environment.now().as_second();
                auth::authenticate::authenticate(peer, headers, &self.tokens, &Objects(&server.store), now).map_err(
                    |error| {
                        tracing::debug!(%error, "credentials refused");
                        ApiError::unauthorized()
                    },
                )?
            }
        };
        auth::authenticate::strip_credentials(headers);
        let wanted = auth::impersonate::requested(headers).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let Some(wanted) = wanted else { return Ok(user) };
        auth::impersonate::strip_headers(headers);
        auth::impersonate::authorize(&*self.rbac.read(), &user, &wanted, &attributes(info))
            .map_err(|error| refuse(&error.attributes, error.message))
    }

    /// Refuses what the caller may not do.
    pub fn authorize(&self, call: &Call) -> ApiResult<()> {
        self.check(&call.user, &attributes(&call.info))
    }

    /// Refuses what a user may not do.
    pub fn check(&self, user: &UserInfo, attributes: &Attributes) -> ApiResult<()> {
        let decision = self.decide(user, attributes);
        if decision.allowed {
            return Ok(());
        }
        Err(refuse(attributes, forbidden_message(user, attributes, &decision.reason)))
    }

    /// Whether a user may do something.
    pub fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.rbac.read().authorize(user, attributes)
    }

    /// Refuses a role or binding that would give more than its writer has.
    pub fn check_grant(
        &self,
        store: &Store,
        user: &UserInfo,
        kind: RbacKind,
        namespace: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> ApiResult<()> {
        if user.is_master() {
            return Ok(());
        }
        self.catch_up(store, namespace, &new["roleRef"]);
        let checked = escalation::check_write(&self.rbac.read(), user, kind, namespace, new, old);
        let subject = Subject { group: escalation::RBAC_GROUP, resource: kind.resource() };
        checked.map_err(|error| match error {
            EscalationError::Forbidden(message) => {
                let name = new["metadata"]["name"].as_str().unwrap_or_default();
                ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).with_subject(subject, name)
            }
            EscalationError::RoleNotFound { name, message } => {
                ApiError::new(StatusCode::NOT_FOUND, "NotFound", message).with_subject(subject, &name)
            }
        })
    }

    /// A role that was made a moment ago may not be in the index yet when the binding to it comes.
    fn catch_up(&self, store: &Store, namespace: &str, role: &Value) {
        let (kind, namespace) = match role["kind"].as_str() {
            Some("ClusterRole") => (RbacKind::ClusterRole, ""),
            Some("Role") => (RbacKind::Role, namespace),
            _ => return,
        };
        let name = role["name"].as_str().unwrap_or_default();
        let key = Key::new(format!("{}/{}", escalation::RBAC_GROUP, kind.resource()), namespace, name);
        // The lock comes first, so that a deletion that is observed meanwhile is not undone.
        let mut rbac = self.rbac.write();
        if let Some(object) = store.current(&key) {
            // What cannot be read is reported when it is observed.
            let _ = rbac.apply(kind, &object.body.value());
        }
    }

    /// A token that lives as long as the secret that holds it.
    pub fn token_for_secret(&self, server: &Server, account: &Value, secret: &Value) -> ApiResult<String> {
        const CENTURY: i64 = 100 * 365 * 24 * 60 * 60;
        let reference = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            ObjectRef::new(text("name"), text("uid"))
        };
        let spec = TokenSpec {
            namespace: account["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
            account: reference(account),
            expiration_seconds: CENTURY,
            binding: Binding::Secret(reference(secret)),
            ..TokenSpec::default()
        };
        let now = server.environment.now().as_second();
        self.tokens.service_accounts.issue(&spec, now).map(|issued| issued.token).map_err(ApiError::internal)
    }

    /// Keeps the index of roles and bindings.
    pub fn observe(&self, event: &Event) {
        let Some(resource) = event.key.resource.strip_prefix("rbac.authorization.k8s.io/") else { return };
        let Some(kind) = RbacKind::from_resource(resource) else { return };
        let mut rbac = self.rbac.write();
        match &event.object {
            Some(object) => {
                if let Err(error) = rbac.apply(kind, &object.body.value()) {
                    tracing::warn!(%error, key = ?event.key, "an RBAC object is ignored");
                }
            }
            None => rbac.remove(kind, &event.key.namespace, &event.key.name),
        }
    }

    fn with_reviewer<T>(&self, server: &Server, ask: impl FnOnce(Reviewer<'_>) -> T) -> T {
        let lookup = Objects(&server.store);
        ask(Reviewer { authorizer: self, tokens: &self.tokens, lookup: &lookup, now: server.environment.now() })
    }

    /// Answers a kind that is a question.
    pub fn review(&self, server: &Server, resource: &Resource, call: &Call, body: Value) -> ApiResult<Value> {
        let namespace = &call.path()?.namespace;
        self.with_reviewer(server, |reviewer| reviewer.review(&resource.kind, &call.user, namespace, body))
            .unwrap_or_else(|| Err(ApiError::method_not_allowed()))
    }

    /// `serviceaccounts/token`
    pub fn issue_token(&self, server: &Server, namespace: &str, name: &str, request: Value) -> ApiResult<Value> {
        let find = |resource: &str, namespace: &str, name: &str| {
            let object = server.store.current(&Key::new(format!("/{resource}"), namespace, name))?;
            Some(object.value())
        };
        self.with_reviewer(server, |reviewer| reviewer.token_request(namespace, name, request, &find))
    }

    /// `/openid/v1/jwks` and `/.well-known/openid-configuration`
    pub fn key_document(&self, path: &str) -> ApiResult<Answer> {
        let (value, content_type) = if path == "/openid/v1/jwks" {
            (self.tokens.service_accounts.jwks(), "application/jwk-set+json")
        } else {
            let jwks = format!("{}/openid/v1/jwks", self.server_url);
            (self.tokens.service_accounts.openid_configuration(&jwks), "application/json")
        };
        Ok(respond::bytes(StatusCode::OK, content_type, respond::encode(&Output::JSON, &value)))
    }
}

impl Authorizer for Identity {
    fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        self.decide(user, attributes)
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> ResolvedRules {
        self.rbac.read().rules_for(user, namespace)
    }
}

/// What a request does, as authorisation sees it.
pub fn attributes(info: &RequestInfo) -> Attributes {
    match &info.resource {
        None => Attributes::path(&info.verb, &info.path),
        Some(path) => Attributes {
            verb: info.verb.clone(),
            group: path.group.clone(),
            version: path.version.clone(),
            resource: path.resource.clone(),
            subresource: path.subresource.clone(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            path: info.path.clone(),
        },
    }
}

fn refuse(attributes: &Attributes, message: String) -> ApiError {
    let error = ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message);
    if attributes.resource.is_empty() {
        return error.with_empty_details();
    }
    error.with_subject(Subject { group: &attributes.group, resource: &attributes.resource }, &attributes.name)
}
