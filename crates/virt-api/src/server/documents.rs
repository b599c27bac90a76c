//! What anybody may read: which API this is, what it has, and how it is called.

use ferrovirt_api::names::groups;
use serde_json::{Map, Value, json};

use crate::subresources::{VERSIONS, resources, version};

/// The document at a path.
pub(super) fn at(path: &str) -> Option<Value> {
    let group = groups::SUBRESOURCES;
    match path {
        "" => {
            let versions = VERSIONS.iter().map(|version| format!("/apis/{group}/{version}"));
            let rest = ["/apis", "/openapi/v2", "/openapi/v3"].map(str::to_owned);
            Some(
                json!({"paths": rest.into_iter().chain([format!("/apis/{group}")]).chain(versions).collect::<Vec<_>>()}),
            )
        }
        "/version" => Some(version()),
        "/apis" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [api_group()]})),
        "/openapi/v2" => Some(openapi_v2()),
        "/openapi/v3" => Some(openapi_index()),
        _ => {
            if let Some(version) = path.strip_prefix("/openapi/v3/apis/").and_then(known) {
                return Some(openapi_v3(version));
            }
            let below = path.strip_prefix("/apis/")?;
            if below == group {
                return Some(api_group());
            }
            let version = known(below)?;
            let name = format!("{group}/{version}");
            Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources()}))
        }
    }
}

/// The version of `subresources.kubevirt.io/VERSION`.
fn known(group_version: &str) -> Option<&'static str> {
    let (group, version) = group_version.split_once('/')?;
    VERSIONS.into_iter().find(|known| group == groups::SUBRESOURCES && *known == version)
}

fn api_group() -> Value {
    let entry =
        |version: &&str| json!({"groupVersion": format!("{}/{version}", groups::SUBRESOURCES), "version": version});
    let versions: Vec<Value> = VERSIONS.iter().map(entry).collect();
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": groups::SUBRESOURCES,
        "preferredVersion": versions[0], "versions": versions,
    })
}

/// Every path of a version with its operation: the name and the method.
fn operations(version: &str) -> impl Iterator<Item = (String, &'static str, String)> {
    let base = format!("/apis/{}/{version}", groups::SUBRESOURCES);
    let version = version.to_owned();
    resources().into_iter().map(move |resource| {
        let name = resource["name"].as_str().unwrap_or_default();
        let below = match name.split_once('/') {
            Some((kind, "portforward")) => format!("{kind}/{{name}}/portforward/{{port}}"),
            Some((kind, word)) => format!("{kind}/{{name}}/{word}"),
            None => name.to_owned(),
        };
        let namespaced = resource["namespaced"] == true;
        let path =
            if namespaced { format!("{base}/namespaces/{{namespace}}/{below}") } else { format!("{base}/{below}") };
        let method = if resource["verbs"][0] == "get" { "get" } else { "put" };
        (path, method, format!("{version}-{}", name.replace('/', "-")))
    })
}

fn info() -> Value {
    json!({"title": "KubeVirt API", "version": version()["gitVersion"]})
}

/// The names in braces in a path.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn openapi_v3(version: &str) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let mut paths = Map::new();
    for (path, method, id) in operations(version) {
        let parameters: Vec<Value> = parameters(&path).map(parameter).collect();
        let mut operation = json!({"operationId": id, "responses": {"200": {"description": "OK"}}});
        if method == "put" {
            let content = json!({"application/json": {"schema": {"type": "object"}}});
            operation["requestBody"] = json!({"content": content});
            operation["responses"]["202"] = json!({"description": "Accepted"});
        }
        paths.insert(path, json!({method: operation, "parameters": parameters}));
    }
    json!({"openapi": "3.0.0", "info": info(), "paths": paths})
}

fn openapi_v2() -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "path", "required": true, "type": "string"});
    let mut paths = Map::new();
    for (path, method, id) in operations(VERSIONS[0]) {
        let parameters: Vec<Value> = parameters(&path).map(parameter).collect();
        let operation = json!({"operationId": id, "responses": {"200": {"description": "OK"}}});
        paths.insert(path, json!({method: operation, "parameters": parameters}));
    }
    json!({"swagger": "2.0", "info": info(), "paths": paths})
}

fn openapi_index() -> Value {
    let mut paths = Map::new();
    for version in VERSIONS {
        let name = format!("apis/{}/{version}", groups::SUBRESOURCES);
        // Clients keep a document until its hash moves; it moves with the version of this program.
        let url = format!("/openapi/v3/{name}?hash={}", env!("CARGO_PKG_VERSION"));
        paths.insert(name, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_document_is_there() {
        for path in at("").unwrap()["paths"].as_array().unwrap() {
            assert!(at(path.as_str().unwrap()).is_some(), "{path}");
        }
        for entry in at("/openapi/v3").unwrap()["paths"].as_object().unwrap().values() {
            let path = entry["serverRelativeURL"].as_str().unwrap().split('?').next().unwrap();
            assert!(at(path).is_some(), "{path}");
        }
        for path in ["/apis/kubevirt.io", "/apis/subresources.kubevirt.io/v2", "/openapi/v3/apis/x/v1", "/metrics"] {
            assert_eq!(at(path), None);
        }
    }

    #[test]
    fn documents_name_every_subresource_with_its_parameters() {
        let document = at("/openapi/v3/apis/subresources.kubevirt.io/v1").unwrap();
        assert_eq!(document["paths"].as_object().unwrap().len(), resources().len());
        let base = "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}";
        let start = &document["paths"][format!("{base}/start")];
        assert!(start["put"]["requestBody"].is_object());
        assert_eq!(start["parameters"].as_array().unwrap().len(), 2);
        let forward = &document["paths"][format!("{base}/portforward/{{port}}")];
        assert_eq!(forward["parameters"][2]["name"], "port");
    }
}
