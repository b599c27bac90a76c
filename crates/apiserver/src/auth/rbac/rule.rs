//! One rule of a role: what it allows, whether it covers another rule, and how messages write it.

use serde::{Deserialize, Deserializer, Serialize};

use super::super::quote::quoted_list;
use super::attributes::Attributes;

pub(super) const ALL: &str = "*";

/// A `PolicyRule`; its serde form is the API's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyRule {
    /// Allowed verbs; `*` is every verb.
    #[serde(deserialize_with = "null_as_empty")]
    pub verbs: Vec<String>,
    /// API groups; `""` is core, `*` is every group.
    #[serde(rename = "apiGroups", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub api_groups: Vec<String>,
    /// `resource`, `resource/subresource`, `*/subresource` or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub resources: Vec<String>,
    /// Only objects of these names; empty is every name.
    #[serde(rename = "resourceNames", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub resource_names: Vec<String>,
    /// Paths that are no resources; a trailing `*` matches what follows.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_empty")]
    pub non_resource_urls: Vec<String>,
}

fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl PolicyRule {
    /// Whether the rule allows this action.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_all(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource() {
            return self.non_resource_urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        has_or_all(&self.api_groups, &attributes.group)
            && self.resources.iter().any(|rule| resource_matches(rule, attributes))
            && (self.resource_names.is_empty() || has(&self.resource_names, &attributes.name))
    }

    /// The form in which escalation messages list missing rights.
    pub(super) fn describe(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted_list(values)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|s| s == wanted)
}

fn has_or_all(set: &[String], wanted: &str) -> bool {
    set.iter().any(|s| s == ALL || s == wanted)
}

fn resource_matches(rule: &str, attributes: &Attributes) -> bool {
    if rule == ALL {
        return true;
    }
    let sub = attributes.subresource.as_str();
    if sub.is_empty() {
        return rule == attributes.resource;
    }
    let of_this = rule.strip_prefix(attributes.resource.as_str()).and_then(|rest| rest.strip_prefix('/'));
    of_this == Some(sub) || rule.strip_prefix("*/") == Some(sub)
}

pub(super) fn url_covers(owned: &str, wanted: &str) -> bool {
    owned == wanted || (owned.ends_with(ALL) && wanted.starts_with(owned.trim_end_matches('*')))
}

#[cfg(test)]
pub(super) mod fixtures {
    use super::PolicyRule;

    pub(in super::super) fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|&s| s.to_owned()).collect()
    }

    pub(in super::super) fn on(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> PolicyRule {
        PolicyRule {
            verbs: strings(verbs),
            api_groups: strings(groups),
            resources: strings(resources),
            resource_names: strings(names),
            ..PolicyRule::default()
        }
    }

    pub(in super::super) fn urls(verbs: &[&str], urls: &[&str]) -> PolicyRule {
        PolicyRule { verbs: strings(verbs), non_resource_urls: strings(urls), ..PolicyRule::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{on, urls};
    use super::*;

    #[test]
    fn resource_rules_allow_what_they_name() {
        let get = |group: &str, resource: &str| Attributes::resource("get", group, resource, "ns");
        let cases = [
            (on(&["get"], &[""], &["pods"], &[]), get("", "pods"), true),
            (on(&["get"], &[""], &["pods"], &[]), get("apps", "pods"), false),
            (on(&["list"], &[""], &["pods"], &[]), get("", "pods"), false),
            (on(&["*"], &["*"], &["*"], &[]), get("apps", "deployments").on_subresource("scale"), true),
            (on(&["get"], &[""], &["pods"], &[]), get("", "pods").on_subresource("log"), false),
            (on(&["get"], &[""], &["pods/log"], &[]), get("", "pods").on_subresource("log"), true),
            (on(&["get"], &[""], &["pods/log"], &[]), get("", "pods"), false),
            (on(&["get"], &["*"], &["*/scale"], &[]), get("apps", "deployments").on_subresource("scale"), true),
            (on(&["get"], &["*"], &["*/scale"], &[]), get("apps", "deployments").on_subresource("status"), false),
            (on(&["get"], &["*"], &["*/scale"], &[]), get("apps", "deployments"), false),
            // A star is no prefix: only `*` alone and `*/sub` are wildcards.
            (on(&["get"], &[""], &["pods/*"], &[]), get("", "pods").on_subresource("log"), false),
            (on(&["get"], &[""], &["po*"], &[]), get("", "pods"), false),
            (on(&["get"], &[""], &["pods"], &["a"]), get("", "pods").named("a"), true),
            (on(&["get"], &[""], &["pods"], &["a"]), get("", "pods").named("b"), false),
            (on(&["get"], &[""], &["pods"], &["a"]), get("", "pods"), false),
            (urls(&["get"], &["/*"]), get("", "pods"), false),
            (PolicyRule::default(), get("", "pods"), false),
        ];
        for (rule, attributes, want) in cases {
            assert_eq!(rule.allows(&attributes), want, "{rule:?} {attributes:?}");
        }
    }

    #[test]
    fn url_rules_allow_paths_and_prefixes() {
        for (pattern, path, want) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz", false),
            ("/api*", "/apis/x", true),
            ("*", "/anything", true),
            ("/a/*/b", "/a/x/b", false),
        ] {
            assert_eq!(urls(&["get"], &[pattern]).allows(&Attributes::path("get", path)), want, "{pattern} {path}");
        }
        assert!(!urls(&["post"], &["*"]).allows(&Attributes::path("get", "/x")));
        assert!(!on(&["*"], &["*"], &["*"], &[]).allows(&Attributes::path("get", "/x")));
    }

    #[test]
    fn null_lists_are_empty() {
        let rule: PolicyRule =
            serde_json::from_value(serde_json::json!({"verbs": ["get"], "apiGroups": null, "resources": null}))
                .unwrap();
        assert_eq!(rule, on(&["get"], &[], &[], &[]));
        assert_eq!(
            on(&["get"], &[""], &["pods"], &["x"]).describe(),
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get"]}"#
        );
    }
}
