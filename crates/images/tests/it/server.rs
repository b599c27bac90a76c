//! A registry on the loopback interface, with the ways in which real ones differ.

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};

/// Who is let in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    Open,
    Basic,
    Token,
}

/// What the registry serves, and what it was asked.
pub(crate) struct Content {
    pub(crate) manifests: Mutex<HashMap<String, Vec<u8>>>,
    pub(crate) blobs: Mutex<HashMap<String, Vec<u8>>>,
    pub(crate) requests: Mutex<Vec<String>>,
    pub(crate) guard: Guard,
    /// Redirects requests for blobs to `/elsewhere/…`, as registries with a content network do.
    pub(crate) redirect: bool,
    /// Answers to requests for blobs wait for a permit.
    pub(crate) gate: Semaphore,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) content: Arc<Content>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(guard: Guard, redirect: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let content = Arc::new(Content {
            manifests: Mutex::default(),
            blobs: Mutex::default(),
            requests: Mutex::default(),
            guard,
            redirect,
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        });
        let served = content.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let served = served.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let served = served.clone();
                        async move { Ok::<_, Infallible>(answer(&served, address, &request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, content, task }
    }

    /// Serves the image of an OCI layout under `name:tag`, and everything of it by digest.
    pub(crate) fn publish(&self, layout: &Path, tag: &str) {
        for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let blob = blob.unwrap();
            let digest = format!("sha256:{}", blob.file_name().to_str().unwrap());
            let content = fs::read(blob.path()).unwrap();
            self.content.manifests.lock().unwrap().insert(digest.clone(), content.clone());
            self.content.blobs.lock().unwrap().insert(digest, content);
        }
        let index = fs::read(layout.join("index.json")).unwrap();
        self.content.manifests.lock().unwrap().insert(tag.to_owned(), index);
    }

    /// How often something was asked for.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.content.requests.lock().unwrap().iter().filter(|request| request.contains(part)).count()
    }
}

async fn answer(content: &Content, address: SocketAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    content.requests.lock().unwrap().push(format!("{path} {}", authorization.unwrap_or("anonymous")));
    let plain = |status: StatusCode, body: &[u8]| {
        Response::builder().status(status).body(Full::new(Bytes::copy_from_slice(body))).unwrap()
    };
    let basic = "Basic bWU6c2VjcmV0";
    if path == "/token" {
        assert!(request.uri().query().unwrap().contains("scope=repository%3Ateam%2Fapp%3Apull"));
        return match authorization {
            Some(given) if given == basic => plain(StatusCode::OK, br#"{"token":"t0ken"}"#),
            _ => plain(StatusCode::UNAUTHORIZED, br#"{"errors":[{"message":"incorrect username or password"}]}"#),
        };
    }
    let (expected, challenge) = match content.guard {
        Guard::Open => (None, String::new()),
        Guard::Basic => (Some(basic), "Basic realm=\"test\"".to_owned()),
        Guard::Token => (Some("Bearer t0ken"), format!("Bearer realm=\"http://{address}/token\",service=\"test\"")),
    };
    let elsewhere = path.strip_prefix("/elsewhere/");
    if elsewhere.is_none() && expected.is_some() && authorization != expected {
        let denied = Response::builder().status(StatusCode::UNAUTHORIZED).header(header::WWW_AUTHENTICATE, challenge);
        return denied.body(Full::default()).unwrap();
    }
    let name = path.rsplit('/').next().unwrap();
    let found = if path.starts_with("/v2/team/app/manifests/") {
        content.manifests.lock().unwrap().get(name).cloned()
    } else {
        content.gate.acquire().await.unwrap().forget();
        if content.redirect && elsewhere.is_none() {
            let moved = Response::builder().status(StatusCode::TEMPORARY_REDIRECT);
            // Another name of the same host is another place, as far as authorization is concerned.
            let location = format!("http://localhost:{}/elsewhere/{name}", address.port());
            return moved.header(header::LOCATION, location).body(Full::default()).unwrap();
        }
        content.blobs.lock().unwrap().get(name).cloned()
    };
    match found {
        Some(body) => plain(StatusCode::OK, &body),
        None => plain(StatusCode::NOT_FOUND, br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown"}]}"#),
    }
}
