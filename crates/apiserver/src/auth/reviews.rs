//! The review APIs: "who is this token?", "may they?" and "what may I?" asked as API objects.
//!
//! Each takes the body of the request and gives the body of the answer; the objects are never stored. Metadata of the
//! body is kept (managed fields among it) where the reference keeps it.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use ferrovirt_machinery::selector::{FieldSelector, LabelSelector};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::rbac::{Attributes, Authorizer, PolicyRule};
use super::token::{Binding, Lookup, ObjectRef, TokenError, TokenSpec, Tokens};
use super::user::UserInfo;
use crate::status::{ApiError, ApiResult, Subject};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const DEFAULT_EXPIRATION: i64 = 3600;
const SHORTEST_EXPIRATION: i64 = 600;
const LONGEST_EXPIRATION: i64 = 1 << 32;
/// Kubelets ask for tokens of this odd length for pods whose programs may not know yet that tokens end. They get a
/// year, and a note when they are used after the hour.
const FORGIVEN_EXPIRATION: i64 = 3607;
const FORGIVING_EXPIRATION: i64 = 365 * 24 * 3600;

/// What reviews are made of.
#[derive(Clone, Copy)]
pub struct Reviewer<'a> {
    /// Who decides.
    pub authorizer: &'a dyn Authorizer,
    /// Who knows tokens.
    pub tokens: &'a Tokens,
    /// Who knows which objects exist.
    pub lookup: &'a dyn Lookup,
    /// The time.
    pub now: Timestamp,
}

