//! What a guest may ask for and nothing here implements yet. It is refused by its path, never left out: **admitted means startable**.
//!
//! This is the one list. A field that is neither in it nor in a rule is implemented by `pods`, `domain`, `network` or `storage`, or does
//! no harm (`spec.schedulerName` is the scheduler's matter). Rules about a field that is in this list come with its implementation: until
//! then they could only distract from the one thing to know.

use super::Guest;
use super::Reason::NotSupported;
use super::table::{Findings, Path, RuleInfo};
use crate::names::annotations;
use crate::vmi::{
    AccessCredential, Architecture, Disk, Interface, MemLockRequirement, Network, Probe, VirtualMachineInstanceSpec,
    Volume,
};

/// The rule that all of these are.
const RULE: &str = "unsupported-fields-are-refused";
const YET: &str = "is not supported yet; remove it";

type Rows<T> = [(&'static str, fn(&T) -> bool)];

const ANNOTATIONS: [&str; 3] =
    [annotations::HOOK_SIDECARS, annotations::PLACE_PCI_ON_ROOT_COMPLEX, annotations::PCI_INTERFACE_SLOT_COUNT];
/// What only helps to debug is not refused; its author is told.
const HINTS: [&str; 3] =
    [annotations::KEEP_LAUNCHER_AFTER_FAILURE, annotations::LIBVIRT_LOG_FILTERS, annotations::PAUSE_GUEST_AGENT_PROBES];
/// The only layout of PCI slots that there is.
pub(super) const PCI_TOPOLOGY: &str = "v3";

const SPEC: &Rows<VirtualMachineInstanceSpec> = &[
    ("architecture", |it| it.architecture.is_some_and(|architecture| architecture != Architecture::Amd64)),
    ("resourceClaims", |it| !it.resource_claims.is_empty()),
    ("domain.cpu.realtime", |it| it.domain.cpu.as_ref().is_some_and(|cpu| cpu.realtime.is_some())),
    ("domain.memory.reservedOverhead.memLock", |it| {
        let overhead = it.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
        overhead.is_some_and(|overhead| overhead.mem_lock == Some(MemLockRequirement::Required))
    }),
    ("domain.firmware.bootloader.efi.persistent", |it| {
        let efi = it.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref());
        efi.is_some_and(|efi| efi.persistent == Some(true))
    }),
    ("domain.launchSecurity", |it| it.domain.launch_security.is_some()),
    ("domain.devices.gpus", |it| !it.domain.devices.gpus.is_empty()),
    ("domain.devices.hostDevices", |it| !it.domain.devices.host_devices.is_empty()),
    ("domain.devices.filesystems", |it| !it.domain.devices.filesystems.is_empty()),
    ("domain.devices.downwardMetrics", |it| it.domain.devices.downward_metrics.is_some()),
    ("domain.devices.clientPassthrough", |it| it.domain.devices.client_passthrough.is_some()),
    ("domain.devices.tpm.persistent", |it| {
        it.domain.devices.tpm.as_ref().is_some_and(|tpm| tpm.persistent == Some(true))
    }),
];

const VOLUME: &Rows<Volume> = &[
    ("downwardMetrics", |it| it.downward_metrics.is_some()),
    ("memoryDump", |it| it.memory_dump.is_some()),
    ("containerPath", |it| it.container_path.is_some()),
    ("persistentVolumeClaim.hotpluggable", |it| it.persistent_volume_claim.as_ref().is_some_and(|it| it.hotpluggable)),
    ("dataVolume.hotpluggable", |it| it.data_volume.as_ref().is_some_and(|it| it.hotpluggable)),
];

const NETWORK: &Rows<Network> =
    &[("multus", |it| it.multus.is_some()), ("resourceClaim", |it| it.resource_claim.is_some())];

const CARD: &Rows<Interface> = &[
    ("sriov", |it| it.sriov.is_some()),
    ("passtBinding", |it| it.passt_binding.is_some()),
    ("binding", |it| it.binding.is_some()),
];

const DISK: &Rows<Disk> = &[
    ("lun.reservation", |it| it.lun.as_ref().is_some_and(|lun| lun.reservation)),
    ("changedBlockTracking", |it| it.changed_block_tracking == Some(true)),
    ("tag", |it| it.tag.as_ref().is_some_and(|tag| !tag.is_empty())),
];

const PROBE: &Rows<Probe> = &[("exec", |it| it.exec.is_some()), ("guestAgentPing", |it| it.guest_agent_ping.is_some())];

const CREDENTIAL: &Rows<AccessCredential> = &[
    ("userPassword", |it| it.user_password.is_some()),
    ("sshPublicKey.propagationMethod.qemuGuestAgent", |it| {
        it.ssh_public_key.as_ref().is_some_and(|key| key.propagation_method.qemu_guest_agent.is_some())
    }),
];

fn all<T>(rows: &Rows<T>, subject: &T, path: &Path<'_>, findings: &mut Findings) {
    for (field, is_asked_for) in rows {
        if is_asked_for(subject) {
            findings.add(RULE, NotSupported, &path.field(field), YET);
        }
    }
}

fn each<T>(rows: &Rows<T>, list: &[T], path: &Path<'_>, findings: &mut Findings) {
    for (index, element) in list.iter().enumerate() {
        all(rows, element, &path.index(index), findings);
    }
}

/// Refuses what is not implemented: all of it.
pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, metadata: &Path<'_>, findings: &mut Findings) {
    let spec = guest.spec;
    all(SPEC, spec, path, findings);
    each(VOLUME, &spec.volumes, &path.field("volumes"), findings);
    each(NETWORK, &spec.networks, &path.field("networks"), findings);
    each(CARD, &spec.domain.devices.interfaces, &path.field("domain.devices.interfaces"), findings);
    each(DISK, &spec.domain.devices.disks, &path.field("domain.devices.disks"), findings);
    each(CREDENTIAL, &spec.access_credentials, &path.field("accessCredentials"), findings);
    for (field, probe) in [("livenessProbe", &spec.liveness_probe), ("readinessProbe", &spec.readiness_probe)] {
        if let Some(probe) = probe {
            all(PROBE, probe, &path.field(field), findings);
        }
    }
    let annotations = metadata.field("annotations");
    for name in ANNOTATIONS.into_iter().filter(|name| guest.annotation(name).is_some()) {
        findings.add(RULE, NotSupported, &annotations.field(name), YET);
    }
    if let Some(version) =
        guest.annotation(annotations::PCI_TOPOLOGY_VERSION).filter(|version| *version != PCI_TOPOLOGY)
    {
        let problem = format!("is '{version}', which is not supported yet; use {PCI_TOPOLOGY}");
        findings.add(RULE, NotSupported, &annotations.field(annotations::PCI_TOPOLOGY_VERSION), &problem);
    }
}

