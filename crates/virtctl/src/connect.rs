//! The way to a cluster's streams: a websocket of KubeVirt's kind on a connection that the kubeconfig describes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use http::{HeaderValue, header};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Error};

/// The sub-protocol of consoles and displays: messages are bytes.
const PROTOCOL: &str = "plain.kubevirt.io";

/// Which cluster, as kubectl's flags say it.
#[derive(clap::Args, Clone)]
pub(crate) struct Cluster {
    /// Path of the kubeconfig. Default: `$KUBECONFIG`, or `~/.kube/config`.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    context: Option<String>,
    /// Namespace. Default: the context's.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
}

impl Cluster {
    async fn config(&self) -> anyhow::Result<kube::Config> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?,
            None => Kubeconfig::read().context("there is no kubeconfig: set KUBECONFIG or give --kubeconfig")?,
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?)
    }

    /// Opens a stream of a guest, such as `console`.
    pub(crate) async fn stream(
        &self,
        guest: &str,
        what: &str,
    ) -> anyhow::Result<WebSocketStream<TlsStream<TcpStream>>> {
        let config = self.config().await?;
        let namespace = self.namespace.as_ref().unwrap_or(&config.default_namespace);
        let host = config.cluster_url.host().context("the kubeconfig's server has no host")?;
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let path =
            format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{guest}/{what}");
        let mut request = format!("wss://{host}:{port}{path}").into_client_request()?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        if let Some(token) = serde_json::to_value(&config.auth_info)?["token"].as_str() {
            request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(config.tls_server_name.clone().unwrap_or_else(|| bare.to_owned()))?;
        let tcp = TcpStream::connect((bare, port)).await.with_context(|| format!("cannot connect to {host}:{port}"))?;
        tcp.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(config.rustls_client_config()?)).connect(name, tcp).await?;
        match tokio_tungstenite::client_async(request, tls).await {
            Ok((stream, _)) => Ok(stream),
            Err(Error::Http(answer)) => bail!("{}", refusal(&answer)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The message of the `Status` in an answer.
fn refusal(answer: &tungstenite::handshake::client::Response) -> String {
    let body = answer.body().as_deref().unwrap_or_default();
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    status["message"].as_str().map_or_else(|| format!("the server answered {}", answer.status()), str::to_owned)
}