impl Reviewer<'_> {
    /// Answers a review of `kind`, asked by `user` in `namespace` (empty at cluster scope). `None` if it is no review.
    pub fn review(&self, kind: &str, user: &UserInfo, namespace: &str, body: Value) -> Option<ApiResult<Value>> {
        Some(match kind {
            "SubjectAccessReview" => self.subject_access(body),
            "LocalSubjectAccessReview" => self.local_subject_access(namespace, body),
            "SelfSubjectAccessReview" => self.self_subject_access(user, body),
            "SelfSubjectRulesReview" => self.self_subject_rules(user, &body),
            "SelfSubjectReview" => Ok(self.self_subject(user)),
            "TokenReview" => self.token(body),
            _ => return None,
        })
    }

    /// SubjectAccessReview: may that user do this?
    pub fn subject_access(&self, body: Value) -> ApiResult<Value> {
        let mut errors = access_errors(&body["spec"], true);
        errors.extend(metadata_errors(&body["metadata"], false));
        refuse_invalid_access(&errors)?;
        Ok(self.decided(&named_user(&body["spec"]), body))
    }

    /// LocalSubjectAccessReview: may that user do this in this namespace?
    pub fn local_subject_access(&self, namespace: &str, mut body: Value) -> ApiResult<Value> {
        body["metadata"]["namespace"] = namespace.into();
        let mut errors = access_errors(&body["spec"], true);
        errors.extend(metadata_errors(&body["metadata"], true));
        let spec = &body["spec"];
        if let Value::Object(attributes) = &spec["resourceAttributes"] {
            let asked = attributes.get("namespace").and_then(Value::as_str).unwrap_or_default();
            if asked != namespace {
                let path = "spec.resourceAttributes.namespace";
                errors.push(names::invalid(path, asked, "must match metadata.namespace"));
            }
        }
        if spec["nonResourceAttributes"].is_object() {
            let value = non_resource_text(&spec["nonResourceAttributes"]);
            let path = "spec.nonResourceAttributes";
            errors.push(names::invalid_raw(path, &value, "disallowed on this kind of request"));
        }
        refuse_invalid_access(&errors)?;
        Ok(self.decided(&named_user(&body["spec"]), body))
    }

    /// SelfSubjectAccessReview: may I do this?
    pub fn self_subject_access(&self, user: &UserInfo, body: Value) -> ApiResult<Value> {
        let mut errors = access_errors(&body["spec"], false);
        errors.extend(metadata_errors(&body["metadata"], false));
        refuse_invalid_access(&errors)?;
        Ok(self.decided(user, body))
    }

    fn decided(&self, user: &UserInfo, mut body: Value) -> Value {
        let decision = self.authorizer.authorize(user, &asked_attributes(&body["spec"]));
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        if let Some(error) = selector_error(&body["spec"]["resourceAttributes"]) {
            status["evaluationError"] = error.into();
        }
        body["status"] = status;
        body
    }

    /// SelfSubjectRulesReview: what may I do in this namespace?
    pub fn self_subject_rules(&self, user: &UserInfo, body: &Value) -> ApiResult<Value> {
        let namespace = text(&body["spec"], "namespace");
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let resolved = self.authorizer.rules_for(user, namespace);
        let mut status = json!({
            "resourceRules": resolved.rules.iter().filter_map(resource_rule).collect::<Vec<_>>(),
            "nonResourceRules": resolved.rules.iter().filter_map(url_rule).collect::<Vec<_>>(),
            "incomplete": false,
        });
        if let Some(error) = resolved.error() {
            status["evaluationError"] = error.into();
        }
        Ok(answer(AUTHORIZATION, "SelfSubjectRulesReview", json!({"metadata": {}, "spec": {}, "status": status})))
    }

    /// SelfSubjectReview: who am I?
    pub fn self_subject(&self, user: &UserInfo) -> Value {
        let metadata = json!({"creationTimestamp": time_text(self.now)});
        let status = json!({"userInfo": user});
        answer(AUTHENTICATION, "SelfSubjectReview", json!({"metadata": metadata, "status": status}))
    }

    /// TokenReview: whose token is this?
    pub fn token(&self, mut body: Value) -> ApiResult<Value> {
        let token = text(&body["spec"], "token");
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let wanted = strings(&body["spec"]["audiences"]);
        let found = self.tokens.authenticate(token, &wanted, self.lookup, self.now.as_second());
        body["status"] = match found {
            Ok(found) => {
                let user = found.user.with_authenticated_group();
                json!({"authenticated": true, "user": user, "audiences": found.audiences})
            }
            Err(error) => json!({"user": {}, "error": review_text(&error)}),
        };
        Ok(body)
    }

    /// TokenRequest: `serviceaccounts/<name>/token`. `find` gives the stored object of a core resource.
    pub fn token_request(
        &self,
        namespace: &str,
        name: &str,
        mut body: Value,
        find: &dyn Fn(&str, &str, &str) -> Option<Value>,
    ) -> ApiResult<Value> {
        let account = self.requested_account(namespace, name, &body, find)?;
        let expiration = match &body["spec"]["expirationSeconds"] {
            Value::Null => DEFAULT_EXPIRATION,
            seconds => seconds.as_i64().unwrap_or_default(),
        };
        let errors = expiration_errors(expiration);
        if !errors.is_empty() {
            return Err(ApiError::invalid(AUTHENTICATION, "TokenRequest", "", &errors));
        }
        let mut audiences = strings(&body["spec"]["audiences"]);
        if audiences.is_empty() {
            audiences.clone_from(&self.tokens.audiences);
        }
        let binding = bound_object(&body["spec"]["boundObjectRef"], namespace, name, find)?;
        let forgiven = expiration == FORGIVEN_EXPIRATION
            && matches!(binding, Binding::Pod { .. })
            && audiences.iter().all(|audience| self.tokens.audiences.contains(audience));
        let spec = TokenSpec {
            namespace: namespace.to_owned(),
            account: account.clone(),
            audiences: audiences.clone(),
            expiration_seconds: if forgiven { FORGIVING_EXPIRATION } else { expiration },
            warn_after_seconds: forgiven.then_some(expiration),
            binding,
        };
        let issued = self.tokens.service_accounts.issue(&spec, self.now.as_second()).map_err(ApiError::internal)?;
        let metadata = &mut body["metadata"];
        metadata["name"] = name.into();
        metadata["namespace"] = namespace.into();
        metadata["uid"] = account.uid.into();
        metadata["creationTimestamp"] = time_text(self.now).into();
        let bound = body["spec"]["boundObjectRef"].take();
        body["spec"] = json!({"audiences": audiences, "expirationSeconds": expiration, "boundObjectRef": bound});
        let end = Timestamp::from_second(self.now.as_second().saturating_add(expiration)).unwrap_or(Timestamp::MAX);
        body["status"] = json!({"token": issued.token, "expirationTimestamp": time_text(end)});
        Ok(answer(AUTHENTICATION, "TokenRequest", body))
    }

    fn requested_account(
        &self,
        namespace: &str,
        name: &str,
        body: &Value,
        find: &dyn Fn(&str, &str, &str) -> Option<Value>,
    ) -> ApiResult<ObjectRef> {
        let metadata = &body["metadata"];
        for (field, wanted, detail) in [
            ("name", name, "must match the service account name if specified"),
            ("namespace", namespace, "must match the service account namespace if specified"),
        ] {
            let given = text(metadata, field);
            if !given.is_empty() && given != wanted {
                let error = names::invalid(format!("metadata.{field}"), given, detail);
                return Err(ApiError::invalid(AUTHENTICATION, "TokenRequest", name, &[error]));
            }
        }
        let account = find("serviceaccounts", namespace, name)
            .ok_or_else(|| ApiError::not_found(Subject { group: "", resource: "serviceaccounts" }, name))?;
        let uid = text(&account["metadata"], "uid");
        let given = text(metadata, "uid");
        if !given.is_empty() && given != uid {
            let why =
                format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
            let subject = Subject { group: AUTHENTICATION, resource: "TokenRequest" };
            return Err(ApiError::conflict(subject, name, &why));
        }
        Ok(ObjectRef::new(name, uid))
    }
}

