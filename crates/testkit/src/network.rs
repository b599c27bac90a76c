//! The network between the nodes' handlers: it delays, breaks, and can be cut for a while or for good.
//!
//! A connection that a cut goes through carries nothing any more, and each of its ends learns of that in its own time. One whose end dies
//! is closed at once, as sockets are, and what was under way is lost.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ferrovirt_virt_handler::launcher::Stream;
use ferrovirt_virt_handler::peers::{Peer, Peers};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::component::Life;
use crate::machine::node_name;
use crate::world::World;

/// What a simulated socket holds.
const BUFFER: usize = 4096;
/// Where handlers listen.
const PORT: u16 = 49152;

/// Who listens, and whether anybody can be reached.
#[derive(Default)]
pub struct Network {
    listeners: Mutex<BTreeMap<String, Listener>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    /// Breaks what is connected now.
    cut: CancellationToken,
}

struct Listener {
    life: Life,
    calls: mpsc::UnboundedSender<Peer>,
}

impl Network {
    /// Breaks every connection. Nothing gets through until it heals.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.is_cut = true;
        std::mem::take(&mut state.cut).cancel();
    }

    /// Breaks every connection; new ones can be made at once.
    pub fn stumble(&self) {
        std::mem::take(&mut self.state.lock().cut).cancel();
    }

    /// Nodes reach each other again.
    pub fn heal(&self) {
        self.state.lock().is_cut = false;
    }

    /// Whether nothing gets through.
    pub fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }
}

/// The way to other nodes, for one life of a handler.
pub(crate) struct NodePeers {
    world: Arc<World>,
    node: usize,
    life: Life,
    calls: tokio::sync::Mutex<mpsc::UnboundedReceiver<Peer>>,
}

impl NodePeers {
    /// Listens from now on.
    pub(crate) fn new(world: &Arc<World>, node: usize, life: &Life) -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let listener = Listener { life: life.clone(), calls: sender };
        world.network.listeners.lock().insert(node_name(node), listener);
        Self { world: world.clone(), node, life: life.clone(), calls: tokio::sync::Mutex::new(calls) }
    }

    async fn connect(&self, node: &str, address: (IpAddr, u16)) -> io::Result<Box<dyn Stream>> {
        let world = &self.world;
        world.pause(1..20).await;
        self.life.or_never().await;
        let cut = {
            let state = world.network.state.lock();
            (!state.is_cut).then(|| state.cut.clone())
        };
        let Some(cut) = cut else {
            world.pause(1_000..8_000).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody answers"));
        };
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens there");
        let listeners = world.network.listeners.lock();
        let listener = listeners.get(node).filter(|listener| !listener.life.token().is_cancelled());
        let listener = listener.filter(|_| node_address(node) == Some(address)).ok_or_else(refused)?;
        let (near, near_inner) = tokio::io::duplex(BUFFER);
        let (far, far_inner) = tokio::io::duplex(BUFFER);
        let deaths = [self.life.token(), listener.life.token()];
        let call = Peer { node: node_name(self.node), stream: Box::new(far) };
        listener.calls.send(call).map_err(|_| refused())?;
        tokio::spawn(carry(world.clone(), near_inner, far_inner, cut, deaths));
        Ok(Box::new(near))
    }
}

fn node_address(node: &str) -> Option<(IpAddr, u16)> {
    let index: u8 = node.strip_prefix("node")?.parse().ok()?;
    Some((Ipv4Addr::new(10, 1, 0, index + 1).into(), PORT))
}

impl Peers for NodePeers {
    fn address(&self) -> (IpAddr, u16) {
        node_address(&node_name(self.node)).unwrap_or((Ipv4Addr::LOCALHOST.into(), PORT))
    }

    fn dial<'a>(&'a self, node: &'a str, address: (IpAddr, u16)) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.connect(node, address))
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Peer>> {
        Box::pin(async {
            self.life.or_never().await;
            let call = self.calls.lock().await.recv().await;
            self.life.or_never().await;
            call.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "another life listens"))
        })
    }
}

/// A stream of a launcher, which its handler holds as long as it lives.
pub(crate) fn held(world: &Arc<World>, stream: DuplexStream, life: &Life) -> Box<dyn Stream> {
    let (outer, inner) = tokio::io::duplex(BUFFER);
    let deaths = [life.token(), life.token()];
    tokio::spawn(carry(world.clone(), stream, inner, CancellationToken::new(), deaths));
    Box::new(outer)
}

/// Carries bytes both ways until both sides are done, somebody dies or the way is cut.
async fn carry(
    world: Arc<World>,
    near: DuplexStream,
    far: DuplexStream,
    cut: CancellationToken,
    [one, other]: [CancellationToken; 2],
) {
    let (mut near, mut far) = (tokio::io::split(near), tokio::io::split(far));
    let carried = async {
        tokio::join!(forward(&world, &mut near.0, &mut far.1), forward(&world, &mut far.0, &mut near.1));
    };
    tokio::select! {
        biased;
        () = carried => return,
        () = one.cancelled() => return,
        () = other.cancelled() => return,
        () = cut.cancelled() => {}
    }
    let (first, second) = if world.chance(50) { (near, far) } else { (far, near) };
    world.pause(0..4_000).await;
    drop(first);
    world.pause(0..4_000).await;
    drop(second);
}

async fn forward(world: &World, from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) {
    let mut buffer = [0; 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                world.pause(1..10).await;
                if to.write_all(&buffer[..count]).await.is_err() {
                    break;
                }
            }
        }
    }
    let _ = to.shutdown().await;
}
