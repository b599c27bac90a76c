//! Requests to the cluster as plain JSON, and waiting with a deadline.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// How often an object is looked at while something is waited for.
const GLANCE: Duration = Duration::from_millis(100);
/// The group of guests.
pub const GUESTS: &str = "/apis/kubevirt.io/v1";
/// The group of what can be done to running guests.
pub const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// The cluster under test.
#[derive(Clone)]
pub struct Cluster {
    /// For requests that are no plain JSON.
    pub client: Client,
    config: Config,
}

/// An answer, whatever its code.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// The body; a string where it is no JSON.
    pub body: Value,
}

impl Cluster {
    /// The cluster that a kubeconfig names, as its user.
    pub async fn from_kubeconfig(file: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(file).context("reading the kubeconfig")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Self::with(config)
    }

    fn with(mut config: Config) -> Result<Self> {
        // Cases want to see every answer, also 429 and 503.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config.clone())?, config })
    }

    /// The same cluster, as another user: the one of the kubeconfig has to be allowed to impersonate.
    pub fn impersonating(&self, user: &str) -> Result<Self> {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:authenticated".to_owned()]);
        Self::with(config)
    }

    /// The same cluster for somebody who shows no credentials.
    pub fn anonymous(&self) -> Result<Self> {
        let mut config = self.config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        Self::with(config)
    }

    /// Sends a request and returns whatever is answered.
    pub async fn answer(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.answer_with(method, path, &[], body).await
    }

    /// Like [`Self::answer`], with more headers.
    pub async fn answer_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Answer> {
        let mut request = request(&method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.client.send(request.body(Body::from(bytes(body)))?).await;
        let answer = answer.with_context(|| format!("{method} {path}"))?;
        let code = answer.status().as_u16();
        let text = answer.into_body().collect_bytes().await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Answer { code, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    /// Sends a request; an answer that is no success is an error.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let request = request(&method, path).body(bytes(body))?;
        let text = self.client.request_text(request).await.with_context(|| format!("{method} {path}"))?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("the answer to {method} {path} is no JSON: {text}"))
    }

    /// The object or list at a path.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    /// `None` when there is no such object.
    pub async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(object)).await
    }

    /// Deletes an object that may be gone.
    pub async fn delete(&self, path: &str) -> Result<()> {
        match self.ask(Method::DELETE, path, None).await {
            Err(error) if !is_code(&error, 404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.ask(Method::PATCH, path, Some(change)).await
    }

    /// Opens a connection that is no longer HTTP after the answer's head.
    pub async fn upgrade(&self, path: &str, headers: &[(&str, &str)]) -> Result<hyper::upgrade::Upgraded> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.client.send(request.body(Body::empty())?).await.with_context(|| format!("GET {path}"))?;
        if answer.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let status = answer.status();
            let body = answer.into_body().collect_bytes().await.unwrap_or_default();
            bail!("GET {path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(hyper::upgrade::on(answer).await?)
    }
}

fn request(method: &Method, path: &str) -> http::request::Builder {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    Request::builder().method(method).uri(path).header("content-type", kind)
}

fn bytes(body: Option<&Value>) -> Vec<u8> {
    body.map_or_else(Vec::new, |body| body.to_string().into_bytes())
}

/// Whether an error is an answer of the server with this code.
pub fn is_code(error: &anyhow::Error, code: u16) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == code)
}

/// Looks again and again until `look` finds something; `what` says for a failure what was waited for.
pub async fn wait<T, F>(what: &str, seconds: u64, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let looked = look().await;
        match looked {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(GLANCE).await,
            Ok(None) => bail!("waited {seconds} s for {what}"),
            Err(error) => return Err(error.context(format!("waiting for {what}"))),
        }
    }
}
