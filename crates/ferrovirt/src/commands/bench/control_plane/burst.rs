//! The burst: guests are created, and watches tell when their pods come to be and when their objects say so.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_kubernetes::Pod;
use futures::{Stream, StreamExt, TryStreamExt};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};

use super::super::memory::Processors;
use super::cluster::{Cluster, guest};
use super::counters::Counters;

/// How often people hear of it.
const TELL: Duration = Duration::from_secs(1);

/// What happened to one guest, as times since the first creation began.
#[derive(Default)]
struct Life {
    asked: Duration,
    pod: Option<Duration>,
    placed: Option<Duration>,
    /// How often its object changed.
    changes: usize,
}

/// What was measured.
pub(super) struct Burst {
    /// How many guests there were.
    pub(super) count: usize,
    /// How many were being created at the same time.
    pub(super) writers: usize,
    /// When the last one was created.
    pub(super) created: Duration,
    /// What watches saw.
    pub(super) seen: Times,
    /// The share of this machine's processors that was busy until the last pod was seen.
    pub(super) busy: f64,
    /// What the API server counted; `None` when it does not.
    pub(super) counted: Option<Counters>,
}

/// What watches saw of all guests.
#[derive(Debug, PartialEq)]
pub(super) struct Times {
    /// When the last pod was seen.
    pub(super) pods: Duration,
    /// From the request for a guest to its pod, in the middle of all guests.
    pub(super) median_to_pod: Duration,
    /// When the last guest was seen to be `Scheduling`.
    pub(super) placed: Duration,
    /// How often objects of guests changed after their creation.
    pub(super) changes: usize,
}

impl Burst {
    /// Creates `count` guests and waits until all of them are being placed.
    pub(super) async fn run(cluster: &Cluster, count: usize, writers: usize) -> anyhow::Result<Self> {
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(cluster.client.clone(), cluster.namespace());
        let mut pods = pin!(watcher(pods, watcher::Config::default()).default_backoff());
        let mut guests = pin!(watcher(cluster.guests(), watcher::Config::default()).default_backoff());
        until_listed(&mut pods).await?;
        until_listed(&mut guests).await?;
        let before = Counters::read(&cluster.client).await?;
        let processors = Processors::now()?;
        let begin = Instant::now();
        let mut seen = Seen { begin, lives: HashMap::new(), created: 0, pods: 0, placed: 0 };
        let mut creations = pin!(creations(cluster, begin, count).buffer_unordered(writers));
        let mut tell = tokio::time::interval(TELL);
        let (mut created, mut busy) = (None, None);
        while seen.placed < count {
            tokio::select! {
                made = creations.next(), if created.is_none() => match made {
                    Some(made) => seen.creation(made?),
                    None => created = Some(begin.elapsed()),
                },
                event = pods.try_next() => seen.pod(event?.context("the watch of pods ended")?),
                event = guests.try_next() => seen.guest(event?.context("the watch of guests ended")?)?,
                _ = tell.tick() => eprintln!("{}", seen.progress(count)),
            }
            if seen.pods == count && busy.is_none() {
                busy = Some(Processors::now()?.used_by_others(processors, Duration::ZERO));
            }
        }
        let counted = Counters::read(&cluster.client).await?;
        let counted = counted.zip(before).map(|(after, before)| after.since(&before));
        let (created, busy) = (created.unwrap_or_default(), busy.unwrap_or_default());
        Ok(Self { count, writers, created, seen: seen.times(), busy, counted })
    }
}

/// Each yields a guest's name and when it was asked for. Nothing of the answers is read: the bench shares the machine.
fn creations(
    cluster: &Cluster,
    begin: Instant,
    count: usize,
) -> impl Stream<Item = impl Future<Output = anyhow::Result<(String, Duration)>>> {
    let guests = cluster.guests();
    let request = kube::core::Request::new(guests.resource_url());
    futures::stream::iter(0..count).map(move |number| {
        let (client, request) = (cluster.client.clone(), request.clone());
        async move {
            let name = format!("guest-{number}");
            let body = serde_json::to_vec(&guest(&name)?)?;
            let asked = begin.elapsed();
            client.request_text(request.create(&kube::api::PostParams::default(), body)?).await?;
            Ok((name, asked))
        }
    })
}

