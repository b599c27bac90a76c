//! Volumes of the pod and where its container sees them.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_api::vmi::{AccessCredential, HostDisk, HostDiskType, Volume as GuestVolume};
use ferrovirt_launcher_rpc::paths;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource,
    LocalObjectReference, PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume, VolumeDevice, VolumeMount,
};

use crate::images::{self, GuestImage};
use crate::{ContainerDisks, LauncherConfig, Unsupported};

/// The volume of what only the launcher needs.
pub(crate) const PRIVATE: &str = "private";
/// Directories that every launcher has.
const DIRECTORIES: [(&str, &str); 5] = [
    (PRIVATE, paths::PRIVATE),
    ("public", paths::PUBLIC),
    (paths::SOCKETS_VOLUME, paths::SOCKETS),
    ("ephemeral-disks", paths::EPHEMERAL),
    ("libvirt-runtime", paths::LIBVIRT),
];
/// Where huge pages are mounted.
const HUGEPAGES: &str = "/dev/hugepages";
/// Kubernetes' limit for the name of a volume or a container.
const LONGEST_NAME: usize = 63;
/// An emptyDir that nobody can write to: where virt-handler mounts what sidecars hold.
const MOUNT_POINTS: &str = "container-disk-mounts";

/// What the volumes of a guest come to.
#[derive(Debug, Default)]
pub(crate) struct PodVolumes {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) mounts: Vec<VolumeMount>,
    pub(crate) devices: Vec<VolumeDevice>,
    pub(crate) pull_secrets: Vec<String>,
    /// The account whose token a volume shows.
    pub(crate) service_account: Option<String>,
}

/// The claims that the guest uses: its volume's name, and the claim's.
pub fn claims_of(vmi: &VirtualMachineInstance) -> impl Iterator<Item = (&str, &str)> {
    claims_of_volumes(&vmi.spec.volumes)
}

/// The claims that volumes use: the volume's name, and the claim's.
pub fn claims_of_volumes(volumes: &[GuestVolume]) -> impl Iterator<Item = (&str, &str)> {
    volumes.iter().filter_map(|volume| Some((volume.name.as_str(), claim_of(volume)?.name)))
}

/// A claim, and whether the guest may write to it.
struct Claim<'a> {
    name: &'a str,
    read_only: bool,
    /// Writes go to a layer above it, so nothing needs to be written to the claim.
    is_base: bool,
}

fn claim_of(volume: &GuestVolume) -> Option<Claim<'_>> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(Claim { name: &claim.claim_name, read_only: claim.read_only, is_base: false });
    }
    if let Some(data) = &volume.data_volume {
        return Some(Claim { name: &data.name, read_only: false, is_base: false });
    }
    let claim = volume.ephemeral.as_ref()?.persistent_volume_claim.as_ref()?;
    Some(Claim { name: &claim.claim_name, read_only: claim.read_only, is_base: true })
}

pub(crate) fn of(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Result<PodVolumes, Unsupported> {
    let mut pod = PodVolumes::default();
    for (name, path) in DIRECTORIES {
        pod.mount(name, path, false, empty_dir(None));
    }
    let images = images::of(vmi);
    if config.container_disks == ContainerDisks::Sidecars && !images.is_empty() {
        for name in [paths::HOLDERS_VOLUME, images::PROGRAM_VOLUME, MOUNT_POINTS] {
            pod.add(name, empty_dir(None));
        }
    }
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        match images.iter().find(|image| image.slot == paths::container_disk_slot(index)) {
            Some(image) => pod.add_image(image, config),
            None => pod.add_guest_volume(index, volume, config)?,
        }
    }
    if let Some(memory) = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref()) {
        let medium = format!("HugePages-{}", memory.page_size.as_deref().unwrap_or("2Mi"));
        pod.mount("hugepages", HUGEPAGES, false, empty_dir(Some(medium)));
    }
    if let Some(image) = images.iter().find(|image| image.slot == paths::KERNEL_BOOT_SLOT) {
        pod.add_image(image, config);
    }
    for (index, credential) in vmi.spec.access_credentials.iter().enumerate() {
        if let Some(secret) = credential_secret(credential) {
            let path = paths::access_credential(index);
            pod.mount(&format!("access-credential-{index}"), &path, true, secret_source(secret, None));
        }
    }
    Ok(pod)
}

