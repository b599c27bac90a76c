//! The connections of a move, from launcher to launcher.
//!
//! ```text
//!   source launcher ── descriptor ──► its handler ══ TLS ══► target's handler ◄── descriptor ── target launcher
//!                                        │  who I am for ──────► │ is that so? a connection to that channel
//!                                        │ ◄──────────── joined │
//! ```
//!
//! * The source's handler takes the connections that its launcher makes, one after the other: the next only when the one before is
//!   joined end to end. QEMU tells connections of one channel apart by their order.
//! * The target's handler believes a caller what the guest's object says about it: the guest moves here, from the caller's node.
//! * Nothing is remembered: a handler that starts again takes the next connections. Those that went through its predecessor are broken,
//!   which the launchers' machines know how to bear.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::migration::Channel;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::record::Move;
use crate::launcher::{Launcher, LauncherError, Stream};
use crate::peers::{Peer, Peers};
use crate::vmi::Guests;

/// The longest line that handlers say to each other.
const LONGEST_LINE: usize = 4096;
/// How long a handler may take to say it. The target's launcher has to connect in this time.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between attempts when something is wrong.
const PAUSE: Duration = Duration::from_millis(500);
/// A launcher that fails so often in a row is left alone until there is news of it.
const ATTEMPTS: u32 = 10;
/// Bytes that are copied at once. Larger is faster with fast networks, and costs memory twice for each connection.
const BUFFER: usize = 128 << 10;

/// The first line of every connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hello {
    /// UID of the migration.
    migration: String,
    /// UID of the guest.
    guest: String,
    /// The channel.
    channel: Channel,
}

/// The answer to it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    /// Whatever follows comes from the launcher.
    Joined,
    /// Nothing follows.
    Refused(String),
}

/// A move whose connections are to be carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// UID of the migration.
    pub(crate) id: String,
    /// UID of the guest.
    pub(crate) guest: String,
    /// The target's node.
    pub(crate) node: String,
    /// Where it listens.
    pub(crate) address: (IpAddr, u16),
}

/// Carries the connections of moves away from this node; one task for each move.
pub(crate) struct Carriers {
    peers: Arc<dyn Peers>,
    tasks: Mutex<BTreeMap<String, AbortOnDropHandle<()>>>,
}

impl Carriers {
    /// Nothing to carry yet.
    pub(crate) fn new(peers: Arc<dyn Peers>) -> Self {
        Self { peers, tasks: Mutex::default() }
    }

    /// From now on takes what the launcher sends for this move, unless that is done already.
    pub(crate) fn carry(&self, route: Route, launcher: Arc<dyn Launcher>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|_, task| !task.is_finished());
        let peers = self.peers.clone();
        tasks
            .entry(route.id.clone())
            .or_insert_with(|| AbortOnDropHandle::new(tokio::spawn(carry(peers, route, launcher))));
    }
}

/// Takes connections until the launcher has none any more.
async fn carry(peers: Arc<dyn Peers>, route: Route, launcher: Arc<dyn Launcher>) {
    let (mut joined, mut failures) = (JoinSet::new(), 0);
    while failures < ATTEMPTS {
        while joined.try_join_next().is_some() {}
        match launcher.outgoing(&route.id).await {
            Ok((channel, ours)) => {
                failures = 0;
                match reach(&*peers, &route, channel).await {
                    Ok(theirs) => drop(joined.spawn(copy(ours, theirs))),
                    Err(error) => {
                        // The launcher sees a connection that ends, and decides.
                        drop(ours);
                        tracing::info!(migration = %route.id, node = %route.node, ?channel, %error, "cannot reach the target");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            Err(LauncherError::Refused(_)) => break,
            Err(error) => {
                tracing::debug!(migration = %route.id, %error, "the launcher hands over no connection");
                failures += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    while joined.join_next().await.is_some() {}
}

/// A connection with the target's launcher.
async fn reach(peers: &dyn Peers, route: &Route, channel: Channel) -> io::Result<Box<dyn Stream>> {
    let mut stream = peers.dial(&route.node, route.address).await?;
    let hello = Hello { migration: route.id.clone(), guest: route.guest.clone(), channel };
    let exchange = async {
        say(&mut stream, &hello).await?;
        hear::<Answer>(&mut stream).await
    };
    match tokio::time::timeout(PATIENCE, exchange).await?? {
        Answer::Joined => Ok(stream),
        Answer::Refused(reason) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason)),
    }
}

/// Joins callers with the launchers of guests that move here, as long as there can be callers.
pub(crate) async fn serve(guests: Guests) {
    let mut joined = JoinSet::new();
    loop {
        match guests.peers.accept().await {
            Ok(peer) => drop(joined.spawn(welcome(guests.clone(), peer))),
            Err(error) => {
                tracing::error!(%error, "guests cannot move here any more");
                return;
            }
        }
        while joined.try_join_next().is_some() {}
    }
}

async fn welcome(guests: Guests, mut peer: Peer) {
    let Ok(Ok(hello)) = tokio::time::timeout(PATIENCE, hear::<Hello>(&mut peer.stream)).await else { return };
    let ours = match join(&guests, &peer.node, &hello).await {
        Ok(ours) => ours,
        Err(reason) => {
            tracing::info!(migration = %hello.migration, node = %peer.node, channel = ?hello.channel, %reason, "a connection is refused");
            let _ = say(&mut peer.stream, &Answer::Refused(reason)).await;
            let _ = peer.stream.shutdown().await;
            return;
        }
    };
    if say(&mut peer.stream, &Answer::Joined).await.is_ok() {
        copy(ours, peer.stream).await;
    }
}

/// The launcher's connection, if the guest's object says that the caller may have it.
async fn join(guests: &Guests, caller: &str, hello: &Hello) -> Result<Box<dyn Stream>, String> {
    let launcher = guests.arriving.by(&guests.arriving_by_move, &hello.migration).into_iter().find_map(|vmi| {
        let moving = Move::to_node(&vmi, &guests.node)?;
        let is_meant = vmi.metadata.uid.as_deref() == Some(&hello.guest)
            && moving.state.source_node.as_deref() == Some(caller)
            && moving.id == hello.migration;
        let pod = is_meant.then(|| guests.pod_of(&vmi))??;
        guests.followers.get(pod.metadata.uid.as_deref()?).launcher
    });
    let launcher = launcher.ok_or_else(|| format!("no guest moves from {caller} to {} by it", guests.node))?;
    launcher.incoming(&hello.migration, hello.channel).await.map_err(|error| error.to_string())
}

async fn copy(mut one: Box<dyn Stream>, mut other: Box<dyn Stream>) {
    if let Err(error) = tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await {
        tracing::debug!(%error, "a connection of a move broke");
    }
}

async fn say<T: Serialize>(stream: &mut Box<dyn Stream>, words: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

/// Reads a line and not a byte more: what follows is not ours.
async fn hear<T: for<'a> Deserialize<'a>>(stream: &mut Box<dyn Stream>) -> io::Result<T> {
    let mut line = Vec::new();
    while line.len() < LONGEST_LINE {
        match stream.read_u8().await? {
            b'\n' => return Ok(serde_json::from_slice(&line)?),
            byte => line.push(byte),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"))
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
