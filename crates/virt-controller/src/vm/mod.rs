//! The machine controller: from a `VirtualMachine`, which lasts, to a `VirtualMachineInstance`, which lives once.
//!
//! ```text
//!   machine ──start──► revision, guest ──runs, ends──► ended guest ──remove──► deleted guest ──release──► no guest
//!      ▲                                │                                           ▲                       │
//!      │                                └───────────── stop ────────────────────────┘                       │
//!      └────────────────────────── and again, when the strategy or a request wants it ◄─────────────────────┘
//! ```
//!
//! When the steps are taken is one table: [`strategy`]. How they stay safe when any of them is the last thing that a process does,
//! and when caches show yesterday:
//!
//! - **One guest.** It has its machine's name, so that a second one cannot come to be, and the next one waits until the object of
//!   the one before is gone.
//! - **Nothing is taken away before it is written down.** The guest is held by a finalizer until the machine's status has what is to
//!   be remembered of it: a failed start, a wish for another one, the strategy that it ran under.
//! - **Nothing irreversible on the word of a cache.** Before a living guest is stopped, before a machine starts that had a guest
//!   before, and before a request is crossed off, the object concerned is read once. The first start of a machine reads nothing.
//! - **A stop names its guest**, and a guest that was made for a request says so: neither is served twice.
//!
//! Writes on the way of a new machine to a running guest: the revision, the guest, and one status when the guest runs. A machine that
//! was admitted without finalizer and firmware identity costs one more. `Starting` is written, with an event, for a guest that takes
//! longer than [`decide::PATIENCE`].
//!
//! | file | |
//! |---|---|
//! | [`strategy`] | the table |
//! | `requests` | starts and stops that wait in the status |
//! | `backoff` | failed starts |
//! | `instance` | the guest and the revision that a start makes |
//! | `data_volumes` | data volumes that a machine brings along |
//! | `live` | changes of the machine under a living guest |
//! | `status`, `printable` | what the machine says |

mod act;
mod backoff;
mod data_volumes;
pub mod decide;
mod instance;
mod live;
mod observe;
mod printable;
mod requests;
mod status;
pub mod strategy;

#[cfg(test)]
mod fixtures;

use std::time::Duration;

use ferrovirt_api::vm::{DataVolume, VirtualMachineStatus};
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use ferrovirt_kubernetes::ControllerRevision;
use ferrovirt_reconcile::controller::standard::owner_uid;
use ferrovirt_reconcile::expectations::DEFAULT_TIMEOUT;
use ferrovirt_reconcile::{Cache, Clock, Controller, Expectations, Failure, ObjectKey, Plan, Queue, Recorder, Runner};
use kube::{Client, Resource};

pub use act::{Action, Seen};
pub use observe::{DataVolumes, Guest, Machine, View};

use crate::ControllerConfig;
use crate::caches::Caches;

/// What the controller works with.
pub struct VmController {
    client: Client,
    caches: Caches,
    recorder: Recorder,
    clock: Clock,
    expected_vms: Expectations<ObjectKey, VirtualMachine>,
    expected_vmis: Expectations<ObjectKey, VirtualMachineInstance>,
    expected_revisions: Expectations<ObjectKey, ControllerRevision>,
    expected_data_volumes: Expectations<ObjectKey, DataVolume>,
}

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(
    client: Client,
    caches: Caches,
    recorder: Recorder,
    config: &ControllerConfig,
) -> Runner<VmController> {
    let queue = Queue::default();
    feed(&caches, &queue);
    let controller = VmController {
        client,
        recorder,
        clock: config.clock,
        expected_vms: Expectations::new(&caches.vms, DEFAULT_TIMEOUT),
        expected_vmis: Expectations::new(&caches.vmis, DEFAULT_TIMEOUT),
        expected_revisions: Expectations::new(&caches.revisions, DEFAULT_TIMEOUT),
        expected_data_volumes: Expectations::new(&caches.data_volumes, DEFAULT_TIMEOUT),
        caches,
    };
    Runner::new(controller, queue).workers(config.workers)
}

/// Which changes concern which machines.
fn feed(caches: &Caches, queue: &Queue<ObjectKey>) {
    caches.vms.feed(queue, ObjectKey::of);
    // A guest has its machine's name, also when it is not the machine's.
    caches.vmis.feed(queue, ObjectKey::of);
    caches.revisions.feed(queue, owner_key);
    feed_by_claim(caches, queue, &caches.claims);
    feed_by_claim(caches, queue, &caches.data_volumes);
    // What changes for all: how changes reach guests, and whether there are data volumes.
    feed_all(caches, queue, &caches.kubevirts);
    feed_all(caches, queue, &caches.data_volume_definitions);
}

fn feed_by_claim<K: Resource + Send + Sync + 'static>(caches: &Caches, queue: &Queue<ObjectKey>, cache: &Cache<K>) {
    let (vms, by_claim) = (caches.vms.clone(), caches.vms_by_claim.clone());
    cache.feed(queue, move |object| {
        let users = ObjectKey::of(object).map(|key| vms.by(&by_claim, &key)).unwrap_or_default();
        users.iter().filter_map(|vm| ObjectKey::of(&**vm)).collect::<Vec<_>>()
    });
}

fn feed_all<K: Resource + Send + Sync + 'static>(caches: &Caches, queue: &Queue<ObjectKey>, cache: &Cache<K>) {
    let vms = caches.vms.clone();
    cache.feed(queue, move |_| vms.all().iter().filter_map(|vm| ObjectKey::of(&**vm)).collect::<Vec<_>>());
}

/// The machine that a revision belongs to, by the name in its owner reference; the uid is checked when the view is made.
fn owner_key(revision: &ControllerRevision) -> Option<ObjectKey> {
    let owner = revision.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    (owner.kind == "VirtualMachine").then_some(())?;
    Some(ObjectKey::new(revision.metadata.namespace.as_deref()?, &owner.name))
}

/// The uid of a guest's owner.
fn owner_of(vmi: &VirtualMachineInstance) -> Option<String> {
    owner_uid(vmi).map(str::to_owned)
}

impl Controller for VmController {
    const NAME: &'static str = "vm";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = VirtualMachineStatus;

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        let holds = [
            self.expected_vms.hold(key),
            self.expected_vmis.hold(key),
            self.expected_revisions.hold(key),
            self.expected_data_volumes.hold(key),
        ];
        holds.into_iter().max().flatten()
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        observe::observe(&self.caches, key, self.clock.now())
    }

    fn decide(view: &View) -> Plan<Action, VirtualMachineStatus> {
        decide::decide(view)
    }

    fn observed_status(view: &View) -> Option<&VirtualMachineStatus> {
        if let View::Machine(machine) = view { Some(&machine.status) } else { None }
    }

    fn status_after(view: &View, failure: &Failure) -> Option<VirtualMachineStatus> {
        if let View::Machine(machine) = view { decide::after_failure(machine, failure) } else { None }
    }

    async fn write_status(&self, view: &View, status: VirtualMachineStatus) -> Result<(), Failure> {
        if let View::Machine(machine) = view { act::write(self, machine, &status).await } else { Ok(()) }
    }
}
