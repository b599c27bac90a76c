//! A client that does as little as possible, so that the server is what gets measured: one HTTP/1.1 connection per
//! user of it, bodies as bytes, nothing parsed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// No request of a benchmark takes this long unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a server is and how to prove who we are.
pub(crate) struct Endpoint {
    /// `https://host:port`, for people.
    pub(crate) url: String,
    address: String,
    host: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    authorization: Option<String>,
}

impl Endpoint {
    /// The server of a kubeconfig's current context.
    pub(crate) async fn of(kubeconfig: Kubeconfig) -> anyhow::Result<Arc<Self>> {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let url = config.cluster_url.clone();
        let host = url.host().context("the kubeconfig's server has no host")?;
        if url.scheme_str() != Some("https") {
            bail!("the server {url} is not reached over https");
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = config.tls_server_name.clone().unwrap_or(bare);
        let port = url.port_u16().unwrap_or(443);
        Ok(Arc::new(Self {
            url: format!("https://{host}:{port}"),
            address: format!("{host}:{port}"),
            host: format!("{host}:{port}"),
            name: ServerName::try_from(name).context("the server's name is not usable for TLS")?,
            tls: TlsConnector::from(Arc::new(config.rustls_client_config()?)),
            authorization: token(&config)?,
        }))
    }

    /// A new connection.
    pub(crate) async fn connect(self: &Arc<Self>) -> anyhow::Result<Connection> {
        let sender = tokio::time::timeout(PATIENCE, self.dial()).await.context("no connection in time")??;
        Ok(Connection { endpoint: self.clone(), sender })
    }

    async fn dial(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream =
            TcpStream::connect(&self.address).await.with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), stream).await.context("the TLS handshake failed")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, &self.host).header(header::ACCEPT, "application/json");
        request = request.header(header::USER_AGENT, "ferrovirt-bench");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        Ok(request.body(Full::new(body))?)
    }
}

/// A bearer token; client certificates are part of the TLS settings.
fn token(config: &kube::Config) -> anyhow::Result<Option<String>> {
    let user = &config.auth_info;
    if user.exec.is_some() || user.auth_provider.is_some() {
        bail!("only client certificates and tokens are supported; make a token with: kubectl create token");
    }
    let inline = serde_json::to_value(user)?["token"].as_str().map(str::to_owned);
    let token = match (inline, &user.token_file) {
        (Some(token), _) => Some(token),
        (None, Some(file)) => Some(std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?),
        (None, None) => None,
    };
    Ok(token.map(|token| format!("Bearer {}", token.trim())))
}

/// One connection, used for one request at a time.
pub(crate) struct Connection {
    endpoint: Arc<Endpoint>,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let exchange = async {
            let answer = self.start(method, path, body).await?;
            let status = answer.status();
            Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(PATIENCE, exchange).await.with_context(|| format!("no answer in time from {path}"))?
    }

    /// Sends a request whose answer must be a success.
    pub(crate) async fn expect(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let (status, answer) = self.send(method.clone(), path, body).await?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer);
            bail!("{method} {path}: {status}: {}", text.chars().take(600).collect::<String>());
        }
        Ok(answer)
    }

    /// Sends a request and leaves the answer's body to be read piece by piece.
    pub(crate) async fn start(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        if self.sender.ready().await.is_err() {
            self.sender = self.endpoint.dial().await?;
        }
        Ok(self.sender.send_request(self.endpoint.request(method, path, body)?).await?)
    }

    /// GET with a success.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.expect(Method::GET, path, Bytes::new()).await
    }
}

/// The value of the first `"key":"…"` in `json`, where `key` is given with its opening quote only. Enough for the few short strings that are needed from answers, and
/// far cheaper than a parser.
pub(crate) fn find_string<'a>(json: &'a [u8], key: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(json).ok()?;
    let after = &text[text.find(key)? + key.len()..];
    let after = after.strip_prefix("\":\"").or_else(|| after.strip_prefix("\": \""))?;
    after.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::find_string;

    #[test]
    fn finds_short_strings() {
        let json = br#"{"metadata":{"name":"a","resourceVersion":"12"}}"#;
        assert_eq!(find_string(json, "\"resourceVersion"), Some("12"));
        assert_eq!(find_string(json, "\"continue"), None);
        assert_eq!(find_string(br#"{"continue":"","x":1}"#, "\"continue"), Some(""));
    }
}
