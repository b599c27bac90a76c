//! The evacuation controller: guests that have to leave a node get a migration.
//!
//! A guest has to leave when it is marked (`status.evacuationNodeName`, which virt-api writes instead of evicting its pod), or when its
//! node has the cluster's drain taint and its eviction strategy is to move.
//!
//! | strategy | can move | cannot move |
//! |---|---|---|
//! | `LiveMigrate` | moves | stays, and says why |
//! | `LiveMigrateIfPossible` | moves | stays here; its pod may be evicted |
//! | `External` | somebody else's | somebody else's |
//! | `None`, none | moves if marked | stays |
//!
//! - Not more migrations are made than slots are free, so that others can get their turn in between.
//! - The name of a migration follows from the guest and its newest migration: a stale cache can only find the one that is there.

mod act;
pub mod decide;
mod observe;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstanceMigration;
use ferrovirt_reconcile::expectations::DEFAULT_TIMEOUT;
use ferrovirt_reconcile::{Clock, Controller, Expectations, Failure, ObjectKey, Plan, Queue, Recorder, Runner};
use kube::Client;
use parking_lot::Mutex;

pub use act::Action;
pub use observe::{Guest, View};

use crate::ControllerConfig;
use crate::caches::{Caches, guest_key};
use crate::migration::Started;
use crate::vmi::owner_key;

/// What the controller works with.
pub struct EvacuationController {
    client: Client,
    caches: Caches,
    recorder: Recorder,
    clock: Clock,
    launcher_image: String,
    started: Started,
    /// What was said about which guest: once is enough.
    told: Arc<Mutex<BTreeSet<String>>>,
    expected_migrations: Expectations<ObjectKey, VirtualMachineInstanceMigration>,
}

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(
    client: Client,
    caches: Caches,
    recorder: Recorder,
    started: Started,
    config: &ControllerConfig,
) -> Runner<EvacuationController> {
    let queue = Queue::default();
    feed(&caches, &queue);
    let controller = EvacuationController {
        client,
        recorder,
        clock: config.clock,
        launcher_image: config.launcher_image.clone(),
        started,
        told: Arc::default(),
        expected_migrations: Expectations::new(&caches.migrations, DEFAULT_TIMEOUT),
        caches,
    };
    Runner::new(controller, queue)
}

/// Which changes concern which nodes.
fn feed(caches: &Caches, queue: &Queue<ObjectKey>) {
    caches.nodes.feed(queue, ObjectKey::of);
    let node_of = |vmi: &ferrovirt_api::VirtualMachineInstance| {
        vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).map(|node| ObjectKey::new("", node))
    };
    caches.vmis.feed(queue, node_of);
    let all = caches.clone();
    caches
        .migrations
        .feed(queue, move |migration| all.vmis.get_key(&guest_key(migration)).and_then(|vmi| node_of(&vmi)));
    // A guest waits for the pod that an earlier move left behind to go.
    let all = caches.clone();
    caches
        .pods
        .feed(queue, move |pod| owner_key(pod).and_then(|key| all.vmis.get_key(&key)).and_then(|vmi| node_of(&vmi)));
}

impl Controller for EvacuationController {
    const NAME: &'static str = "evacuation";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = ();

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        self.expected_migrations.hold(key)
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let (started, told) = (self.started.lock().clone(), self.told.lock().clone());
        Some(observe::observe(&self.caches, key.name(), &self.launcher_image, &started, told, self.clock.now()))
    }

    fn decide(view: &View) -> Plan<Action, ()> {
        decide::decide(view)
    }

    fn observed_status(_: &View) -> Option<&()> {
        Some(&())
    }

    async fn write_status(&self, _: &View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}
