//! virt-handler: the agent of one node. It owns the node's guests from the moment their objects name the node.
//!
//! | file | what |
//! |---|---|
//! | [`vmi`] | the controller of guests: `decide.rs` has the judgement, `report.rs` turns launchers' reports into status |
//! | [`launcher`] | launchers: the trait, the client, the followers that keep the last report of each |
//! | [`wiring`] | the guest's network inside its pod |
//! | `migration/` | guests that move from and to this node |
//! | `remains.rs`, `traces.rs` | whether something runs here of pods whose objects vanished |
//! | [`peers`] | connections with other nodes, which carry guests that move |
//! | [`certificate`] | the node's certificate: asked for, kept, renewed |
//! | [`health`] | whether it lives and is ready, for the kubelet |
//! | [`process`] | a process of a pod, held so that no other one can take its place |
//! | `container_disks.rs` | images that sidecars hold, where the cluster has no image volumes |
//! | `devices.rs` | device files that the launcher's user may open |
//! | `volumes.rs` | directories of claims that the launcher's user may use |
//! | `host_disks.rs` | disk images in directories of the node |
//! | `handshakes.rs` | connections of callers whom nobody knows yet |
//! | `server.rs` | consoles and commands for virt-api |
//! | `processors.rs` | the processors that guests can have here |
//! | `host_model.rs` | the processor of guests that follow their host |
//! | `node.rs` | labels and heartbeat of the node |
//!
//! Everything about a guest that must survive is in its launcher and in its object. A handler that starts finds the launchers'
//! sockets, listens to each, and changes nothing.

pub mod certificate;
mod claims;
mod container_disks;
mod devices;
mod handshakes;
pub mod health;
mod host_disks;
mod host_model;
pub mod launcher;
mod migration;
mod node;
pub mod peers;
pub mod probe;
pub mod process;
mod processors;
mod remains;
mod server;
mod traces;
pub mod vmi;
mod volumes;
pub mod wiring;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::labels;
use ferrovirt_domain::NodeFacts;
use ferrovirt_kubernetes::Pod;
use ferrovirt_reconcile::expectations::DEFAULT_TIMEOUT;
use ferrovirt_reconcile::queue::Priority;
use ferrovirt_reconcile::watch::Change;
use ferrovirt_reconcile::{Cache, Clock, Expectations, ObjectKey, Queue, Recorder, Runner, Watches};
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::launcher::{Command, Followed, Followers, Launchers};
use self::migration::departed::Departed;
use self::migration::proxy::{self, Carriers};
use self::migration::target::Arriving;
use self::peers::Peers;
use self::remains::Remains;
pub use self::server::Door;
use self::vmi::{Guests, Turns, World};
use self::wiring::Wiring;

/// How many VMs are looked after at the same time: more than a node has, so that no launcher that answers slowly keeps others waiting. How many
/// start at the same time is another matter.
const AT_ONCE: usize = 512;

/// How a handler runs.
pub struct Config {
    /// This node.
    pub node: String,
    /// Where the handler keeps what it must remember.
    pub directory: PathBuf,
    /// Where virt-api comes in.
    pub door: Door,
    /// What the node can do.
    pub facts: NodeFacts,
}

/// Runs until told to stop. The traits are the world: real ones on a node, simulated ones in tests.
pub async fn run(
    client: Client,
    config: Config,
    launchers: Arc<dyn Launchers>,
    wiring: Arc<dyn Wiring>,
    peers: Arc<dyn Peers>,
    clock: Clock,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (watches, guests, queues) = wire(&client, &config, launchers, wiring, peers, &clock)?;
    let (asked, queue) = (guests.clone(), queues.guests.clone());
    let tell = move |is_known| {
        *asked.host_model.lock() = Some(is_known);
        // Whether they can move may depend on it.
        asked
            .vmis
            .all()
            .iter()
            .filter_map(|vmi| ObjectKey::of(&**vmi))
            .for_each(|key| queue.add(&key, Priority::default()));
    };
    tokio::spawn(node::run(client, config.node.clone(), config.facts.clone(), clock, tell, stop.clone()));
    let server = server::serve(config.door, guests.clone(), stop.clone());
    tokio::select! {
        () = work(watches, guests, queues, stop) => Ok(()),
        served = server => Ok(served?),
    }
}

