//! Which webhooks a request concerns, and in which version they see it.

use std::sync::{Arc, OnceLock};

use ferrovirt_machinery::cel::MatchVariables;
use serde_json::Value;

use super::hook::{Condition, Hook, Rule};
use super::review::request;
use crate::admission::{Operation, Review};
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult, Subject};
use crate::store::Key;

/// What a rule looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a> {
    pub(super) operation: &'a str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    /// Empty for cluster scope.
    pub(super) namespace: &'a str,
}

impl Rule {
    /// Whether a request is one of those that the rule describes.
    pub(super) fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let listed = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        self.matches_scope(attributes)
            && listed(&self.operations, attributes.operation)
            && listed(&self.groups, attributes.group)
            && listed(&self.versions, attributes.version)
            && self.resources.iter().any(|pattern| matches_resource(pattern, attributes))
    }

    fn matches_scope(&self, attributes: &Attributes<'_>) -> bool {
        // A namespace lies in itself as far as selectors go, but it is an object of the cluster.
        let is_namespace = attributes.group.is_empty() && attributes.resource == "namespaces";
        let namespaced = !is_namespace && !attributes.namespace.is_empty();
        match self.scope.as_str() {
            "*" => true,
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => false,
        }
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/scale`, `*`, `*/*`
fn matches_resource(pattern: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == attributes.resource)
        && (subresource == "*" || subresource == attributes.subresource)
}

/// Objects that decide about admission are never subject to webhooks: a broken one could not be repaired.
pub(super) fn is_exempt(resource: &Resource) -> bool {
    &*resource.group == "admissionregistration.k8s.io"
        && matches!(
            &*resource.kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// One request, looked at by many webhooks.
pub(super) struct Matcher<'a> {
    review: &'a Review<'a>,
    equivalents: &'a OnceLock<Vec<Arc<Resource>>>,
}

impl<'a> Matcher<'a> {
    /// `equivalents` is kept across the states of one object, so that they are looked up once.
    pub(super) fn new(review: &'a Review<'a>, equivalents: &'a OnceLock<Vec<Arc<Resource>>>) -> Self {
        Self { review, equivalents }
    }

    /// The resource as which the webhook is to see the object, or `None` when it is not concerned.
    pub(super) fn invocation(&self, hook: &Hook) -> ApiResult<Option<Arc<Resource>>> {
        let namespace = self.matches_namespace(hook);
        if matches!(namespace, Ok(false)) {
            return Ok(None);
        }
        let object = self.matches_object(hook);
        if matches!(object, Ok(false)) {
            return Ok(None);
        }
        let Some(resource) = self.matching_resource(hook) else { return Ok(None) };
        // A webhook that does not concern the request must not fail it, so these come out only now.
        namespace?;
        object?;
        Ok(self.matches_conditions(hook, &resource)?.then_some(resource))
    }

    fn matching_resource(&self, hook: &Hook) -> Option<Arc<Resource>> {
        let review = self.review;
        let matches = |rule: &Rule, resource: &Resource| {
            rule.matches(&Attributes {
                operation: review.operation.as_str(),
                group: &resource.group,
                version: &resource.version,
                resource: &resource.plural,
                subresource: review.subresource,
                namespace: namespace_of(review),
            })
        };
        if hook.rules.iter().any(|rule| matches(rule, review.resource)) {
            return Some(review.resource.clone());
        }
        if !hook.equivalent {
            return None;
        }
        let equivalents = self.equivalents.get_or_init(|| equivalents(review));
        // Earlier rules first.
        hook.rules.iter().find_map(|rule| equivalents.iter().find(|resource| matches(rule, resource)).cloned())
    }

    fn matches_namespace(&self, hook: &Hook) -> ApiResult<bool> {
        let review = self.review;
        let namespace = namespace_of(review);
        if namespace.is_empty() {
            return Ok(true);
        }
        let selector = hook.namespaces.as_ref().map_err(ApiError::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let writes = matches!(review.operation, Operation::Create | Operation::Update);
        if is_namespace(review.resource) && review.subresource.is_empty() && writes {
            // The store does not know its labels yet.
            return Ok(selector.matches_object(review.object));
        }
        let stored = review.server.store.get(&Key::new("/namespaces", "", namespace));
        let namespaces = Subject { group: "", resource: "namespaces" };
        let stored = stored.ok_or_else(|| ApiError::not_found(namespaces, namespace))?;
        Ok(selector.matches(|key| stored.label(key)))
    }

    fn matches_object(&self, hook: &Hook) -> ApiResult<bool> {
        let selector = hook.objects.as_ref().map_err(ApiError::internal)?;
        let matches = |object: &Value| object.is_object() && selector.matches_object(object);
        Ok(selector.is_everything() || matches(self.review.object) || matches(self.review.old_object))
    }

    fn matches_conditions(&self, hook: &Hook, resource: &Arc<Resource>) -> ApiResult<bool> {
        if hook.conditions.is_empty() {
            return Ok(true);
        }
        let review = self.review;
        let mut seen = request(review, resource, "");
        let (object, old) = (seen["object"].take(), seen["oldObject"].take());
        if let Value::Object(fields) = &mut seen {
            fields.retain(|name, _| !matches!(name.as_str(), "uid" | "object" | "oldObject"));
        }
        let present = |value| Some(value).filter(|value: &&Value| !value.is_null());
        let variables = MatchVariables { object: present(&object), old_object: present(&old), request: &seen };
        match evaluate(&hook.conditions, &variables) {
            Ok(answer) => Ok(answer),
            Err(_) if hook.fails_open => Ok(false),
            Err(why) => Err(ApiError::forbidden(review.resource.subject(), review.name, &why)),
        }
    }
}

/// Whether all conditions hold. One that is false decides, even when others have no answer.
fn evaluate(conditions: &[Condition], variables: &MatchVariables<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        let answer = match &condition.program {
            Err(error) => Err(format!("compilation error: {error}")),
            Ok(program) => program
                .matches(variables)
                .map_err(|error| format!("expression '{}' resulted in error: {error}", condition.expression)),
        };
        match answer {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.plural == "namespaces"
}

/// Where the request happens; for a namespace that is the namespace itself.
pub(super) fn namespace_of<'a>(review: &'a Review<'_>) -> &'a str {
    if is_namespace(review.resource) { review.name } else { review.namespace }
}

/// The other versions in which the same stored objects are served.
fn equivalents(review: &Review<'_>) -> Vec<Arc<Resource>> {
    let snapshot = review.server.registry.snapshot();
    let own = review.resource;
    let mut out = Vec::new();
    for (group, versions) in snapshot.groups() {
        for version in versions {
            let Some(resource) = snapshot.find(group, version, &own.plural) else { continue };
            let is_own = resource.group == own.group && resource.version == own.version;
            let has_subresource = review.subresource.is_empty() || resource.subresource(review.subresource).is_some();
            if resource.storage == own.storage && !is_own && has_subresource {
                out.push(resource.clone());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POD: Attributes<'_> =
        Attributes { operation: "CREATE", group: "", version: "v1", resource: "pods", subresource: "", namespace: "a" };

    fn rule(change: &[(&str, Value)]) -> Rule {
        let mut rule =
            json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        for (field, value) in change {
            rule[*field] = value.clone();
        }
        Rule::parse(&rule)
    }

    #[test]
    fn rules_match_field_by_field() {
        let table = [
            (vec![], true),
            (vec![("operations", json!(["UPDATE", "DELETE"]))], false),
            (vec![("operations", json!(["*"]))], true),
            (vec![("apiGroups", json!(["apps"]))], false),
            (vec![("apiGroups", json!(["apps", "*"]))], true),
            (vec![("apiVersions", json!(["v1beta1"]))], false),
            (vec![("apiVersions", json!(["*"]))], true),
            (vec![("resources", json!([]))], false),
            (vec![("scope", json!("Namespaced"))], true),
            (vec![("scope", json!("Cluster"))], false),
            (vec![("scope", json!("*"))], true),
            (vec![("scope", json!("Galactic"))], false),
        ];
        for (change, expected) in table {
            assert_eq!(rule(&change).matches(&POD), expected, "{change:?}");
        }
    }

    #[test]
    fn resources_match_with_their_subresources() {
        let table = [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods/*", "pods", "", true),
            ("pods/*", "pods", "exec", true),
            ("pods/*", "services", "", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*", "deployments", "", true),
            ("*", "deployments", "scale", false),
            ("*/*", "deployments", "", true),
            ("*/*", "deployments", "scale", true),
            ("pod", "pods", "", false),
        ];
        for (pattern, resource, subresource, expected) in table {
            let attributes = Attributes { resource, subresource, ..POD };
            let rule = rule(&[("resources", json!([pattern]))]);
            assert_eq!(rule.matches(&attributes), expected, "{pattern} {resource}/{subresource}");
        }
    }

    #[test]
    fn a_namespace_is_an_object_of_the_cluster() {
        let namespace = Attributes { resource: "namespaces", ..POD };
        let rule = |scope: &str| rule(&[("resources", json!(["*"])), ("scope", json!(scope))]);
        assert!(rule("Cluster").matches(&namespace));
        assert!(!rule("Namespaced").matches(&namespace));
        assert!(rule("Cluster").matches(&Attributes { resource: "nodes", namespace: "", ..POD }));
    }

    #[test]
    fn a_false_condition_decides_over_errors() {
        let condition = |expression: &str| {
            let hook = Hook::parse(&json!({"matchConditions": [{"name": "c", "expression": expression}]}));
            hook.conditions.into_iter().next().unwrap()
        };
        let (object, request) = (json!({"a": 1}), json!({}));
        let variables = MatchVariables { object: Some(&object), old_object: None, request: &request };
        let run = |expressions: &[&str]| {
            let conditions: Vec<_> = expressions.iter().map(|expression| condition(expression)).collect();
            evaluate(&conditions, &variables)
        };
        assert_eq!(run(&["object.a == 1"]), Ok(true));
        assert_eq!(run(&["object.b == 1", "object.a == 2"]), Ok(false));
        let error = run(&["object.b == 1", "object.a == 1"]).unwrap_err();
        assert_eq!(error, "expression 'object.b == 1' resulted in error: no such key: b");
        assert!(run(&["object.b == 1", "object.c == 1"]).unwrap_err().starts_with("[expression 'object.b == 1'"));
        assert!(run(&["object.a >"]).unwrap_err().starts_with("compilation error: "));
    }

    #[test]
    fn configurations_of_webhooks_are_exempt() {
        let snapshot = crate::registry::Registry::default().snapshot();
        let find = |group: &str, plural: &str| snapshot.find(group, "v1", plural).unwrap().clone();
        assert!(is_exempt(&find("admissionregistration.k8s.io", "mutatingwebhookconfigurations")));
        assert!(is_exempt(&find("admissionregistration.k8s.io", "validatingwebhookconfigurations")));
        assert!(!is_exempt(&find("", "pods")));
    }
}
