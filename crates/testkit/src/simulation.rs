//! One run: a world is made, guests come and go, and in the end everything must be where it should.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_apiserver::cluster::StartError;
use ferrovirt_apiserver::controllers::nodes;
use ferrovirt_apiserver::http::options::DeleteOptions;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::status::ApiError;
use ferrovirt_domain::NodeFacts;
use ferrovirt_reconcile::Clock;
use ferrovirt_virt_controller::ControllerConfig;
use ferrovirt_virt_handler::{Config as HandlerConfig, Door};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::component::{Component, Life, Name};
use crate::course::{Course, Deed, Fate};
use crate::launcher::{NoLinks, NodeLaunchers};
use crate::machine::node_name;
use crate::mover::{Mover, longest_wait};
use crate::network::NodePeers;
use crate::user::{User, guest_spec};
use crate::world::{NAMESPACE, World};
use crate::{chaos, kubelet, server};

/// Once the trouble is over, everything must be right within this (virtual) time: longer than any grace period and patience.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Writes of each component, up to the moment at which all guests were where they should be.
    pub writes_until_running: BTreeMap<String, u64>,
    /// The same, up to the moment at which all moves were over.
    pub writes_until_moved: BTreeMap<String, u64>,
    /// Writes of each component in all.
    pub writes: BTreeMap<String, u64>,
    /// How many moves there were at the same time.
    pub most_moves: usize,
    /// What happened.
    pub record: String,
    /// Differs for runs that did not go the same way, to the last number that was drawn.
    pub fingerprint: u64,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// The world could not be made.
    #[error("the world could not be made: {0}")]
    Start(#[from] StartError),
    /// The scenario's own requests failed.
    #[error("a request of the scenario failed: {0}")]
    Request(#[from] ApiError),
    /// A runtime could not be made.
    #[error("no runtime could be made: {0}")]
    Runtime(#[from] std::io::Error),
    /// A promise was broken.
    #[error("{promise}\n\n{record}")]
    Broken {
        /// Which.
        promise: String,
        /// Everything that happened.
        record: String,
    },
    /// The end state is not the right one.
    #[error("after {} s without trouble {missing}\n\n{record}\n\nguests: {guests}\npods: {pods}", PATIENCE.as_secs())]
    Unfinished {
        /// What is missing.
        missing: String,
        /// Everything that happened.
        record: String,
        /// The guests as they are.
        guests: String,
        /// The pods as they are.
        pods: String,
    },
}

/// Plays one course on a clock of its own. `directory` takes keys, which runs can share, and the handlers' files.
pub fn simulate(course: &Course, directory: &Path) -> Result<Outcome, Wrong> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(play(course, directory))
}

async fn play(course: &Course, directory: &Path) -> Result<Outcome, Wrong> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let server = server::start(&directory.join("keys"), course.seed, clock, stop.clone())?;
    let world = World::new(server, clock, course.seed);
    furnish(&world, course.nodes).await?;
    let components = components(&world, course);
    let mut running = JoinSet::new();
    for component in &components {
        running.spawn(run(world.clone(), component.clone(), directory.join("handler")));
    }
    if course.has_fence() {
        // Pods of a node that is out of service go without anybody's word.
        running.spawn(nodes::run(world.server.clone(), stop));
    }
    let scenario = Scenario { world: &world, course, components: &components };
    let (outcome, ()) = tokio::join!(scenario.play(), chaos::run(&world, &components, course));
    outcome
}

/// The namespace, the account that pods run under, and nodes.
async fn furnish(world: &Arc<World>, count: usize) -> Result<(), Wrong> {
    world.make_namespace().await?;
    let nodes = world.server.internal("", "v1", "nodes", "simulation")?;
    for node in (0..count).map(node_name) {
        let labels = json!({
            "kubernetes.io/arch": "amd64", "kubevirt.io/schedulable": "true", "machine-type.node.kubevirt.io/q35": "true",
        });
        nodes.create(json!({"metadata": {"name": node, "labels": labels}})).await?;
        let room = json!({"cpu": "8", "memory": "8Gi", "pods": "110", "ephemeral-storage": "8Gi"});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"capacity": room, "allocatable": room, "conditions": ready});
        nodes.change(&Place::new("", &node), "status", |node| node["status"] = status.clone()).await?;
    }
    Ok(())
}

