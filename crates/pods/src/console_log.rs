//! `guest-console-log`: a container that writes what the guest says on its serial port to its own log, for `kubectl logs` and whatever collects
//! logs in a cluster.
//!
//! KubeVirt adds it to every pod. Here it is for VMs that ask for it (`logSerialConsole: true`), since it costs each of them a process:
//! `virtctl console --log` shows the same without.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::SupportContainerType;
use ferrovirt_launcher_rpc::paths;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

use crate::helper::{self, Figures};
use crate::volumes::PRIVATE;
use crate::{LauncherConfig, container};

/// The container's name, as KubeVirt's users know it.
const GUEST_CONSOLE_LOG: &str = "guest-console-log";

/// KubeVirt's figures for the same; it takes less than 3 MiB.
const FIGURES: Figures = Figures {
    of: SupportContainerType::GuestConsoleLog,
    requests: &[("cpu", "5m"), ("memory", "35M")],
    limits: &[("cpu", "15m"), ("memory", "60M")],
    guaranteed: &[("cpu", "15m"), ("memory", "60M")],
};

/// The container, where the VMI asks for one. It stays like a sidecar: the kubelet ends it when `compute` has ended.
pub(crate) fn init_container(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    compute: &ResourceRequirements,
) -> Option<Container> {
    let devices = &vmi.spec.domain.devices;
    let has_console = devices.autoattach_serial_console.unwrap_or(true);
    if !has_console || devices.log_serial_console != Some(true) {
        return None;
    }
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    Some(Container {
        name: GUEST_CONSOLE_LOG.to_owned(),
        image: Some(config.image.clone()),
        image_pull_policy: Some(container::pull_policy(config)),
        command: Some(["virt-launcher", "console-log", uid].map(str::to_owned).to_vec()),
        restart_policy: Some("Always".to_owned()),
        resources: Some(helper::resources(&FIGURES, config, compute)),
        volume_mounts: Some(vec![helper::mount(PRIVATE, paths::PRIVATE, true)]),
        security_context: Some(helper::security_context()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(devices: &Value) -> Option<Container> {
        let vmi = json!({"metadata": {"uid": "u"}, "spec": {"domain": {"devices": devices}}});
        init_container(
            &serde_json::from_value(vmi).unwrap(),
            &LauncherConfig::default(),
            &ResourceRequirements::default(),
        )
    }

    #[test]
    fn the_console_is_logged_where_it_is_asked_for_and_there_is_one() {
        assert!(container(&json!({})).is_none());
        assert!(container(&json!({"logSerialConsole": false})).is_none());
        assert!(container(&json!({"logSerialConsole": true, "autoattachSerialConsole": false})).is_none());
        let container = container(&json!({"logSerialConsole": true})).unwrap();
        assert_eq!(container.command.unwrap(), ["virt-launcher", "console-log", "u"]);
        assert_eq!(container.restart_policy.as_deref(), Some("Always"));
    }
}
