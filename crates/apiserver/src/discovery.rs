//! What is served, told to clients: `/api`, `/apis`, per group and version, in the old and the aggregated form; and
//! `/version`, `/healthz` and the list of paths.

use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, VARY};
use serde_json::{Value, json};

use crate::controllers::builtin_priority;
use crate::http::negotiate::Output;
use crate::http::respond::{self, Answer};
use crate::mounts::proxy::listing::{self, Listed};
use crate::registry::{Resource, Snapshot, Subresource, compare_versions, join_api_version};
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// The Kubernetes version whose behaviour is matched.
pub const MINOR: &str = "36";
/// The version that is reported.
pub const GIT_VERSION: &str = concat!("v1.36.1+ferrovirt.", env!("CARGO_PKG_VERSION"));

/// Serves a path that is no resource.
pub fn serve(server: &Server, call: &Call) -> ApiResult<Answer> {
    let path = call.info.path.trim_end_matches('/');
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match segments.as_slice() {
        [] => answer(call, &json!({"paths": paths(server)})),
        ["version"] => answer(call, &version()),
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping" | "log" | "etcd"] => {
            Ok(health(call, path))
        }
        ["api"] => legacy_versions(server, call),
        ["apis"] => groups(server, call),
        ["api", "v1"] => group_version(server, call, "", "v1"),
        ["apis", group] => one_group(server, call, group),
        ["apis", group, version] => group_version(server, call, group, version),
        ["api", _] => Err(ApiError::no_such_resource()),
        _ => Err(ApiError::no_such_path()),
    }
}

fn answer(call: &Call, value: &Value) -> ApiResult<Answer> {
    let output = Output::negotiate(&call.headers, &call.query)?;
    Ok(respond::object(StatusCode::OK, &output, value))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR, "emulationMajor": "1", "emulationMinor": MINOR,
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": format!("linux/{}", architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn health(call: &Call, path: &str) -> Answer {
    if call.query.get("verbose").is_some() {
        return respond::text(
            StatusCode::OK,
            format!("[+]ping ok\n[+]log ok\n[+]store ok\n{} check passed\n", &path[1..]),
        );
    }
    respond::text(StatusCode::OK, "ok")
}

fn paths(server: &Server) -> Vec<String> {
    let snapshot = server.registry.snapshot();
    let mut out: Vec<String> =
        ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
    for (group, versions) in all_groups(server, &snapshot) {
        out.push(format!("/apis/{group}"));
        out.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    out.extend(["/healthz", "/livez", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"].map(str::to_owned));
    out.sort();
    out.dedup();
    out
}

/// Every group but core, with versions best first.
fn all_groups(server: &Server, snapshot: &Snapshot) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> =
        snapshot.groups().iter().filter(|(group, _)| !group.is_empty()).map(|(g, v)| (g.clone(), v.clone())).collect();
    let mounted = server.mounts.listing().into_iter().map(|(group, version, _)| (group, version));
    let proxied = server.mounts.proxied.listing().into_iter().map(|listed| (listed.group, listed.version));
    for (group, version) in mounted.chain(proxied) {
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, versions)) => versions.push(version),
            None => groups.push((group, vec![version])),
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by(|a, b| compare_versions(b, a));
        versions.dedup();
    }
    // Where two groups have a kind of the same name, clients take the one that comes first.
    groups
        .sort_by_cached_key(|(group, versions)| (std::cmp::Reverse(priority(server, group, versions)), group.clone()));
    groups
}

/// As kube-apiserver orders groups: the one of `APIService` itself, then as those objects say.
fn priority(server: &Server, group: &str, versions: &[String]) -> i64 {
    if group == "apiregistration.k8s.io" {
        return i64::MAX;
    }
    let proxied = versions.iter().filter_map(|version| server.mounts.proxied.priority(group, version)).max();
    let own = versions.iter().find_map(|version| builtin_priority(group, version));
    own.map(|(group, _)| i64::from(group)).or(proxied).unwrap_or(1000)
}

/// The aggregated document's version, when the client prefers it to the old form.
fn wants_aggregated(call: &Call) -> Option<&'static str> {
    let accept = call.headers.get(ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|clause| {
        if !clause.contains("as=APIGroupDiscoveryList") || !clause.contains("g=apidiscovery.k8s.io") {
            return None;
        }
        let version = clause.split(';').find_map(|part| part.trim().strip_prefix("v="))?;
        match version {
            "v2" => Some("v2"),
            "v2beta1" => Some("v2beta1"),
            _ => None,
        }
    })
}

fn legacy_versions(server: &Server, call: &Call) -> ApiResult<Answer> {
    if let Some(version) = wants_aggregated(call) {
        return aggregated(server, call, version, true);
    }
    answer(
        call,
        &json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
        }),
    )
}

