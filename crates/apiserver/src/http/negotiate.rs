//! `Accept`: in which encoding and in which shape (whole object, table, metadata only) an answer is wanted.

use http::HeaderMap;
use http::header::ACCEPT;

use super::options::Query;
use crate::status::{ApiError, ApiResult};

/// What kube-apiserver names in a 406; protobuf answers are not ours to give, JSON always is.
pub const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// How the body of an answer is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// YAML instead of JSON.
    pub yaml: bool,
    /// Indented, for people.
    pub pretty: bool,
    /// What is sent of each object.
    pub shape: Shape,
}

/// What is sent of each object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    Object,
    /// `meta.k8s.io` `Table`.
    Table {
        /// `v1` or `v1beta1`.
        version: &'static str,
    },
    /// `meta.k8s.io` `PartialObjectMetadata` or its list.
    Metadata {
        /// `v1` or `v1beta1`.
        version: &'static str,
        /// Asked for as a list.
        list: bool,
    },
}

/// Refuses what the router in front of the built-in kinds refuses: media types that it has never heard of.
pub fn check_route(headers: &HeaderMap) -> ApiResult<()> {
    const KNOWN: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*"];
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    if accept.trim().is_empty() || parse(&accept).iter().any(|clause| KNOWN.contains(&clause.media)) {
        return Ok(());
    }
    Err(ApiError::not_acceptable_route())
}

struct Clause<'a> {
    media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Output {
    /// Plain JSON.
    pub const JSON: Self = Self { yaml: false, pretty: false, shape: Shape::Object };

    /// Chooses the first clause that can be served.
    pub fn negotiate(headers: &HeaderMap, query: &Query) -> ApiResult<Self> {
        let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let accept = accept.join(",");
        let pretty = match query.get("pretty") {
            Some(value) => value != "0" && value != "false",
            None => is_for_people(headers),
        };
        if accept.trim().is_empty() {
            return Ok(Self { pretty, ..Self::JSON });
        }
        let clauses = parse(&accept);
        clauses.iter().find_map(|clause| serve(clause, pretty)).ok_or_else(|| ApiError::not_acceptable(OFFERED))
    }

    /// Metadata of one object and of a list are asked for by different names.
    pub fn check_list(&self, is_list: bool, kind: &str) -> ApiResult<()> {
        let Shape::Metadata { list, .. } = self.shape else { return Ok(()) };
        if list == is_list {
            return Ok(());
        }
        let message = if is_list {
            format!("you requested PartialObjectMetadata, but the requested object is a list (*core.{kind})")
        } else {
            format!("you requested PartialObjectMetadataList, but the requested object is not a list (*core.{kind})")
        };
        Err(ApiError::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
    }

    /// The `Content-Type` of the answer.
    pub fn content_type(&self) -> &'static str {
        if self.yaml { "application/yaml" } else { "application/json" }
    }
}

fn is_for_people(headers: &HeaderMap) -> bool {
    let agent = headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

fn parse(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let params: Vec<_> = parts.filter_map(|param| param.split_once('=')).collect();
            let quality = params.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0);
            Some(Clause { media, params, quality })
        })
        .collect();
    // A stable sort keeps the client's order among equals.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

fn serve(clause: &Clause<'_>, pretty: bool) -> Option<Output> {
    let yaml = match clause.media {
        "application/json" | "application/*" | "*/*" => false,
        "application/yaml" => true,
        _ => return None,
    };
    let param = |name: &str| clause.params.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let shape = match param("as") {
        None => Shape::Object,
        Some(kind) => {
            if param("g") != Some("meta.k8s.io") {
                return None;
            }
            let version = match param("v") {
                Some("v1") => "v1",
                Some("v1beta1") => "v1beta1",
                _ => return None,
            };
            match kind {
                "Table" => Shape::Table { version },
                "PartialObjectMetadata" => Shape::Metadata { version, list: false },
                "PartialObjectMetadataList" => Shape::Metadata { version, list: true },
                _ => return None,
            }
        }
    };
    Some(Output { yaml, pretty, shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &str) -> ApiResult<Output> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        Output::negotiate(&headers, &Query::default())
    }

    #[test]
    fn kubectl_get_asks_for_a_table_first() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(accept).unwrap().shape, Shape::Table { version: "v1" });
    }

    #[test]
    fn protobuf_falls_back_to_json_and_alone_is_refused() {
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf,application/json").unwrap(), Output::JSON);
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf").unwrap_err().code(), 406);
        assert_eq!(negotiate("text/html").unwrap_err().reason(), "NotAcceptable");
    }

    #[test]
    fn quality_orders_clauses() {
        assert!(negotiate("application/json;q=0.5,application/yaml").unwrap().yaml);
    }
}