/// A watch that has not begun would miss what comes first.
async fn until_listed<K>(events: &mut Pin<&mut impl Stream<Item = watcher::Result<Event<K>>>>) -> anyhow::Result<()> {
    loop {
        match events.try_next().await?.context("a watch ended")? {
            Event::InitDone => return Ok(()),
            Event::InitApply(_) => bail!("the bench's namespace is not empty"),
            _ => {}
        }
    }
}

struct Seen {
    begin: Instant,
    lives: HashMap<String, Life>,
    created: usize,
    pods: usize,
    placed: usize,
}

impl Seen {
    fn creation(&mut self, (name, asked): (String, Duration)) {
        self.created += 1;
        self.lives.entry(name).or_default().asked = asked;
    }

    fn pod(&mut self, event: Event<PartialObjectMeta<Pod>>) {
        let (Event::Apply(pod) | Event::InitApply(pod)) = event else { return };
        let owner = pod.owner_references().iter().find(|owner| owner.kind == "VirtualMachineInstance");
        let Some(owner) = owner else { return };
        let life = self.lives.entry(owner.name.clone()).or_default();
        if life.pod.is_none() {
            life.pod = Some(self.begin.elapsed());
            self.pods += 1;
        }
    }

    fn guest(&mut self, event: Event<VirtualMachineInstance>) -> anyhow::Result<()> {
        let (Event::Apply(guest) | Event::InitApply(guest)) = event else { return Ok(()) };
        let life = self.lives.entry(guest.name_any()).or_default();
        life.changes += 1;
        match guest.status.as_ref().and_then(|status| status.phase) {
            Some(Phase::Scheduling) if life.placed.is_none() => {
                life.placed = Some(self.begin.elapsed());
                self.placed += 1;
            }
            Some(Phase::Failed | Phase::Succeeded) => bail!("{} ended: {:?}", guest.name_any(), guest.status),
            _ => {}
        }
        Ok(())
    }

    fn progress(&self, count: usize) -> String {
        let seconds = self.begin.elapsed().as_secs();
        format!("{seconds} s: {} of {count} created, {} pods, {} Scheduling", self.created, self.pods, self.placed)
    }

    fn times(&self) -> Times {
        let lives = || self.lives.values();
        let mut to_pod: Vec<_> = lives().filter_map(|life| Some(life.pod?.saturating_sub(life.asked))).collect();
        to_pod.sort_unstable();
        Times {
            pods: lives().filter_map(|life| life.pod).max().unwrap_or_default(),
            median_to_pod: to_pod.get(to_pod.len() / 2).copied().unwrap_or_default(),
            placed: lives().filter_map(|life| life.placed).max().unwrap_or_default(),
            // The first time that it is seen is its creation.
            changes: lives().map(|life| life.changes.saturating_sub(1)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guest(phase: &str) -> Event<VirtualMachineInstance> {
        let mut guest = super::guest("a").unwrap();
        guest.status.as_mut().unwrap().phase = Some(phase.parse().unwrap());
        Event::Apply(guest)
    }

    #[test]
    fn a_pod_and_a_phase_count_once_and_changes_as_often_as_they_come() {
        let mut seen = Seen { begin: Instant::now(), lives: HashMap::new(), created: 0, pods: 0, placed: 0 };
        let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": "1"});
        let pod = json!({"metadata": {"name": "p", "ownerReferences": [owner]}});
        seen.guest(guest("Pending")).unwrap();
        for _ in 0..2 {
            seen.pod(Event::Apply(serde_json::from_value(pod.clone()).unwrap()));
            seen.guest(guest("Scheduling")).unwrap();
        }
        assert_eq!((seen.pods, seen.placed, seen.times().changes), (1, 1, 2));
        assert!(seen.guest(guest("Failed")).is_err(), "a guest that ended will never be placed");
    }
}