/// A warning for each annotation that has no effect here.
pub(super) fn warnings(guest: &Guest<'_>) -> impl Iterator<Item = String> {
    let given = HINTS.into_iter().filter(|name| guest.annotation(name).is_some());
    given.map(|name| format!("the annotation {name} is not supported yet and has no effect"))
}

/// Refuses one field of another object.
pub(super) fn refuse(path: &Path<'_>, findings: &mut Findings) {
    findings.add(RULE, NotSupported, path, YET);
}

/// The fields that are refused, below `spec` and its lists.
#[must_use]
pub fn fields() -> Vec<String> {
    fn list<T>(prefix: &str, rows: &Rows<T>) -> impl Iterator<Item = String> {
        rows.iter().map(move |(field, _)| format!("{prefix}{field}"))
    }
    let spec = list("spec.", SPEC).chain(list("spec.volumes[].", VOLUME)).chain(list("spec.networks[].", NETWORK));
    let devices = list("spec.domain.devices.interfaces[].", CARD).chain(list("spec.domain.devices.disks[].", DISK));
    let others = list("spec.accessCredentials[].", CREDENTIAL)
        .chain(list("spec.livenessProbe.", PROBE))
        .chain(list("spec.readinessProbe.", PROBE));
    spec.chain(devices).chain(others).collect()
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    [RuleInfo { name: RULE, field: "", reason: NotSupported }].into_iter()
}