fn expiration_errors(seconds: i64) -> Vec<FieldError> {
    let detail = if seconds < SHORTEST_EXPIRATION {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST_EXPIRATION {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Vec::new();
    };
    vec![names::invalid_raw("spec.expirationSeconds", &seconds.to_string(), detail)]
}

/// What a token shall be bound to, with the uid that it has now.
fn bound_object(
    reference: &Value,
    namespace: &str,
    account: &str,
    find: &dyn Fn(&str, &str, &str) -> Option<Value>,
) -> ApiResult<Binding> {
    if !reference.is_object() {
        return Ok(Binding::None);
    }
    let (kind, api_version, name) = (text(reference, "kind"), text(reference, "apiVersion"), text(reference, "name"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (resource, scope) = match (group, kind) {
        ("", "Pod") => ("pods", namespace),
        ("", "Secret") => ("secrets", namespace),
        ("", "Node") => ("nodes", ""),
        _ => {
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(message));
        }
    };
    let object =
        find(resource, scope, name).ok_or_else(|| ApiError::not_found(Subject { group: "", resource }, name))?;
    if kind == "Pod" && text(&object["spec"], "serviceAccountName") != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
        )));
    }
    let uid = text(&object["metadata"], "uid");
    let given = text(reference, "uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict(Subject { group: "", resource: kind }, name, &why));
    }
    let bound = ObjectRef::new(name, uid);
    Ok(match kind {
        "Pod" => {
            let node = Some(text(&object["spec"], "nodeName")).filter(|node| !node.is_empty()).map(|node| {
                // A node that is gone is still named.
                let found = find("nodes", "", node);
                ObjectRef::new(node, found.as_ref().map(|n| text(&n["metadata"], "uid")).unwrap_or_default())
            });
            Binding::Pod { pod: bound, node }
        }
        "Secret" => Binding::Secret(bound),
        _ => Binding::Node(bound),
    })
}

/// The reference asks its loopback authenticator first, and that one's "no" stays in the text.
fn review_text(error: &TokenError) -> String {
    match error {
        TokenError::Unknown => error.to_string(),
        other => format!("[{}, {other}]", TokenError::Unknown),
    }
}

fn refuse_invalid_access(errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    // The reference has lost the kind by then: its message starts with a dot and its details name none.
    let mut status = ApiError::invalid(AUTHORIZATION, "", "", errors).to_status();
    if let Some(details) = status["details"].as_object_mut() {
        details.remove("kind");
    }
    Err(ApiError::verbatim(status))
}