/// The guests alone, without labels for the node and a socket for virt-api: what a simulation runs.
pub async fn run_guests(
    client: Client,
    config: &Config,
    launchers: Arc<dyn Launchers>,
    wiring: Arc<dyn Wiring>,
    peers: Arc<dyn Peers>,
    clock: Clock,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (watches, guests, queues) = wire(&client, config, launchers, wiring, peers, &clock)?;
    *guests.host_model.lock() = Some(true);
    work(watches, guests, queues, stop).await;
    Ok(())
}

async fn work(mut watches: Watches, guests: Guests, queues: Queues, stop: CancellationToken) {
    let synced = watches.synced();
    let work = async {
        synced.await;
        let arriving = Runner::new(Arriving(guests.clone()), queues.arriving).workers(AT_ONCE);
        let departed = Runner::new(Departed(guests.clone()), queues.departed);
        let asked = Runner::new(Remains(guests.clone()), queues.asked);
        // Callers are judged by what the caches say.
        let calls = proxy::serve(guests.clone());
        let guests = Runner::new(guests, queues.guests).workers(AT_ONCE);
        let work = futures::future::join4(
            guests.run(stop.clone()),
            arriving.run(stop.clone()),
            departed.run(stop.clone()),
            asked.run(stop.clone()),
        );
        let calls = async {
            calls.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            _ = work => {}
            () = calls => {}
        }
    };
    // What watches bring is taken in before anybody acts.
    tokio::select! {
        biased;
        () = watches.run() => {}
        () = work => {}
    }
}

/// Which guests are looked at next.
#[derive(Default)]
struct Queues {
    guests: Queue<ObjectKey>,
    arriving: Queue<ObjectKey>,
    departed: Queue<ObjectKey>,
    asked: Queue<ObjectKey>,
}

impl Queues {
    /// Those that pods and launchers wake.
    fn of_pods(&self) -> [Queue<ObjectKey>; 3] {
        [self.guests.clone(), self.arriving.clone(), self.departed.clone()]
    }
}

type Wired = (Watches, Guests, Queues);

