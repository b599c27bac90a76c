//! What a plugin answers when the kubelet asks.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::grpc::{self, Body};
use crate::watch::Watch;
use crate::{Device, messages};

/// How long to wait when the directory of a device cannot be watched.
const PAUSE: Duration = Duration::from_secs(30);

/// One plugin.
pub(crate) struct Service {
    pub(crate) device: Device,
    count: usize,
    healthy: watch::Receiver<bool>,
    /// How many streams of devices somebody listens to.
    listeners: watch::Sender<usize>,
    _following: AbortOnDropHandle<()>,
}

impl Service {
    pub(crate) fn new(device: Device, count: usize) -> Arc<Self> {
        let (tell, healthy) = watch::channel(device.path.exists());
        let following = AbortOnDropHandle::new(tokio::spawn(follow(device.path.clone(), tell)));
        Arc::new(Self { device, count, healthy, listeners: watch::Sender::new(0), _following: following })
    }

    /// How many streams of devices somebody listens to: without one, the kubelet does not know of the plugin.
    pub(crate) fn listeners(&self) -> watch::Receiver<usize> {
        self.listeners.subscribe()
    }

    /// Answers whoever connects. The socket's directory is root's.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().connection(stream))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a kubelet's connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: UnixStream) {
        let service = service_fn(move |request| {
            let service = self.clone();
            async move { Ok::<_, Infallible>(service.answer(request).await) }
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%error, "a kubelet's connection ended");
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            // No option is on, which is what an empty message says.
            "/v1beta1.DevicePlugin/GetDevicePluginOptions" => grpc::answer(stream::iter([Vec::new()])),
            "/v1beta1.DevicePlugin/ListAndWatch" => grpc::answer(self.devices()),
            "/v1beta1.DevicePlugin/Allocate" => self.allocate(request).await,
            _ => grpc::refusal(grpc::UNIMPLEMENTED),
        }
    }

    async fn allocate(&self, request: Request<Incoming>) -> Response<Body> {
        let asked = grpc::request_message(request).await.and_then(|message| messages::containers(&message).ok());
        match asked {
            Some(containers) => grpc::answer(stream::iter([messages::allocated(&self.device, containers)])),
            None => grpc::refusal(grpc::INVALID_ARGUMENT),
        }
    }

    /// The devices now, and again whenever their health changes.
    fn devices(self: Arc<Self>) -> impl Stream<Item = Vec<u8>> + Send + 'static {
        let listening = Listening::begin(&self.listeners);
        let health = stream::unfold((self.healthy.clone(), true), |(mut healthy, first)| async move {
            if !first {
                healthy.changed().await.ok()?;
            }
            let now = *healthy.borrow_and_update();
            Some((now, (healthy, false)))
        });
        health.map(move |healthy| {
            let _counted = &listening;
            messages::devices(&self.device, self.count, healthy)
        })
    }
}

/// Counts a listener for as long as it is there.
struct Listening(watch::Sender<usize>);

impl Listening {
    fn begin(listeners: &watch::Sender<usize>) -> Self {
        listeners.send_modify(|count| *count += 1);
        Self(listeners.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A device can be used while its file exists.
async fn follow(path: PathBuf, tell: watch::Sender<bool>) {
    let directory = path.parent().unwrap_or(&path);
    loop {
        let watch = Watch::of(directory);
        let exists = path.exists();
        if tell.send_if_modified(|healthy| std::mem::replace(healthy, exists) != exists) {
            tracing::info!(device = %path.display(), exists, "a device came or went");
        }
        match watch {
            Ok(watch) => watch.changed().await,
            Err(error) => {
                tracing::warn!(%error, "cannot watch {}", directory.display());
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
