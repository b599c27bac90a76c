//! The words exchanged with a webhook: `AdmissionReview` out, `AdmissionReview` back.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use ferrovirt_machinery::json;
use ferrovirt_machinery::patch::{self, PatchError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::hook::ReviewVersion;
use super::matching::namespace_of;
use crate::admission::{Operation, Review};
use crate::registry::Resource;
use crate::status::ApiError;

/// The `AdmissionRequest` about a write, with the objects in the version of `resource`.
pub(super) fn request(review: &Review<'_>, resource: &Arc<Resource>, uid: &str) -> Value {
    let own = review.resource;
    let mut out = json!({
        "uid": uid,
        "kind": kind_of(resource, review.subresource),
        "resource": {"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural},
        "requestKind": kind_of(own, review.subresource),
        "requestResource": {"group": &*own.group, "version": &*own.version, "resource": &*own.plural},
        "operation": review.operation.as_str(),
        "userInfo": review.user,
        "object": convert(review.object.clone(), own, resource),
        "oldObject": convert(review.old_object.clone(), own, resource),
        "dryRun": review.dry_run,
        "options": options(review),
    });
    let namespace = namespace_of(review);
    for (field, text) in [
        ("subResource", review.subresource),
        ("requestSubResource", review.subresource),
        ("name", review.name),
        ("namespace", namespace),
    ] {
        if !text.is_empty() {
            out[field] = text.into();
        }
    }
    out
}

/// The whole body of the call.
pub(super) fn envelope(version: ReviewVersion, request: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{}", version.as_str()), "request": request,
    })
}

/// The kind of the request's body: that of the subresource where it has one of its own.
fn kind_of(resource: &Resource, subresource: &str) -> Value {
    let found = resource.subresource(subresource);
    let (group, version, kind) = match found {
        Some(found) => match &found.group_version {
            Some((group, version)) => (group.as_str(), version.as_str(), found.kind.as_str()),
            None => (&*resource.group, &*resource.version, found.kind.as_str()),
        },
        None => (&*resource.group, &*resource.version, &*resource.kind),
    };
    json!({"group": group, "version": version, "kind": kind})
}

fn options(review: &Review<'_>) -> Value {
    let kind = match review.operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if review.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}

/// An object of one version as another version shows it.
pub(super) fn convert(mut object: Value, from: &Resource, to: &Resource) -> Value {
    let is_own_kind = object["kind"] == *from.kind;
    if !is_own_kind || (from.group == to.group && from.version == to.version) {
        return object;
    }
    from.strategy.to_storage(from, &mut object);
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".into(), to.api_version().into());
        fields.insert("kind".into(), to.kind.to_string().into());
    }
    if to.strategy.converts(to) {
        to.strategy.from_storage(to, &mut object);
    }
    object
}

/// What a webhook decided.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    /// The text of a JSON patch.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) patch_type: String,
    /// The `Status` with which it refuses.
    pub(super) result: Option<Value>,
    pub(super) warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<Map<String, Value>>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

/// Why an answer is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    /// It cannot be read.
    #[error("failed to call webhook: {0}")]
    Unreadable(String),
    /// It breaks the contract.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
}

/// Reads an answer and checks what the contract demands.
pub(super) fn verdict(version: ReviewVersion, uid: &str, mutating: bool, body: &[u8]) -> Result<Verdict, AnswerError> {
    let unreadable = |error: String| AnswerError::Unreadable(error);
    let parsed = json::parse_yaml(body).map_err(|error| unreadable(error.to_string()))?.value;
    if !parsed.is_object() {
        let kind =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let why = format!("json: cannot unmarshal {} into Go value of type {kind}", go_type(&parsed));
        return Err(unreadable(format!("couldn't get version/kind; json parse error: {why}")));
    }
    let envelope: Envelope = serde_json::from_value(parsed).map_err(|error| unreadable(error.to_string()))?;
    let invalid = |why: String| Err(AnswerError::Invalid(why));
    let Some(response) = envelope.response else { return invalid("webhook response was absent".to_owned()) };
    let patch = response.patch.filter(|patch| !patch.is_empty());
    let patch = patch.map(|text| decode_base64(&text)).transpose().map_err(unreadable)?;
    let mut verdict = Verdict {
        allowed: response.allowed.unwrap_or(false),
        patch_type: response.patch_type.clone().unwrap_or_default(),
        patch,
        result: response.status.map(Value::Object),
        warnings: response.warnings.unwrap_or_default(),
    };
    if version == ReviewVersion::V1beta1 {
        // The older version checked neither id nor kind, and knew one type of patch.
        verdict.patch_type = "JSONPatch".to_owned();
        verdict.patch = verdict.patch.filter(|_| mutating);
        return Ok(verdict);
    }
    let answered = response.uid.unwrap_or_default();
    if answered != uid {
        return invalid(format!("expected response.uid=\"{uid}\", got {}", Value::from(answered)));
    }
    let (kind, api_version) = (envelope.kind.unwrap_or_default(), envelope.api_version.unwrap_or_default());
    if kind != "AdmissionReview" || api_version != "admission.k8s.io/v1" {
        let (group, version) = crate::registry::split_api_version(&api_version);
        let wanted = "admission.k8s.io/v1, Kind=AdmissionReview";
        return invalid(format!("expected webhook response of {wanted}, got {group}/{version}, Kind={kind}"));
    }
    check_patch(&verdict, response.patch_type.is_some(), mutating)
        .map_err(|why| AnswerError::Invalid(why.to_owned()))?;
    Ok(verdict)
}

fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _)
            | DecodeError::InvalidLastSymbol(at, _)
            | DecodeError::InvalidLength(at) => at,
            DecodeError::InvalidPadding => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// What Go's decoder calls a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Patch and type come together from those who may change objects, and not at all from others.
fn check_patch(verdict: &Verdict, has_type: bool, mutating: bool) -> Result<(), &'static str> {
    match (mutating, verdict.patch.is_some(), has_type) {
        (true, true, false) => Err("webhook returned response.patch but not response.patchType"),
        (true, false, true) => Err("webhook returned response.patchType but not response.patch"),
        (true, true, true) if verdict.patch_type.is_empty() => {
            Err("webhook returned invalid response.patchType of \"\"")
        }
        (false, true, _) => Err("validating webhook may not return response.patch"),
        (false, false, true) => Err("validating webhook may not return response.patchType"),
        _ => Ok(()),
    }
}

/// The error with which a webhook's refusal reaches the client.
pub(super) fn refusal(hook: &str, result: Option<&Value>) -> ApiError {
    let denied = format!("admission webhook \"{hook}\" denied the request");
    let text = |field: &str| result.and_then(|result| result[field].as_str()).filter(|text| !text.is_empty());
    let message = match (text("message"), text("reason")) {
        (Some(message), _) => format!("{denied}: {message}"),
        (None, Some(reason)) => format!("{denied}: {reason}"),
        (None, None) => format!("{denied} without explanation"),
    };
    let code = result.and_then(|result| result["code"].as_u64()).filter(|code| (400..1000).contains(code));
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code.unwrap_or(400),
    });
    if let Some(reason) = text("reason") {
        status["reason"] = reason.into();
    }
    if let Some(details) = result.and_then(|result| result.get("details")).filter(|details| details.is_object()) {
        status["details"] = details.clone();
    }
    ApiError::verbatim(status)
}

/// Reads the operations of a patch.
pub(super) fn operations(patch: &[u8]) -> Result<Vec<Value>, String> {
    let wrong = |value: &Value, wanted: &str| {
        format!("json: cannot unmarshal {} into Go value of type {wanted}", go_type(value))
    };
    let list = match json::parse_strict(patch).map_err(|error| error.to_string())?.value {
        Value::Array(list) => list,
        Value::Null => Vec::new(),
        other => return Err(wrong(&other, "jsonpatch.Patch")),
    };
    match list.iter().find(|operation| !operation.is_object()) {
        Some(stray) => Err(wrong(stray, "jsonpatch.Operation")),
        None => Ok(list),
    }
}

