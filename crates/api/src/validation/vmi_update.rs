//! Changes to a guest that exists: users change nothing of its spec, and components only what can be plugged.

use super::Cause;
use super::Reason::{Invalid, NotSupported};
use super::metadata::{RESERVED, RESERVED_LABELS, RESERVED_PROBLEM};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use crate::vmi::{Disk, DiskBus, VirtualMachineInstance, VirtualMachineInstanceSpec, Volume};

type ChangeRule = Row<fn(&Change<'_>) -> Problem>;
type VolumeRule = Row<fn(&NewVolume<'_>) -> Problem>;

struct Change<'a> {
    old: &'a VirtualMachineInstanceSpec,
    new: &'a VirtualMachineInstanceSpec,
    component: bool,
}

const CHANGE: &[ChangeRule] = &[
    ("guest-spec-is-immutable-for-users", "", NotSupported, |it| {
        let problem = "cannot be changed: update of VMI object is restricted, change the VirtualMachine, or delete this and create another";
        if_so(!it.component && it.old != it.new, problem)
    }),
    ("max-sockets-are-fixed", "domain.cpu.maxSockets", Invalid, |it| {
        let most = |spec: &VirtualMachineInstanceSpec| spec.domain.cpu.as_ref().and_then(|cpu| cpu.max_sockets);
        if_so(it.component && most(it.old) != most(it.new), "is fixed when the guest starts")
    }),
    ("max-memory-is-fixed", "domain.memory.maxGuest", Invalid, |it| {
        let most =
            |spec: &VirtualMachineInstanceSpec| spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.clone());
        if_so(it.component && most(it.old) != most(it.new), "is fixed when the guest starts")
    }),
    ("permanent-volumes-stay", "volumes", Invalid, |it| {
        let wrong = it.old.volumes.iter().find(|volume| !is_pluggable(volume) && !it.new.volumes.contains(volume));
        let wrong = wrong.filter(|_| it.component)?;
        Some(format!("lacks or changes '{}', which cannot be unplugged", wrong.name))
    }),
    ("permanent-disks-stay", "domain.devices.disks", Invalid, |it| {
        let permanent = |disk: &&Disk| volume(it.old, &disk.name).is_none_or(|volume| !is_pluggable(volume));
        let disks = it.old.domain.devices.disks.iter().filter(permanent);
        let wrong = disks.filter(|disk| !it.new.domain.devices.disks.contains(disk)).find(|_| it.component)?;
        Some(format!("lacks or changes '{}', which cannot be unplugged", wrong.name))
    }),
    ("plugged-volumes-stay-as-they-are", "volumes", Invalid, |it| {
        let plugged = it.old.volumes.iter().filter(|old| is_pluggable(old));
        let changed = |old: &&Volume| volume(it.new, &old.name).is_some_and(|new| new != *old);
        let wrong = plugged.filter(changed).find(|_| it.component)?;
        Some(format!("changes '{}': unplug it first", wrong.name))
    }),
];

fn volume<'a>(spec: &'a VirtualMachineInstanceSpec, name: &str) -> Option<&'a Volume> {
    spec.volumes.iter().find(|volume| volume.name == name)
}

fn is_pluggable(volume: &Volume) -> bool {
    volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.hotpluggable)
        || volume.data_volume.as_ref().is_some_and(|data| data.hotpluggable)
        || volume.memory_dump.as_ref().is_some_and(|dump| dump.hotpluggable)
}

/// A volume that was not there before.
struct NewVolume<'a> {
    volume: &'a Volume,
    disk: Option<&'a Disk>,
}

const NEW_VOLUME: &[VolumeRule] = &[
    ("new-volume-can-be-plugged", "", NotSupported, |it| {
        if_so(
            !is_pluggable(it.volume),
            "cannot be plugged: use a persistentVolumeClaim, dataVolume or memoryDump with hotpluggable",
        )
    }),
    ("new-volume-has-a-disk", "", Invalid, |it| {
        if_so(it.disk.is_none() && it.volume.memory_dump.is_none(), "has no disk of its name")
    }),
    ("new-disk-is-on-a-bus-that-can-be-plugged", "", NotSupported, |it| {
        let disk = it.disk?;
        let plain = disk.disk.as_ref().is_some_and(|disk| matches!(disk.bus, Some(DiskBus::Scsi | DiskBus::Virtio)));
        let lun = disk.lun.as_ref().is_some_and(|lun| lun.bus == Some(DiskBus::Scsi));
        when(!plain && !lun, || {
            format!("has the disk '{}' on a bus that cannot be plugged: use scsi or virtio", disk.name)
        })
    }),
];

/// Everything that is wrong with a change to a guest. `component` when its author is one of us.
#[must_use]
pub fn check_vmi_update(old: &VirtualMachineInstance, new: &VirtualMachineInstance, component: bool) -> Vec<Cause> {
    let mut findings = Findings::default();
    if !component {
        let label = |vmi: &VirtualMachineInstance, name: &str| vmi.metadata.labels.as_ref()?.get(name).cloned();
        let list = Path::root("metadata.labels");
        for name in RESERVED_LABELS.into_iter().filter(|name| label(old, name) != label(new, name)) {
            findings.add(RESERVED, NotSupported, &list.field(name), RESERVED_PROBLEM);
        }
    }
    let path = Path::root("spec");
    findings.apply(CHANGE, &Change { old: &old.spec, new: &new.spec, component }, &path);
    if component {
        let list = path.field("volumes");
        let new_ones = new.spec.volumes.iter().enumerate().filter(|(_, it)| volume(&old.spec, &it.name).is_none());
        for (index, volume) in new_ones {
            let disk = new.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
            findings.apply(NEW_VOLUME, &NewVolume { volume, disk }, &list.index(index));
        }
    }
    findings.causes
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(CHANGE).chain(names(NEW_VOLUME))
}