fn components(world: &Arc<World>, course: &Course) -> Vec<Arc<Component>> {
    let nodes = (0..course.nodes).flat_map(|node| [Name::Handler(node), Name::Kubelet(node)]);
    let names = [Name::Controller, Name::Scheduler].into_iter().chain(nodes);
    names.map(|name| Component::new(world, name, &course.kills)).collect()
}

async fn run(world: Arc<World>, component: Arc<Component>, directory: std::path::PathBuf) {
    let name = component.name();
    component
        .run(move |client, life| {
            let (world, directory) = (world.clone(), directory.clone());
            match name {
                Name::Controller => controller(world, client, life).boxed(),
                Name::Scheduler => scheduler(world, client, life).boxed(),
                Name::Kubelet(node) => kubelet::run(world, node, client, life).boxed(),
                Name::Handler(node) => handler(world, node, client, life, directory).boxed(),
            }
        })
        .await;
}

async fn controller(world: Arc<World>, client: kube::Client, life: Life) {
    let config = ControllerConfig { clock: world.clock, ..ControllerConfig::default() };
    if let Err(error) = ferrovirt_virt_controller::run(client, config, life.token()).await {
        world.broken(|| format!("virt-controller ended: {error}"));
    }
}

async fn scheduler(world: Arc<World>, client: kube::Client, life: Life) {
    if let Err(error) = ferrovirt_scheduler::run(client, world.clock, life.token()).await {
        world.broken(|| format!("the scheduler ended: {error}"));
    }
}

async fn handler(world: Arc<World>, node: usize, client: kube::Client, life: Life, directory: std::path::PathBuf) {
    let config = HandlerConfig {
        node: node_name(node),
        door: Door::Unix(directory.join("unused.sock")),
        directory,
        facts: NodeFacts::default(),
    };
    let launchers = Arc::new(NodeLaunchers { world: world.clone(), node, life: life.clone() });
    let (wiring, peers) = (Arc::new(NoLinks), Arc::new(NodePeers::new(&world, node, &life)));
    let ran = ferrovirt_virt_handler::run_guests(client, &config, launchers, wiring, peers, world.clock, life.token());
    if let Err(error) = ran.await {
        world.broken(|| format!("virt-handler ended: {error:#}"));
    }
}

struct Scenario<'a> {
    world: &'a Arc<World>,
    course: &'a Course,
    components: &'a [Arc<Component>],
}

