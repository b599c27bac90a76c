//! A machine's user: does what virt-api would do for them, and knows what the machine should be like afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrovirt_api::vm::RunStrategy;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::http::options::{DeleteOptions, Propagation};
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::Peer;
use ferrovirt_apiserver::status::ApiResult;
use ferrovirt_virt_api::subresources::options::{RestartOptions, StartOptions, StopOptions};
use ferrovirt_virt_api::subresources::power::{self, Change, Target};
use http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::course::{Deed, Farewell, Fate, MachineCourse};
use crate::machine::node_name;
use crate::world::{NAMESPACE, World};

/// How often a refused deed is tried again.
const TRIES: usize = 3;

/// What a machine should be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A guest runs.
    Running,
    /// No guest is there.
    Down,
    /// The guest has ended, and its object is there.
    Ended(&'static str),
    /// Whatever the guests did: anything that is settled.
    Settled,
}

/// The user of one machine.
pub(crate) struct User<'a> {
    world: &'a Arc<World>,
    name: String,
    course: &'a MachineCourse,
    wanted: Mutex<Wanted>,
    is_calm: AtomicBool,
}

impl<'a> User<'a> {
    pub(crate) fn new(world: &'a Arc<World>, name: String, course: &'a MachineCourse) -> Self {
        let wanted = Mutex::new(first_wanted(course));
        Self { world, name, course, wanted, is_calm: AtomicBool::new(false) }
    }

    /// Creates the machine, and does what the course says.
    pub(crate) async fn play(&self) -> ApiResult<()> {
        let strategy = self.course.strategy.as_str();
        self.world.ledger.open(&self.name, strategy);
        self.world.machine.set_fates(&self.name, self.course.fates.clone(), Fate::Obedient);
        self.world.note(|| format!("{} ({strategy}, {:?}) is created", self.name, self.course.fates));
        let machines = self.world.server.internal("kubevirt.io", "v1", "virtualmachines", "simulation")?;
        machines.create(machine(&self.name, strategy)).await?;
        for (delay, deed) in &self.course.deeds {
            tokio::time::sleep(*delay).await;
            self.try_to(*deed).await?;
        }
        Ok(())
    }

    /// Does something, and again when it is refused.
    pub(crate) async fn try_to(&self, deed: Deed) -> ApiResult<bool> {
        for _ in 0..TRIES {
            if self.does(deed).await? {
                return Ok(true);
            }
            self.world.pause(500..3_000).await;
        }
        Ok(false)
    }

    async fn does(&self, deed: Deed) -> ApiResult<bool> {
        let (Some(vm), vmi) = (self.world.machine_named(&self.name), self.world.guest_named(&self.name)) else {
            return Ok(false);
        };
        let done = match deed {
            Deed::DeleteGuest => self.delete_guest(&vm, vmi.as_deref()).await?,
            _ => self.power(deed, &vm, vmi.as_deref()).await,
        };
        self.world.note(|| format!("{}: {deed:?} {}", self.name, if done { "is accepted" } else { "is refused" }));
        Ok(done)
    }

    /// As virt-api decides, on what was read a moment before.
    async fn power(&self, deed: Deed, vm: &Value, vmi: Option<&Value>) -> bool {
        let Ok(machine) = serde_json::from_value::<VirtualMachine>(vm.clone()) else { return false };
        let guest = vmi.and_then(|vmi| serde_json::from_value::<VirtualMachineInstance>(vmi.clone()).ok());
        let start = |paused| StartOptions { paused, ..StartOptions::default() };
        let decided = match deed {
            Deed::Start => power::decide_start(&machine, guest.as_ref(), &start(false)),
            Deed::StartPaused => power::decide_start(&machine, guest.as_ref(), &start(true)),
            Deed::Stop => power::decide_stop(&machine, guest.as_ref(), &StopOptions::default()),
            Deed::Restart => power::decide_restart(&machine, guest.as_ref(), &RestartOptions::default()),
            Deed::DeleteGuest => return false,
        };
        let Ok(changes) = decided else { return false };
        self.world.pause(1..60).await;
        for change in &changes {
            if !self.patch(change).await {
                return false;
            }
        }
        self.write_down(deed, vm, &changes);
        true
    }

