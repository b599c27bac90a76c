//! The task that owns one pod.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_kubernetes::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use ferrovirt_reconcile::Note;

use super::container::{self, StartError, Surroundings, shares};
use super::lifecycle::{self, Member, Next};
use super::record::{ContainerRecord, Stage};
use super::report::{delete_object, same_status, shows, write_status};
use super::status::{self, ContainerFacts, Facts, Waiting};
use super::{etc, images, probes};
use crate::context::Context;
use crate::layout::PodLayout;
use crate::oci::container::{PreparedVolume, pod_cgroup};
use crate::process::Process;
use crate::sources::PodNetwork;
use crate::volumes::{Preparation, VolumeError, has_payload};
use crate::{cgroups, files, mounts};

/// A pod that takes longer than this to start says so; a faster one is written once, when it runs.
const SLOW_START: Duration = Duration::from_millis(1500);
/// Files of config maps, secrets and tokens are looked at this often, about as often as a kubelet does.
const REFRESH: Duration = Duration::from_secs(60);
/// First pause after something failed; it doubles up to [`LONGEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// A missing secret is found this soon after it was created.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// What should become of a pod.
#[derive(Debug, Clone)]
pub enum Desired {
    /// As the object says.
    Pod(Arc<Pod>),
    /// The object is gone.
    Gone,
}

impl Desired {
    /// The pod is to go.
    pub fn is_ending(&self) -> bool {
        match self {
            Self::Pod(pod) => pod.metadata.deletion_timestamp.is_some(),
            Self::Gone => true,
        }
    }
}

/// One container as the worker sees it.
#[derive(Default)]
struct Tracked {
    record: ContainerRecord,
    process: Option<Arc<Process>>,
    /// Tells the worker when the process ends.
    watcher: Option<AbortOnDropHandle<()>>,
    probes: Option<probes::Probes>,
    waiting: Option<Waiting>,
    failures: u32,
    not_before: Option<Instant>,
}

/// What was made for the pod before its containers.
struct Ready {
    network: PodNetwork,
    volumes: Vec<PreparedVolume>,
}

/// Owns one pod.
pub(crate) struct Worker {
    node: Arc<Context>,
    uid: String,
    holder: String,
    layout: PodLayout,
    desired: watch::Receiver<Desired>,
    containers: BTreeMap<String, Tracked>,
    ready: Option<Ready>,
    /// The pod's addresses as its network has them.
    addresses: Option<Vec<IpAddr>>,
    failures: u32,
    rejected: Option<(String, String)>,
    start_time: Timestamp,
    reported: Option<Value>,
    refresh_at: Instant,
    wake: Arc<Notify>,
    asked_to_stop: bool,
    sidecars_until: Option<Instant>,
    released: bool,
}

/// What the worker waits for next.
enum Step {
    /// A change, an end, or this moment.
    Wait(Option<Instant>),
    /// Nothing is left to do.
    Done,
}

impl Worker {
    pub(crate) fn new(node: Arc<Context>, uid: String, desired: watch::Receiver<Desired>) -> Self {
        Self {
            layout: node.layout.pod(&uid),
            holder: node.holder(&uid),
            node,
            uid,
            desired,
            containers: BTreeMap::new(),
            ready: None,
            addresses: None,
            failures: 0,
            rejected: None,
            start_time: Timestamp::now(),
            reported: None,
            refresh_at: Instant::now() + REFRESH,
            wake: Arc::default(),
            asked_to_stop: false,
            sidecars_until: None,
            released: false,
        }
    }

    /// Runs until nothing of the pod is left on this machine.
    pub(crate) async fn run(mut self) {
        let first = self.desired.borrow().clone();
        if let Desired::Pod(pod) = &first {
            self.load(pod);
        }
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let step = match &desired {
                Desired::Gone => self.vanish().await,
                Desired::Pod(pod) if desired.is_ending() => self.stop(pod).await,
                Desired::Pod(pod) => self.advance(pod).await,
            };
            let Step::Wait(until) = step else { return };
            let wake = self.wake.clone();
            let timer = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return },
                () = wake.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Reads what is remembered about the pod's containers.
    fn load(&mut self, pod: &Pod) {
        let status = pod.status.clone().unwrap_or_default();
        if let Some(start) = status.start_time {
            self.start_time = start.0;
        }
        let known =
            status.container_statuses.into_iter().flatten().chain(status.init_container_statuses.into_iter().flatten());
        let known: BTreeMap<String, Option<String>> = known.map(|status| (status.name, status.container_id)).collect();
        for (container, _) in members(pod) {
            let record = ContainerRecord::read(&self.layout.container(&container.name)).unwrap_or_else(|| {
                let mut record = ContainerRecord::default();
                // It ran once and its record is lost. Starting it again could make a second live copy of what it does.
                if known.get(&container.name).is_some_and(Option::is_some) {
                    record.stage = Stage::Ended(container::lost(&record, None));
                }
                record
            });
            self.containers.insert(container.name.clone(), Tracked { record, ..Tracked::default() });
        }
    }

