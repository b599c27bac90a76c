//! Components as processes: they talk to the API server through a network with latencies, die, and are started again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::http::info::{RequestInfo, query_pairs};
use ferrovirt_apiserver::http::respond::Answer;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::Peer;
use ferrovirt_virt_api::HANDLER_GROUP;
use futures::future::BoxFuture;
use http::{Method, Request};
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::course::Kill;
use crate::world::World;

/// Where guests are in the API.
const GUESTS: &str = "/virtualmachineinstances";

/// Who can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// virt-controller.
    Controller,
    /// virt-handler of a node.
    Handler(usize),
    /// The scheduler.
    Scheduler,
    /// The kubelet of a node.
    Kubelet(usize),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("virt-controller"),
            Self::Handler(node) => write!(f, "virt-handler-{node}"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Kubelet(node) => write!(f, "kubelet-{node}"),
        }
    }
}

impl Name {
    /// The user that it is for the API server: one of ours, so that its word about a guest counts.
    fn user(self) -> UserInfo {
        let name = match self {
            Self::Controller => "system:serviceaccount:kubevirt:virt-controller".to_owned(),
            Self::Handler(_) => "system:serviceaccount:kubevirt:virt-handler".to_owned(),
            Self::Scheduler => "system:kube-scheduler".to_owned(),
            Self::Kubelet(node) => format!("system:node:{}", crate::machine::node_name(node)),
        };
        let node = match self {
            Self::Handler(node) => Some(format!("{HANDLER_GROUP}{}", crate::machine::node_name(node))),
            Self::Controller | Self::Scheduler | Self::Kubelet(_) => None,
        };
        UserInfo::new(name, std::iter::once("system:masters".to_owned()).chain(node))
    }
}

/// One life of a component. When it is over, nothing that the component does has an effect any more.
#[derive(Clone)]
pub struct Life(CancellationToken);

impl Life {
    /// Waits forever if the life is over: the dead do nothing.
    pub async fn or_never(&self) {
        if self.0.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// For components that end by being told.
    pub fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}

/// A component over all its lives.
pub struct Component {
    name: Name,
    world: Arc<World>,
    writes: AtomicU64,
    kills: Vec<u64>,
    life: parking_lot::Mutex<Life>,
    /// Nobody starts it again.
    is_stopped: watch::Sender<bool>,
}

impl Component {
    /// A component that dies after these of its writes.
    pub(crate) fn new(world: &Arc<World>, name: Name, kills: &[Kill]) -> Arc<Self> {
        let kills = kills.iter().filter(|kill| kill.component == name).map(|kill| kill.after_writes).collect();
        let life = parking_lot::Mutex::new(Life(CancellationToken::new()));
        Arc::new(Self {
            name,
            world: world.clone(),
            writes: AtomicU64::new(0),
            kills,
            life,
            is_stopped: watch::Sender::new(false),
        })
    }

    /// Who it is.
    pub fn name(&self) -> Name {
        self.name
    }

    /// How often it has written to the API.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Dies now.
    pub fn kill(&self) {
        self.world.note(|| format!("{} dies", self.name));
        self.life.lock().0.cancel();
    }

    /// Dies, and is not started again before somebody says so.
    pub fn stop(&self) {
        self.is_stopped.send_replace(true);
        self.kill();
    }

    /// Is started again after its death.
    pub fn start(&self) {
        self.is_stopped.send_replace(false);
    }

    /// Runs it, again after each death.
    pub(crate) async fn run<F>(self: Arc<Self>, start: F)
    where
        F: Fn(Client, Life) -> BoxFuture<'static, ()>,
    {
        loop {
            let life = Life(CancellationToken::new());
            *self.life.lock() = life.clone();
            let running = AbortOnDropHandle::new(tokio::spawn(start(self.client(&life), life.clone())));
            life.0.cancelled().await;
            drop(running);
            self.world.pause(0..5_000).await;
            if self.is_stopped.subscribe().wait_for(|stopped| !stopped).await.is_err() {
                return;
            }
            self.world.note(|| format!("{} starts again", self.name));
        }
    }

    fn client(self: &Arc<Self>, life: &Life) -> Client {
        let (component, life) = (self.clone(), life.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (component, life) = (component.clone(), life.clone());
            async move { component.request(request, &life).await }
        });
        Client::new(service, crate::world::NAMESPACE)
    }

    /// The server's answer. Lists and watches may show the past; a single object is always read as it is, as every Kubernetes does.
    async fn handle(&self, request: Request<kube::client::Body>) -> Answer {
        let (world, peer) = (&self.world, Peer::Trusted(self.name.user()));
        let query = query_pairs(request.uri().query().unwrap_or_default());
        let verb = RequestInfo::parse(request.method(), request.uri().path(), &query).verb;
        if verb != "get" {
            return world.server.handle(request.map(erase), &peer).await;
        }
        world.end_of_past();
        let answer = world.server.handle(request.map(erase), &peer).await;
        world.begin_of_past();
        answer
    }

    async fn request(&self, request: Request<kube::client::Body>, life: &Life) -> io::Result<Answer> {
        let lost = || Err(io::Error::new(io::ErrorKind::ConnectionReset, "the simulated network lost this"));
        let world = &self.world;
        let is_write = request.method() != Method::GET;
        let line = is_write.then(|| format!("{} {} {}", self.name, request.method(), request.uri().path()));
        world.pause(1..30).await;
        life.or_never().await;
        if world.request_fails() {
            return lost();
        }
        let is_made = request.method() == Method::POST && request.uri().path().ends_with(GUESTS);
        let bound = bound_pod(&request).map(str::to_owned);
        let deleted = deleted_guest(&request).and_then(|name| world.guest_named(name));
        let answer = self.handle(request).await;
        if answer.status().is_success() {
            if is_made {
                world.ledger.note_guests(world);
            }
            if let Some(guest) = deleted {
                world.ledger.deleted(world, &guest);
            }
            if let Some(pod) = bound {
                world.note_binding(&pod);
            }
        }
        if let Some(line) = line {
            world.note(|| format!("{line} → {}", answer.status().as_u16()));
            world.check_children();
            world.check_ends();
            let count = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
            if self.kills.contains(&count) {
                self.kill();
            }
        }
        life.or_never().await;
        world.pause(1..30).await;
        life.or_never().await;
        if world.request_fails() { lost() } else { Ok(answer) }
    }
}

/// The guest that a request deletes.
fn deleted_guest(request: &Request<kube::client::Body>) -> Option<&str> {
    let is_delete = *request.method() == Method::DELETE;
    let (_, name) = request.uri().path().split_once(GUESTS).filter(|_| is_delete)?;
    name.strip_prefix('/')
}

/// The pod that a request gives to a node.
fn bound_pod(request: &Request<kube::client::Body>) -> Option<&str> {
    request.uri().path().strip_suffix("/binding")?.rsplit('/').next()
}
