//! A client of container registries: manifests and blobs over HTTP, every byte checked against its digest.
//!
//! Registries on the loopback interface, and those that were named insecure, are spoken to without TLS.

mod auth;

use std::{collections::HashSet, fmt, fs::File, io::Write, net::IpAddr, path::Path, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{sync::Mutex, time::timeout};

pub use auth::Credentials;

use crate::{
    Digest, ImageError, Reference,
    digest::Hasher,
    manifest::{ACCEPT, Descriptor, Document, Manifest, Platform},
};

/// A registry that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(15);
const MAX_REDIRECTS: usize = 5;
const AGENT: &str = concat!("ferrovirt/", env!("CARGO_PKG_VERSION"));

type HttpClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// Connections to registries.
#[derive(Clone)]
pub(crate) struct Registries {
    client: HttpClient,
    insecure: HashSet<String>,
}

impl fmt::Debug for Registries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Registries").field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

impl Registries {
    pub(crate) fn new(insecure: HashSet<String>) -> Result<Self, ImageError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_PATIENCE));
        let builder = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|source| ImageError::storage("read the certificates in", "/etc/ssl/certs", source))?;
        let connector = builder.https_or_http().enable_http1().wrap_connector(http);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), insecure })
    }

    /// Speaks about one image, with these credentials.
    pub(crate) fn session<'a>(&'a self, reference: &'a Reference, credentials: Option<&'a Credentials>) -> Session<'a> {
        let host = reference.host();
        let plain = is_loopback(host) || self.insecure.contains(reference.registry());
        Session { client: &self.client, reference, credentials, plain, authorization: Mutex::new(None) }
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One image at its registry.
pub(crate) struct Session<'a> {
    client: &'a HttpClient,
    reference: &'a Reference,
    credentials: Option<&'a Credentials>,
    plain: bool,
    /// What the registry gave for the credentials, once it asked for them.
    authorization: Mutex<Option<String>>,
}