    /// One round: look, start what should run, report.
    async fn advance(&mut self, pod: &Arc<Pod>) -> Step {
        if status::is_final(pod.status.as_ref().and_then(|status| status.phase.as_deref())) && !self.any_running() {
            return self.release_finished(pod).await;
        }
        if let Some(message) = pod.spec.as_ref().and_then(status::unsupported) {
            self.rejected = Some(("NodeRejected".to_owned(), message));
            return self.report(pod, &Next::default(), None).await;
        }
        if let Err(error) = self.find_network(pod).await {
            return self.retry(pod, "FailedCreatePodSandBox", &error);
        }
        if let Err(error) = self.observe(pod).await {
            return self.retry(pod, "Failed", &error.to_string());
        }
        let next = self.next(pod);
        if next.finished.is_some() {
            return self.finish(pod, &next).await;
        }
        let mut wake = next.backing_off.iter().map(|(_, until)| instant_of(*until)).min();
        if !next.start.is_empty() {
            let problem = self.start_all(pod, &next).await;
            wake = [wake, problem].into_iter().flatten().min();
        }
        if let Some(at) = self.refresh(pod).await {
            wake = Some(wake.map_or(at, |wake| wake.min(at)));
        }
        let next = self.next(pod);
        self.report(pod, &next, wake).await
    }

    /// Looks up where a pod is that an earlier process has started, for its probes.
    async fn find_network(&mut self, pod: &Pod) -> Result<(), String> {
        let is_probed = |container: &Container| {
            let has_begun = |tracked: &Tracked| matches!(tracked.record.stage, Stage::Creating | Stage::Running { .. });
            self.containers.get(&container.name).is_some_and(has_begun) && probes::ask_the_network(container)
        };
        if self.addresses.is_none() && members(pod).any(|(container, _)| is_probed(container)) {
            self.addresses = Some(self.node.networks.attach(&self.uid).await?.addresses);
        }
        Ok(())
    }

    fn addresses(&self, pod: &Pod) -> Vec<IpAddr> {
        self.addresses.clone().unwrap_or_else(|| addresses_of(pod))
    }

    fn any_running(&self) -> bool {
        self.containers.values().any(|tracked| tracked.process.is_some())
    }

    fn next(&self, pod: &Pod) -> Next {
        let members: Vec<Member<'_>> = members(pod)
            .filter_map(|(container, init)| {
                let tracked = self.containers.get(&container.name)?;
                let started = tracked.probes.as_ref().is_none_or(probes::Probes::started);
                Some(Member { container, init, record: &tracked.record, started })
            })
            .collect();
        let spec = pod.spec.clone().unwrap_or_default();
        lifecycle::next(lifecycle::restart_policy(&spec), &members, Timestamp::now())
    }

    /// Finds out which containers run and how others ended.
    async fn observe(&mut self, pod: &Pod) -> Result<(), StartError> {
        for (container, _) in members(pod) {
            let tracked = self.containers.entry(container.name.clone()).or_default();
            let layout = self.layout.container(&container.name);
            tracked.process =
                container::observe(&self.node, &self.uid, container, &layout, &mut tracked.record).await?;
            self.follow(pod, container);
        }
        Ok(())
    }

