//! The launcher pod of a guest, as a function of the guest's object and a few facts about the cluster. No IO.
//!
//! ```text
//!   VirtualMachineInstance + LauncherConfig --launcher_pod--> Pod
//! ```
//!
//! | file | part of the pod |
//! |---|---|
//! | [`names`] | its name, derived from the guest's uid, and the host name |
//! | `metadata` | labels, annotations, owner |
//! | `container` | the `compute` container: command, ports, security, probes |
//! | `volumes` | directories of the launcher, images, claims, secrets |
//! | `images` | the images that the guest takes files from, and the sidecars that hold them where there are no image volumes |
//! | `console_log` | the container that logs the serial console |
//! | `helper` | what these small containers have in common |
//! | `resources` | CPU, memory, huge pages, devices |
//! | [`overhead`] | what the processes around the guest need, with the derivation of each figure |
//! | `placement` | node selector, affinity |
//! | `support` | what cannot be run yet, refused by its path |
//! | `target` | what differs in the pod that a guest moves to |
//! | `seen` | what is read of a launcher pod once there is one |
//!
//! Where files are inside of the pod is said in `ferrovirt_launcher_rpc::paths` alone.
//!
//! Only the pod that a guest moves to has a **readiness gate**, KubeVirt's `kubevirt.io/virtual-machine-unpaused`, so that no Service
//! sends it anything before the guest is there. Elsewhere it would cost one write to the pod for each start and for each pause; a
//! paused guest shows in the guest's own `Ready` and `Paused` conditions only.

mod console_log;
mod container;
mod helper;
mod images;
mod metadata;
pub mod names;
pub mod overhead;
mod placement;
mod resources;
mod seen;
mod support;
mod target;
mod volumes;

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::{Configuration, DeveloperConfiguration};
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_kubernetes::{Foreign, Pod};
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use k8s_openapi::api::core::v1::{
    self, LocalObjectReference, PodSecurityContext, PodSpec, ResourceRequirements, SELinuxOptions, SeccompProfile,
};

pub use images::image_slots;
pub use names::{hostname, pod_name, target_pod_name};
pub use overhead::memory_overhead;
pub use resources::{guest_memory, vcpus};
pub use seen::{LauncherPod, has_ended};
pub use support::Unsupported;
pub use target::{Move, target_pod};
pub use volumes::{claims_of, claims_of_volumes};

/// The main container's name.
pub const COMPUTE: &str = "compute";
/// Seconds that a guest gets to shut down when its object does not say.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;
/// Seconds that the launcher waits beyond the guest's own grace period before it kills the guest by itself: virt-handler, which
/// normally does it, must have had its turn.
const LAUNCHER_GRACE_MARGIN_SECONDS: i64 = 15;
/// Seconds that the pod gets beyond the guest's grace period: the launcher's margin, and as much again to end libvirt and QEMU.
const POD_GRACE_MARGIN_SECONDS: i64 = 30;

/// Whether guests run on the processor itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceleration {
    /// With `/dev/kvm`, which the pod asks for.
    #[default]
    Hardware,
    /// Every instruction is translated; nothing is asked for, and QEMU needs more memory.
    Emulation,
}

/// How the files of container disks and kernel boot images get into the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerDisks {
    /// As volumes, by the kubelet.
    #[default]
    ImageVolumes,
    /// As the roots of containers, which virt-handler mounts where the volumes would be. Any cluster can do that.
    Sidecars,
}

/// What a pod depends on besides its guest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LauncherConfig {
    /// The launcher's image.
    pub image: String,
    /// The cluster's configuration, from the `KubeVirt` object.
    pub cluster: Configuration,
    /// How guests run here.
    pub acceleration: Acceleration,
    /// How each claim of the guest is used; one that is not listed has a file system.
    pub claims: BTreeMap<String, VolumeMode>,
    /// How images get into the pod.
    pub container_disks: ContainerDisks,
}

impl LauncherConfig {
    /// The developer's part of the configuration.
    fn developer(&self) -> Option<&DeveloperConfiguration> {
        self.cluster.developer_configuration.as_ref()
    }
}

/// The launcher pod of `vmi`.
///
/// The same arguments give the same pod, and the name depends on the guest's uid alone, so a second attempt to create it can
/// only find the first one's pod.
pub fn launcher_pod(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Result<Pod, Unsupported> {
    support::check(vmi, config)?;
    let overhead = memory_overhead(vmi, config);
    let resources = resources::of(vmi, config, overhead)?;
    let volumes = volumes::of(vmi, config)?;
    let metadata = metadata::of(vmi, overhead);
    Ok(Foreign(v1::Pod { metadata, spec: Some(spec(vmi, config, resources, volumes)), status: None }))
}

fn spec(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    resources: ResourceRequirements,
    volumes: volumes::PodVolumes,
) -> PodSpec {
    let spec = &vmi.spec;
    let mut sidecars = images::init_containers(vmi, config, &resources);
    sidecars.extend(console_log::init_container(vmi, config, &resources));
    let container = container::compute(vmi, config, resources, &volumes);
    PodSpec {
        init_containers: some(sidecars),
        containers: vec![container],
        volumes: Some(volumes.volumes),
        image_pull_secrets: some(volumes.pull_secrets.into_iter().map(|name| LocalObjectReference { name }).collect()),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(grace_seconds(vmi) + POD_GRACE_MARGIN_SECONDS),
        enable_service_links: Some(false),
        automount_service_account_token: Some(volumes.service_account.is_some()),
        service_account_name: volumes.service_account.or_else(|| spec.service_account_name.clone()),
        hostname: Some(hostname(vmi)),
        subdomain: spec.subdomain.clone(),
        dns_policy: spec.dns_policy.map(|policy| policy.as_str().to_owned()),
        dns_config: spec.dns_config.clone(),
        node_selector: Some(placement::node_selector(vmi, config)),
        affinity: placement::affinity(vmi, config),
        tolerations: Some(placement::tolerations(vmi)),
        topology_spread_constraints: some(spec.topology_spread_constraints.clone()),
        priority_class_name: spec.priority_class_name.clone(),
        scheduler_name: spec.scheduler_name.clone(),
        runtime_class_name: config.cluster.default_runtime_class.clone(),
        security_context: Some(security_context(config)),
        ..PodSpec::default()
    }
}

/// Nothing in the pod is root, and volumes belong to the launcher's group.
fn security_context(config: &LauncherConfig) -> PodSecurityContext {
    let user = i64::from(RUNTIME_USER);
    let selinux_type = config.cluster.selinux_launcher_type.clone();
    PodSecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(user),
        run_as_non_root: Some(true),
        fs_group: Some(user),
        seccomp_profile: seccomp_profile(&config.cluster),
        se_linux_options: selinux_type.map(|type_| SELinuxOptions { type_: Some(type_), ..SELinuxOptions::default() }),
        ..PodSecurityContext::default()
    }
}

fn seccomp_profile(cluster: &Configuration) -> Option<SeccompProfile> {
    let profile = cluster.seccomp_configuration.as_ref()?.virtual_machine_instance_profile.as_ref()?;
    let custom = profile.custom_profile.as_ref()?;
    match &custom.localhost_profile {
        Some(path) => Some(SeccompProfile { type_: "Localhost".to_owned(), localhost_profile: Some(path.clone()) }),
        None if custom.runtime_default_profile => {
            Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None })
        }
        None => None,
    }
}

/// Seconds that the guest gets to shut down.
pub fn grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
}

/// A list, unless it is empty: Kubernetes then leaves the field out.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}
