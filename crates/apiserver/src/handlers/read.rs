//! GET of one object and of a list: snapshots, paging, selectors.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::negotiate::{Output, Shape};
use crate::http::options::{ListOptions, VersionMatch, parse_version};
use crate::http::respond::Answer;
use crate::listing;
use crate::registry::Resource;
use crate::select::Selection;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};
use crate::store::{ListError, Object, Revision};
use crate::view::{View, check_include};

/// How long a read waits for a revision that the store has not reached.
const FRESHNESS_PATIENCE: Duration = Duration::from_secs(3);

/// `get`
pub async fn get(server: &Arc<Server>, resource: &Resource, call: &Call) -> ApiResult<Answer> {
    let output = Output::negotiate(&call.headers, &call.query)?;
    output.check_list(false, &resource.kind)?;
    check_include(&output, &call.query)?;
    let wanted = parse_version(call.query.get("resourceVersion"))?;
    wait_until_fresh(server, wanted.unwrap_or(0)).await?;
    let path = call.path()?;
    let object = server.store.get(&resource.key(&path.namespace, &path.name));
    let object = object.ok_or_else(|| ApiError::not_found(resource.subject(), &path.name))?;
    let view = View::new(resource, &output, &call.query, server.environment.now());
    Ok(view.one(http::StatusCode::OK, &object))
}

/// Waits until the store is at least at `revision`, or fails the way a lagging replica would.
pub(super) async fn wait_until_fresh(server: &Server, revision: Revision) -> ApiResult<()> {
    if revision <= server.store.revision() {
        return Ok(());
    }
    let waited = tokio::time::timeout(FRESHNESS_PATIENCE, server.store.wait_for(revision)).await;
    waited.map_err(|_| ApiError::version_too_large(revision, server.store.revision()))
}

/// What a `continue` token says. The field names are those that kube-apiserver uses.
#[derive(Serialize, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Token {
    v: String,
    rv: i64,
    start: String,
}

impl Token {
    fn encode(revision: Revision, start: &str) -> String {
        let token =
            Self { v: "meta.k8s.io/v1".into(), rv: i64::try_from(revision).unwrap_or(i64::MAX), start: start.into() };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> ApiResult<Self> {
        let invalid =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _) => invalid(&format!("illegal base64 data at input byte {at}")),
            _ => invalid(&format!("illegal base64 data at input byte {}", text.len().saturating_sub(1))),
        })?;
        let value = ferrovirt_machinery::json::parse_strict(&bytes).map_err(|error| invalid(&error.to_string()))?.value;
        let token: Self = serde_json::from_value(value).map_err(|error| invalid(&error.to_string()))?;
        if token.v != "meta.k8s.io/v1" {
            return Err(invalid(&format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)"));
        }
        Ok(token)
    }

    /// `(namespace, name)` of the last object that was sent; the token ends with a NUL so that the next key is meant.
    fn after(&self, namespaced_key: bool) -> ApiResult<(String, String)> {
        let start = self.start.trim_end_matches('\0');
        if start.contains("..") || start.starts_with('/') {
            return Err(ApiError::bad_request(format!("invalid continue token: continue key is not valid: {start}")));
        }
        Ok(match start.split_once('/') {
            Some((namespace, name)) if namespaced_key => (namespace.to_owned(), name.to_owned()),
            _ => (String::new(), start.to_owned()),
        })
    }
}

/// The snapshot that a list reads, and where it starts.
struct Place {
    at: Option<Revision>,
    after: Option<(String, String)>,
    limit: Option<usize>,
    /// The token asked for "whatever is newest" after its own snapshot was lost.
    inconsistent: bool,
}

/// `list`
pub async fn list(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call) -> ApiResult<Answer> {
    let options = ListOptions::parse(&call.query, false)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    output.check_list(true, &resource.list_kind)?;
    check_include(&output, &call.query)?;
    let path = call.path()?;
    let selection = Selection::new(resource, &options)?;
    let place = place(server, resource, &options, &path.namespace).await?;
    let namespace = (!path.namespace.is_empty()).then_some(path.namespace.as_str());
    let page = collect(server, resource, namespace, &selection, &place)?;
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if resource.custom.is_some() && output.shape == Shape::Object {
        // Lists of custom resources are untyped and show the empty token.
        meta["continue"] = "".into();
    }
    if let Some(start) = &page.next {
        meta["continue"] = Token::encode(page.revision, start).into();
        if selection.is_everything() {
            meta["remainingItemCount"] = page.remaining.into();
        }
    }
    let now = server.environment.now();
    Ok(listing::answer(resource.clone(), output, call.query.clone(), now, page.objects, &meta))
}