    /// Makes sure that the end of a container, and what its probes say, wake the worker.
    fn follow(&mut self, pod: &Pod, container: &Container) {
        let Some(tracked) = self.containers.get_mut(&container.name) else { return };
        let Some(process) = tracked.process.clone() else {
            tracked.watcher = None;
            tracked.probes = None;
            return;
        };
        if tracked.watcher.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let (wake, watched) = (self.wake.clone(), process.clone());
            tracked.watcher = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                watched.ended().await;
                wake.notify_one();
            })));
        }
        // A pod that is to end when this process finds it is not looked for any more.
        let can_be_probed = self.addresses.is_some() || !probes::ask_the_network(container);
        if tracked.probes.is_none() && can_be_probed {
            let target = probes::Target {
                runtime: self.node.runtime.clone(),
                id: tracked.record.id.clone(),
                // Never what the status says: others may have written that, and a probe asks whom it names.
                address: self.addresses.as_ref().and_then(|known| known.first().copied()),
                process,
                node: self.node.clone(),
                pod: Arc::new(pod.clone()),
            };
            let was_ready = was_ready(pod, &container.name, &tracked.record.id);
            tracked.probes = probes::Probes::start(container, target, &self.wake, was_ready);
        }
    }

    /// Prepares the pod and starts containers. Returns when to try again what did not start.
    async fn start_all(&mut self, pod: &Arc<Pod>, next: &Next) -> Option<Instant> {
        let slow = self.status_patch(pod, next);
        let late = if self.reported.is_none() { Some(slow) } else { None };
        let (node, about) = (self.node.clone(), pod.clone());
        let report_late = async move {
            let Some(patch) = late else { return std::future::pending().await };
            tokio::time::sleep(SLOW_START).await;
            write_status(&node, &about, &patch).await
        };
        let starting = self.prepare_and_start(pod, next);
        tokio::pin!(starting);
        tokio::select! {
            biased;
            wake = &mut starting => wake,
            _ = report_late => starting.await,
        }
    }

    async fn prepare_and_start(&mut self, pod: &Arc<Pod>, next: &Next) -> Option<Instant> {
        let mut desired = self.desired.clone();
        // A slow volume is no reason to keep a pod that is to end. What is half done is found again.
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(pod) => prepared,
            _ = desired.wait_for(Desired::is_ending) => return Some(Instant::now()),
        };
        if let Err((reason, message)) = prepared {
            let Step::Wait(until) = self.retry(pod, reason, &message) else { return None };
            // A kubelet says of an image what is wrong, of everything else only that the container is not there yet.
            let waiting = match reason {
                "ErrImagePull" if self.failures > 1 => "ImagePullBackOff",
                "ErrImagePull" | "ErrImageNeverPull" | "InvalidImageName" => reason,
                _ => "ContainerCreating",
            };
            for name in &next.start {
                if let Some(tracked) = self.containers.get_mut(name) {
                    tracked.waiting = Some(Waiting::new(waiting, message.clone()));
                }
            }
            return until;
        }
        self.failures = 0;
        let mut wake = None;
        for name in &next.start {
            let again = self.start_one(pod, name).await;
            wake = [wake, again].into_iter().flatten().min();
        }
        wake
    }

    async fn start_one(&mut self, pod: &Arc<Pod>, name: &str) -> Option<Instant> {
        let (container, _) = members(pod).find(|(container, _)| container.name == name)?;
        let (ready, tracked) = (self.ready.as_ref()?, self.containers.get_mut(name)?);
        if let Some(at) = tracked.not_before.filter(|at| *at > Instant::now()) {
            return Some(at);
        }
        let surroundings = Surroundings {
            node: &self.node,
            pod,
            layout: &self.layout,
            network: &ready.network,
            volumes: &ready.volumes,
            desired: self.desired.clone(),
        };
        match surroundings.start(container, &mut tracked.record).await {
            Ok(()) => {
                (tracked.waiting, tracked.failures, tracked.not_before) = (None, 0, None);
                if let Stage::Running { process, .. } = &tracked.record.stage {
                    tracked.process = Process::find(process).ok().flatten().map(Arc::new);
                }
                if tracked.process.is_none() {
                    // It ended already; the next round collects that.
                    self.wake.notify_one();
                }
                self.follow(pod, container);
                None
            }
            Err(StartError::Ending) => Some(Instant::now()),
            Err(error) => {
                tracked.failures += 1;
                let waiting = error.waiting(tracked.failures > 1);
                let note = Note::warning(if tracked.failures > 1 { "BackOff" } else { "Failed" }, error.to_string());
                self.node.tell(pod, note);
                tracing::warn!(pod = pod.metadata.name, container = name, %error, "a container did not start");
                let at = Instant::now() + retry_pause(tracked.failures);
                tracked.waiting = Some(waiting);
                tracked.not_before = Some(at);
                Some(at)
            }
        }
    }

    /// Network, volumes and files that all containers need; what is there is left alone.
    async fn prepare(&mut self, pod: &Pod) -> Result<(), (&'static str, String)> {
        if self.ready.is_some() {
            return Ok(());
        }
        let own_files =
            |error: io::Error| ("FailedMount", format!("cannot write below {}: {error}", self.layout.root().display()));
        std::fs::create_dir_all(self.layout.containers()).map_err(own_files)?;
        let network = self.node.networks.attach(&self.uid).await.map_err(|error| ("FailedCreatePodSandBox", error))?;
        self.node.network_news.notify_one();
        let facts = self.node.facts(network.addresses.clone());
        let volumes = self.preparation(pod, &facts).all().await;
        let volumes = volumes.map_err(|error| (volume_trouble(&error), error.to_string()))?;
        etc::write(&self.layout.etc(), pod, &network).map_err(own_files)?;
        if shares(pod) {
            share(&self.layout).await.map_err(|error| ("FailedCreatePodSandBox", error.to_string()))?;
        }
        self.addresses = Some(network.addresses.clone());
        self.ready = Some(Ready { network, volumes });
        Ok(())
    }

    fn preparation<'a>(&'a self, pod: &'a Pod, facts: &'a crate::oci::environment::PodFacts) -> Preparation<'a> {
        Preparation {
            pod,
            layout: &self.layout,
            facts,
            objects: &self.node.objects,
            images: &*self.node.images,
            holder: &self.holder,
            loops: &self.node.loops,
        }
    }

    /// Looks after files that come from the API, from time to time. Returns when the next time is.
    async fn refresh(&mut self, pod: &Pod) -> Option<Instant> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        if !volumes.into_iter().any(has_payload) {
            return None;
        }
        if Instant::now() >= self.refresh_at {
            self.refresh_at = Instant::now() + REFRESH;
            let facts = self.node.facts(self.addresses(pod));
            if let Err(error) = self.preparation(pod, &facts).refresh().await {
                // What is there stays; the pod goes on with the old content.
                tracing::warn!(pod = pod.metadata.name, %error, "a volume could not be refreshed");
            }
        }
        Some(self.refresh_at)
    }

    /// Tells what failed and comes back later.
    fn retry(&mut self, pod: &Pod, reason: &str, message: &str) -> Step {
        self.failures += 1;
        self.node.tell(pod, Note::warning(reason, message));
        tracing::warn!(pod = pod.metadata.name, reason, message, "a pod cannot go on");
        Step::Wait(Some(Instant::now() + retry_pause(self.failures)))
    }

    fn status_patch(&self, pod: &Pod, next: &Next) -> Value {
        let containers: Vec<ContainerFacts<'_>> = members(pod)
            .filter_map(|(container, init)| {
                let tracked = self.containers.get(&container.name)?;
                Some(ContainerFacts {
                    container,
                    init,
                    record: &tracked.record,
                    waiting: tracked.waiting.as_ref(),
                    started: tracked.probes.as_ref().is_none_or(probes::Probes::started),
                    ready: tracked.probes.as_ref().is_none_or(probes::Probes::ready),
                })
            })
            .collect();
        let addresses = self.addresses(pod);
        let facts = Facts {
            pod,
            containers: &containers,
            next,
            host_addresses: &self.node.config.addresses,
            pod_addresses: &addresses,
            start_time: self.start_time,
            rejected: self.rejected.as_ref(),
            now: Timestamp::now(),
        };
        let mut status = json!(status::compute(&facts));
        // A merge patch only removes what it names.
        for field in ["reason", "message"] {
            if status[field].is_null() {
                status[field] = Value::Null;
            }
        }
        json!({"metadata": {"uid": self.uid}, "status": status})
    }

    /// Writes the status when it differs from what was written last.
    async fn report(&mut self, pod: &Arc<Pod>, next: &Next, wake: Option<Instant>) -> Step {
        let patch = self.status_patch(pod, next);
        if self.reported.as_ref().is_some_and(|reported| same_status(reported, &patch)) || shows(pod, &patch) {
            self.reported = Some(patch);
            return Step::Wait(wake);
        }
        match write_status(&self.node, pod, &patch).await {
            Ok(()) => {
                self.reported = Some(patch);
                Step::Wait(wake)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Step::Wait(wake),
            Err(error) => {
                tracing::warn!(pod = pod.metadata.name, %error, "a pod's status could not be written");
                let again = Instant::now() + FIRST_RETRY;
                Step::Wait(Some(wake.map_or(again, |wake| wake.min(again))))
            }
        }
    }

    /// Every container ended for good: sidecars stop, the last status is written.
    async fn finish(&mut self, pod: &Arc<Pod>, next: &Next) -> Step {
        if self.any_running() {
            let now = Instant::now();
            let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
            let until = *self.sidecars_until.get_or_insert(now + patience(grace));
            if until <= now || !self.asked_to_stop {
                self.signal_all(until <= now);
                self.asked_to_stop = true;
            }
            return Step::Wait(Some(until.max(now + FIRST_RETRY)));
        }
        self.report(pod, next, None).await
    }

    /// A finished pod keeps its logs and gives the rest back.
    async fn release_finished(&mut self, pod: &Pod) -> Step {
        if self.released {
            return Step::Wait(None);
        }
        if let Err(message) = self.release().await {
            return self.retry(pod, "FailedKillPod", &message);
        }
        self.released = true;
        Step::Wait(None)
    }

    fn signal_all(&mut self, kill: bool) {
        for tracked in self.containers.values() {
            let Some(process) = &tracked.process else { continue };
            let signal = if kill { Signal::KILL } else { stop_signal(tracked.record.stop_signal.as_deref()) };
            if let Err(error) = process.signal(signal) {
                tracing::warn!(pid = process.identity().pid, %error, "a container could not be signalled");
            }
        }
    }

    /// The pod is being deleted: ask, wait, kill, clean up, let the object go.
    async fn stop(&mut self, pod: &Arc<Pod>) -> Step {
        if let Err(error) = self.observe(pod).await {
            return self.retry(pod, "FailedKillPod", &error.to_string());
        }
        if self.any_running() {
            // The timestamp is when the grace period ends, also for a process that starts in its middle.
            let deadline = pod.metadata.deletion_timestamp.as_ref().map_or_else(Timestamp::now, |time| time.0);
            if Timestamp::now() >= deadline {
                self.signal_all(true);
                return Step::Wait(Some(Instant::now() + FIRST_RETRY));
            }
            if !self.asked_to_stop {
                self.asked_to_stop = true;
                self.signal_all(false);
            }
            return Step::Wait(Some(instant_of(deadline)));
        }
        let ran = self.containers.values().any(|tracked| tracked.record.ended().is_some());
        if ran && !status::is_final(pod.status.as_ref().and_then(|status| status.phase.as_deref())) {
            let next = self.last_words(pod);
            if let Step::Wait(Some(again)) = self.report(pod, &next, None).await {
                return Step::Wait(Some(again));
            }
        }
        if let Err(message) = self.remove_all().await {
            return self.retry(pod, "FailedKillPod", &message);
        }
        match delete_object(&self.node, pod, &self.uid).await {
            Ok(()) => Step::Done,
            Err(error) => self.retry(pod, "FailedKillPod", &error.to_string()),
        }
    }

    /// What a pod that was stopped looks like at its end: nothing starts again, whatever its policy says.
    fn last_words(&self, pod: &Pod) -> Next {
        let regular = members(pod).filter(|(_, init)| !init);
        let ends: Vec<Option<i32>> = regular
            .map(|(container, _)| self.containers.get(&container.name)?.record.ended().map(|end| end.exit_code))
            .collect();
        let good = ends.iter().all(|end| *end == Some(0));
        let finished = if good { lifecycle::Finished::Succeeded } else { lifecycle::Finished::Failed };
        Next { initialized: ends.iter().any(Option::is_some), finished: Some(finished), ..Next::default() }
    }

    /// The object is gone, so nobody waits for a grace period.
    async fn vanish(&mut self) -> Step {
        match self.remove_all().await {
            Ok(()) => Step::Done,
            Err(message) => {
                self.failures += 1;
                tracing::warn!(uid = self.uid, message, "a pod that is gone could not be cleaned up");
                Step::Wait(Some(Instant::now() + retry_pause(self.failures)))
            }
        }
    }

    /// Removes everything of the pod from this machine.
    async fn remove_all(&mut self) -> Result<(), String> {
        self.release().await?;
        let root = self.layout.root().to_owned();
        let removed = tokio::task::spawn_blocking(move || files::remove_tree(&root)).await;
        let removed = removed.unwrap_or_else(|error| Err(io::Error::other(error)));
        removed.map_err(|error| format!("cannot remove {}: {error}", self.layout.root().display()))
    }

    /// Kills what still runs and gives back mounts, devices, network and control groups.
    async fn release(&mut self) -> Result<(), String> {
        let entries = std::fs::read_dir(self.layout.containers()).into_iter().flatten().flatten();
        for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
            let layout = self.layout.container(&name);
            let Some(record) = ContainerRecord::read(&layout) else { continue };
            if container::is_being_made(&self.node, &layout, &record) {
                return Err(format!("container {name} is just being made"));
            }
            self.node.runtime.delete(&record.id).await.map_err(|error| error.to_string())?;
        }
        self.containers.values_mut().for_each(|tracked| (tracked.process, tracked.probes) = (None, None));
        let root = self.layout.root().to_owned();
        mounts::unmount_below(&root).map_err(|error| format!("cannot unmount below {}: {error}", root.display()))?;
        let (loops, uid) = (self.node.loops.clone(), self.uid.clone());
        let freed = tokio::task::spawn_blocking(move || loops.release(&uid)).await;
        freed.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| error.to_string())?;
        self.node.networks.detach(&self.uid).await?;
        let group = pod_cgroup(&self.node.config.name, &self.uid);
        cgroups::remove(&group).map_err(|error| format!("cannot remove control group {group}: {error}"))?;
        self.node.images.release(&self.holder)?;
        (self.ready, self.addresses) = (None, None);
        Ok(())
    }
}

