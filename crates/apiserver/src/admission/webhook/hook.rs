//! One webhook of a configuration, parsed once when the configuration changes.

use std::sync::OnceLock;
use std::time::Duration;

use ferrovirt_machinery::cel::MatchCondition;
use ferrovirt_machinery::selector::LabelSelector;
use http::Uri;
use serde_json::Value;

use crate::outgoing::endpoints::Address;
use crate::outgoing::trust::{Trust, ca_bundle, client_config};
use crate::outgoing::{Client, Connector, Target, client};
use crate::server::Server;

/// A webhook.
pub(super) struct Hook {
    /// The webhook's own name, which errors mention.
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    /// Requests for other versions of a kind in the rules count too.
    pub(super) equivalent: bool,
    pub(super) namespaces: Result<LabelSelector, String>,
    pub(super) objects: Result<LabelSelector, String>,
    pub(super) conditions: Vec<Condition>,
    /// `failurePolicy: Ignore`.
    pub(super) fails_open: bool,
    /// The webhook declares that a dry run leaves no trace.
    pub(super) allows_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) reinvoked: bool,
    /// The version of `AdmissionReview` to speak: the first in the webhook's list that is known here.
    pub(super) review: Option<ReviewVersion>,
    pub(super) timeout: Duration,
    /// Where it is; an error is told when it is called.
    pub(super) target: Result<(Target, Uri), String>,
    bundle: Option<Vec<u8>>,
    client: OnceLock<Result<Client, String>>,
}

/// Versions of `admission.k8s.io` that can be spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// One entry of `rules`.
#[derive(Debug, Default, Clone)]
pub(super) struct Rule {
    pub(super) operations: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) versions: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) scope: String,
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }
}

/// One entry of `matchConditions`.
pub(super) struct Condition {
    pub(super) expression: String,
    /// The compiled expression, or why it did not compile.
    pub(super) program: Result<MatchCondition, String>,
}

impl Condition {
    fn parse(condition: &Value) -> Self {
        let expression = text(&condition["expression"]).to_owned();
        let program = MatchCondition::compile(text(&condition["name"]), &expression).map_err(|error| error.to_string());
        Self { expression, program }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Hook {
    /// Every webhook of a configuration, in its order.
    pub(super) fn all(configuration: &Value) -> Vec<Self> {
        configuration["webhooks"].as_array().into_iter().flatten().map(Self::parse).collect()
    }

    pub(super) fn parse(hook: &Value) -> Self {
        let versions = texts(&hook["admissionReviewVersions"]);
        let review = versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        });
        Self {
            name: text(&hook["name"]).to_owned(),
            rules: hook["rules"].as_array().into_iter().flatten().map(Rule::parse).collect(),
            equivalent: hook["matchPolicy"] != "Exact",
            namespaces: selector(&hook["namespaceSelector"]),
            objects: selector(&hook["objectSelector"]),
            conditions: hook["matchConditions"].as_array().into_iter().flatten().map(Condition::parse).collect(),
            fails_open: hook["failurePolicy"] == "Ignore",
            allows_dry_run: matches!(hook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            reinvoked: hook["reinvocationPolicy"] == "IfNeeded",
            review,
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            target: target(&hook["clientConfig"], hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            bundle: ca_bundle(&hook["clientConfig"]["caBundle"]),
            client: OnceLock::new(),
        }
    }

    /// The client to call it with; connections are kept as long as the configuration stays as it is.
    pub(super) fn client(&self, server: &Server) -> Result<&Client, String> {
        let made = self.client.get_or_init(|| {
            let (target, _) = self.target.clone()?;
            let bundle = self.bundle.as_deref().unwrap_or(server.identity.ca_certificate().as_bytes());
            let tls = client_config(Trust::Bundle(bundle), None).map_err(|error| error.to_string())?;
            Ok(client(Connector::new(server.store.clone(), target, tls)))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

/// An absent selector selects everything.
fn selector(value: &Value) -> Result<LabelSelector, String> {
    if value.is_null() {
        return Ok(LabelSelector::everything());
    }
    LabelSelector::from_object(value).map_err(|error| error.to_string())
}

/// Where a `clientConfig` leads, and the address to post to.
fn target(config: &Value, timeout: u64) -> Result<(Target, Uri), String> {
    let service = &config["service"];
    if service.is_object() {
        let (namespace, name) = (text(&service["namespace"]).to_owned(), text(&service["name"]).to_owned());
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let path = text(&service["path"]).trim_start_matches('/');
        let uri = format!("https://{name}.{namespace}.svc:{port}/{path}?timeout={timeout}s");
        let uri = uri.parse().map_err(|error| format!("unparsable service path: {error}"))?;
        return Ok((Target::Service { namespace, name, port }, uri));
    }
    let url = text(&config["url"]);
    if url.is_empty() {
        return Err("webhook configuration must have either service or URL".to_owned());
    }
    let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
    let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
        return Err("Unparsable URL: it names no host".to_owned());
    };
    let address = Address { host: host.to_owned(), port: uri.port_u16().unwrap_or(443) };
    let uri = format!("https://{authority}{}?timeout={timeout}s", uri.path());
    Ok((Target::Host(address), uri.parse().map_err(|error| format!("Unparsable URL: {error}"))?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn uri(config: &Value) -> Result<String, String> {
        target(config, 10).map(|(_, uri)| uri.to_string())
    }

    #[test]
    fn services_and_urls_become_addresses() {
        let service = json!({"service": {"namespace": "ns", "name": "hook", "path": "/mutate"}});
        assert_eq!(uri(&service).unwrap(), "https://hook.ns.svc:443/mutate?timeout=10s");
        let bare = json!({"service": {"namespace": "ns", "name": "hook", "port": 9443}});
        assert_eq!(uri(&bare).unwrap(), "https://hook.ns.svc:9443/?timeout=10s");
        let url = json!({"url": "https://127.0.0.1:8443/a/b"});
        assert_eq!(uri(&url).unwrap(), "https://127.0.0.1:8443/a/b?timeout=10s");
        assert_eq!(uri(&json!({})).unwrap_err(), "webhook configuration must have either service or URL");
        assert!(uri(&json!({"url": "https://[::1"})).unwrap_err().starts_with("Unparsable URL"));
        assert!(uri(&json!({"url": "/only/a/path"})).unwrap_err().starts_with("Unparsable URL"));
    }

    #[test]
    fn what_is_left_out_has_the_defaults_of_the_api() {
        let hook = Hook::parse(&json!({"name": "a.b.c", "admissionReviewVersions": ["v2", "v1beta1", "v1"]}));
        assert!(hook.equivalent && !hook.fails_open && !hook.reinvoked && !hook.allows_dry_run);
        assert!(hook.namespaces.unwrap().is_everything() && hook.objects.unwrap().is_everything());
        assert_eq!((hook.review, hook.timeout), (Some(ReviewVersion::V1beta1), Duration::from_secs(10)));
    }
}