/// Caches, followers and the queues that both feed.
fn wire(
    client: &Client,
    config: &Config,
    launchers: Arc<dyn Launchers>,
    wiring: Arc<dyn Wiring>,
    peers: Arc<dyn Peers>,
    clock: &Clock,
) -> anyhow::Result<Wired> {
    std::fs::create_dir_all(&config.directory)?;
    let vmis = Cache::<VirtualMachineInstance>::builder().build();
    let mut builder = Cache::<VirtualMachineInstance>::builder();
    let arriving_by_move = builder.index(|vmi: &VirtualMachineInstance| {
        vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()?.migration_uid.clone())
    });
    let arriving = builder.build();
    let mut builder = Cache::<Pod>::builder();
    let pods_by_owner = builder.index(vmi::owner);
    let pods_by_guest = builder.index(guest_of);
    let pods_by_uid = builder.index(|pod: &Pod| pod.metadata.uid.clone());
    let pods = builder.build();
    let queues = Queues::default();
    vmis.feed(&queues.guests, ObjectKey::of);
    vmis.feed(&queues.departed, ObjectKey::of);
    arriving.feed(&queues.arriving, ObjectKey::of);
    let asked = Cache::<VirtualMachineInstance>::builder().build();
    asked.feed(&queues.asked, ObjectKey::of);
    for queue in queues.of_pods() {
        pods.feed(&queue, guest_of);
    }
    let (pods_of_listener, queues_of_listener) = (pods.clone(), queues.of_pods());
    let followers = Followers::new(launchers, config.directory.join("capabilities.tar"), move |pod_uid| {
        let keys = pods_of_listener.by(&pods_by_uid, pod_uid).into_iter().filter_map(|pod| guest_of(&pod));
        for key in keys {
            for queue in &queues_of_listener {
                queue.add(&key, Priority::default());
            }
        }
    });
    let followers = Arc::new(followers);
    follow_pods(client, &pods, &followers);
    let mut watches = Watches::new();
    let mine = format!("{}={}", labels::NODE_NAME, config.node);
    watches.add(Api::all(client.clone()), watcher::Config::default().labels(&mine), &vmis)?;
    let to_me = format!("{}={}", labels::MIGRATION_TARGET_NODE_NAME, config.node);
    watches.add(Api::all(client.clone()), watcher::Config::default().labels(&to_me), &arriving)?;
    let of_me = format!("{}={}", labels::ASKED_NODE, config.node);
    watches.add(Api::all(client.clone()), watcher::Config::default().labels(&of_me), &asked)?;
    let here = watcher::Config::default()
        .labels("kubevirt.io=virt-launcher")
        .fields(&format!("spec.nodeName={}", config.node));
    watches.add(Api::all(client.clone()), here, &pods)?;
    let guests = Guests::from(World {
        recorder: Recorder::new(client.clone(), "virt-handler", &config.node, *clock),
        client: client.clone(),
        node: config.node.clone(),
        facts: config.facts.clone(),
        host_model: Mutex::new(None),
        written: Expectations::new(&vmis, DEFAULT_TIMEOUT),
        vmis,
        pods,
        pods_by_owner,
        pods_by_guest,
        arrivals_written: Expectations::new(&arriving, DEFAULT_TIMEOUT),
        arriving,
        arriving_by_move,
        asked,
        carriers: Carriers::new(peers.clone()),
        progressed: Mutex::new(HashMap::new()),
        followers,
        starts: Turns::default(),
        wiring,
        peers,
        clock: *clock,
    });
    Ok((watches, guests, queues))
}

/// A launcher is followed from the moment its container may run until its pod is gone.
fn follow_pods(client: &Client, pods: &Cache<Pod>, followers: &Arc<Followers>) {
    let (client, followers) = (client.clone(), followers.clone());
    pods.on_change(move |change: &Change<Pod>| {
        let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
        let new = change.new.as_ref().map(uid);
        if let Some(old) = change.old.as_ref().filter(|old| Some(uid(old)) != new) {
            end(&client, old, followers.forget(&uid(old)));
        }
        let status = change.new.as_ref().and_then(|pod| pod.status.as_ref());
        let is_over = status.is_some_and(|status| {
            matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) && ferrovirt_pods::has_ended(status)
        });
        match (new, status.and_then(|status| status.phase.as_deref())) {
            (Some(uid), Some("Running")) => followers.follow(&uid),
            (Some(uid), _) if is_over => drop(followers.forget(&uid)),
            _ => {}
        }
    });
}

/// Ends what still runs in a pod whose object was deleted by force: the next guest may be on its way, and a kubelet would leave this one
/// its grace period. A cache can go back in time, so the pod is asked for once more.
fn end(client: &Client, pod: &Arc<Pod>, known: Followed) {
    let Some(launcher) = known.launcher else { return };
    let pods = Api::<Pod>::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let (name, uid) = (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.uid.clone());
    tokio::spawn(async move {
        let is_gone = match pods.get_metadata_opt(&name).await {
            Ok(found) => found.is_none_or(|found| found.metadata.uid != uid),
            Err(_) => false,
        };
        if is_gone {
            // One that does not answer is on its way out.
            let _ = launcher.command(Command::Kill).await;
        }
    });
}

/// The guest of a launcher pod, by its owner.
fn guest_of(pod: &Pod) -> Option<ObjectKey> {
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "VirtualMachineInstance")?;
    Some(ObjectKey::new(pod.metadata.namespace.as_deref()?, &owner.name))
}
