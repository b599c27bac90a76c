//! Connections from launcher to launcher, through two handlers and a network in memory.

use std::path::Path;

use ferrovirt_domain::NodeFacts;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{DomainReport, Refusal, StartRequest};
use ferrovirt_launcher_rpc::migration::{CancelRequest, SourceRequest, TargetRequest, VerdictRequest};
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_reconcile::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::*;
use crate::launcher::{Answer as LauncherAnswer, Command, Launchers};
use crate::process::PodProcess;
use crate::wiring::{Wiring, WiringError};

/// A launcher whose connections the test holds.
struct FakeLauncher {
    outgoing: AsyncMutex<mpsc::UnboundedReceiver<(Channel, DuplexStream)>>,
    incoming: mpsc::UnboundedSender<(Channel, DuplexStream)>,
}

/// The test's ends: what the launcher sends out, and what came in.
type Ends = (mpsc::UnboundedSender<(Channel, DuplexStream)>, mpsc::UnboundedReceiver<(Channel, DuplexStream)>);

fn launcher() -> (Arc<FakeLauncher>, Ends) {
    let ((send, outgoing), (incoming, received)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    (Arc::new(FakeLauncher { outgoing: AsyncMutex::new(outgoing), incoming }), (send, received))
}

fn refused<T>() -> Result<T, LauncherError> {
    Err(LauncherError::Refused(Refusal { reason: "No".into(), message: "it is not that kind of test".into() }))
}

impl Launcher for FakeLauncher {
    fn process(&self) -> Option<&Arc<PodProcess>> {
        None
    }

    fn prepare(&self, _: Vec<u8>) -> LauncherAnswer<'_, ()> {
        async { Ok(()) }.boxed()
    }

    fn capabilities(&self) -> LauncherAnswer<'_, Vec<u8>> {
        async { refused() }.boxed()
    }

    fn start(&self, _: StartRequest) -> LauncherAnswer<'_, DomainReport> {
        async { refused() }.boxed()
    }

    fn events(&self) -> LauncherAnswer<'_, BoxStream<'static, DomainReport>> {
        let first = futures::stream::once(async { DomainReport::default() });
        async { Ok(first.chain(futures::stream::pending()).boxed()) }.boxed()
    }

    fn command(&self, _: Command) -> LauncherAnswer<'_, ()> {
        async { refused() }.boxed()
    }

    fn read(&self, _: &'static str) -> LauncherAnswer<'_, (String, Vec<u8>)> {
        async { refused() }.boxed()
    }

    fn open(&self, _: &'static str) -> LauncherAnswer<'_, Box<dyn Stream>> {
        async { refused() }.boxed()
    }

    fn prepare_target(&self, _: TargetRequest) -> LauncherAnswer<'_, ()> {
        async { refused() }.boxed()
    }

    fn begin_move(&self, _: SourceRequest) -> LauncherAnswer<'_, ()> {
        async { refused() }.boxed()
    }

    fn cancel_move(&self, _: CancelRequest) -> LauncherAnswer<'_, ()> {
        async { refused() }.boxed()
    }

    fn tell_verdict(&self, _: VerdictRequest) -> LauncherAnswer<'_, ()> {
        async { refused() }.boxed()
    }

    fn outgoing<'a>(&'a self, _: &'a str) -> LauncherAnswer<'a, (Channel, Box<dyn Stream>)> {
        async {
            match self.outgoing.lock().await.recv().await {
                Some((channel, stream)) => Ok((channel, Box::new(stream) as Box<dyn Stream>)),
                None => refused(),
            }
        }
        .boxed()
    }

    fn incoming<'a>(&'a self, _: &'a str, channel: Channel) -> LauncherAnswer<'a, Box<dyn Stream>> {
        async move {
            let (ours, theirs) = tokio::io::duplex(64);
            self.incoming.send((channel, ours)).map_err(|error| LauncherError::Unreachable(error.to_string()))?;
            Ok(Box::new(theirs) as Box<dyn Stream>)
        }
        .boxed()
    }
}

impl Launchers for FakeLauncher {
    fn connect<'a>(&'a self, _: &'a str) -> LauncherAnswer<'a, Arc<dyn Launcher>> {
        let launcher =
            FakeLauncher { outgoing: AsyncMutex::new(mpsc::unbounded_channel().1), incoming: self.incoming.clone() };
        async { Ok(Arc::new(launcher) as Arc<dyn Launcher>) }.boxed()
    }

    fn remains<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<bool>> {
        async { Ok(true) }.boxed()
    }
}

struct NoLinks;

impl Wiring for NoLinks {
    fn links<'a>(
        &'a self,
        _: &'a ferrovirt_api::VirtualMachineInstance,
        _: &'a Pod,
        _: &'a dyn Launcher,
    ) -> BoxFuture<'a, Result<Vec<GuestLink>, WiringError>> {
        async { Ok(Vec::new()) }.boxed()
    }
}

/// Two nodes and nothing between them.
struct Network {
    me: &'static str,
    there: mpsc::UnboundedSender<Peer>,
    here: AsyncMutex<mpsc::UnboundedReceiver<Peer>>,
}

fn network(one: &'static str, two: &'static str) -> (Arc<Network>, Arc<Network>) {
    let ((to_one, at_one), (to_two, at_two)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let node = |me, there, here| Arc::new(Network { me, there, here: AsyncMutex::new(here) });
    (node(one, to_two, at_one), node(two, to_one, at_two))
}

impl Peers for Network {
    fn address(&self) -> (IpAddr, u16) {
        ([127, 0, 0, 1].into(), 1)
    }

    fn dial<'a>(&'a self, node: &'a str, _: (IpAddr, u16)) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            if node != "node2" {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let (ours, theirs) = tokio::io::duplex(64);
            let peer = Peer { node: self.me.to_owned(), stream: Box::new(theirs) };
            self.there.send(peer).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(Box::new(ours) as Box<dyn Stream>)
        }
        .boxed()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Peer>> {
        async { self.here.lock().await.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into()) }.boxed()
    }
}

