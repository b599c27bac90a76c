//! Whoever moves guests: users, drains, and what happens to nodes and the network meanwhile. And what must have come of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::http::options::DeleteOptions;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::Peer;
use ferrovirt_apiserver::status::ApiResult;
use ferrovirt_launcher_rpc::messages::OffReason;
use ferrovirt_launcher_rpc::migration::Stage;
use http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::component::{Component, Name};
use crate::course::{Course, MoveDeed, NodeFate};
use crate::drain::drain;
use crate::machine::{end_by_itself, node_name};
use crate::world::{NAMESPACE, World};

const MIGRATIONS: &str = "virtualmachineinstancemigrations";

/// One run's mover.
pub(crate) struct Mover<'a> {
    world: &'a Arc<World>,
    course: &'a Course,
    components: &'a [Arc<Component>],
    /// Of the guests: those without a machine, and those of machines.
    names: Vec<String>,
    deleted: Mutex<BTreeSet<String>>,
    drains: Mutex<Vec<AbortOnDropHandle<()>>>,
}

impl<'a> Mover<'a> {
    pub(crate) fn new(world: &'a Arc<World>, course: &'a Course, components: &'a [Arc<Component>]) -> Self {
        let guests = (0..course.guests.len()).map(|index| format!("guest{index}"));
        let names = guests.chain((0..course.machines.len()).map(|index| format!("machine{index}"))).collect();
        Self { world, course, components, names, deleted: Mutex::default(), drains: Mutex::default() }
    }

    fn name(&self, guest: usize) -> &str {
        &self.names[guest]
    }

    /// Does what the course says.
    pub(crate) async fn play(&self) -> ApiResult<()> {
        for (number, (delay, deed)) in self.course.moves.iter().enumerate() {
            tokio::time::sleep(*delay).await;
            self.world.note(|| format!("{deed:?}"));
            self.does(number, *deed).await?;
        }
        Ok(())
    }

