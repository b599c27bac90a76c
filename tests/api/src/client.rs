//! Plain requests over the connection settings of a kubeconfig.

use anyhow::{Context, Result};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The server under test, with and without the kubeconfig's credentials.
#[derive(Clone)]
pub(crate) struct Server {
    admin: Client,
    anonymous: Client,
    /// `host:port`.
    pub(crate) address: String,
}

/// One request, ready to be sent.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Leave the kubeconfig's credentials out.
    pub(crate) anonymous: bool,
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Server {
    pub(crate) async fn from_kubeconfig(file: &std::path::Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(file).context("reading the kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // An answer that asks to try again is an answer that cases are about.
        config.default_retry = false;
        let address = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        Ok(Self { admin: Client::try_from(config)?, anonymous: Client::try_from(bare)?, address })
    }

    /// Sends a request and returns when the head of the answer is there.
    pub(crate) async fn open(&self, outgoing: &Outgoing) -> Result<Response<Body>> {
        let mut request = Request::builder()
            .method(&outgoing.method)
            .uri(encode(&outgoing.path))
            .body(Body::from(outgoing.body.clone()))?;
        *request.headers_mut() = outgoing.headers.clone();
        let client = if outgoing.anonymous { &self.anonymous } else { &self.admin };
        client.send(request).await.with_context(|| format!("{} {}", outgoing.method, outgoing.path))
    }

    /// Sends a request and reads the whole answer, which must not take for ever: the step may have opened a watch by mistake.
    pub(crate) async fn ask(&self, outgoing: &Outgoing) -> Result<Incoming> {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(70);
        let answer = tokio::time::timeout(PATIENCE, self.ask_patiently(outgoing)).await;
        answer.with_context(|| format!("no whole answer to {} {}", outgoing.method, outgoing.path))?
    }

    async fn ask_patiently(&self, outgoing: &Outgoing) -> Result<Incoming> {
        let (head, body) = self.open(outgoing).await?.into_parts();
        let body = body
            .collect()
            .await
            .with_context(|| format!("reading the answer of {}", outgoing.path))?
            .to_bytes()
            .to_vec();
        Ok(Incoming { status: head.status, headers: head.headers, body })
    }
}

/// Percent-encodes what may not stand in a request line; everything else is sent as the case has it.
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn encodes_only_what_must_be() {
        assert_eq!(encode("/a?labelSelector=x in (a,b),!c"), "/a?labelSelector=x%20in%20(a,b),!c");
        assert_eq!(encode("/a%2Fb?c=é"), "/a%2Fb?c=%C3%A9");
    }
}