/// Containers of the pod with whether they are init containers, those first.
fn members(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let spec: Option<&PodSpec> = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten().map(|c| (c, true));
    init.chain(spec.into_iter().flat_map(|spec| &spec.containers).map(|c| (c, false)))
}

/// The addresses that the object shows.
fn addresses_of(pod: &Pod) -> Vec<IpAddr> {
    let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    addresses.filter_map(|address| address.ip.parse().ok()).collect()
}

/// The object says that this very container was ready.
fn was_ready(pod: &Pod, container: &str, id: &str) -> bool {
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.any(|status| {
        status.name == container
            && status.ready
            && status.container_id.as_deref().is_some_and(|known| known.ends_with(id))
    })
}

/// The reason of a volume that is not there: an image has its own.
fn volume_trouble(error: &VolumeError) -> &'static str {
    match error {
        VolumeError::Image { source, .. } => images::reason(source),
        _ => "FailedMount",
    }
}

fn retry_pause(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(LONGEST_RETRY)
}

/// A time to end that a pod's author has chosen. Instants do not reach as far as numbers.
fn patience(grace_seconds: i64) -> Duration {
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    Duration::from_secs(u64::try_from(grace_seconds).unwrap_or(0)).min(LONGEST)
}

fn instant_of(at: Timestamp) -> Instant {
    let left = at.duration_since(Timestamp::now());
    Instant::now() + Duration::try_from(left).unwrap_or_default()
}

