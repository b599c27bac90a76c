//! A controller that keeps exactly one pod for each Job.

use std::sync::Arc;

use ferrovirt_kubernetes::json;
use ferrovirt_reconcile::{
    Act, Cache, Controller, Expectations, Failure, Index, ObjectKey, Plan, Queue, Runner, Watches,
    controller::standard, expectations::DEFAULT_TIMEOUT,
};
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kube::{Api, Client, Resource, ResourceExt, runtime::watcher};
use tokio_util::sync::CancellationToken;

/// What the controller works with.
pub struct OnePodPerJob {
    client: Client,
    jobs: Cache<Job>,
    pods: Cache<Pod>,
    pods_by_owner: Index<Pod, String>,
    expected_pods: Expectations<ObjectKey, Pod>,
    expected_jobs: Expectations<ObjectKey, Job>,
}

/// All that a decision depends on.
pub struct View {
    /// The Job.
    pub job: Arc<Job>,
    /// The pods that belong to it.
    pub pods: Vec<Arc<Pod>>,
}

/// All that the controller can do.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Create the missing pod.
    CreatePod(Pod),
}

impl Controller for OnePodPerJob {
    const NAME: &'static str = "one-pod-per-job";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = JobStatus;

    // Not before the caches show what the last run did.
    fn hold(&self, key: &ObjectKey) -> Option<std::time::Duration> {
        self.expected_pods.hold(key).max(self.expected_jobs.hold(key))
    }

    // Observe: caches only.
    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let job = self.jobs.get_key(key)?;
        let pods = self.pods.by(&self.pods_by_owner, job.metadata.uid.as_deref()?);
        Some(View { job, pods })
    }

    // Decide: no IO, so this can be tested by itself.
    fn decide(view: &View) -> Plan<Action, JobStatus> {
        if view.job.metadata.deletion_timestamp.is_some() {
            return Plan::nothing();
        }
        let active = Some(i32::try_from(view.pods.len()).unwrap_or(i32::MAX));
        let status = JobStatus { active, ..view.job.status.clone().unwrap_or_default() };
        match view.pods.is_empty() {
            true => Plan::nothing().then(Action::CreatePod(pod_for(&view.job))).report(status),
            false => Plan::nothing().report(status),
        }
    }

    fn observed_status(view: &View) -> Option<&JobStatus> {
        view.job.status.as_ref()
    }

    async fn write_status(&self, view: &View, status: JobStatus) -> Result<(), Failure> {
        let api = Api::namespaced(self.client.clone(), &view.job.namespace().unwrap_or_default());
        let job = Job { status: Some(status), ..Job::clone(&view.job) };
        let written = standard::replace_status(&api, &job).await?;
        if let Some(key) = ObjectKey::of(&written) {
            self.expected_jobs.updated(&key, &written);
        }
        Ok(())
    }
}

// Act: one action at a time, harmless when repeated.
impl Act<OnePodPerJob> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::CreatePod(_) => "create pod",
        }
    }

    async fn act(self, controller: &OnePodPerJob, job: &ObjectKey) -> Result<(), Failure> {
        let Self::CreatePod(pod) = self;
        let api = Api::namespaced(controller.client.clone(), job.namespace());
        standard::create_expected(&api, &pod, job, &controller.expected_pods).await.map(drop)
    }
}

/// The name is derived from the owner's uid: a second attempt can only find the first one's pod.
fn pod_for(job: &Job) -> Pod {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let mut pod = Pod { spec: job.spec.as_ref().and_then(|spec| spec.template.spec.clone()), ..Pod::default() };
    pod.metadata.name = Some(format!("{}-{}", job.name_any(), uid.chars().take(5).collect::<String>()));
    pod.metadata.namespace = job.namespace();
    pod.metadata.owner_references = job.controller_owner_ref(&()).map(|owner| vec![owner]);
    pod
}

/// Wires it up: caches with indexes, a queue fed by both, one watch per kind, one runner.
pub async fn run(client: Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let jobs = Cache::<Job>::builder().build();
    let mut builder = Cache::<Pod>::builder();
    let pods_by_owner = builder.index(|pod: &Pod| standard::owner_uid(pod).map(str::to_owned));
    let pods = builder.build();

    let queue = Queue::default();
    jobs.feed(&queue, ObjectKey::of);
    pods.feed(&queue, |pod| {
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Job")?;
        Some(ObjectKey::new(pod.metadata.namespace.as_deref()?, &owner.name))
    });

    let mut watches = Watches::new();
    watches.add_read(Api::all(client.clone()), watcher::Config::default(), &jobs, json::read)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &pods)?;
    let synced = watches.synced();

    let expected_pods = Expectations::new(&pods, DEFAULT_TIMEOUT);
    let expected_jobs = Expectations::new(&jobs, DEFAULT_TIMEOUT);
    let controller = OnePodPerJob { client, jobs, pods, pods_by_owner, expected_pods, expected_jobs };
    let work = async {
        synced.await;
        Runner::new(controller, queue).workers(4).run(stop).await;
    };
    tokio::select! {
        () = watches.run() => {}
        () = work => {}
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stop = CancellationToken::new();
    let on_ctrl_c = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        on_ctrl_c.cancel();
    });
    run(Client::try_default().await?, stop).await
}
