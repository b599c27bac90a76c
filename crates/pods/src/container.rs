//! The `compute` container: virt-launcher, and through it libvirt and QEMU.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::PullPolicy;
use ferrovirt_api::vmi::Probe as GuestProbe;
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, Probe, ResourceRequirements, SecurityContext,
};

use crate::volumes::PodVolumes;
use crate::{COMPUTE, LAUNCHER_GRACE_MARGIN_SECONDS, LauncherConfig, grace_seconds, some};

/// The one capability that containers may have: it lets the launcher's DHCP server use its port.
const CAPABILITY: &str = "NET_BIND_SERVICE";
/// Seconds that a guest gets before its liveness counts: a probe that counts from the start of the pod would end guests whose
/// node is busy. Readiness needs none, as failing it costs nothing.
const LIVENESS_DELAY_SECONDS: i32 = 10;

pub(crate) fn compute(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    resources: ResourceRequirements,
    volumes: &PodVolumes,
) -> Container {
    Container {
        name: COMPUTE.to_owned(),
        image: Some(config.image.clone()),
        image_pull_policy: Some(pull_policy(config)),
        command: Some(command(vmi)),
        ports: some(ports(vmi)),
        resources: Some(resources),
        volume_mounts: Some(volumes.mounts.clone()),
        volume_devices: some(volumes.devices.clone()),
        security_context: Some(security_context()),
        liveness_probe: vmi.spec.liveness_probe.as_ref().map(|guest| probe(guest, LIVENESS_DELAY_SECONDS)),
        readiness_probe: vmi.spec.readiness_probe.as_ref().map(|guest| probe(guest, 0)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// When the launcher's image is pulled.
pub(crate) fn pull_policy(config: &LauncherConfig) -> String {
    config.cluster.image_pull_policy.unwrap_or(PullPolicy::IfNotPresent).as_str().to_owned()
}

fn command(vmi: &VirtualMachineInstance) -> Vec<String> {
    let grace = (grace_seconds(vmi) + LAUNCHER_GRACE_MARGIN_SECONDS).to_string();
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let words =
        ["virt-launcher", "--grace-period-seconds", &grace, "--uid", uid, "--name", name, "--namespace", namespace];
    words.map(str::to_owned).to_vec()
}

fn ports(vmi: &VirtualMachineInstance) -> Vec<ContainerPort> {
    let ports = vmi.spec.domain.devices.interfaces.iter().flat_map(|interface| &interface.ports);
    let ports = ports.map(|port| ContainerPort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        container_port: port.port,
        protocol: Some(port.protocol.map_or("TCP", |protocol| protocol.as_str()).to_owned()),
        ..ContainerPort::default()
    });
    ports.collect()
}

fn security_context() -> SecurityContext {
    let user = i64::from(RUNTIME_USER);
    SecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(user),
        run_as_non_root: Some(true),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: Some(vec![CAPABILITY.to_owned()]), drop: Some(vec!["ALL".to_owned()]) }),
        ..SecurityContext::default()
    }
}

/// A probe of the guest is one of the pod: both have the same address.
fn probe(guest: &GuestProbe, delay: i32) -> Probe {
    Probe {
        http_get: guest.http_get.clone(),
        tcp_socket: guest.tcp_socket.clone(),
        initial_delay_seconds: Some(guest.initial_delay_seconds.unwrap_or(0).saturating_add(delay)),
        timeout_seconds: guest.timeout_seconds,
        period_seconds: guest.period_seconds,
        success_threshold: guest.success_threshold,
        failure_threshold: guest.failure_threshold,
        ..Probe::default()
    }
}
