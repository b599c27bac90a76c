//! OpenAPI v3: an index with a hash per group version, and the documents, made when somebody asks.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::http::negotiate::Output;
use crate::http::respond::{self, Answer};
use crate::registry::{Resource, Snapshot};
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// `/openapi/v3`
pub fn index(server: &Server, _call: &Call) -> ApiResult<Answer> {
    let snapshot = server.registry.snapshot();
    let mut paths = Map::new();
    for (group, versions) in snapshot.groups() {
        for version in versions {
            let path = document_path(group, version);
            let url = format!("/openapi/v3/{path}?hash={}", hash(&snapshot, group, version));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    Ok(respond::object(StatusCode::OK, &Output::JSON, &json!({"paths": paths})))
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
        return Err(ApiError::no_such_path());
    }
    Err(ApiError::no_such_path())
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