async fn place(server: &Server, resource: &Resource, options: &ListOptions, namespace: &str) -> ApiResult<Place> {
    if let Some(text) = &options.continue_token {
        let token = Token::decode(text)?;
        if options.resource_version.is_some_and(|version| version != 0) {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let all_namespaces = resource.namespaced && namespace.is_empty();
        let (ns, name) = token.after(all_namespaces)?;
        let ns = if resource.namespaced && !all_namespaces { namespace.to_owned() } else { ns };
        return Ok(Place {
            at: u64::try_from(token.rv).ok(),
            after: Some((ns, name)),
            limit: options.limit,
            inconsistent: token.rv < 0,
        });
    }
    let version = options.resource_version.unwrap_or(0);
    wait_until_fresh(server, version).await?;
    let exact = options.version_match == Some(VersionMatch::Exact)
        || (options.version_match.is_none() && options.limit.is_some() && version > 0);
    // "Any version will do" is answered in one piece, as kube-apiserver does from its cache.
    let any = options.resource_version == Some(0);
    Ok(Place {
        at: exact.then_some(version),
        after: None,
        limit: if any { None } else { options.limit },
        inconsistent: false,
    })
}

struct Collected {
    revision: Revision,
    objects: Vec<Arc<Object>>,
    remaining: usize,
    /// The token's start key when there is more.
    next: Option<String>,
}

fn collect(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    selection: &Selection,
    place: &Place,
) -> ApiResult<Collected> {
    let after = place.after.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    let store_limit = if selection.is_everything() { place.limit } else { None };
    let page = server
        .store
        .list(&resource.storage, namespace, place.at, after, store_limit)
        .map_err(|error| lost_snapshot(&error, place))?;
    let mut collected =
        Collected { revision: page.revision, objects: page.objects, remaining: page.remaining, next: None };
    let mut more = page.next;
    if !selection.is_everything() {
        let last = collected.objects.last().map(|object| object.key.clone());
        collected.objects.retain(|object| selection.matches(object));
        if let Some(limit) = place.limit
            && collected.objects.len() >= limit
        {
            collected.objects.truncate(limit);
            // More may follow; whether any of it matches is found out by asking.
            more = collected.objects.last().map(|object| &object.key) != last.as_ref();
        }
    }
    if more && let Some(last) = collected.objects.last() {
        collected.next = Some(start_key(last, resource.namespaced && namespace.is_none()));
    }
    Ok(collected)
}

fn start_key(last: &Object, with_namespace: bool) -> String {
    if with_namespace { format!("{}/{}\0", last.namespace(), last.name()) } else { format!("{}\0", last.name()) }
}

/// A page of a snapshot that is gone: 410, with a token that goes on from the newest state instead.
fn lost_snapshot(error: &ListError, place: &Place) -> ApiError {
    match error {
        ListError::Future { at, head } => ApiError::version_too_large(*at, *head),
        ListError::Compacted { at, compacted } => match &place.after {
            Some((namespace, name)) if !place.inconsistent => {
                let start = if namespace.is_empty() { format!("{name}\0") } else { format!("{namespace}/{name}\0") };
                let token = Token { v: "meta.k8s.io/v1".into(), rv: -1, start };
                let token = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default());
                ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                     without the continue parameter, or use the continue token in this response to retrieve the remainder of \
                     the results. Continuing with the provided token results in an inconsistent list - objects that were \
                     created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                )
                .with_continue(&token)
            }
            _ => ApiError::expired(format!("The resourceVersion for the provided list is too old. {at} < {compacted}")),
        },
    }
}

/// Everything in a namespace or the cluster, for code that works on values.
pub fn values(server: &Server, resource: &Resource, namespace: Option<&str>) -> Vec<Value> {
    let view = View::new(resource, &Output::JSON, &crate::http::options::Query::default(), server.environment.now());
    let page = server.store.list(&resource.storage, namespace, None, None, None);
    page.map(|page| page.objects.iter().map(|object| view.value(object, object.revision)).collect()).unwrap_or_default()
}