/// An IPC namespace and shared memory for all containers of the pod.
async fn share(layout: &PodLayout) -> io::Result<()> {
    mounts::memory(&layout.shared_memory(), "tmpfs", "mode=1777,size=65536k")?;
    let ipc = layout.ipc_namespace();
    if mounts::is_mount_point(&ipc) {
        return Ok(());
    }
    std::fs::File::create(&ipc)?;
    let mut option = std::ffi::OsString::from("--ipc=");
    option.push(&ipc);
    let output = tokio::process::Command::new("unshare").arg(option).arg("true").output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("unshare: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn stop_signal(name: Option<&str>) -> Signal {
    match name.map(|name| name.trim_start_matches("SIG")) {
        Some("INT" | "2") => Signal::INT,
        Some("QUIT" | "3") => Signal::QUIT,
        Some("HUP" | "1") => Signal::HUP,
        Some("KILL" | "9") => Signal::KILL,
        Some("USR1" | "10") => Signal::USR1,
        Some("USR2" | "12") => Signal::USR2,
        Some("WINCH" | "28") => Signal::WINCH,
        _ => Signal::TERM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        assert_eq!([1, 2, 3, 5, 99].map(|n| retry_pause(n).as_secs()), [1, 2, 4, 10, 10]);
    }

    #[test]
    fn no_time_to_end_is_too_long_for_an_instant() {
        assert_eq!([-1, 0, 30].map(|seconds| patience(seconds).as_secs()), [0, 0, 30]);
        assert!(Instant::now() + patience(i64::MAX) > Instant::now());
    }
}