fn access_errors(spec: &Value, names_user: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (on_resource, on_path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if on_resource.is_object() && on_path.is_object() {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(names::invalid_raw("spec.nonResourceAttributes", &non_resource_text(on_path), detail));
    }
    if !on_resource.is_object() && !on_path.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(names::invalid_raw("spec.resourceAttributes", "null", detail));
    }
    if names_user && text(spec, "user").is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(names::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    for selector in ["fieldSelector", "labelSelector"] {
        errors.extend(selector_errors(&on_resource[selector], &format!("spec.resourceAttributes.{selector}")));
    }
    errors
}

fn selector_errors(selector: &Value, path: &str) -> Vec<FieldError> {
    if !selector.is_object() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let raw = text(selector, "rawSelector");
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(names::invalid(format!("{path}.rawSelector"), raw, detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(names::required(format!("{path}.requirements"), &detail));
    }
    for (index, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.requirements[{index}]");
        let key = text(requirement, "key");
        if key.is_empty() {
            errors.push(names::required(format!("{path}.key"), "must be specified"));
        }
        let values = strings(&requirement["values"]);
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(names::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(names::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            _ => {}
        }
    }
    errors
}

/// Selectors narrow what is asked, so one that cannot be read is left out; the answer says so.
fn selector_error(attributes: &Value) -> Option<String> {
    let raw = |selector: &str| Some(text(&attributes[selector], "rawSelector")).filter(|raw| !raw.is_empty());
    let unreadable = [
        ("fieldSelector", raw("fieldSelector").is_some_and(|raw| FieldSelector::parse(raw).is_err())),
        ("labelSelector", raw("labelSelector").is_some_and(|raw| LabelSelector::parse(raw).is_err())),
    ];
    let errors: Vec<String> = unreadable
        .into_iter()
        .filter(|(_, unreadable)| *unreadable)
        .map(|(selector, _)| format!("spec.resourceAttributes.{selector} ignored due to parse error"))
        .collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// A review is no object that has a name. Managed fields are the server's own doing.
fn metadata_errors(metadata: &Value, may_have_namespace: bool) -> Vec<FieldError> {
    let given = |(key, value): (&String, &Value)| {
        let ignored = key == "managedFields" || (may_have_namespace && key == "namespace");
        let empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            _ => false,
        };
        !ignored && !empty
    };
    if !metadata.as_object().into_iter().flatten().any(given) {
        return Vec::new();
    }
    let detail = if may_have_namespace { "must be empty except for namespace" } else { "must be empty" };
    vec![names::invalid_raw("metadata", &metadata.to_string(), detail)]
}

/// The reference prints its internal type here, whose fields have no JSON names.
fn non_resource_text(attributes: &Value) -> String {
    let quoted = |field: &str| Value::from(text(attributes, field)).to_string();
    format!(r#"{{"Path":{},"Verb":{}}}"#, quoted("path"), quoted("verb"))
}

fn named_user(spec: &Value) -> UserInfo {
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text(spec, "user").to_owned(),
        uid: Some(text(spec, "uid").to_owned()).filter(|uid| !uid.is_empty()),
        groups: strings(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), strings(values))).collect(),
    }
}

fn asked_attributes(spec: &Value) -> Attributes {
    let on_resource = &spec["resourceAttributes"];
    if !on_resource.is_object() {
        let on_path = &spec["nonResourceAttributes"];
        return Attributes::path(text(on_path, "verb"), text(on_path, "path"));
    }
    let field = |name: &str| text(on_resource, name).to_owned();
    Attributes {
        verb: field("verb"),
        group: field("group"),
        version: field("version"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: String::new(),
    }
}

fn resource_rule(rule: &PolicyRule) -> Option<Value> {
    if rule.resources.is_empty() {
        return None;
    }
    let mut shown = json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
    if !rule.resource_names.is_empty() {
        shown["resourceNames"] = json!(rule.resource_names);
    }
    Some(shown)
}

fn url_rule(rule: &PolicyRule) -> Option<Value> {
    let urls = &rule.non_resource_urls;
    (!urls.is_empty()).then(|| json!({"verbs": rule.verbs, "nonResourceURLs": urls}))
}

fn answer(group: &str, kind: &str, content: Value) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), format!("{group}/v1").into());
    if let Value::Object(content) = content {
        object.extend(content.into_iter().filter(|(key, _)| key != "kind" && key != "apiVersion"));
    }
    Value::Object(object)
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Times of objects are whole seconds.
fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