    /// Takes note of what was accepted: nobody has had time to act on it yet.
    fn write_down(&self, deed: Deed, vm: &Value, changes: &[Change]) {
        let ledger = &self.world.ledger;
        let turns = changes.iter().any(|change| change.target == Target::Machine);
        match deed {
            Deed::Stop if turns => ledger.set_strategy(&self.name, "Halted"),
            Deed::Start if turns => ledger.set_strategy(&self.name, "Always"),
            // The controller turns the strategy when it finds the request.
            Deed::StartPaused if vm["spec"]["runStrategy"] == "Halted" => ledger.set_strategy(&self.name, "Always"),
            _ => {}
        }
        if matches!(deed, Deed::Start | Deed::StartPaused | Deed::Restart) {
            ledger.allow_start(&self.name);
        }
        if matches!(deed, Deed::Stop | Deed::Restart)
            && let Some(guest) = self.world.guest_named(&self.name)
        {
            ledger.allow_end(&self.name, guest["metadata"]["uid"].as_str().unwrap_or_default());
        }
        self.want(if deed == Deed::Stop { Wanted::Down } else { Wanted::Running });
    }

    /// Guests that end by themselves make the outcome a matter of time.
    fn want(&self, now: Wanted) {
        let mut wanted = self.wanted.lock();
        let ends_by_itself = |fate: &Fate| matches!(fate, Fate::PowersOff | Fate::Crashes);
        let is_open = !self.is_calm.load(Ordering::Relaxed) && self.course.fates.iter().any(ends_by_itself);
        *wanted = if is_open { Wanted::Settled } else { now };
    }

    async fn patch(&self, change: &Change) -> bool {
        let (plural, subresource) = match change.target {
            Target::Machine => ("virtualmachines", ""),
            Target::MachineStatus => ("virtualmachines", "/status"),
            Target::Guest => ("virtualmachineinstances", ""),
        };
        let path = format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/{plural}/{}{subresource}", self.name);
        let operations = serde_json::to_vec(&change.operations).unwrap_or_default();
        let request = Request::patch(path).header("content-type", "application/json-patch+json");
        let Ok(request) = request.body(erase(kube::client::Body::from(operations))) else { return false };
        let peer = Peer::Trusted(UserInfo::new("user", ["system:masters"]));
        self.world.server.handle(request, &peer).await.status().is_success()
    }

    /// Deletes a guest that is there to stay and about which nothing else has been asked.
    async fn delete_guest(&self, vm: &Value, vmi: Option<&Value>) -> ApiResult<bool> {
        let requests = vm["status"]["stateChangeRequests"].as_array().is_none_or(Vec::is_empty);
        let Some(guest) = vmi.filter(|vmi| requests && vmi["metadata"]["deletionTimestamp"].is_null()) else {
            return Ok(false);
        };
        let guests = self.world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation")?;
        guests.delete(&Place::new(NAMESPACE, &self.name), &DeleteOptions::default()).await?;
        self.world.ledger.allow_end(&self.name, guest["metadata"]["uid"].as_str().unwrap_or_default());
        match vm["spec"]["runStrategy"].as_str() {
            Some("Always" | "Once") => {
                self.world.ledger.allow_start(&self.name);
                self.want(Wanted::Running);
            }
            _ => self.want(Wanted::Down),
        }
        Ok(true)
    }

    /// Whether something was done to the machine, so that a last stop and start are worth a look.
    pub(crate) fn had_deeds(&self) -> bool {
        !self.course.deeds.is_empty()
    }