impl PodVolumes {
    fn add_guest_volume(
        &mut self,
        index: usize,
        volume: &GuestVolume,
        config: &LauncherConfig,
    ) -> Result<(), Unsupported> {
        let name = &volume.name;
        if let Some(claim) = claim_of(volume) {
            self.add_claim(name, &claim, config);
        } else if let Some(disk) = &volume.host_disk {
            self.mount(name, &paths::volume_directory(name), false, host_directory(index, disk)?);
        } else if let Some(seed) = &volume.cloud_init_no_cloud {
            self.add_seed(name, seed.secret_ref.as_ref(), seed.network_data_secret_ref.as_ref());
        } else if let Some(seed) = &volume.cloud_init_config_drive {
            self.add_seed(name, seed.secret_ref.as_ref(), seed.network_data_secret_ref.as_ref());
        } else if let Some(account) = &volume.service_account {
            self.service_account = account.service_account_name.clone();
        } else if let Some(source) = files(volume) {
            self.mount(name, &paths::config_source(name), true, source);
        }
        Ok(())
    }

    fn add_claim(&mut self, name: &str, claim: &Claim<'_>, config: &LauncherConfig) {
        let source = Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.name.to_owned(),
                read_only: Some(claim.read_only).filter(|read_only| *read_only),
            }),
            ..Volume::default()
        };
        match config.claims.get(claim.name) {
            Some(VolumeMode::Block) => {
                let volume = self.add(name, source);
                self.devices.push(VolumeDevice { device_path: paths::block_device(name), name: volume });
            }
            Some(VolumeMode::Filesystem) | None => {
                self.mount(name, &paths::volume_directory(name), claim.read_only || claim.is_base, source);
            }
        }
    }

    fn add_seed(&mut self, name: &str, user: Option<&LocalObjectReference>, network: Option<&LocalObjectReference>) {
        for (part, secret) in [("user", user), ("network", network)] {
            if let Some(secret) = secret {
                let path = paths::cloud_init_secret(name, part);
                self.mount(&format!("{name}-{part}"), &path, true, secret_source(&secret.name, None));
            }
        }
    }

    fn add_image(&mut self, image: &GuestImage<'_>, config: &LauncherConfig) {
        let path = paths::image(&image.slot);
        match config.container_disks {
            ContainerDisks::ImageVolumes => self.mount(image.volume, &path, true, image_source(image)),
            ContainerDisks::Sidecars => {
                let (name, read_only) = (MOUNT_POINTS.to_owned(), Some(true));
                self.mounts.push(VolumeMount { name, mount_path: path, read_only, ..VolumeMount::default() });
            }
        }
        if let Some(secret) = image.pull_secret.filter(|secret| !self.pull_secrets.contains(secret)) {
            self.pull_secrets.push(secret.clone());
        }
    }

    fn mount(&mut self, name: &str, path: &str, read_only: bool, source: Volume) {
        let name = self.add(name, source);
        let read_only = Some(read_only).filter(|read_only| *read_only);
        self.mounts.push(VolumeMount { name, mount_path: path.to_owned(), read_only, ..VolumeMount::default() });
    }

    /// Adds a volume and returns its name: the wanted one, unless it is taken; a guest may call a disk `sockets`.
    fn add(&mut self, wanted: &str, source: Volume) -> String {
        let name = free_name(wanted, |name| self.volumes.iter().all(|volume| volume.name != name));
        self.volumes.push(Volume { name: name.clone(), ..source });
        name
    }
}

