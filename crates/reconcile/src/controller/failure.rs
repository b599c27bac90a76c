//! [`Failure`]: what went wrong in a run, and what that means for the next one.

use std::{error::Error, fmt::Write, time::Duration};

use kube::core::Status;

type Cause = Box<dyn Error + Send + Sync>;

/// An operation that failed. Displays the operation; the reason is its source.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}")]
pub struct Failure {
    operation: String,
    category: Category,
    retry_after: Option<Duration>,
    #[source]
    cause: Cause,
}

/// The kinds of failure that are treated differently; also the `result` label of the reconcile metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Somebody else changed the object first: the view was stale.
    Conflict,
    /// The object is gone: the view was stale.
    NotFound,
    /// The object or its namespace is being deleted.
    Terminating,
    /// An object that belongs to somebody else has the name.
    NameTaken,
    /// The API server refuses what was sent.
    Invalid,
    /// The API server does not allow it.
    Forbidden,
    /// The API server asks for patience.
    Throttled,
    /// The API server cannot be reached or cannot answer.
    Unavailable,
    /// The object itself is at fault: only a change of it can help.
    Hopeless,
    /// The controller panicked.
    Panic,
    /// Anything else.
    Internal,
}

impl Category {
    /// Every category, for metrics that shall exist before they count.
    pub const ALL: [Self; 11] = [
        Self::Conflict,
        Self::NotFound,
        Self::Terminating,
        Self::NameTaken,
        Self::Invalid,
        Self::Forbidden,
        Self::Throttled,
        Self::Unavailable,
        Self::Hopeless,
        Self::Panic,
        Self::Internal,
    ];

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Terminating => "terminating",
            Self::NameTaken => "name_taken",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Hopeless => "hopeless",
            Self::Panic => "panic",
            Self::Internal => "internal",
        }
    }

    /// Whether it is an ordinary part of working with a lagging cache, not worth a warning.
    pub fn is_quiet(self) -> bool {
        matches!(self, Self::Conflict | Self::NotFound | Self::Terminating | Self::Throttled)
    }

    /// Whether trying again without a change can help.
    pub fn is_worth_retrying(self) -> bool {
        self != Self::Hopeless
    }

    /// The category of an answer by the API server.
    pub fn of_status(status: &Status) -> Self {
        match status.reason.as_str() {
            "Conflict" => Self::Conflict,
            "AlreadyExists" => Self::NameTaken,
            "NotFound" | "Gone" | "Expired" => Self::NotFound,
            "Forbidden" if is_namespace_terminating(status) => Self::Terminating,
            "Forbidden" | "Unauthorized" => Self::Forbidden,
            "Invalid"
            | "BadRequest"
            | "MethodNotAllowed"
            | "NotAcceptable"
            | "UnsupportedMediaType"
            | "RequestEntityTooLarge" => Self::Invalid,
            "TooManyRequests" => Self::Throttled,
            "ServerTimeout" | "Timeout" | "ServiceUnavailable" | "InternalError" | "StoreReadError" => {
                Self::Unavailable
            }
            _ => Self::of_code(status.code),
        }
    }

    /// For answers without a known reason: proxies and load balancers send those.
    fn of_code(code: u16) -> Self {
        match code {
            404 | 410 => Self::NotFound,
            409 => Self::Conflict,
            401 | 403 => Self::Forbidden,
            429 => Self::Throttled,
            400..=499 => Self::Invalid,
            500..=599 => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

impl Failure {
    /// A failure of a category of the caller's choice. `operation` completes the sentence "cannot ...".
    pub fn new(category: Category, operation: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self { operation: operation.into(), category, retry_after: None, cause: cause.into() }
    }

    /// The failure of a call to the API server. `operation` completes the sentence "cannot ...".
    pub fn api(operation: impl Into<String>, error: kube::Error) -> Self {
        let (category, retry_after) = match &error {
            kube::Error::Api(status) => (Category::of_status(status), retry_after(status)),
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => (Category::Invalid, None),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                (Category::Unavailable, None)
            }
            _ => (Category::Internal, None),
        };
        Self { operation: operation.into(), category, retry_after, cause: error.into() }
    }

    /// Its category.
    pub fn category(&self) -> Category {
        self.category
    }

    /// How long the API server asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Operation and reasons in one line, for conditions, events and logs.
    pub fn message(&self) -> String {
        let mut message = self.to_string();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*self.cause);
        while let Some(error) = cause {
            match error.downcast_ref::<kube::Error>() {
                // Its own text repeats the whole status in debug form; the message is what people need.
                Some(kube::Error::Api(status)) if !status.message.is_empty() => {
                    let _ = write!(message, ": {}", status.message);
                    break;
                }
                _ => {
                    let _ = write!(message, ": {error}");
                }
            }
            cause = error.source();
        }
        message
    }
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;

    fn api(code: u16, reason: &str) -> Failure {
        let status = Status::failure("the server said so", reason).with_code(code);
        Failure::api("create pod shop/db", kube::Error::Api(status.boxed()))
    }

    #[test]
    fn answers_fall_into_their_categories() {
        for (code, reason, category) in [
            (409, "Conflict", Category::Conflict),
            (409, "AlreadyExists", Category::NameTaken),
            (404, "NotFound", Category::NotFound),
            (403, "Forbidden", Category::Forbidden),
            (422, "Invalid", Category::Invalid),
            (429, "TooManyRequests", Category::Throttled),
            (504, "Timeout", Category::Unavailable),
            (502, "", Category::Unavailable),
            (409, "", Category::Conflict),
            (418, "Teapot", Category::Invalid),
        ] {
            assert_eq!(api(code, reason).category(), category, "{code} {reason}");
        }
    }

    #[test]
    fn a_namespace_on_its_way_out_is_not_a_missing_right() {
        let details = serde_json::from_value(serde_json::json!({
            "name": "shop", "causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]
        }));
        let status = Status::failure("no", "Forbidden").with_code(403).with_details(details.unwrap());
        assert_eq!(Category::of_status(&status), Category::Terminating);
    }

    #[test]
    fn the_message_names_operation_and_reason_once() {
        assert_eq!(api(403, "Forbidden").message(), "cannot create pod shop/db: the server said so");
        let failure = Failure::new(Category::Hopeless, "plan the disk", "no size given");
        assert_eq!(failure.message(), "cannot plan the disk: no size given");
    }

    #[test]
    fn the_server_can_ask_for_patience() {
        let details: StatusDetails = serde_json::from_value(serde_json::json!({"retryAfterSeconds": 7})).unwrap();
        let status = Status::failure("slow down", "TooManyRequests").with_details(details);
        let failure = Failure::api("list", kube::Error::Api(status.boxed()));
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
    }

    #[test]
    fn labels_are_unique() {
        let labels: std::collections::BTreeSet<_> = Category::ALL.iter().map(|category| category.label()).collect();
        assert_eq!(labels.len(), Category::ALL.len());
    }
}
