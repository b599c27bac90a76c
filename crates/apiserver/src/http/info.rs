//! What a URL asks for: the verb and the object behind method, path and query, as authorisation and routing see it.

use http::Method;

/// A parsed request line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the lower-case method for other paths.
    pub verb: String,
    /// The path without the query.
    pub path: String,
    /// `Some` when the path is below `/api/v1` or `/apis/G/V` and names a resource.
    pub resource: Option<ResourcePath>,
}

/// The resource part of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Plural name.
    pub resource: String,
    /// Object name, empty for collections.
    pub name: String,
    /// First segment after the name.
    pub subresource: String,
    /// Everything after the subresource (`proxy/a/b`), without a leading slash.
    pub tail: String,
}

impl RequestInfo {
    /// Parses a request line. Never fails: what is not a resource path is a path.
    pub fn parse(method: &Method, path: &str, query: &[(String, String)]) -> Self {
        let mut info = Self { path: path.to_owned(), verb: method.as_str().to_ascii_lowercase(), resource: None };
        // An empty segment inside is kept: /namespaces//pods means the pods of all namespaces.
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, mut rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return info,
        };
        let mut legacy_watch = false;
        if let ["watch", after @ ..] = rest {
            legacy_watch = true;
            rest = after;
        }
        let Some(mut parts) = ResourcePath::from_segments(rest) else { return info };
        parts.group = group.to_owned();
        parts.version = version.to_owned();
        info.verb = verb(method, &parts, query, legacy_watch).to_owned();
        info.resource = Some(parts);
        info
    }
}

impl ResourcePath {
    fn from_segments(segments: &[&str]) -> Option<Self> {
        let mut out = Self::default();
        let rest = match segments {
            [] | [""] => return None,
            // /namespaces/NAME[/SUB] is the Namespace itself, or its status and finalize; otherwise something in it.
            ["namespaces", _, "status" | "finalize", ..] | ["namespaces"] | ["namespaces", _] => segments,
            ["namespaces", namespace, rest @ ..] => {
                out.namespace = decode(namespace);
                rest
            }
            other => other,
        };
        let mut rest = rest.iter();
        out.resource = (*rest.next()?).to_owned();
        out.name = rest.next().map(|name| decode(name)).unwrap_or_default();
        if out.resource == "namespaces" {
            out.namespace = out.name.clone();
        }
        out.subresource = rest.next().map(|part| (*part).to_owned()).unwrap_or_default();
        out.tail = rest.copied().collect::<Vec<_>>().join("/");
        Some(out)
    }

    /// `resource/subresource` or `resource`.
    pub fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

fn verb<'a>(method: &'a Method, parts: &ResourcePath, query: &[(String, String)], legacy_watch: bool) -> &'a str {
    let watching = || {
        legacy_watch
            || query.iter().any(|(key, value)| {
                key == "watch" && !matches!(value.to_ascii_lowercase().as_str(), "0" | "f" | "false")
            })
    };
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if parts.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD if parts.name.is_empty() && watching() => "watch",
        Method::GET | Method::HEAD if legacy_watch => "watch",
        Method::GET | Method::HEAD if parts.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        _ => method.as_str(),
    }
}

/// Undoes percent encoding; bytes that do not decode to UTF-8 are kept as they were.
pub fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Splits a query string into decoded pairs.
pub fn query_pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "calls read better without the ampersand")]
    fn parse(method: Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(&method, path, &query_pairs(query))
    }

    #[test]
    fn collections_objects_and_subresources() {
        let list = parse(Method::GET, "/api/v1/namespaces/a/pods").resource.unwrap();
        assert_eq!((list.namespace.as_str(), list.resource.as_str(), list.name.as_str()), ("a", "pods", ""));
        let log = parse(Method::GET, "/api/v1/namespaces/a/pods/p/log").resource.unwrap();
        assert_eq!((log.name.as_str(), log.subresource.as_str()), ("p", "log"));
        let group = parse(Method::PUT, "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/x/status");
        assert_eq!(group.verb, "update");
        assert_eq!(group.resource.unwrap().full_resource(), "virtualmachines/status");
    }

    #[test]
    fn a_namespace_is_an_object_and_a_container() {
        let object = parse(Method::DELETE, "/api/v1/namespaces/a").resource.unwrap();
        assert_eq!(
            (object.resource.as_str(), object.name.as_str(), object.namespace.as_str()),
            ("namespaces", "a", "a")
        );
        let finalize = parse(Method::PUT, "/api/v1/namespaces/a/finalize").resource.unwrap();
        assert_eq!((finalize.resource.as_str(), finalize.subresource.as_str()), ("namespaces", "finalize"));
    }

    #[test]
    fn verbs_follow_method_name_and_watch() {
        assert_eq!(parse(Method::GET, "/api/v1/pods").verb, "list");
        assert_eq!(parse(Method::GET, "/api/v1/pods?watch=true").verb, "watch");
        assert_eq!(parse(Method::GET, "/api/v1/watch/pods").verb, "watch");
        assert_eq!(parse(Method::DELETE, "/api/v1/namespaces/a/pods").verb, "deletecollection");
        assert_eq!(parse(Method::GET, "/healthz").verb, "get");
        assert!(parse(Method::GET, "/api/v1").resource.is_none());
    }

    #[test]
    fn percent_encoding_survives_nonsense() {
        assert_eq!(decode("a%2Fb"), "a/b");
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%"), "%zz%");
    }
}
