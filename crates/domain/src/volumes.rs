//! What is behind a disk: where its content lies in the pod, in which format, and what the launcher makes or checks before.
//!
//! The domain and the list of tasks come from the same [`Source`], so they cannot disagree about a path.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_api::vmi::{HostDisk, HostDiskType, Volume};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::paths;

use crate::cloud_init;
use crate::facts::{Claim, NodeFacts};
use crate::unsupported::Unsupported;

/// Room that a file system keeps for itself when a disk image is made as large as its claim.
const FILESYSTEM_RESERVE: u64 = 131_072;
const CONFIG_LABEL: &str = "cfgdata";
const SYSPREP_LABEL: &str = "unattendCD";
const ANSWER_FILES: [&str; 2] = ["autounattend.xml", "unattend.xml"];

/// The content of a disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Source {
    /// Where it is in the pod.
    pub(crate) path: String,
    /// A block device, not a file.
    pub(crate) block: bool,
    /// The format; never guessed from the content, which is the guest's.
    pub(crate) format: Format,
    /// Writes would fail or be wrong.
    pub(crate) read_only: bool,
    /// It may hold an operating system.
    pub(crate) bootable: bool,
    /// Direct IO is known to work.
    pub(crate) direct_io: bool,
    /// Logical and physical block size, where known.
    pub(crate) block_size: Option<(u32, u32)>,
    /// What the launcher does first.
    pub(crate) task: DiskTask,
}

/// The format of an image, and what is below it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    /// Bytes as the guest sees them.
    Raw,
    /// Made by us, with nothing below.
    Qcow2,
    /// Made by us over a raw file or device.
    OverRaw {
        /// What is below.
        path: String,
        /// It is a block device.
        block: bool,
    },
    /// Made by us over an image that the launcher found and checked. Its path and format are in the overlay's header, which the
    /// launcher wrote and the guest cannot reach.
    OverImage,
}

/// The content of the volume number `index`.
pub(crate) fn source(
    vmi: &VirtualMachineInstance,
    index: usize,
    facts: &NodeFacts,
    devices: Option<&str>,
) -> Result<Source, Unsupported> {
    let volume = &vmi.spec.volumes[index];
    let name = volume.name.clone();
    let path = format!("spec.volumes[{name}]");
    if volume.container_disk.is_some() {
        return Ok(container_disk(volume, index, facts));
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let field = format!("{path}.persistentVolumeClaim.claimName");
        return Ok(on_claim(name, claim_facts(facts, &claim.claim_name, &field)?, claim.read_only));
    }
    if let Some(data) = &volume.data_volume {
        return Ok(on_claim(name, claim_facts(facts, &data.name, &format!("{path}.dataVolume.name"))?, false));
    }
    if let Some(ephemeral) = &volume.ephemeral {
        let field = format!("{path}.ephemeral.persistentVolumeClaim.claimName");
        let claim = ephemeral.persistent_volume_claim.as_ref().map_or("", |claim| claim.claim_name.as_str());
        return Ok(over_claim(name, claim_facts(facts, claim, &field)?, facts));
    }
    if let Some(empty) = &volume.empty_disk {
        let field = format!("{path}.emptyDisk.capacity");
        let capacity = positive(empty.capacity.value(), &field, &empty.capacity)?;
        let image = paths::empty_disk(&name);
        let task = DiskTask::EmptyDisk { volume: name, path: image.clone(), capacity };
        return Ok(Source { format: Format::Qcow2, direct_io: facts.ephemeral_direct_io, ..file(image, task) });
    }
    if let Some(disk) = &volume.host_disk {
        return host_disk(name, disk, &path);
    }
    if let Some(seed) = cloud_init::seed(vmi, volume, devices)? {
        let iso = paths::config_media(&name);
        let task = DiskTask::CloudInit { volume: name, path: iso.clone(), seed };
        return Ok(medium(iso, task));
    }
    config_media(volume, &path)
}

fn container_disk(volume: &Volume, index: usize, facts: &NodeFacts) -> Source {
    let overlay = paths::overlay(&volume.name);
    let task = DiskTask::ContainerDisk {
        volume: volume.name.clone(),
        tree: paths::container_disk(index),
        path: volume.container_disk.as_ref().and_then(|disk| disk.path.clone()),
        overlay: overlay.clone(),
    };
    Source { format: Format::OverImage, direct_io: facts.ephemeral_direct_io, ..file(overlay, task) }
}

fn on_claim(volume: String, claim: Claim, read_only: bool) -> Source {
    if claim.mode == VolumeMode::Block {
        let path = paths::block_device(&volume);
        let task = DiskTask::BlockDevice { volume, path: path.clone() };
        let (direct_io, block_size) = (claim.direct_io, claim.block_size);
        return Source { block: true, read_only, direct_io, block_size, ..file(path, task) };
    }
    let path = paths::volume_image(&volume);
    let create = if read_only { None } else { claim.capacity.checked_sub(FILESYSTEM_RESERVE).filter(|size| *size > 0) };
    let task = DiskTask::RawImage { volume, path: path.clone(), create };
    Source { read_only, direct_io: claim.direct_io, block_size: claim.block_size, ..file(path, task) }
}