fn groups(server: &Server, call: &Call) -> ApiResult<Answer> {
    if let Some(version) = wants_aggregated(call) {
        return aggregated(server, call, version, false);
    }
    let snapshot = server.registry.snapshot();
    let groups: Vec<_> =
        all_groups(server, &snapshot).iter().map(|(group, versions)| group_document(group, versions)).collect();
    answer(call, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

fn group_document(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": join_api_version(group, version), "version": version});
    let entries: Vec<_> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": entries, "preferredVersion": entries.first()})
}

fn one_group(server: &Server, call: &Call, group: &str) -> ApiResult<Answer> {
    let snapshot = server.registry.snapshot();
    let groups = all_groups(server, &snapshot);
    let (_, versions) = groups.iter().find(|(name, _)| name == group).ok_or_else(ApiError::no_such_path)?;
    let mut document = group_document(group, versions);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    answer(call, &document)
}

fn group_version(server: &Server, call: &Call, group: &str, version: &str) -> ApiResult<Answer> {
    let snapshot = server.registry.snapshot();
    let mut resources: Vec<Value> = Vec::new();
    for resource in snapshot.of_group_version(group, version) {
        resources.push(resource_entry(resource));
        resources.extend(resource.subresources.iter().map(|sub| subresource_entry(resource, sub)));
    }
    for (mounted_group, mounted_version, entries) in server.mounts.listing() {
        if mounted_group == group && mounted_version == version {
            resources.extend(entries);
        }
    }
    let known = snapshot.groups().get(group).is_some_and(|versions| versions.iter().any(|known| known == version));
    if resources.is_empty() && !known {
        return Err(ApiError::no_such_path());
    }
    let group_version = join_api_version(group, version);
    let mut document = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    answer(call, &document)
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": &*resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": &*resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
    if resource.verbs.contains(&"get") {
        entry["storageVersionHash"] = storage_hash(resource).into();
    }
    entry
}

/// Eight bytes that change when the stored form of a kind does.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let text = format!("{}/{}", resource.storage_api_version, resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

fn subresource_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name), "singularName": "", "namespaced": resource.namespaced,
        "kind": sub.kind, "verbs": sub.verbs,
    });
    if let Some((group, version)) = &sub.group_version {
        entry["group"] = group.clone().into();
        entry["version"] = version.clone().into();
    }
    entry
}

/// Everything in one document, which spares a client one request per version.
fn aggregated(server: &Server, call: &Call, document_version: &str, core: bool) -> ApiResult<Answer> {
    let snapshot = server.registry.snapshot();
    let mut groups = if core { vec![(String::new(), vec!["v1".to_owned()])] } else { all_groups(server, &snapshot) };
    let (mounted, proxied) = (server.mounts.listing(), server.mounts.proxied.listing());
    let items: Vec<Value> = groups
        .iter_mut()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| aggregated_version(&snapshot, &mounted, &proxied, group, version))
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{document_version}"),
        "metadata": {}, "items": items,
    });
    let bytes = respond::encode(&Output::JSON, &body);
    let hash = hex(ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref());
    let etag = format!("\"{}\"", hash.to_uppercase());
    let not_modified =
        call.headers.get(http::header::IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == etag.as_bytes());
    let mut response = if not_modified {
        respond::bytes(StatusCode::NOT_MODIFIED, "application/json", bytes::Bytes::new())
    } else {
        respond::bytes(StatusCode::OK, "application/json", bytes)
    };
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={document_version};as=APIGroupDiscoveryList");
    if let (Ok(content_type), Ok(etag)) = (HeaderValue::from_str(&content_type), HeaderValue::from_str(&etag)) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.headers_mut().insert(ETAG, etag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

fn aggregated_version(
    snapshot: &Snapshot,
    mounted: &[(String, String, Vec<Value>)],
    proxied: &[Listed],
    group: &str,
    version: &str,
) -> Value {
    if let Some(listed) = proxied.iter().find(|listed| listed.group == group && listed.version == version) {
        return listed.aggregated();
    }
    let mut resources: Vec<Value> =
        snapshot.of_group_version(group, version).iter().map(|resource| aggregated_resource(resource)).collect();
    for (_, _, entries) in mounted.iter().filter(|(g, v, _)| g == group && v == version) {
        resources.extend(listing::aggregated(entries));
    }
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn aggregated_resource(resource: &Resource) -> Value {
    // The core group leaves its own version out.
    let response = |group: &str, version: &str, kind: &str| {
        let version = if group.is_empty() && version == "v1" { "" } else { version };
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = json!({
        "resource": &*resource.plural, "responseKind": response(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
    let subs: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            let (group, version) =
                sub.group_version.clone().unwrap_or((resource.group.to_string(), resource.version.to_string()));
            json!({"subresource": sub.name, "responseKind": response(&group, &version, &sub.kind), "verbs": sub.verbs})
        })
        .collect();
    if !subs.is_empty() {
        entry["subresources"] = subs.into();
    }
    entry
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
