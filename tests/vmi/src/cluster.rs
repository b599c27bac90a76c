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
pub(crate) const GUESTS: &str = "/apis/kubevirt.io/v1";
/// The group of what can be done to running guests.
pub(crate) const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// The cluster under test.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
}

impl Cluster {
    pub(crate) async fn from_kubeconfig(file: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(file).context("reading the kubeconfig")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)? })
    }

    /// Sends a request; an answer that is no success is an error.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(&method).uri(path).header("content-type", kind).body(bytes)?;
        let text = self.client.request_text(request).await.with_context(|| format!("{method} {path}"))?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("the answer to {method} {path} is no JSON: {text}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    /// `None` when there is no such object.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(object)).await
    }

    /// Deletes an object that may be gone.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        match self.ask(Method::DELETE, path, None).await {
            Err(error) if !is_code(&error, 404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Opens a connection that is no longer HTTP after the answer's head.
    pub(crate) async fn upgrade(&self, path: &str, headers: &[(&str, &str)]) -> Result<hyper::upgrade::Upgraded> {
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

/// Whether an error is an answer of the server with this code.
pub(crate) fn is_code(error: &anyhow::Error, code: u16) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == code)
}

/// Looks again and again until `look` finds something; `what` says for a failure what was waited for.
pub(crate) async fn wait<T, F>(what: &str, seconds: u64, mut look: impl FnMut() -> F) -> Result<T>
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
