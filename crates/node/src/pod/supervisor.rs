//! Hears of pods and gives each a worker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ferrovirt_kubernetes::Pod;
use futures::StreamExt;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::worker::{Desired, Worker};
use crate::context::Context;

/// One pod's worker.
struct Employed {
    desired: watch::Sender<Desired>,
    task: JoinHandle<()>,
}

/// All workers of the node.
pub(crate) struct Supervisor {
    node: Arc<Context>,
    workers: HashMap<String, Employed>,
    /// Uids of the listing that is under way.
    listed: HashSet<String>,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Only the workers end. What they look after goes on.
        self.workers.values().for_each(|worker| worker.task.abort());
    }
}

fn uid(pod: &Pod) -> Option<String> {
    pod.metadata.uid.clone()
}

impl Supervisor {
    pub(crate) fn new(node: Arc<Context>) -> Self {
        Self { node, workers: HashMap::new(), listed: HashSet::new() }
    }

    /// Watches the node's pods until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let api: Api<Pod> = Api::all(self.node.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={}", self.node.config.name));
        let events = watcher(api, config).default_backoff();
        tokio::pin!(events);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some(Ok(event)) => self.handle(event),
                    Some(Err(error)) => tracing::warn!(%error, "the watch of pods was interrupted"),
                    None => return,
                },
            }
        }
    }

    fn handle(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(uid(&pod));
                self.want(pod);
            }
            Event::InitDone => self.drop_unlisted(),
            Event::Apply(pod) => self.want(pod),
            Event::Delete(pod) => {
                if let Some(uid) = uid(&pod) {
                    self.gone(uid);
                }
            }
        }
        self.workers.retain(|_, worker| !worker.task.is_finished());
    }

    fn want(&mut self, pod: Pod) {
        let Some(uid) = uid(&pod) else { return };
        let mut pod = pod;
        pod.metadata.managed_fields = None;
        self.send(uid, Desired::Pod(Arc::new(pod)));
    }

    fn send(&mut self, uid: String, desired: Desired) {
        if let Some(worker) = self.workers.get(&uid).filter(|worker| !worker.task.is_finished())
            && worker.desired.send(desired.clone()).is_ok()
        {
            return;
        }
        let (sender, receiver) = watch::channel(desired);
        let worker = Worker::new(self.node.clone(), uid.clone(), receiver);
        let task = tokio::spawn(worker.run());
        self.workers.insert(uid, Employed { desired: sender, task });
    }

    fn gone(&mut self, uid: String) {
        let known = self.workers.get(&uid).is_some_and(|worker| !worker.task.is_finished());
        if known || self.node.layout.pod(&uid).root().exists() {
            self.send(uid, Desired::Gone);
        }
    }

    /// A complete listing says which pods exist. What is left of others, also from before a restart, goes.
    fn drop_unlisted(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let on_disk = std::fs::read_dir(self.node.layout.pods()).into_iter().flatten().flatten();
        let mut present: HashSet<String> = on_disk.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        present.extend(self.workers.keys().cloned());
        match self.node.networks.attached() {
            Ok(uids) => present.extend(uids),
            Err(error) => tracing::warn!(error, "cannot tell which pods have a network"),
        }
        match self.node.images.holders() {
            Ok(holders) => {
                present.extend(holders.iter().filter_map(|holder| self.node.held_by(holder)).map(str::to_owned));
            }
            Err(error) => tracing::warn!(error, "cannot tell which pods hold images"),
        }
        for uid in present.difference(&listed) {
            self.send(uid.clone(), Desired::Gone);
        }
    }
}
