//! One call of a webhook, from the request to its verdict.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;

use super::hook::Hook;
use super::review::{AnswerError, Verdict, envelope, request, verdict};
use crate::admission::Review;
use crate::http::body::content_type;
use crate::outgoing::{Client, error_text};
use crate::registry::Resource;
use crate::serve::erase;
use crate::status::ApiError;

/// The largest answer that is read. A patch of the largest object, encoded twice, fits.
const ANSWER_LIMIT: usize = 12 * 1024 * 1024;

/// Why a call has no verdict.
#[derive(Debug)]
pub(super) enum CallError {
    /// The webhook could not be asked; its failure policy says what that means.
    Failed(String),
    /// The request itself cannot go on, whatever the policy says.
    Refused(ApiError),
}

impl From<AnswerError> for CallError {
    fn from(error: AnswerError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Asks a webhook about a write, which it sees as one of `resource`.
pub(super) async fn call(
    hook: &Hook,
    review: &Review<'_>,
    resource: &Arc<Resource>,
    mutating: bool,
) -> Result<Verdict, CallError> {
    if review.dry_run && !hook.allows_dry_run {
        let why = format!("admission webhook \"{}\" does not support dry run", hook.name);
        return Err(CallError::Refused(ApiError::bad_request(why)));
    }
    let Some(version) = hook.review else {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(CallError::Failed(format!("could not create admission objects: {why}")));
    };
    let no_client = |why: String| CallError::Failed(format!("could not get REST client: {why}"));
    let client = hook.client(review.server).map_err(no_client)?;
    let uri = &hook.target.as_ref().map_err(|why| no_client(why.clone()))?.1;
    let uid = review.server.environment.uid();
    let body = envelope(version, &request(review, resource, &uid)).to_string();
    let failed = |why: String| CallError::Failed(format!("failed to call webhook: {why}"));
    let answer = match tokio::time::timeout(hook.timeout, post(client, uri, body.into())).await {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => return Err(failed(format!("Post \"{uri}\": context deadline exceeded"))),
    };
    Ok(verdict(version, &uid, mutating, &answer)?)
}

async fn post(client: &Client, uri: &Uri, body: Bytes) -> Result<Bytes, String> {
    let post = |why: String| format!("Post \"{uri}\": {why}");
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, */*")
        .header(USER_AGENT, "kube-apiserver-admission")
        .body(erase(Full::new(body)))
        .map_err(|error| post(error.to_string()))?;
    let response = client.request(request).await.map_err(|error| post(error_text(&error)))?;
    let code = response.status();
    let is_text = content_type(response.headers()).is_empty() || content_type(response.headers()).starts_with("text/");
    let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
    let body = body.map_err(|error| format!("unexpected error when reading response body: {error}"))?.to_bytes();
    if let Some(message) = status_message(&body).filter(|_| !code.is_success()) {
        return Err(message);
    }
    if code.is_success() { Ok(body) } else { Err(status_text(code, if is_text { &body } else { b"unknown" })) }
}

/// The message of a `Status`, where the answer is one.
fn status_message(body: &[u8]) -> Option<String> {
    let status: Value = serde_json::from_slice(body).ok()?;
    (status["kind"] == "Status").then(|| status["message"].as_str().map(str::to_owned))?
}

/// An HTTP error in the words of Kubernetes' clients.
fn status_text(code: StatusCode, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let body = body.trim();
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => body.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => {
            let body = if body.is_empty() { "unknown" } else { body };
            format!("an error on the server ({}) has prevented the request from succeeding", Value::from(body))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_errors_read_as_kubernetes_clients_tell_them() {
        let text = |code: u16, body: &str| status_text(StatusCode::from_u16(code).unwrap(), body.as_bytes());
        assert_eq!(text(404, "404 page not found\n"), "the server could not find the requested resource");
        assert_eq!(
            text(500, "oh \"no\"\n"),
            "an error on the server (\"oh \\\"no\\\"\") has prevented the request from succeeding"
        );
        assert_eq!(text(502, ""), "an error on the server (\"unknown\") has prevented the request from succeeding");
        assert_eq!(status_message(br#"{"kind":"Status","message":"that is why"}"#).as_deref(), Some("that is why"));
        assert_eq!(status_message(b"oh no"), None);
        assert_eq!(text(418, ""), "the server responded with the status code 418 but did not return more information");
    }
}
