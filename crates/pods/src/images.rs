//! Images that a guest takes files from: container disks and the kernel boot image.
//!
//! | | with image volumes | with sidecars |
//! |---|---|---|
//! | pulled and unpacked as | a volume | the root of a container |
//! | mounted at the image's place in `compute` | by the kubelet | by virt-handler, over a directory that is empty and read-only |
//! | the pod has besides | nothing | an init container that copies `container-disk` into a volume; a sidecar for each image, which runs the copy |
//!
//! A sidecar is an init container that stays: it runs before `compute` starts, and the kubelet ends it when `compute` has ended, so it keeps no
//! pod alive. Nothing of the image runs in it. `compute` sees neither the program nor the sockets.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::SupportContainerType;
use ferrovirt_api::meta::PullPolicy;
use ferrovirt_launcher_rpc::paths;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

use crate::helper::{self, Figures};
use crate::volumes::free_name;
use crate::{ContainerDisks, LauncherConfig, container};

/// The program of sidecars, in the launcher's image and in [`PROGRAM_VOLUME`].
const PROGRAM: &str = "container-disk";
/// The emptyDir that it is copied to.
pub(crate) const PROGRAM_VOLUME: &str = "virt-bin-share-dir";
/// Where containers see that.
const PROGRAM_DIRECTORY: &str = "/ferrovirt/bin";
/// The container that copies.
const INSTALLER: &str = "container-disk-binary";

/// A sidecar sleeps. There is no limit for its CPU: the runtime's own work to start it would count, and take seconds. The limit of its memory
/// is KubeVirt's figure; it takes a twentieth. In a pod whose limits equal its requests less CPU would delay the start by a second for each
/// image, and more would be missing on nodes that give VMs CPUs of their own.
const FIGURES: Figures = Figures {
    of: SupportContainerType::ContainerDisk,
    requests: &[("cpu", "1m"), ("memory", "1M")],
    limits: &[("memory", "40M")],
    guaranteed: &[("cpu", "50m"), ("memory", "40M")],
};

/// One image.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GuestImage<'a> {
    /// Its name in the pod.
    pub(crate) slot: String,
    /// The volume that it is, or would be.
    pub(crate) volume: &'a str,
    /// The container that it is, or would be.
    pub(crate) container: String,
    pub(crate) reference: &'a str,
    pub(crate) pull_policy: Option<String>,
    pub(crate) pull_secret: Option<&'a String>,
}

/// The images of a guest, container disks first.
pub(crate) fn of(vmi: &VirtualMachineInstance) -> Vec<GuestImage<'_>> {
    let words = |policy: Option<PullPolicy>| policy.map(|policy| policy.as_str().to_owned());
    let mut images: Vec<GuestImage<'_>> = Vec::new();
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        let Some(disk) = &volume.container_disk else { continue };
        let is_free = |name: &str| images.iter().all(|image| image.container != name);
        let container = free_name(&format!("volume{}", volume.name), is_free);
        images.push(GuestImage {
            slot: paths::container_disk_slot(index),
            volume: &volume.name,
            container,
            reference: &disk.image,
            pull_policy: words(disk.image_pull_policy),
            pull_secret: disk.image_pull_secret.as_ref(),
        });
    }
    let boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    images.extend(boot.and_then(|boot| boot.container.as_ref()).map(|container| GuestImage {
        slot: paths::KERNEL_BOOT_SLOT.to_owned(),
        volume: paths::KERNEL_BOOT_SLOT,
        container: paths::KERNEL_BOOT_SLOT.to_owned(),
        reference: &container.image,
        pull_policy: words(container.image_pull_policy),
        pull_secret: container.image_pull_secret.as_ref(),
    }));
    images
}

/// The guest's images: the name of each in the pod, and the guest's volume that it is.
pub fn image_slots(vmi: &VirtualMachineInstance) -> Vec<(String, String)> {
    of(vmi).into_iter().map(|image| (image.slot, image.volume.to_owned())).collect()
}

/// What runs before `compute`, which has these resources.
pub(crate) fn init_containers(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    compute: &ResourceRequirements,
) -> Vec<Container> {
    let images = of(vmi);
    if config.container_disks == ContainerDisks::ImageVolumes || images.is_empty() {
        return Vec::new();
    }
    let resources = helper::resources(&FIGURES, config, compute);
    let sidecars = images.iter().map(|image| sidecar(image, &resources));
    std::iter::once(installer(config, &resources)).chain(sidecars).collect()
}

fn installer(config: &LauncherConfig, resources: &ResourceRequirements) -> Container {
    Container {
        name: INSTALLER.to_owned(),
        image: Some(config.image.clone()),
        image_pull_policy: Some(container::pull_policy(config)),
        command: Some([PROGRAM, "install", PROGRAM_DIRECTORY].map(str::to_owned).to_vec()),
        resources: Some(resources.clone()),
        volume_mounts: Some(vec![helper::mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY, false)]),
        security_context: Some(helper::security_context()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn sidecar(image: &GuestImage<'_>, resources: &ResourceRequirements) -> Container {
    let socket = format!("{}/{}", paths::HOLDERS, paths::holder_socket(&image.slot));
    Container {
        name: image.container.clone(),
        image: Some(image.reference.to_owned()),
        image_pull_policy: image.pull_policy.clone(),
        command: Some(vec![format!("{PROGRAM_DIRECTORY}/{PROGRAM}"), "hold".to_owned(), socket]),
        restart_policy: Some("Always".to_owned()),
        resources: Some(resources.clone()),
        volume_mounts: Some(vec![
            helper::mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY, true),
            helper::mount(paths::HOLDERS_VOLUME, paths::HOLDERS, false),
        ]),
        security_context: Some(helper::security_context()),
        ..Container::default()
    }
}