    async fn does(&self, number: usize, deed: MoveDeed) -> ApiResult<()> {
        match deed {
            MoveDeed::Move(guest) => self.ask_for_move(number, self.name(guest)).await,
            MoveDeed::Cancel(guest) => self.cancel(self.name(guest)).await?,
            MoveDeed::Evacuate(guest) => self.evacuate(self.name(guest)),
            MoveDeed::PowersOff(guest) => self.end(self.name(guest), OffReason::Shutdown),
            MoveDeed::Crashes(guest) => self.end(self.name(guest), OffReason::Crashed),
            MoveDeed::Delete(guest) => self.delete(self.name(guest)).await?,
            MoveDeed::Cut(time) => {
                self.world.network.cut();
                if let Some(time) = time {
                    let world = self.world.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        world.note(|| "the network heals".to_owned());
                        world.network.heal();
                    });
                }
            }
            MoveDeed::Stumble => self.world.network.stumble(),
            MoveDeed::KillSource(guest) => self.kill_launcher(self.name(guest), false),
            MoveDeed::KillTarget(guest) => self.kill_launcher(self.name(guest), true),
            MoveDeed::LosePod(guest) => self.lose_pod(self.name(guest), false).await?,
            MoveDeed::LoseTarget(guest) => self.lose_pod(self.name(guest), true).await?,
            MoveDeed::NodeDies(node, fate) => self.node_dies(node, fate).await?,
        }
        Ok(())
    }

    /// As `kubectl create` would; virt-api may refuse.
    async fn ask_for_move(&self, number: usize, guest: &str) {
        let path = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/{MIGRATIONS}");
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": format!("move{number}")}, "spec": {"vmiName": guest},
        });
        let body = serde_json::to_vec(&object).unwrap_or_default();
        let request = Request::post(path).header("content-type", "application/json");
        let Ok(request) = request.body(erase(kube::client::Body::from(body))) else { return };
        let peer = Peer::Trusted(UserInfo::new("user", ["system:masters"]));
        let status = self.world.server.handle(request, &peer).await.status();
        self.world.note(|| format!("move{number} of {guest}: {status}"));
    }

    async fn cancel(&self, guest: &str) -> ApiResult<()> {
        let migrations = self.world.server.internal("kubevirt.io", "v1", MIGRATIONS, "simulation")?;
        let open = self.world.migrations();
        let open = open.iter().rfind(|it| it["spec"]["vmiName"] == guest && !is_final(it));
        if let Some(name) = open.and_then(|it| it["metadata"]["name"].as_str()) {
            migrations.delete(&Place::new(NAMESPACE, name), &DeleteOptions::default()).await?;
        }
        Ok(())
    }

    /// Somebody begins to drain the node that the guest is on.
    fn evacuate(&self, guest: &str) {
        let node = self.world.guest_named(guest).and_then(|vmi| Some(vmi["status"]["nodeName"].as_str()?.to_owned()));
        if let Some(node) = node {
            let drain = drain(self.world.clone(), guest.to_owned(), node);
            self.drains.lock().push(AbortOnDropHandle::new(tokio::spawn(drain)));
        }
    }

    async fn delete(&self, guest: &str) -> ApiResult<()> {
        if self.deleted.lock().insert(guest.to_owned()) && self.world.guest_named(guest).is_some() {
            let guests = self.world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation")?;
            guests.delete(&Place::new(NAMESPACE, guest), &DeleteOptions::default()).await?;
        }
        Ok(())
    }

    /// The guest ends by itself, as soon as it runs anywhere.
    fn end(&self, guest: &str, reason: OffReason) {
        let uid = self.world.guest_named(guest).and_then(|vmi| Some(vmi["metadata"]["uid"].as_str()?.to_owned()));
        if let Some(uid) = uid {
            let (world, guest) = (self.world.clone(), guest.to_owned());
            tokio::spawn(async move { end_by_itself(&world, &guest, &uid, reason).await });
        }
    }

    fn kill_launcher(&self, guest: &str, target: bool) {
        for process in self.world.machine.living().into_iter().filter(|process| process.guest == guest) {
            let newest = process.report().migration.map(|report| report.stage);
            let is_target = process.report().uid.is_none() && matches!(newest, None | Some(Stage::Target(_)));
            if is_target == target {
                self.world.may_be_lost(guest);
                process.die(self.world);
            }
        }
    }

    /// The pod in which the guest is, or to which it moves, loses its object.
    async fn lose_pod(&self, guest: &str, target: bool) -> ApiResult<()> {
        let Some(vmi) = self.world.guest_named(guest) else { return Ok(()) };
        let (uid, node) = (&vmi["metadata"]["uid"], &vmi["status"]["nodeName"]);
        let pods = self.world.pods();
        let its = pods.iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid && node.is_string());
        for pod in its.filter(|pod| (pod["spec"]["nodeName"] != *node) == target) {
            self.world.lose(pod).await?;
        }
        Ok(())
    }

    /// Nobody answers from the node any more; its guests may run on.
    async fn node_dies(&self, node: usize, fate: NodeFate) -> ApiResult<()> {
        let on_node = [Name::Handler(node), Name::Kubelet(node)];
        for component in self.components.iter().filter(|component| on_node.contains(&component.name())) {
            component.stop();
        }
        self.set_ready(node, "Unknown").await?;
        match fate {
            NodeFate::ComesBack(after) => {
                tokio::time::sleep(after).await;
                for component in self.components.iter().filter(|component| on_node.contains(&component.name())) {
                    component.start();
                }
                self.set_ready(node, "True").await
            }
            NodeFate::Fenced(after) => {
                self.world.node_is_lost(&node_name(node));
                tokio::time::sleep(after).await;
                for process in self.world.machine.living().into_iter().filter(|process| process.node == node) {
                    self.world.may_be_lost(&process.guest);
                    process.die(self.world);
                }
                self.world.note(|| format!("{} is fenced", node_name(node)));
                let taint = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
                let nodes = self.world.server.internal("", "v1", "nodes", "simulation")?;
                let place = Place::new("", &node_name(node));
                nodes.change(&place, "", |node| node["spec"]["taints"] = taint.clone()).await.map(drop)
            }
            NodeFate::Gone(after) => {
                self.world.node_is_lost(&node_name(node));
                self.world.note(|| format!("{} is deleted", node_name(node)));
                let nodes = self.world.server.internal("", "v1", "nodes", "simulation")?;
                nodes.delete(&Place::new("", &node_name(node)), &DeleteOptions::default()).await?;
                // It goes on until the end of the run.
                tokio::spawn(tidy_up(self.world.clone(), node, Instant::now() + after));
                tokio::time::sleep(after).await;
                Ok(())
            }
        }
    }

    async fn set_ready(&self, node: usize, status: &str) -> ApiResult<()> {
        let nodes = self.world.server.internal("", "v1", "nodes", "simulation")?;
        let ready = json!([{"type": "Ready", "status": status}]);
        let place = Place::new("", &node_name(node));
        nodes.change(&place, "status", |node| node["status"]["conditions"] = ready.clone()).await.map(drop)
    }

    /// The first thing that is not as it should be when everything is over.
    pub(crate) fn complaint(&self) -> Option<String> {
        let open = self.world.migrations();
        if let Some(open) = open.iter().find(|it| !is_final(it)) {
            return Some(format!("{} is not over: {}", open["metadata"]["name"], open["status"]["phase"]));
        }
        if self.drains.lock().iter().any(|drain| !drain.is_finished()) {
            return Some("a drain has not ended".to_owned());
        }
        self.names.iter().find_map(|name| self.guest_complaint(name))
    }

    fn guest_complaint(&self, name: &str) -> Option<String> {
        let Some(vmi) = self.world.guest_named(name) else {
            return (!self.deleted.lock().contains(name)).then(|| format!("{name} is not there"));
        };
        if self.deleted.lock().contains(name) {
            return Some(format!("{name} is still there"));
        }
        let status = &vmi["status"];
        let living = self.world.machine.living();
        let living: Vec<_> = living.iter().filter(|process| process.guest == name).collect();
        let owner = &vmi["metadata"]["uid"];
        let pods = self.world.pods();
        let is_its = |pod: &&Arc<Value>| {
            let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            pod["metadata"]["ownerReferences"][0]["uid"] == *owner && !has_ended
        };
        let pods: Vec<_> = pods.iter().filter(is_its).collect();
        let own_end = self.world.own_end(owner.as_str().unwrap_or_default());
        let is_end = |phase: &str| match phase {
            // A machine starts its guest again.
            _ if self.world.machine_named(name).is_some() => false,
            "Succeeded" => own_end == Some(true) || (own_end.is_none() && self.world.lost_a_pod(name)),
            "Failed" => own_end == Some(false) || self.world.is_lost_allowed(name),
            _ => false,
        };
        match status["phase"].as_str() {
            Some("Running") if own_end.is_none() => {}
            Some(phase) if is_end(phase) => {
                return (!living.is_empty()).then(|| format!("a launcher of {name} does not end"));
            }
            phase => return Some(format!("{name} is {phase:?}, and its own end {own_end:?}")),
        }
        if living.len() != 1 || !living[0].is_live() {
            let shown: Vec<_> = living.iter().map(|it| (it.node, it.is_live())).collect();
            return Some(format!("{name} has launchers {shown:?}"));
        }
        if status["nodeName"] != node_name(living[0].node) {
            return Some(format!("{name} runs on another node than its object says"));
        }
        if pods.len() != 1 || pods[0]["spec"]["nodeName"] != status["nodeName"] {
            return Some(format!("{name} has {} pods", pods.len()));
        }
        let state = &status["migrationState"];
        if state.is_object() && state["completed"] != true && state["failed"] != true {
            return Some(format!("the move of {name} is not over: {state}"));
        }
        let is_marked = status["evacuationNodeName"].as_str().is_some_and(|node| !node.is_empty());
        is_marked.then(|| format!("{name} has not left {}", status["evacuationNodeName"]))
    }
}