/// Applies a webhook's patch. Operations run one by one, because the error names the one that failed.
pub(super) fn apply(mut object: Value, operations: Vec<Value>) -> Result<Value, String> {
    for operation in operations {
        let (kind, path) =
            (operation["op"].as_str().unwrap_or("unknown"), operation["path"].as_str().unwrap_or_default());
        let (parent, key) = path.rsplit_once('/').unwrap_or_default();
        let in_object = object.pointer(parent).is_some_and(Value::is_object);
        let failed = |error: PatchError| match error {
            PatchError::Rejected { .. } if kind == "remove" && in_object => {
                format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
            }
            PatchError::Rejected { detail } if detail.starts_with("Unable to access") => {
                format!("error in {kind} for path: '{path}': {detail}")
            }
            PatchError::Rejected { detail } if detail.starts_with("operation ") => format!("{kind} {detail}"),
            PatchError::Rejected { detail } => detail,
            other => other.to_string(),
        };
        object = patch::json::apply(object, &Value::Array(vec![operation.clone()])).map_err(failed)?;
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mutating: bool, response: &Value) -> Result<Verdict, String> {
        let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        verdict(ReviewVersion::V1, "u", mutating, body.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn answers_are_held_to_the_contract() {
        let patch = STANDARD.encode("[]");
        let invalid = [
            (true, json!(null), "webhook response was absent"),
            (true, json!({"uid": "x", "allowed": true}), "expected response.uid=\"u\", got \"x\""),
            (true, json!({"uid": "u", "patch": patch}), "webhook returned response.patch but not response.patchType"),
            (
                true,
                json!({"uid": "u", "patchType": "JSONPatch"}),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                true,
                json!({"uid": "u", "patch": patch, "patchType": ""}),
                "webhook returned invalid response.patchType of \"\"",
            ),
            (
                false,
                json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"}),
                "validating webhook may not return response.patch",
            ),
            (
                false,
                json!({"uid": "u", "patchType": "JSONPatch"}),
                "validating webhook may not return response.patchType",
            ),
        ];
        for (mutating, response, why) in invalid {
            assert_eq!(read(mutating, &response), Err(format!("received invalid webhook response: {why}")));
        }
        let good = read(true, &json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})).unwrap();
        assert!(good.allowed && good.patch.as_deref() == Some(b"[]"));
        assert!(!read(false, &json!({"uid": "u", "warnings": null, "status": null})).unwrap().allowed);
    }

    #[test]
    fn an_answer_of_another_kind_is_refused() {
        let body = json!({"response": {"uid": "u", "allowed": true}}).to_string();
        let error = verdict(ReviewVersion::V1, "u", false, body.as_bytes()).unwrap_err().to_string();
        let wanted = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview";
        assert_eq!(error, format!("received invalid webhook response: {wanted}, got /, Kind="));
        assert!(verdict(ReviewVersion::V1beta1, "u", false, body.as_bytes()).unwrap().allowed);
        let nonsense = verdict(ReviewVersion::V1, "u", false, b"<html>").unwrap_err();
        assert!(matches!(nonsense, AnswerError::Unreadable(_)));
        let base64 = json!({"response": {"uid": "u", "patch": "%"}}).to_string();
        assert!(matches!(verdict(ReviewVersion::V1, "u", true, base64.as_bytes()), Err(AnswerError::Unreadable(_))));
    }

    #[test]
    fn refusals_carry_what_the_webhook_said() {
        let denied = "admission webhook \"a.b.c\" denied the request";
        let table = [
            (json!(null), 400, "", format!("{denied} without explanation")),
            (json!({"code": 200, "message": "no"}), 400, "", format!("{denied}: no")),
            (json!({"code": 403, "reason": "Forbidden"}), 403, "Forbidden", format!("{denied}: Forbidden")),
            (json!({"code": 422, "reason": "Invalid", "message": "bad"}), 422, "Invalid", format!("{denied}: bad")),
        ];
        for (result, code, reason, message) in table {
            let error = refusal("a.b.c", Some(&result));
            assert_eq!((error.code().as_u16(), error.reason(), error.message()), (code, reason, message.as_str()));
        }
        let causes = json!({"causes": [{"field": "spec", "message": "m", "reason": "FieldValueInvalid"}]});
        let error = refusal("a.b.c", Some(&json!({"message": "no", "details": causes, "stray": 1})));
        assert_eq!(error.to_status()["details"], causes);
        assert!(error.to_status().get("stray").is_none());
    }

    #[test]
    fn a_patch_that_fails_names_its_operation() {
        let patch = |operations: Value| apply(json!({"a": 1}), operations.as_array().cloned().unwrap());
        assert_eq!(patch(json!([{"op": "add", "path": "/b", "value": 2}])), Ok(json!({"a": 1, "b": 2})));
        let error = patch(json!([{"op": "remove", "path": "/x"}])).unwrap_err();
        assert_eq!(error, "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value");
        let error = patch(json!([{"op": "remove", "path": "/x/y"}])).unwrap_err();
        assert_eq!(error, "remove operation does not apply: doc is missing path: \"/x/y\": missing value");
        assert_eq!(patch(json!([{"op": "frob", "path": "/a"}])).unwrap_err(), "Unexpected kind: frob");
    }

    #[test]
    fn a_patch_is_a_list_of_objects() {
        let error = |text: &str| operations(text.as_bytes()).unwrap_err();
        assert_eq!(error("{}"), "json: cannot unmarshal object into Go value of type jsonpatch.Patch");
        assert_eq!(error("[1]"), "json: cannot unmarshal number into Go value of type jsonpatch.Operation");
        assert_eq!(error("<"), "invalid character '<' looking for beginning of value");
        assert_eq!(operations(b"[]"), Ok(Vec::new()));
    }

    #[test]
    fn unreadable_answers_read_as_go_tells_them() {
        let error = |body: &[u8]| verdict(ReviewVersion::V1, "u", true, body).unwrap_err().to_string();
        let go =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let call = "failed to call webhook: ";
        let parse = "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type ";
        assert_eq!(error(b"<html>"), format!("{call}{parse}{go}"));
        let base64 = json!({"response": {"uid": "u", "patch": "%%%"}}).to_string();
        assert_eq!(error(base64.as_bytes()), format!("{call}illegal base64 data at input byte 0"));
    }
}