/// The handler of node2, which a guest moves to, and its launcher.
async fn target(peers: Arc<Network>, directory: &Path) -> (Guests, Ends) {
    let (launcher, ends) = launcher();
    let client = kube::Client::new(
        tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(io::Error::other("there is no API server"))
        }),
        "default",
    );
    let config = crate::Config {
        node: "node2".into(),
        directory: directory.to_owned(),
        door: crate::Door::Unix(directory.join("unused")),
        facts: NodeFacts::default(),
    };
    let (_, guests, _) = crate::wire(&client, &config, launcher, Arc::new(NoLinks), peers, &Clock::System).unwrap();
    let vmi: Value = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "db", "namespace": "shop", "uid": "guest"},
        "spec": {"domain": {"devices": {}}},
        "status": {"nodeName": "node1", "migrationState": {
            "migrationUid": "m", "sourceNode": "node1", "sourcePod": "from", "targetNode": "node2", "targetPod": "to",
        }},
    });
    let pod = json!({
        "metadata": {"name": "to", "namespace": "shop", "uid": "pod-2", "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "db", "uid": "guest", "controller": true,
        }]},
        "status": {"phase": "Running"},
    });
    guests.arriving.handle(Event::Apply(serde_json::from_value(vmi).unwrap()));
    guests.pods.handle(Event::Apply(serde_json::from_value(pod).unwrap()));
    while guests.followers.get("pod-2").launcher.is_none() {
        tokio::task::yield_now().await;
    }
    (guests, ends)
}

fn route() -> Route {
    Route { id: "m".into(), guest: "guest".into(), node: "node2".into(), address: ([127, 0, 0, 1].into(), 1) }
}

#[tokio::test]
async fn bytes_pass_both_ways_and_connections_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = network("node1", "node2");
    let (guests, (_, mut received)) = target(two, directory.path()).await;
    let serving = AbortOnDropHandle::new(tokio::spawn(serve(guests)));
    let (source, (send, _)) = launcher();
    let carriers = Carriers::new(one);
    carriers.carry(route(), source.clone());
    carriers.carry(route(), source);
    let mut ends = Vec::new();
    let channels = [Channel::Link, Channel::Memory, Channel::Memory, Channel::Memory, Channel::Disks];
    for channel in channels {
        let (ours, theirs) = tokio::io::duplex(64);
        send.send((channel, theirs)).unwrap();
        ends.push(ours);
    }
    for (number, (mut out, channel)) in ends.into_iter().zip(channels).enumerate() {
        let (at, mut other) = received.recv().await.unwrap();
        assert_eq!(at, channel);
        let words = vec![number as u8; 1000];
        let (mut there, mut back) = (Vec::new(), [0; 5]);
        let exchange = async {
            out.write_all(&words).await.unwrap();
            out.shutdown().await.unwrap();
            out.read_exact(&mut back).await.unwrap();
        };
        let answer = async {
            other.read_to_end(&mut there).await.unwrap();
            other.write_all(b"heard").await.unwrap();
        };
        tokio::join!(exchange, answer);
        assert_eq!((there, &back), (words, b"heard"));
    }
    drop(serving);
}

#[tokio::test]
async fn only_the_move_that_the_object_tells_about_is_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = network("node1", "node2");
    let (guests, _ends) = target(two, directory.path()).await;
    let _serving = AbortOnDropHandle::new(tokio::spawn(serve(guests)));
    for wrong in [Route { id: "other".into(), ..route() }, Route { guest: "other".into(), ..route() }] {
        let error = reach(&*one, &wrong, Channel::Link).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{wrong:?}");
    }
    assert!(reach(&*one, &route(), Channel::Link).await.is_ok());
}

#[tokio::test]
async fn a_node_that_is_not_the_source_is_not_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let (three, two) = network("node3", "node2");
    let (guests, _ends) = target(two, directory.path()).await;
    let _serving = AbortOnDropHandle::new(tokio::spawn(serve(guests)));
    let error = reach(&*three, &route(), Channel::Link).await.err().unwrap();
    assert!(error.to_string().contains("no guest moves from node3"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_carried_ends_and_the_next_is_taken() {
    let (one, _two) = network("node1", "node2");
    let (source, (send, _)) = launcher();
    let carriers = Carriers::new(one);
    carriers.carry(Route { node: "node9".into(), ..route() }, source);
    for _ in 0..2 {
        let (mut ours, theirs) = tokio::io::duplex(64);
        send.send((Channel::Link, theirs)).unwrap();
        assert_eq!(ours.read(&mut [0]).await.unwrap(), 0, "the launcher sees the end");
    }
}

#[tokio::test]
async fn a_line_is_read_to_its_end_and_not_further() {
    let (mut one, two) = tokio::io::duplex(8192);
    let mut two: Box<dyn Stream> = Box::new(two);
    one.write_all(b"\"joined\"\nrest").await.unwrap();
    assert_eq!(hear::<Answer>(&mut two).await.unwrap(), Answer::Joined);
    let mut rest = [0; 4];
    two.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"rest");
    one.write_all(&vec![b'x'; LONGEST_LINE]).await.unwrap();
    assert_eq!(hear::<Answer>(&mut two).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
}
