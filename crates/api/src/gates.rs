//! Feature gates: which features a cluster has on, by name and stage.

use crate::kubevirt::Configuration;

/// On, whatever the configuration says.
const ALWAYS: &[&str] = &[
    "LiveMigration",
    "SRIOVLiveMigration",
    "NonRoot",
    "PSA",
    "CPUNodeDiscovery",
    "NUMA",
    "GPU",
    "VMLiveUpdateFeatures",
    "CommonInstancetypesDeploymentGate",
    "HotplugNICs",
    "BochsDisplayForEFIGuests",
    "AutoResourceLimitsGate",
    "NetworkBindingPlugins",
    "DynamicPodInterfaceNaming",
    "VolumesUpdateStrategy",
    "VolumeMigration",
    "VMExport",
    "DisableCustomSELinuxPolicy",
    "ClusterProfiler",
    "VMPersistentState",
    "InstancetypeReferencePolicy",
    "EnableVirtioFsConfigVolumes",
    "VideoConfig",
    "ExpandDisks",
    "PanicDevices",
    "LiveUpdateNADRef",
    "PersistentReservation",
    "SecureExecution",
    "MigrationPriorityQueue",
];

/// On unless the configuration turns them off. Every gate that is in neither list is off unless it is turned on.
const UNLESS_DISABLED: &[&str] = &[
    "LibvirtHooksServerAndClient",
    "ImageVolume",
    "Snapshot",
    "WorkloadEncryptionSEV",
    "KubevirtSeccompProfile",
    "NodeRestriction",
    "GPUsWithDRA",
    "HostDevicesWithDRA",
    "DeclarativeHotplugVolumes",
    "PasstBinding",
    "PodSecondaryInterfaceNamingUpgrade",
    "ExternalNetResourceInjection",
    "RebootPolicy",
    "Template",
    "VmiMemoryOverheadReport",
    "OptOutRoleAggregation",
];

/// Agents write about the guests of their own node only.
pub const NODE_RESTRICTION: &str = "NodeRestriction";
/// Launchers run as root.
pub const ROOT: &str = "Root";
/// Emulator threads round the CPUs of a guest up to an even number.
pub const ALIGN_CPUS: &str = "AlignCPUs";
/// Guests may use files of their node as disks.
pub const HOST_DISK: &str = "HostDisk";
/// Guests may have an Ignition configuration.
pub const IGNITION: &str = "ExperimentalIgnitionSupport";
/// Container disks are image volumes, where the cluster has those.
pub const IMAGE_VOLUME: &str = "ImageVolume";
/// Guests may have a virtual socket to their host.
pub const VSOCK: &str = "VSOCK";
/// Guests may say what a reboot does.
pub const REBOOT_POLICY: &str = "RebootPolicy";
/// Guests may reserve memory for their hypervisor.
pub const RESERVED_OVERHEAD: &str = "ReservedOverheadMemlock";
/// Interfaces may forward ranges of ports.
pub const PORT_RANGES: &str = "PortRangesSpec";
/// Volumes are plugged by editing the machine; CD drives may be empty.
pub const DECLARATIVE_HOTPLUG: &str = "DeclarativeHotplugVolumes";
/// Moves that do not get anywhere are noticed.
pub const STALL_DETECTION: &str = "MigrationStallDetection";

/// Off unless turned on, and about to go.
pub const DEPRECATED: &[&str] =
    &["DockerSELinuxMCSWorkaround", "MultiArchitecture", "DisableMDEVConfiguration", "HotplugVolumes"];
/// Gone: turning them on does nothing.
pub const DISCONTINUED: &[&str] = &["ExperimentalVirtiofsSupport", "Passt", "Macvtap", "PasstIPStackMigration"];

/// Whether a feature is on.
#[must_use]
pub fn is_on(cluster: &Configuration, gate: &str) -> bool {
    let developer = cluster.developer_configuration.as_ref();
    let listed = |list: Option<&Vec<String>>| list.is_some_and(|list| list.iter().any(|name| name == gate));
    let disabled = listed(developer.map(|developer| &developer.disabled_feature_gates));
    let enabled = listed(developer.map(|developer| &developer.feature_gates));
    ALWAYS.contains(&gate) || (!disabled && (enabled || UNLESS_DISABLED.contains(&gate)))
}

/// Whether the configuration turns a feature on by its name, and not only its stage does.
#[must_use]
pub fn is_asked_for(cluster: &Configuration, gate: &str) -> bool {
    let developer = cluster.developer_configuration.as_ref();
    is_on(cluster, gate) && developer.is_some_and(|developer| developer.feature_gates.iter().any(|name| name == gate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubevirt::DeveloperConfiguration;

    fn cluster(on: &[&str], off: &[&str]) -> Configuration {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let developer = DeveloperConfiguration {
            feature_gates: words(on),
            disabled_feature_gates: words(off),
            ..DeveloperConfiguration::default()
        };
        Configuration { developer_configuration: Some(developer), ..Configuration::default() }
    }

    #[test]
    fn the_stage_decides_unless_the_configuration_says_otherwise() {
        let plain = Configuration::default();
        assert!(is_on(&plain, "LiveMigration"));
        assert!(is_on(&plain, "Snapshot"));
        assert!(!is_on(&plain, HOST_DISK));
        let changed = cluster(&["HostDisk"], &["Snapshot", "LiveMigration"]);
        assert!(is_on(&changed, HOST_DISK));
        assert!(!is_on(&changed, "Snapshot"));
        assert!(is_on(&changed, "LiveMigration"), "what is always on cannot be turned off");
        assert!(!is_on(&cluster(&["HostDisk"], &["HostDisk"]), HOST_DISK));
    }

    #[test]
    fn what_is_on_by_its_stage_is_not_asked_for() {
        assert!(!is_asked_for(&Configuration::default(), IMAGE_VOLUME));
        assert!(is_asked_for(&cluster(&[IMAGE_VOLUME], &[]), IMAGE_VOLUME));
        assert!(!is_asked_for(&cluster(&[IMAGE_VOLUME], &[IMAGE_VOLUME]), IMAGE_VOLUME));
    }
}
