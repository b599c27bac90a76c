//! OpenAPI v3: an index with a hash per group version, and the documents, made when somebody asks.

use ferrovirt_machinery::openapi::{ResourceDoc, SchemaSource, SubresourceDoc, group_version_document};
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};
use serde_json::{Map, Value, json};

use crate::http::negotiate::Output;
use crate::http::respond::{self, Answer};
use crate::registry::{Resource, Snapshot};
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// `/openapi/v2`: a document that describes nothing. Kinds are described in v3; kubectl comes here for those that v3
/// does not have (`List`, a misspelt kind), and goes on without a description when there is none.
pub fn old_document(call: &Call) -> Answer {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    // swagger: "2.0", info: {title: "Ferrovirt", version: "v1"} in gnostic's message.
    const BYTES: &[u8] = b"\x0a\x032.0\x12\x0f\x0a\x09Ferrovirt\x12\x02v1";
    let accept = call.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("protobuf") && !accept.contains("application/json") {
        return respond::bytes(StatusCode::OK, PROTOBUF, BYTES);
    }
    let info = json!({"title": "Ferrovirt", "version": "v1"});
    let document = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
    respond::object(StatusCode::OK, &Output::JSON, &document)
}

/// `/openapi/v3`
pub fn index(server: &Server) -> Answer {
    let snapshot = server.registry.snapshot();
    let mut paths = Map::new();
    for (group, versions) in snapshot.groups() {
        for version in versions {
            let path = document_path(group, version);
            let url = format!("/openapi/v3/{path}?hash={}", hash(&snapshot, group, version));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    respond::bytes(
        StatusCode::OK,
        "text/plain; charset=utf-8",
        respond::encode(&Output::JSON, &json!({"paths": paths})),
    )
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/G/V`
pub fn document(server: &Server, call: &Call) -> ApiResult<Answer> {
    let path = call.info.path.trim_start_matches("/openapi/v3/").trim_end_matches('/');
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return Err(ApiError::no_such_path()),
    };
    let snapshot = server.registry.snapshot();
    let resources = snapshot.of_group_version(&group, &version);
    if resources.is_empty() {
        let mut nothing = respond::bytes(StatusCode::NOT_FOUND, "", bytes::Bytes::new());
        nothing.headers_mut().remove(http::header::CONTENT_TYPE);
        return Ok(nothing);
    }
    let schemas: Vec<Option<Value>> = resources.iter().map(|resource| raw_schema(server, resource)).collect();
    let docs: Vec<ResourceDoc<'_>> =
        resources.iter().zip(&schemas).map(|(resource, schema)| describe(resource, schema.as_ref())).collect();
    let mut answer = respond::object(StatusCode::OK, &Output::JSON, &group_version_document(&docs));
    if call.query.get("hash").is_some() {
        // A document is known by its hash and never changes under it.
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Ok(answer)
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Clients keep a document as long as its hash stays, so it must move with the CRDs of the group.
fn hash(snapshot: &Snapshot, group: &str, version: &str) -> String {
    let mut text = format!("{} {group}/{version}", env!("CARGO_PKG_VERSION"));
    for resource in snapshot.of_group_version(group, version) {
        text.push_str(&resource.plural);
        if let Some(custom) = &resource.custom {
            text.push_str(&format!("@{}#{}", custom.generation, custom.schema_revision));
        }
    }
    let digest = ring::digest::digest(&ring::digest::SHA512, text.as_bytes());
    crate::discovery::hex(digest.as_ref()).to_uppercase()
}

fn describe<'v>(resource: &'v Resource, schema: Option<&'v Value>) -> ResourceDoc<'v> {
    let subresources = resource.subresources.iter().map(|sub| SubresourceDoc {
        name: &sub.name,
        kind: sub.group_version.as_ref().map(|(group, version)| (group.as_str(), version.as_str(), sub.kind.as_str())),
        verbs: sub.verbs,
    });
    ResourceDoc {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        list_kind: if resource.verbs.contains(&"list") { &resource.list_kind } else { "" },
        plural: &resource.plural,
        namespaced: resource.namespaced,
        verbs: resource.verbs,
        subresources: subresources.collect(),
        schema: if resource.custom.is_some() { SchemaSource::Custom(schema) } else { SchemaSource::BuiltIn },
    }
}

/// The schema as the CRD's author wrote it, descriptions included.
fn raw_schema(server: &Server, resource: &Resource) -> Option<Value> {
    let custom = resource.custom.as_ref()?;
    let key = crate::store::Key::new("apiextensions.k8s.io/customresourcedefinitions", "", custom.crd_name.as_str());
    let crd = server.store.current(&key)?.body.value();
    let versions = crd["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|version| version["name"] == *resource.version)?;
    Some(version["schema"]["openAPIV3Schema"].clone())
}
