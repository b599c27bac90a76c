//! The migration controller: from a `VirtualMachineInstanceMigration` to a target pod, and from the pod to the hand-off to two nodes.
//!
//! ```text
//!   (none) --- must wait: slots, back-off, guest does not run ---> Pending
//!      \                                                             |
//!       \--------------- target pod is asked for -------------> Scheduling
//!                                                                    | pod runs: **hand-off**, one write of the guest
//!                                                             PreparingTarget     what follows is read from the guest's
//!                                                                    | address    status.migrationState, which the nodes write
//!                                                              TargetReady
//!                                                                    | start
//!                                                                 Running
//!                                                                /       \
//!                              the guest names the target's node          the record says failed
//!                                          Succeeded                           Failed
//!
//!   before the hand-off: cancelled, guest ended or deleted, pod ended, vanished or too slow: Failed, the guest untouched
//!   cancelled after it: the nodes are asked to abort, and what they say counts
//! ```
//!
//! - **One move of a guest at a time**: of several the one that is furthest, then the oldest; the others fail and say so.
//! - **Slots** ([`turn`]): one worker, which counts what caches show and what it has asked for itself, so that two decisions in a row
//!   never see the same free slot.
//! - After the hand-off this controller says `failed` only when nobody else can: the target's pod object is gone and
//!   [nothing of it runs](crate::vmi), or its node is fenced. Then nobody knows whether the target ran the guest, and the record does not allow the source to go on.
//! - A target pod is deleted only after a fresh look at the guest: it does not name the pod's node, and its record of this move is
//!   over or never was. The source's pod is the [guest controller](crate::vmi)'s.
//! - On the straight way there are six writes: the pod, the hand-off, and `Scheduling`, `PreparingTarget`, `Running`, `Succeeded`.
//!   Phases that were passed in between get their times all the same.

mod act;
pub(crate) mod candidate;
pub mod decide;
mod draft;
pub mod hand_off;
pub(crate) mod observe;
pub(crate) mod policy;
pub mod turn;

#[cfg(test)]
mod fixtures;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::migration::VirtualMachineInstanceMigrationStatus as Status;
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::expectations::DEFAULT_TIMEOUT;
use ferrovirt_reconcile::{Clock, Controller, Expectations, Failure, ObjectKey, Plan, Queue, Recorder, Runner};
use kube::Client;
use parking_lot::Mutex;

pub use act::Action;
pub use observe::View;

use crate::ControllerConfig;
use crate::caches::{Caches, guest_key, is_over};

/// What the controller works with.
pub struct MigrationController {
    client: Client,
    caches: Caches,
    recorder: Recorder,
    clock: Clock,
    launcher_image: String,
    /// Moves whose target pods were asked for, which a cache may not show yet.
    started: Started,
    expected_pods: Expectations<ObjectKey, LauncherPod>,
    expected_vmis: Expectations<ObjectKey, VirtualMachineInstance>,
    expected_migrations: Expectations<ObjectKey, VirtualMachineInstanceMigration>,
}

/// Uids of moves whose target pods were asked for. Clones share their state.
pub(crate) type Started = Arc<Mutex<BTreeSet<String>>>;

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(
    client: Client,
    caches: Caches,
    recorder: Recorder,
    started: Started,
    config: &ControllerConfig,
) -> Runner<MigrationController> {
    let queue = Queue::default();
    feed(&caches, &queue);
    let controller = MigrationController {
        client,
        recorder,
        clock: config.clock,
        launcher_image: config.launcher_image.clone(),
        started,
        expected_pods: Expectations::new(&caches.pods, DEFAULT_TIMEOUT),
        expected_vmis: Expectations::new(&caches.vmis, DEFAULT_TIMEOUT),
        expected_migrations: Expectations::new(&caches.migrations, DEFAULT_TIMEOUT),
        caches,
    };
    // One worker: slots are counted and taken in one go.
    Runner::new(controller, queue)
}

/// Which changes concern which moves.
fn feed(caches: &Caches, queue: &Queue<ObjectKey>) {
    let all = caches.clone();
    caches.migrations.feed(queue, move |migration| {
        let mut keys = of_guest(&all, &guest_key(migration));
        keys.extend(ObjectKey::of(migration));
        if is_over(migration) {
            keys.extend(unfinished(&all));
        }
        keys
    });
    let all = caches.clone();
    caches.vmis.feed(queue, move |vmi| ObjectKey::of(vmi).map(|key| of_guest(&all, &key)).unwrap_or_default());
    let all = caches.clone();
    caches.pods.feed(queue, move |pod| crate::vmi::owner_key(pod).map(|key| of_guest(&all, &key)).unwrap_or_default());
    let all = caches.clone();
    caches.nodes.feed(queue, move |node| if crate::node::is_fenced(node) { unfinished(&all) } else { Vec::new() });
    let all = caches.clone();
    caches.kubevirts.feed(queue, move |_| unfinished(&all));
}

fn of_guest(caches: &Caches, guest: &ObjectKey) -> Vec<ObjectKey> {
    let migrations = caches.migrations.by(&caches.migrations_by_vmi, guest);
    migrations.iter().filter_map(|migration| ObjectKey::of(&**migration)).collect()
}

fn unfinished(caches: &Caches) -> Vec<ObjectKey> {
    let migrations = caches.migrations.by(&caches.migrations_by_end, &false);
    migrations.iter().filter_map(|migration| ObjectKey::of(&**migration)).collect()
}

impl Controller for MigrationController {
    const NAME: &'static str = "migration";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = Status;

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        let guests = self.expected_vmis.hold(key).max(self.expected_migrations.hold(key));
        self.expected_pods.hold(key).max(guests)
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let mut started = self.started.lock();
        observe::forget_finished(&self.caches, &mut started);
        observe::observe(&self.caches, key, &self.launcher_image, &started, self.clock.now())
    }

    fn decide(view: &View) -> Plan<Action, Status> {
        decide::decide(view)
    }

    fn observed_status(view: &View) -> Option<&Status> {
        Some(&view.status)
    }

    fn status_after(view: &View, failure: &Failure) -> Option<Status> {
        decide::after_failure(view, failure)
    }

    async fn write_status(&self, view: &View, status: Status) -> Result<(), Failure> {
        act::write(self, view, &status).await
    }
}
