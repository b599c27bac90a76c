//! What an object is when its author does not say: defaults of guests, virtual machines and moves, filled in when they are written.
//!
//! Pure functions. Time and randomness come in as [`Inputs`], the cluster's own wishes as its [`Configuration`]. What is
//! set already stays, so that defaulting twice is the same as defaulting once; the status alone is always new, because
//! no author has a say in it.
//!
//! | file | what it fills in |
//! |---|---|
//! | `machine` | architecture, machine type, firmware, features, clock |
//! | `resources` | CPU, memory, how far both can grow |
//! | `devices` | disks, network cards, inputs, watchdog |
//! | `status` | phase, first timestamp, what is known before anything runs |

mod devices;
mod machine;
mod resources;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::gates;
use crate::kubevirt::Configuration;
use crate::migration::VirtualMachineInstanceMigration;
use crate::names::{annotations, finalizers, labels};
use crate::vm::VirtualMachine;
use crate::vmi::{
    Architecture, EvictionStrategy, LaunchSecurity, Probe, VirtualMachineInstance, VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus,
};

pub use status::LAUNCHER_USER;

/// Seconds that a guest gets to shut down.
pub const GRACE_PERIOD_SECONDS: i64 = 30;
/// How PCI slots are laid out in new machines.
const PCI_TOPOLOGY: &str = "v3";
/// Where the quote generation service of a node listens.
const QGS_SOCKET: &str = "/var/run/tdx-qgs/qgs.socket";

/// What defaults need from outside.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The time of creation.
    pub now: Time,
    /// A random number for the firmware's identity.
    pub uuid: u128,
    /// The architecture of clusters that do not say.
    pub architecture: Architecture,
}

/// Fills in what the author of a guest left open.
pub fn default_vmi(vmi: &mut VirtualMachineInstance, cluster: &Configuration, inputs: &Inputs) {
    default_template(&mut vmi.spec, cluster, inputs);
    annotate(vmi, cluster);
    hold(&mut vmi.metadata, finalizers::VMI);
    // Which revision of its machine a guest was made from, only its maker knows.
    let virtual_machine_revision_name = vmi.status.take().and_then(|status| status.virtual_machine_revision_name);
    let fresh = status::fresh(&vmi.spec, cluster, inputs);
    vmi.status = Some(VirtualMachineInstanceStatus { virtual_machine_revision_name, ..fresh });
}

/// Fills in what a template leaves open, as it happens to the guest that is made from it.
pub fn default_template(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration, inputs: &Inputs) {
    let architecture = machine::architecture(spec, cluster, inputs);
    lifecycle(spec, cluster);
    resources::fill(spec, cluster, architecture);
    machine::fill(spec, cluster, architecture, inputs);
    devices::fill(spec, cluster, architecture);
}

/// Fills in what the author of a virtual machine left open and what its guests must keep from start to start. `is_new` when the
/// machine is being created: an older one gets no new identity.
pub fn default_vm(vm: &mut VirtualMachine, cluster: &Configuration, inputs: &Inputs, is_new: bool) {
    let template = &mut vm.spec.template;
    let architecture = machine::architecture(&mut template.spec, cluster, inputs);
    machine::fill_type(&mut template.spec, cluster, architecture);
    if !is_new {
        return;
    }
    machine::fill_identity(&mut template.spec, inputs);
    // Its controller would add it, at the price of a write.
    hold(&mut vm.metadata, finalizers::VM_CONTROLLER);
    if architecture != Architecture::S390x {
        // Later layouts must not move the devices of a machine that was installed with this one.
        let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        annotations.entry(annotations::PCI_TOPOLOGY_VERSION.to_owned()).or_insert_with(|| PCI_TOPOLOGY.to_owned());
    }
}

/// Labels a move with its guest and holds it until its controller has cleaned up.
pub fn default_migration(migration: &mut VirtualMachineInstanceMigration) {
    let labels = migration.metadata.labels.get_or_insert_default();
    labels.insert(labels::MIGRATION_SELECTOR.to_owned(), migration.spec.vmi_name.clone());
    hold(&mut migration.metadata, finalizers::MIGRATION);
}

fn hold(metadata: &mut ObjectMeta, finalizer: &str) {
    let held = metadata.finalizers.get_or_insert_default();
    if !held.iter().any(|held| held == finalizer) {
        held.push(finalizer.to_owned());
    }
}

fn lifecycle(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration) {
    let eviction = cluster.eviction_strategy.unwrap_or(EvictionStrategy::None);
    spec.eviction_strategy.get_or_insert(eviction);
    spec.termination_grace_period_seconds.get_or_insert(GRACE_PERIOD_SECONDS);
    for probe in [&mut spec.liveness_probe, &mut spec.readiness_probe].into_iter().flatten() {
        fill_probe(probe);
    }
}

/// Zero counts as unset, as in Kubernetes.
fn fill_probe(probe: &mut Probe) {
    let fields = [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ];
    for (field, default) in fields {
        if field.is_none_or(|value| value == 0) {
            *field = Some(default);
        }
    }
}

/// Facts about the cluster that the launcher of this guest needs.
fn annotate(vmi: &mut VirtualMachineInstance, cluster: &Configuration) {
    let mut set = |name: &str, value: &str| {
        let annotations = vmi.metadata.annotations.get_or_insert_default();
        annotations.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    let encrypted = vmi.spec.domain.launch_security.as_ref();
    if encrypted.is_some_and(|LaunchSecurity { tdx, .. }| tdx.is_some()) {
        let attestation =
            cluster.confidential_compute.as_ref().and_then(|compute| compute.tdx.as_ref()?.attestation.as_ref());
        let socket = attestation.and_then(|attestation| attestation.qgs_socket_path.as_deref());
        set(annotations::QGS_SOCKET_PATH, socket.unwrap_or(QGS_SOCKET));
    }
    let isolated = vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread);
    if isolated && gates::is_on(cluster, gates::ALIGN_CPUS) {
        set(annotations::EMULATOR_THREAD_EVEN_PARITY, "");
    }
}

#[cfg(test)]
mod tests;
