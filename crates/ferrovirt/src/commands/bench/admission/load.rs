//! Webhook calls over TLS, on connections that stay open, as an API server makes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::report::Calls;

/// A machine that is created is defaulted, then checked.
const PATHS: [&str; 2] = ["/virtualmachines-mutate", "/virtualmachines-validate"];
const NAME: &str = "localhost";

/// Whom to ask, and what.
pub(super) struct Client {
    address: String,
    tls: TlsConnector,
    body: Bytes,
}

impl Client {
    /// For a server whose certificate `ca` has signed.
    pub(super) fn new(address: &str, ca: &str, body: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        Ok(Self { address: address.to_owned(), tls, body: Bytes::from(body.to_owned()) })
    }

    async fn connect(&self) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(ServerName::try_from(NAME)?, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn call(&self, sender: &mut http1::SendRequest<Full<Bytes>>, path: &str) -> anyhow::Result<()> {
        let request = Request::builder().method(Method::POST).uri(path).header("host", NAME);
        let request = request.header("content-type", "application/json").body(Full::new(self.body.clone()))?;
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let code = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if !code.is_success() || !body.windows(14).any(|part| part == b"\"allowed\":true") {
            bail!("{path} answered {code}: {}", String::from_utf8_lossy(&body));
        }
        Ok(())
    }
}

/// Several connections at once.
pub(super) struct Load {
    pub(super) client: Arc<Client>,
    pub(super) connections: u32,
}

impl Load {
    /// Calls for a while: as fast as answers come, or so many in a second altogether. At a fixed rate the time of a call counts from
    /// when it was due, so that a slow answer is not hidden by the calls that it delays.
    pub(super) async fn run(&self, time: Duration, rate: Option<u32>) -> anyhow::Result<Calls> {
        let mut senders = Vec::new();
        for _ in 0..self.connections {
            senders.push(self.client.connect().await.context("cannot connect to virt-api")?);
        }
        let begin = Instant::now();
        let pause = rate.map(|rate| Duration::from_secs(1) * self.connections / rate);
        let tasks: Vec<_> = senders
            .into_iter()
            .enumerate()
            .map(|(index, sender)| {
                let client = self.client.clone();
                // Connections take turns instead of all calling at the same moment.
                let first = pause.map(|pause| begin + pause * u32::try_from(index).unwrap_or(0) / self.connections);
                tokio::spawn(async move { one(&client, sender, begin + time, first.zip(pause)).await })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await??);
        }
        Ok(Calls::new(times, begin.elapsed()))
    }
}

/// Calls on one connection until `end`.
async fn one(
    client: &Client,
    mut sender: http1::SendRequest<Full<Bytes>>,
    end: Instant,
    schedule: Option<(Instant, Duration)>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut due = schedule.map(|(first, _)| first);
    for path in PATHS.into_iter().cycle() {
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        let begin = due.unwrap_or_else(Instant::now);
        if Instant::now() >= end {
            break;
        }
        client.call(&mut sender, path).await?;
        times.push(begin.elapsed());
        due = due.zip(schedule).map(|(due, (_, pause))| due + pause);
    }
    Ok(times)
}