    /// From now on all guests listen and stay.
    pub(crate) fn calm_down(&self) {
        self.world.machine.set_fates(&self.name, Vec::new(), Fate::Obedient);
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Deletes the machine.
    pub(crate) async fn delete(&self) -> ApiResult<()> {
        let options = match self.course.farewell {
            Farewell::WithGuest => DeleteOptions::default(),
            Farewell::LeavesGuest => {
                DeleteOptions { propagation: Some(Propagation::Orphan), ..DeleteOptions::default() }
            }
        };
        self.world.note(|| format!("{} is deleted: {:?}", self.name, self.course.farewell));
        let machines = self.world.server.internal("kubevirt.io", "v1", "virtualmachines", "simulation")?;
        machines.delete(&Place::new(NAMESPACE, &self.name), &options).await?;
        if self.course.farewell == Farewell::WithGuest
            && let Some(guest) = self.world.guest_named(&self.name)
        {
            self.world.ledger.allow_end(&self.name, guest["metadata"]["uid"].as_str().unwrap_or_default());
        }
        Ok(())
    }

    /// Deletes the guest that the machine has left, if it has.
    pub(crate) async fn delete_orphan(&self) -> ApiResult<()> {
        if self.course.farewell == Farewell::LeavesGuest && self.world.guest_named(&self.name).is_some() {
            let guests = self.world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation")?;
            guests.delete(&Place::new(NAMESPACE, &self.name), &DeleteOptions::default()).await?;
        }
        Ok(())
    }

    /// Why the machine is not what it should be.
    pub(crate) fn complaint(&self) -> Option<String> {
        let wanted = *self.wanted.lock();
        let Some(vm) = self.world.machine_named(&self.name) else { return Some(format!("{} is not there", self.name)) };
        let vmi = self.world.guest_named(&self.name);
        let status = &vm["status"];
        if !status["stateChangeRequests"].as_array().is_none_or(Vec::is_empty) {
            return Some(format!("{} has requests that wait: {}", self.name, status["stateChangeRequests"]));
        }
        let phase = vmi.as_ref().map(|vmi| vmi["status"]["phase"].as_str().unwrap_or_default().to_owned());
        let said = status["printableStatus"].as_str().unwrap_or_default();
        let (word, is_settled) = match phase.as_deref() {
            _ if vmi.as_ref().is_some_and(|vmi| vmi["metadata"]["deletionTimestamp"].is_string()) => {
                ("Stopping", false)
            }
            None => ("Stopped", true),
            Some("Running") => ("Running", true),
            Some("Succeeded" | "Failed") => ("Stopped", true),
            Some(_) => ("Starting", false),
        };
        if !is_settled || said != word || status["created"].as_bool().unwrap_or(false) != vmi.is_some() {
            return Some(format!("{} is said to be {said} and is {phase:?}", self.name));
        }
        let is_right = match (wanted, phase.as_deref()) {
            (Wanted::Running, Some("Running")) | (Wanted::Down, None) => true,
            (Wanted::Ended(wanted), Some(phase)) => wanted == phase,
            (Wanted::Settled, Some("Running")) => true,
            (Wanted::Settled, None) => vm["spec"]["runStrategy"] != "Always",
            (Wanted::Settled, Some("Succeeded" | "Failed")) => {
                matches!(vm["spec"]["runStrategy"].as_str(), Some("Manual" | "Once"))
            }
            _ => false,
        };
        if !is_right {
            return Some(format!("{} should be {wanted:?} and is {phase:?}", self.name));
        }
        self.wrong_process(phase.as_deref() == Some("Running"))
    }

    /// The machine's guest runs where its object says, or nothing runs.
    fn wrong_process(&self, should_run: bool) -> Option<String> {
        let living = self.world.machine.living().into_iter().find(|process| process.guest == self.name);
        let vmi = self.world.guest_named(&self.name).unwrap_or_default();
        match living {
            None if should_run => Some(format!("{} is said to run and does not", self.name)),
            Some(_) if !should_run => Some(format!("the launcher of {} does not end", self.name)),
            Some(process) if vmi["status"]["nodeName"] != node_name(process.node) => {
                Some(format!("{} runs on another node than its object says", self.name))
            }
            _ => None,
        }
    }

    /// Why the machine is not gone as it should be.
    pub(crate) fn not_gone(&self) -> Option<String> {
        if self.world.machine_named(&self.name).is_some() {
            return Some(format!("{} is still there", self.name));
        }
        let vmi = self.world.guest_named(&self.name);
        match self.course.farewell {
            Farewell::WithGuest => vmi.map(|_| format!("the guest of {} is left behind", self.name)),
            Farewell::LeavesGuest => {
                let vmi = vmi?;
                let metadata = &vmi["metadata"];
                let is_free = metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty)
                    && metadata["deletionTimestamp"].is_null()
                    && metadata["finalizers"] == json!(["kubevirt.io/foregroundDeleteVirtualMachine"]);
                (!is_free).then(|| format!("the guest of {} is not free: {metadata}", self.name))
            }
        }
    }
}

/// What a machine comes to when nobody does anything.
fn first_wanted(course: &MachineCourse) -> Wanted {
    let ends = |fate: &Fate| matches!(fate, Fate::PowersOff | Fate::Crashes);
    if !course.deeds.is_empty() && course.fates.iter().any(ends) {
        return Wanted::Settled;
    }
    match course.strategy {
        RunStrategy::Manual | RunStrategy::Halted | RunStrategy::WaitAsReceiver => Wanted::Down,
        RunStrategy::Always => Wanted::Running,
        RunStrategy::Once => match course.fates.first() {
            Some(Fate::PowersOff) => Wanted::Ended("Succeeded"),
            Some(Fate::Crashes) => Wanted::Ended("Failed"),
            _ => Wanted::Running,
        },
        RunStrategy::RerunOnFailure => match course.fates.iter().find(|fate| **fate != Fate::Crashes) {
            Some(Fate::PowersOff) => Wanted::Down,
            _ => Wanted::Running,
        },
    }
}

fn machine(name: &str, strategy: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runStrategy": strategy, "template": {"metadata": {"labels": {"of": name}}, "spec": guest_spec()}},
    })
}

/// A small guest.
pub(crate) fn guest_spec() -> Value {
    json!({
        "architecture": "amd64", "terminationGracePeriodSeconds": 20, "evictionStrategy": "LiveMigrate",
        "domain": {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": false}},
    })
}