/// The wanted name, changed when it is taken or too long.
pub(crate) fn free_name(wanted: &str, is_free: impl Fn(&str) -> bool) -> String {
    // A name may not end with a dash.
    let head = |room: usize| wanted.chars().take(room).collect::<String>().trim_end_matches('-').to_owned();
    let mut name = head(LONGEST_NAME);
    let mut attempt = 0;
    while !is_free(&name) {
        attempt += 1;
        let suffix = format!("-{attempt}");
        name = head(LONGEST_NAME - suffix.len()) + &suffix;
    }
    name
}

/// Volumes whose entries become files of a medium.
fn files(volume: &GuestVolume) -> Option<Volume> {
    if let Some(source) = &volume.config_map {
        return Some(config_map_source(source.name.as_deref().unwrap_or_default(), source.optional));
    }
    if let Some(source) = &volume.secret {
        return Some(secret_source(source.secret_name.as_deref().unwrap_or_default(), source.optional));
    }
    if let Some(source) = &volume.downward_api {
        let downward_api = DownwardAPIVolumeSource { items: Some(source.fields.clone()), default_mode: None };
        return Some(Volume { downward_api: Some(downward_api), ..Volume::default() });
    }
    let sysprep = volume.sysprep.as_ref()?;
    match (&sysprep.secret, &sysprep.config_map) {
        (Some(secret), _) => Some(secret_source(&secret.name, None)),
        (None, Some(map)) => Some(config_map_source(&map.name, None)),
        (None, None) => None,
    }
}

fn credential_secret(credential: &AccessCredential) -> Option<&str> {
    let ssh = credential.ssh_public_key.as_ref().and_then(|ssh| ssh.source.secret.as_ref());
    let password = credential.user_password.as_ref().and_then(|password| password.source.secret.as_ref());
    ssh.or(password).map(|secret| secret.secret_name.as_str())
}

fn empty_dir(medium: Option<String>) -> Volume {
    let empty_dir = EmptyDirVolumeSource { medium, size_limit: None };
    Volume { empty_dir: Some(empty_dir), ..Volume::default() }
}

fn image_source(image: &GuestImage<'_>) -> Volume {
    let reference = Some(image.reference.to_owned());
    let image = ImageVolumeSource { reference, pull_policy: image.pull_policy.clone() };
    Volume { image: Some(image), ..Volume::default() }
}

fn secret_source(name: &str, optional: Option<bool>) -> Volume {
    let secret = SecretVolumeSource { secret_name: Some(name.to_owned()), optional, ..SecretVolumeSource::default() };
    Volume { secret: Some(secret), ..Volume::default() }
}

fn config_map_source(name: &str, optional: Option<bool>) -> Volume {
    let config_map = ConfigMapVolumeSource { name: name.to_owned(), optional, ..ConfigMapVolumeSource::default() };
    Volume { config_map: Some(config_map), ..Volume::default() }
}

/// The directory of a host disk, as the launcher has to see the image under its name.
fn host_directory(index: usize, disk: &HostDisk) -> Result<Volume, Unsupported> {
    let directory = disk.path.rsplit_once('/').map(|(directory, _)| directory);
    let Some(directory) = directory.filter(|directory| directory.starts_with('/')) else {
        let reason = format!(
            "{:?} is not below a directory of the node; give an absolute path such as /var/vms/a.img",
            disk.path
        );
        return Err(Unsupported::new(format!("spec.volumes[{index}].hostDisk.path"), reason));
    };
    let type_ = match disk.r#type {
        HostDiskType::Disk => "Directory",
        HostDiskType::DiskOrCreate => "DirectoryOrCreate",
    };
    let host_path = HostPathVolumeSource { path: directory.to_owned(), type_: Some(type_.to_owned()) };
    Ok(Volume { host_path: Some(host_path), ..Volume::default() })
}