impl Session<'_> {
    /// The manifest for the platform, with its digest.
    pub(crate) async fn manifest(&self, platform: &Platform, limit: u64) -> Result<(Manifest, Digest), ImageError> {
        let (document, digest) = self.document(&self.reference.manifest(), self.reference.digest(), limit).await?;
        let index = match document {
            Document::Manifest(manifest) => return Ok((manifest, digest)),
            Document::Index(index) => index,
        };
        let chosen = index.select(platform).map_err(|reason| self.invalid(reason))?;
        match self.document(&chosen.digest.to_string(), Some(&chosen.digest), limit).await? {
            (Document::Manifest(manifest), digest) => Ok((manifest, digest)),
            (Document::Index(_), _) => Err(self.invalid("an index of indexes is not supported")),
        }
    }

    /// A small blob.
    pub(crate) async fn blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>, ImageError> {
        let response = self.get(&format!("blobs/{}", descriptor.digest), "*/*").await?;
        let content = self.collect(response, limit).await?;
        self.check(&Digest::of(&content), &descriptor.digest)?;
        Ok(content)
    }

    /// Writes a blob to a file.
    pub(crate) async fn download(&self, descriptor: &Descriptor, path: &Path) -> Result<(), ImageError> {
        let failed = |source: std::io::Error| ImageError::storage("write", path, source);
        let mut body = self.get(&format!("blobs/{}", descriptor.digest), "*/*").await?.into_body();
        let mut file = File::create_new(path).map_err(failed)?;
        let mut hasher = Hasher::default();
        let mut left = descriptor.size;
        while let Some(chunk) = self.next_chunk(&mut body).await? {
            let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            left = left
                .checked_sub(length)
                .ok_or_else(|| self.invalid(format!("{} is larger than announced", descriptor.digest)))?;
            hasher.update(&chunk);
            // Chunks are small and the page cache takes them; a thread for each would cost more than it saves.
            file.write_all(&chunk).map_err(failed)?;
        }
        self.check(&hasher.finish(), &descriptor.digest)
    }

    async fn document(
        &self,
        name: &str,
        expected: Option<&Digest>,
        limit: u64,
    ) -> Result<(Document, Digest), ImageError> {
        let response = self.get(&format!("manifests/{name}"), ACCEPT).await?;
        let content = self.collect(response, limit).await?;
        let digest = Digest::of(&content);
        if let Some(expected) = expected {
            self.check(&digest, expected)?;
        }
        let document = serde_json::from_slice(&content)
            .map_err(|error| self.invalid(format!("its manifest is neither an image nor an index: {error}")))?;
        Ok((document, digest))
    }

    /// A successful answer to GET, after authentication and redirections.
    async fn get(&self, path: &str, accept: &str) -> Result<Response<Incoming>, ImageError> {
        let scheme = if self.plain { "http" } else { "https" };
        let uri = format!("{scheme}://{}/v2/{}/{path}", self.reference.host(), self.reference.repository());
        let uri: Uri = uri.parse().map_err(|error| self.unreachable(format!("{uri}: {error}")))?;
        let authorization = self.authorization.lock().await.clone();
        let mut response = self.follow(&uri, accept, authorization.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let authorization = self.authorize(&response).await?;
            response = self.follow(&uri, accept, Some(&authorization)).await?;
        }
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => Err(ImageError::NotFound {
                reference: self.reference.to_string(),
                what: format!("{}/{path}", self.reference.repository()),
            }),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.unauthorized(response).await),
            status => {
                let said = self.said(response).await;
                Err(self.unreachable(format!("it answered {status} to the request for {path}{said}")))
            }
        }
    }

    /// Sends a request and follows redirections, which never see the authorization of another host.
    async fn follow(
        &self,
        start: &Uri,
        accept: &str,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, ImageError> {
        let mut uri = start.clone();
        for _ in 0..=MAX_REDIRECTS {
            let own = uri.authority() == start.authority();
            let response = self.send(&uri, accept, authorization.filter(|_| own)).await?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let location = location.ok_or_else(|| self.unreachable("it redirects to nowhere"))?;
            uri = self.join(&uri, location)?;
        }
        Err(self.unreachable("it redirects in circles"))
    }

    async fn send(
        &self,
        uri: &Uri,
        accept: &str,
        authorization: Option<&str>,
    ) -> Result<Response<Incoming>, ImageError> {
        let mut request = Request::get(uri).header(header::ACCEPT, accept).header(header::USER_AGENT, AGENT);
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| self.unreachable(error.to_string()))?;
        let answered = timeout(PATIENCE, self.client.request(request)).await;
        let answered = answered.map_err(|_| self.unreachable(format!("no answer from {uri} within {PATIENCE:?}")))?;
        answered.map_err(|error| self.unreachable(chain(&error)))
    }

    fn join(&self, base: &Uri, location: &str) -> Result<Uri, ImageError> {
        let absolute = match (location.starts_with('/'), base.scheme_str(), base.authority()) {
            (true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{location}"),
            _ => location.to_owned(),
        };
        let uri: Uri = absolute.parse().map_err(|_| self.unreachable(format!("it redirects to {location:?}")))?;
        let secure = uri.scheme_str() == Some("https") || (self.plain && uri.scheme_str() == Some("http"));
        if secure {
            Ok(uri)
        } else {
            Err(self.unreachable(format!("it redirects to {location:?}, which is not encrypted")))
        }
    }

    async fn collect(&self, response: Response<Incoming>, limit: u64) -> Result<Vec<u8>, ImageError> {
        let mut body = response.into_body();
        let mut content = Vec::new();
        while let Some(chunk) = self.next_chunk(&mut body).await? {
            content.extend_from_slice(&chunk);
            if u64::try_from(content.len()).unwrap_or(u64::MAX) > limit {
                return Err(self.invalid(format!("a document of it is larger than {limit} bytes")));
            }
        }
        Ok(content)
    }

    async fn next_chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, ImageError> {
        loop {
            let frame = timeout(PATIENCE, body.frame()).await;
            let frame = frame.map_err(|_| self.unreachable(format!("it sent nothing for {PATIENCE:?}")))?;
            let Some(frame) = frame.transpose().map_err(|error| self.unreachable(chain(&error)))? else {
                return Ok(None);
            };
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    fn check(&self, computed: &Digest, expected: &Digest) -> Result<(), ImageError> {
        if computed == expected {
            return Ok(());
        }
        Err(self.invalid(format!("the registry sent {computed} when asked for {expected}")))
    }

    async fn unauthorized(&self, response: Response<Incoming>) -> ImageError {
        let status = response.status();
        let said = self.said(response).await;
        self.denied(format!("the registry answered {status}{said}"))
    }

    fn denied(&self, reason: impl Into<String>) -> ImageError {
        ImageError::Unauthorized {
            reference: self.reference.to_string(),
            registry: self.reference.registry().to_owned(),
            reason: reason.into(),
        }
    }

    /// What the registry says about its refusal.
    async fn said(&self, response: Response<Incoming>) -> String {
        let content = self.collect(response, 64 * 1024).await.unwrap_or_default();
        let parsed = serde_json::from_slice::<serde_json::Value>(&content).unwrap_or_default();
        let message = parsed.pointer("/errors/0/message").and_then(serde_json::Value::as_str);
        message.map(|message| format!(": {}", message.chars().take(200).collect::<String>())).unwrap_or_default()
    }

    /// The image says that it is larger than allowed.
    pub(crate) fn too_large(&self, size: u64, limit: u64) -> ImageError {
        self.invalid(format!("it has {size} bytes, and {limit} are allowed"))
    }

    fn invalid(&self, reason: impl Into<String>) -> ImageError {
        ImageError::invalid(&self.reference.to_string(), reason)
    }

    fn unreachable(&self, reason: impl Into<String>) -> ImageError {
        ImageError::Unreachable {
            reference: self.reference.to_string(),
            registry: self.reference.registry().to_owned(),
            reason: reason.into(),
        }
    }
}

/// An error with its causes: hyper keeps the interesting part there.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_interface_is_trusted_without_encryption() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:80", "127.3.2.1", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.com", "10.0.0.1", "127.0.0.1.example.com", "[fe80::1]:5000", "registry:5000"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