impl Scenario<'_> {
    async fn play(&self) -> Result<Outcome, Wrong> {
        let trouble_ends = Instant::now() + self.course.chaos;
        let guests = self.world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation")?;
        for (index, fate) in self.course.guests.iter().enumerate() {
            let name = format!("guest{index}");
            self.world.machine.set_fate(&name, *fate);
            self.world.note(|| format!("{name} ({fate:?}) is created"));
            guests.create(guest(&name)).await?;
        }
        let users: Vec<User<'_>> = self.users();
        futures::future::try_join_all(users.iter().map(User::play)).await?;
        match self.course.delete_after {
            Some(delay) => tokio::time::sleep(delay).await,
            None => {
                self.until(trouble_ends, Scenario::not_running).await?;
                self.until(trouble_ends, |_| users.iter().find_map(User::complaint)).await?;
            }
        }
        let writes_until_running = self.writes();
        self.moves(trouble_ends, &users).await?;
        let writes_until_moved = self.writes();
        for name in (0..self.course.guests.len()).map(|index| format!("guest{index}")) {
            if self.world.guest_named(&name).is_some() {
                self.world.note(|| format!("{name} is deleted"));
                guests.delete(&Place::new(NAMESPACE, &name), &DeleteOptions::default()).await?;
            }
        }
        self.last_deeds(trouble_ends, &users).await?;
        self.until(trouble_ends, Scenario::not_gone).await?;
        let (record, fingerprint) = (self.world.record(), self.world.fingerprint());
        let (writes, most_moves) = (self.writes(), self.world.most_moves());
        Ok(Outcome { writes_until_running, writes_until_moved, writes, most_moves, record, fingerprint })
    }

    /// Guests move, and in the end all of them are where they should be.
    async fn moves(&self, trouble_ends: Instant, users: &[User<'_>]) -> Result<(), Wrong> {
        if self.course.moves.is_empty() {
            return Ok(());
        }
        let mover = Mover::new(self.world, self.course, self.components);
        mover.play().await?;
        let trouble_ends = trouble_ends.max(Instant::now() + longest_wait(self.course));
        self.until(trouble_ends, |_| mover.complaint().or_else(|| users.iter().find_map(User::complaint))).await
    }

    fn users(&self) -> Vec<User<'_>> {
        let machines = self.course.machines.iter().enumerate();
        machines.map(|(index, course)| User::new(self.world, format!("machine{index}"), course)).collect()
    }

    /// Whatever happened before: machines can be stopped and started, and go when they are deleted.
    async fn last_deeds(&self, trouble_ends: Instant, users: &[User<'_>]) -> Result<(), Wrong> {
        for user in users.iter().filter(|user| user.had_deeds()) {
            user.calm_down();
            user.try_to(Deed::Stop).await?;
            self.until(trouble_ends, |_| user.complaint()).await?;
            user.try_to(Deed::Start).await?;
            self.until(trouble_ends, |_| user.complaint()).await?;
        }
        for user in users {
            user.delete().await?;
        }
        self.until(trouble_ends, |_| users.iter().find_map(User::not_gone)).await?;
        for user in users {
            user.delete_orphan().await?;
        }
        Ok(())
    }

    fn writes(&self) -> BTreeMap<String, u64> {
        self.components.iter().map(|component| (component.name().to_string(), component.writes())).collect()
    }

    /// Waits until nothing is missing, and not longer than it may take after the trouble.
    async fn until(&self, trouble_ends: Instant, missing: impl Fn(&Self) -> Option<String>) -> Result<(), Wrong> {
        let deadline = Instant::now().max(trouble_ends) + PATIENCE;
        loop {
            if let Some(promise) = self.world.first_broken() {
                return Err(Wrong::Broken { promise, record: self.world.record() });
            }
            let Some(missing) = missing(self) else { return Ok(()) };
            if Instant::now() > deadline {
                let text = |object: &Arc<Value>| serde_json::to_string_pretty(&**object).unwrap_or_default();
                let shown = |objects: Vec<Arc<Value>>| objects.iter().map(text).collect::<Vec<_>>().join(",\n");
                let (guests, pods) = (shown(self.world.guests()), shown(self.world.pods()));
                return Err(Wrong::Unfinished { missing, record: self.world.record(), guests, pods });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The first guest that is not where its fate leads.
    fn not_running(&self) -> Option<String> {
        let stored = self.world.guests();
        let fates = self.course.guests.iter().enumerate();
        fates.filter_map(|(index, fate)| self.not_there(&format!("guest{index}"), *fate, &stored)).next()
    }

    fn not_there(&self, name: &str, fate: Fate, stored: &[Arc<Value>]) -> Option<String> {
        let expected = match fate {
            Fate::Obedient | Fate::Stubborn => "Running",
            Fate::PowersOff => "Succeeded",
            Fate::Crashes => "Failed",
        };
        let Some(guest) = stored.iter().find(|guest| guest["metadata"]["name"] == name) else {
            return Some(format!("{name} is not there"));
        };
        let phase = &guest["status"]["phase"];
        if phase != expected {
            return Some(format!("{name} is {phase}, not {expected}"));
        }
        let process = self.world.machine.living().into_iter().find(|process| process.guest == name);
        match process {
            None if expected == "Running" => Some(format!("{name} is said to run and does not")),
            Some(process) if expected == "Running" && guest["status"]["nodeName"] != node_name(process.node) => {
                Some(format!("{name} runs on another node than its object says"))
            }
            Some(_) if expected != "Running" => Some(format!("the launcher of {name} does not end")),
            _ => None,
        }
    }

    /// The first thing that is left of the guests.
    fn not_gone(&self) -> Option<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(guest) = self.world.guests().first() {
            return Some(format!("{} is still there", name(guest)));
        }
        if let Some(pod) = self.world.pods().first() {
            return Some(format!("pod {} is still there", name(pod)));
        }
        let process = self.world.machine.living().into_iter().next();
        process.map(|process| format!("the launcher of {} still runs", process.guest))
    }
}

fn guest(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": guest_spec()})
}
