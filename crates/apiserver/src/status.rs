//! Failures as clients know them: one `metav1.Status` per error, with the code, reason and words that kube-apiserver uses.
//!
//! Clients branch on `reason` (client-go's `IsNotFound`, kube's `is_conflict`), people read `message`, and tools read
//! `details`; all three are made here and nowhere else.

use ferrovirt_machinery::error::FieldError;
use http::StatusCode;
use serde_json::{Map, Value, json};

/// The result of everything that answers a request.
pub type ApiResult<T> = Result<T, ApiError>;

/// A failed request, ready to be sent. Boxed, because the happy path returns these results by value everywhere.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Failure>);

#[derive(Debug, Clone)]
struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// A `Status` that came from elsewhere (a webhook, an extension server) and is passed on as it is.
    verbatim: Option<Value>,
    /// Show `details` even when there are none.
    show_details: bool,
    /// `metadata.continue`.
    continue_token: Option<String>,
    /// Answered as plain text instead of a `Status`, as kube-apiserver does for paths that it does not serve.
    plain: bool,
}

/// `group` and `resource` of the object that an error is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }
}

impl ApiError {
    /// An error with neither details nor causes.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            verbatim: None,
            continue_token: None,
            show_details: false,
            plain: false,
        }))
    }

    /// Passes a `Status` object of somebody else on.
    pub fn verbatim(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let mut error = Self::new(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), "", "");
        status["message"].as_str().unwrap_or_default().clone_into(&mut error.0.message);
        error.0.verbatim = Some(status);
        error
    }

    fn about(mut self, subject: Subject<'_>, name: &str) -> Self {
        if !name.is_empty() {
            self.0.details.insert("name".into(), name.into());
        }
        if !subject.group.is_empty() {
            self.0.details.insert("group".into(), subject.group.into());
        }
        self.0.details.insert("kind".into(), subject.resource.into());
        self
    }

    /// Like `about`, leaving out what is empty.
    fn about_kind(mut self, group: &str, kind: &str, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.0.details.insert(key.into(), value.into());
            }
        }
        self
    }

    /// Adds `details.causes`.
    pub fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.0.details.insert("causes".into(), causes.into());
        self
    }

    /// Adds `details.retryAfterSeconds`, which also becomes the `Retry-After` header.
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        self.0.details.insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// Shows `details` even when there are none.
    pub fn with_empty_details(mut self) -> Self {
        self.0.show_details = true;
        self
    }

    /// Adds the object that the error is about to `details`.
    pub fn with_subject(self, subject: Subject<'_>, name: &str) -> Self {
        self.about(subject, name)
    }

    /// 404 for an object.
    pub fn not_found(subject: Subject<'_>, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} \"{name}\" not found", subject.qualified()))
            .about(subject, name)
    }

    /// 404 for a path that nothing serves.
    pub fn no_such_path() -> Self {
        let mut error = Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found\n");
        error.0.plain = true;
        error
    }

    /// 404 for a resource that a known group and version does not have.
    pub fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// 409 on creation.
    pub fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyExists", format!("{} \"{name}\" already exists", subject.qualified()))
            .about(subject, name)
    }

    /// 409 because of a stale resource version or a failed precondition.
    pub fn conflict(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", subject.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject, name)
    }

    /// 409 because somebody else wrote first.
    pub fn modified(subject: Subject<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, name, why)
    }

    /// 422 with one cause per field.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // The message says everything once, even where two checks found the same.
        let mut said: Vec<String> = Vec::new();
        for error in errors.iter().map(ToString::to_string) {
            if !said.contains(&error) {
                said.push(error);
            }
        }
        let list = if said.len() == 1 { said.remove(0) } else { format!("[{}]", said.join(", ")) };
        let causes = errors.iter().map(cause).collect();
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind}{} \"{name}\" is invalid: {list}", group_suffix(group)),
        )
        .about_kind(group, kind, name)
        .with_causes(causes)
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 403 for a resource; `why` is the authorizer's or admission's sentence.
    pub fn forbidden(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", subject.qualified())
        } else {
            format!("{} \"{name}\" is forbidden: {why}", subject.qualified())
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject, name)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 405 with the resource and verb named.
    pub fn verb_not_supported(subject: Subject<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", subject.qualified());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(subject, "")
    }

    /// 406 of the layer in front of the built-in kinds.
    pub fn not_acceptable_route() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).with_empty_details()
    }

    /// 415 of the layer in front of the built-in kinds.
    pub fn unsupported_media_type_route() -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_empty_details()
    }

    /// 406.
    pub fn not_acceptable(offered: &str) -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("only the following media types are accepted: {offered}"),
        )
    }

    /// 415.
    pub fn unsupported_media_type(offered: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {offered}"),
        )
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 410 for a resource version that has been compacted away.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504 for a resource version from the future.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}"))
            .with_causes(vec![json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"})])
            .with_retry_after(1)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        if retry_after > 0 { error.with_retry_after(retry_after) } else { error }
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        let cause = json!({"message": message.trim_start_matches("Internal error occurred: ")});
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message).with_causes(vec![cause])
    }

    /// A token with which a list can go on, in the `Status`' own metadata.
    pub fn with_continue(mut self, token: &str) -> Self {
        self.0.continue_token = Some(token.to_owned());
        self
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The HTTP status.
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &str {
        self.0.verbatim.as_ref().and_then(|status| status["reason"].as_str()).unwrap_or(self.0.reason)
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Seconds for the `Retry-After` header.
    pub fn retry_after(&self) -> Option<u64> {
        self.0.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The text body, when the answer is not a `Status`.
    pub fn plain_text(&self) -> Option<&str> {
        self.0.plain.then_some(self.0.message.as_str())
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        if let Some(status) = &self.0.verbatim {
            return status.clone();
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code.as_u16(),
        });
        if let Some(token) = &self.0.continue_token {
            status["metadata"]["continue"] = token.clone().into();
        }
        if !self.0.reason.is_empty() {
            status["reason"] = self.0.reason.into();
        }
        if !self.0.details.is_empty() || self.0.show_details || self.always_has_details() {
            status["details"] = Value::Object(self.0.details.clone());
        }
        status
    }

    /// kube-apiserver makes these through a helper that always sets `details`.
    fn always_has_details(&self) -> bool {
        matches!(self.0.reason, "MethodNotAllowed") || (self.0.reason == "NotFound" && !self.0.plain)
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ApiError {}

fn group_suffix(group: &str) -> String {
    if group.is_empty() { String::new() } else { format!(".{group}") }
}

fn cause(error: &FieldError) -> Value {
    let field = if error.path.is_empty() { "<nil>" } else { &error.path };
    json!({"reason": error.kind.reason(), "message": error.message, "field": field})
}

/// `Status` of a request that succeeded without an object to show.
pub fn success(subject: Subject<'_>, name: &str, uid: Option<&str>) -> Value {
    let mut details = Map::new();
    if !name.is_empty() {
        details.insert("name".into(), name.into());
    }
    if !subject.group.is_empty() {
        details.insert("group".into(), subject.group.into());
    }
    details.insert("kind".into(), subject.resource.into());
    if let Some(uid) = uid {
        details.insert("uid".into(), uid.into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