/// A cluster forgets the pods of a node that is gone from it. When the node was switched off, somebody vouches for what ran there.
async fn tidy_up(world: Arc<World>, node: usize, off: Instant) {
    let name = node_name(node);
    loop {
        world.pause(200..3_000).await;
        for pod in world.pods().iter().filter(|pod| pod["spec"]["nodeName"] == *name) {
            let _ = forget(&world, pod).await;
        }
        if Instant::now() < off {
            continue;
        }
        for process in world.machine.living().into_iter().filter(|process| process.node == node) {
            world.may_be_lost(&process.guest);
            process.die(&world);
        }
        for vmi in world.guests() {
            let _ = vouch(&world, &vmi, &name).await;
        }
    }
}

/// As the collector of pods does it: they have failed, whatever their launchers do.
async fn forget(world: &World, pod: &Value) -> ApiResult<()> {
    let pods = world.server.internal("", "v1", "pods", "simulation")?;
    let place = Place::new(NAMESPACE, pod["metadata"]["name"].as_str().unwrap_or_default());
    pods.change(&place, "status", |pod| pod["status"]["phase"] = "Failed".into()).await?;
    world.lose(pod).await
}

/// As `virtctl vouch` does it.
async fn vouch(world: &World, vmi: &Value, node: &str) -> ApiResult<()> {
    const VOUCHED: &str = "ferrovirt.io/vouched-pods";
    let conditions = vmi["status"]["conditions"].as_array();
    let waits = conditions.into_iter().flatten().any(|it| it["type"] == "PodUnaccounted" && it["status"] == "True");
    let ledger = vmi["status"]["activePods"].as_object().into_iter().flatten();
    let uids: Vec<&str> = ledger.filter(|(_, on)| **on == *node).map(|(uid, _)| uid.as_str()).collect();
    let wanted = uids.join(",");
    if !waits || wanted.is_empty() || vmi["metadata"]["annotations"][VOUCHED] == *wanted {
        return Ok(());
    }
    world.note(|| format!("somebody vouches for pods of {} on {node}", vmi["metadata"]["name"]));
    let guests = world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation")?;
    let place = Place::new(NAMESPACE, vmi["metadata"]["name"].as_str().unwrap_or_default());
    guests.change(&place, "", |vmi| vmi["metadata"]["annotations"][VOUCHED] = wanted.clone().into()).await.map(drop)
}

/// Whether a move is over.
pub(crate) fn is_final(migration: &Value) -> bool {
    matches!(migration["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What a course of moves may take longer for than others: a node that is waited for.
pub(crate) fn longest_wait(course: &Course) -> Duration {
    let waits = course.moves.iter().map(|(delay, deed)| match deed {
        MoveDeed::NodeDies(_, NodeFate::ComesBack(after) | NodeFate::Fenced(after) | NodeFate::Gone(after)) => {
            *delay + *after
        }
        MoveDeed::Cut(Some(time)) => *delay + *time,
        _ => *delay,
    });
    waits.sum()
}
