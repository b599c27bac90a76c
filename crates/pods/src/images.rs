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

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::SupportContainerType;
use ferrovirt_api::meta::PullPolicy;
use ferrovirt_launcher_rpc::paths::{self, RUNTIME_USER};
use k8s_openapi::api::core::v1::{Capabilities, Container, ResourceRequirements, SecurityContext, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

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

/// What a sidecar asks for: it sleeps. There is no limit for its CPU: the runtime's own work to start it would count, and take seconds.
const REQUESTS: [(&str, &str); 2] = [("cpu", "1m"), ("memory", "1M")];
/// What it may have. KubeVirt's figure; it takes a twentieth.
const LIMITS: [(&str, &str); 1] = [("memory", "40M")];
/// What it asks for and may have in a pod whose limits equal its requests. Less CPU, and each image delays the start by a second; more, and
/// it is missing on nodes that give guests CPUs of their own.
const GUARANTEED: [(&str, &str); 2] = [("cpu", "50m"), ("memory", "40M")];

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
    let resources = resources(config, compute);
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
        volume_mounts: Some(vec![mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY, false)]),
        security_context: Some(security_context()),
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
            mount(PROGRAM_VOLUME, PROGRAM_DIRECTORY, true),
            mount(paths::HOLDERS_VOLUME, paths::HOLDERS, false),
        ]),
        security_context: Some(security_context()),
        ..Container::default()
    }
}

fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only).filter(|read_only| *read_only),
        ..VolumeMount::default()
    }
}

/// Nothing is allowed that sleeping does not need. virt-handler insists on the read-only root, which it shows to the launcher.
fn security_context() -> SecurityContext {
    let user = i64::from(RUNTIME_USER);
    SecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(user),
        run_as_non_root: Some(true),
        read_only_root_filesystem: Some(true),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        ..SecurityContext::default()
    }
}

/// The cluster's, else the figures above. A pod whose limits equal its requests stays such a pod.
fn resources(config: &LauncherConfig, compute: &ResourceRequirements) -> ResourceRequirements {
    let rows = |rows: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        rows.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
    };
    let is_ours = |of: &SupportContainerType| *of == SupportContainerType::ContainerDisk;
    let wanted = config.cluster.support_container_resources.iter().find(|entry| is_ours(&entry.r#type));
    let is_guaranteed = is_guaranteed(compute);
    let (mut requests, mut limits) =
        if is_guaranteed { (rows(&GUARANTEED), rows(&GUARANTEED)) } else { (rows(&REQUESTS), rows(&LIMITS)) };
    if let Some(wanted) = wanted {
        let render =
            |name: &String, amount: &ferrovirt_api::values::Quantity| (name.clone(), Quantity(amount.to_string()));
        requests.extend(wanted.resources.requests.iter().map(|(name, amount)| render(name, amount)));
        limits.extend(wanted.resources.limits.iter().map(|(name, amount)| render(name, amount)));
    }
    if is_guaranteed {
        requests.clone_from(&limits);
    }
    ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None }
}

/// Whether Kubernetes would call a pod of this container alone `Guaranteed`.
fn is_guaranteed(compute: &ResourceRequirements) -> bool {
    let of = |amounts: &Option<BTreeMap<String, Quantity>>, name: &str| {
        amounts.as_ref()?.get(name)?.0.parse::<ferrovirt_api::values::Quantity>().ok()
    };
    ["cpu", "memory"].iter().all(|name| {
        let limit = of(&compute.limits, name);
        limit.is_some() && limit == of(&compute.requests, name)
    })
}
