//! What a cluster does by itself: garbage collection, namespaces, CRDs, service accounts and the like.
//!
//! One task per resource follows the store's log and hands every change to [`Housekeeper::observe`], which only notes
//! keys in the queues of the controllers concerned. Each controller is one task that works its queue off and reads the
//! newest state from the store, so an event says *that* something changed and never *what*.

mod accounts;
mod apiservices;
mod crds;
pub(crate) mod disruption;
mod events;
mod garbage;
mod namespaces;
pub mod nodes;
mod queue;
mod quota;
mod rbac;
mod record;
mod volumes;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::server::Server;
use crate::store::{Event, WatchError};

pub(crate) use apiservices::builtin_priority;
pub(crate) use crds::load as load_crds;
pub use volumes::Provisioner;

/// Adds the admission that belongs to the controllers: whoever keeps a promise also refuses to break it.
pub(crate) fn add_admission(admission: &Admission) {
    admission.add(Arc::new(accounts::AwaitDefaultAccount));
    admission.add(Arc::new(rbac::NoEscalation));
    admission.add(Arc::new(quota::WithinQuota::default()));
}

/// Runs the controllers of one server.
pub struct Housekeeper {
    server: Arc<Server>,
    tracker: TaskTracker,
    stop: CancellationToken,
    /// The resources that are followed, each with the token that ends it.
    followed: Mutex<HashMap<Arc<str>, CancellationToken>>,
    crds: queue::Queue<String>,
    namespaces: queue::Queue<String>,
    garbage: garbage::Garbage,
    volumes: volumes::Volumes,
    disruption: disruption::Disruption,
    aggregation: rbac::Aggregation,
    events: events::Expiry,
    quotas: quota::Quotas,
    token_secrets: accounts::TokenSecrets,
    apiservices: apiservices::ApiServices,
}

impl Housekeeper {
    /// Starts every controller; they end when `stop` is cancelled.
    pub fn start(server: Arc<Server>, stop: CancellationToken) -> Arc<Self> {
        let keeper = Self::start_small(server, stop);
        keeper.spawn(apiservices::run(keeper.clone()));
        keeper
    }

    /// The same without `APIService` objects: more work than all the rest for a server that lives for a fraction of a second.
    pub fn start_small(server: Arc<Server>, stop: CancellationToken) -> Arc<Self> {
        server.admission.webhooks.load(&server.store);
        server.mounts.proxied.load(&server.store);
        let keeper = Arc::new(Self {
            server,
            tracker: TaskTracker::new(),
            stop,
            followed: Mutex::default(),
            crds: queue::Queue::default(),
            namespaces: queue::Queue::default(),
            garbage: garbage::Garbage::default(),
            volumes: volumes::Volumes::default(),
            disruption: disruption::Disruption::default(),
            aggregation: rbac::Aggregation::default(),
            events: events::Expiry::default(),
            quotas: quota::Quotas::default(),
            token_secrets: accounts::TokenSecrets::default(),
            apiservices: apiservices::ApiServices::default(),
        });
        keeper.spawn(crds::run(keeper.clone()));
        keeper.spawn(namespaces::run(keeper.clone()));
        keeper.spawn(garbage::run(keeper.clone()));
        keeper.spawn(volumes::run(keeper.clone()));
        keeper.spawn(disruption::run(keeper.clone()));
        keeper.spawn(rbac::run(keeper.clone()));
        keeper.spawn(events::run(keeper.clone()));
        keeper.spawn(quota::run(keeper.clone()));
        keeper.spawn(accounts::run(keeper.clone()));
        keeper.follow_all();
        keeper
    }

    /// Lets a provisioner make volumes for the storage classes that name it.
    pub fn add_provisioner(&self, provisioner: Arc<dyn Provisioner>) {
        self.volumes.add_provisioner(provisioner);
    }

    /// Waits until every task has ended.
    pub async fn stopped(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Follows every served resource that is not followed yet, and forgets those that are not served any more.
    fn follow_all(self: &Arc<Self>) {
        let snapshot = self.server.registry.snapshot();
        let served: Vec<Arc<str>> = snapshot
            .preferred()
            .iter()
            .filter(|resource| resource.verbs.contains(&"watch"))
            .map(|resource| resource.storage.clone())
            .collect();
        let mut followed = self.followed.lock();
        followed.retain(|storage, stop| {
            let keep = served.contains(storage);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for storage in served {
            if !followed.contains_key(&storage) {
                let stop = self.stop.child_token();
                followed.insert(storage.clone(), stop.clone());
                let keeper = self.clone();
                self.tracker.spawn(async move {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = keeper.follow(storage) => {}
                    }
                });
            }
        }
    }

    /// Hands every object and then every change of one resource to [`Self::observe`].
    async fn follow(self: &Arc<Self>, storage: Arc<str>) {
        loop {
            let Ok(page) = self.server.store.list(&storage, None, None, None, None) else { return };
            for object in page.objects {
                let event =
                    Event { revision: object.revision, key: object.key.clone(), object: Some(object), previous: None };
                self.observe(&event);
            }
            let mut watch = match self.server.store.watch(&storage, None, page.revision) {
                Ok(watch) => watch,
                Err(WatchError::Closed) => return,
                Err(_) => continue,
            };
            // Too far behind, or broken: start over from a list. A store that is closed says so there.
            while let Ok(event) = watch.next().await {
                self.observe(&event);
            }
        }
    }

    fn observe(self: &Arc<Self>, event: &Event) {
        match &*event.key.resource {
            "apiextensions.k8s.io/customresourcedefinitions" => self.crds.add(event.key.name.to_string()),
            "/namespaces" => self.namespaces.add(event.key.name.to_string()),
            // What every namespace has is made again when it is changed or deleted.
            "/serviceaccounts" | "/configmaps" if namespaces::is_furniture(&event.key) => {
                self.namespaces.add(event.key.namespace.to_string());
            }
            _ if !event.key.namespace.is_empty() && event.object.is_none() => {
                // A namespace that is going away waits for its last object.
                self.namespaces.add_if_waiting(&*event.key.namespace);
            }
            _ => {}
        }
        self.server.identity.observe(event);
        self.server.admission.webhooks.observe(event);
        self.server.mounts.proxied.observe(event);
        self.apiservices.observe(&self.server, event);
        self.garbage.observe(event);
        self.volumes.observe(event);
        self.disruption.observe(&self.server.store, event);
        self.aggregation.observe(event);
        self.events.observe(self.server.environment.now(), event);
        self.quotas.observe(&self.server.store, event);
        self.token_secrets.observe(event);
    }
}