fn over_claim(volume: String, claim: Claim, facts: &NodeFacts) -> Source {
    let block = claim.mode == VolumeMode::Block;
    let backing = if block { paths::block_device(&volume) } else { paths::volume_image(&volume) };
    let overlay = paths::overlay(&volume);
    let task = DiskTask::Overlay { volume, backing: backing.clone(), overlay: overlay.clone() };
    let format = Format::OverRaw { path: backing, block };
    // The cache mode holds for the whole chain.
    let direct_io = facts.ephemeral_direct_io && claim.direct_io;
    Source { format, direct_io, ..file(overlay, task) }
}

fn host_disk(volume: String, disk: &HostDisk, path: &str) -> Result<Source, Unsupported> {
    let name = disk.path.rsplit('/').next().filter(|name| !["", ".", ".."].contains(name));
    let field = format!("{path}.hostDisk.path");
    let name = name.ok_or_else(|| Unsupported::new(field, &disk.path, "the path must end with the name of a file"))?;
    let image = format!("{}/{name}", paths::volume_directory(&volume));
    let create = match (disk.r#type, &disk.capacity) {
        (HostDiskType::DiskOrCreate, Some(capacity)) => {
            Some(positive(capacity.value(), &format!("{path}.hostDisk.capacity"), capacity)?)
        }
        (HostDiskType::DiskOrCreate | HostDiskType::Disk, _) => None,
    };
    let task = DiskTask::RawImage { volume, path: image.clone(), create };
    Ok(file(image, task))
}

fn config_media(volume: &Volume, path: &str) -> Result<Source, Unsupported> {
    let name = &volume.name;
    let mounted = paths::config_source(name);
    let label = |label: &Option<String>| label.clone().filter(|label| !label.is_empty());
    let (source, label, required): (_, _, &[&str]) = if let Some(map) = &volume.config_map {
        (mounted, label(&map.volume_label), &[])
    } else if let Some(secret) = &volume.secret {
        (mounted, label(&secret.volume_label), &[])
    } else if let Some(downward) = &volume.downward_api {
        (mounted, label(&downward.volume_label), &[])
    } else if volume.service_account.is_some() {
        (paths::SERVICE_ACCOUNT.to_owned(), None, &[])
    } else if volume.sysprep.is_some() {
        (mounted, Some(SYSPREP_LABEL.to_owned()), &ANSWER_FILES)
    } else {
        return Err(no_disk(volume, path));
    };
    let iso = paths::config_media(name);
    let task = DiskTask::ConfigMedia {
        volume: name.clone(),
        path: iso.clone(),
        source,
        label: label.unwrap_or_else(|| CONFIG_LABEL.to_owned()),
        required: required.iter().map(|&name| name.to_owned()).collect(),
    };
    Ok(medium(iso, task))
}

/// Volumes that cannot be the content of a disk, or not yet.
fn no_disk(volume: &Volume, path: &str) -> Unsupported {
    if volume.downward_metrics.is_some() {
        return Unsupported::yet(format!("{path}.downwardMetrics"), "{}");
    }
    if let Some(dump) = &volume.memory_dump {
        return Unsupported::yet(format!("{path}.memoryDump.claimName"), &dump.claim_name);
    }
    if let Some(directory) = &volume.container_path {
        let why = "a directory can be a filesystem of the guest, not a disk";
        return Unsupported::new(format!("{path}.containerPath.path"), &directory.path, why);
    }
    Unsupported::new(path, &volume.name, "the volume has no source; give it one, such as containerDisk")
}

/// A writable raw file that may be booted.
fn file(path: String, task: DiskTask) -> Source {
    Source {
        path,
        block: false,
        format: Format::Raw,
        read_only: false,
        bootable: true,
        direct_io: false,
        block_size: None,
        task,
    }
}

/// An ISO that we make.
fn medium(path: String, task: DiskTask) -> Source {
    Source { bootable: false, ..file(path, task) }
}

fn claim_facts(facts: &NodeFacts, name: &str, path: &str) -> Result<Claim, Unsupported> {
    let missing = || Unsupported::new(path, name, "nothing is known about this claim; does it exist and is it bound?");
    facts.claims.get(name).copied().ok_or_else(missing)
}

fn positive(amount: i64, path: &str, written: &impl std::fmt::Display) -> Result<u64, Unsupported> {
    let amount = u64::try_from(amount).ok().filter(|amount| *amount > 0);
    amount.ok_or_else(|| Unsupported::new(path, written, "a disk must be larger than nothing"))
}
