//! Settings of the whole cluster; every one can change while guests run.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{InterfaceBindingPlugin, MediatedDevicesConfiguration, MigrationConfiguration, PermittedHostDevices};
use crate::meta::{Empty, PullPolicy};
use crate::string_enum::string_enum;
use crate::values::Quantity;
use crate::vmi::EvictionStrategy;
use crate::wire::{is_default, or_default};

/// Settings of the whole cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// CPU model of guests that name none.
    pub cpu_model: Option<String>,
    /// CPU that a launcher pod asks for when its guest asks for none; 100m when unset.
    pub cpu_request: Option<Quantity>,
    /// Feature gates, emulation and overcommitment.
    pub developer_configuration: Option<DeveloperConfiguration>,
    /// Deprecated: use `architectureConfiguration`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub emulated_machines: Vec<String>,
    /// When to pull launcher images.
    pub image_pull_policy: Option<PullPolicy>,
    /// Limits and options of moves.
    pub migrations: Option<MigrationConfiguration>,
    /// Deprecated: use `architectureConfiguration`.
    pub machine_type: Option<String>,
    /// Networks of guests.
    pub network: Option<NetworkConfiguration>,
    /// Deprecated: use `architectureConfiguration`.
    pub ovmf_path: Option<String>,
    /// SELinux type of launchers.
    pub selinux_launcher_type: Option<String>,
    /// Runtime class of launcher pods.
    pub default_runtime_class: Option<String>,
    /// What guests read about their maker in SMBIOS.
    pub smbios: Option<SmbiosConfiguration>,
    /// Settings per CPU architecture.
    pub architecture_configuration: Option<ArchConfiguration>,
    /// What a node drain does to guests that do not say.
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Factor on the computed memory overhead, at least `1.0`.
    pub additional_guest_memory_overhead_ratio: Option<String>,
    /// Resources of helper containers.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub support_container_resources: Vec<SupportContainerResources>,
    /// Deprecated and not used.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub supported_guest_agent_versions: Vec<String>,
    /// Seconds between memory statistics; 10 when unset, 0 turns them off.
    pub mem_balloon_stats_period: Option<u32>,
    /// Devices that guests may have passed through.
    pub permitted_host_devices: Option<PermittedHostDevices>,
    /// Mediated devices to make on nodes.
    pub mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
    /// Deprecated and not used.
    #[serde(rename = "minCPUModel")]
    pub min_cpu_model: Option<String>,
    /// CPU models that nodes do not offer.
    #[serde(
        rename = "obsoleteCPUModels",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_default"
    )]
    pub obsolete_cpu_models: BTreeMap<String, bool>,
    /// Guests that a node can have at most.
    pub virtual_machine_instances_per_node: Option<i64>,
    /// Limits of virt-api.
    pub api_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits of webhooks.
    pub webhook_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits of virt-controller.
    pub controller_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits of virt-handler.
    pub handler_configuration: Option<ReloadableComponentConfiguration>,
    /// TLS of all components.
    pub tls_configuration: Option<TlsConfiguration>,
    /// Seccomp profile of launchers.
    pub seccomp_configuration: Option<SeccompConfiguration>,
    /// Storage class for firmware and TPM state.
    pub vm_state_storage_class: Option<String>,
    /// Options of all guests.
    pub virtual_machine_options: Option<VirtualMachineOptions>,
    /// Nodes that share equal memory pages.
    pub ksm_configuration: Option<KsmConfiguration>,
    /// Namespaces whose guests get CPU limits by themselves.
    #[serde(rename = "autoCPULimitNamespaceLabelSelector")]
    pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
    /// How much can be plugged while a guest runs.
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    /// Whether changes reach running guests.
    #[schemars(extend("nullable" = true))]
    pub vm_rollout_strategy: Option<VmRolloutStrategy>,
    /// The set of common instance types.
    #[schemars(extend("nullable" = true))]
    pub common_instancetypes_deployment: Option<Toggle>,
    /// The template service.
    #[schemars(extend("nullable" = true))]
    pub virt_template_deployment: Option<Toggle>,
    /// How machines keep their instance type.
    #[schemars(extend("nullable" = true))]
    pub instancetype: Option<InstancetypeConfiguration>,
    /// The hypervisor.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 1), extend("x-kubernetes-list-type" = "atomic"))]
    pub hypervisors: Vec<HypervisorConfiguration>,
    /// Machines whose changed blocks are tracked.
    #[schemars(extend("nullable" = true))]
    pub changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors>,
    /// SCSI persistent reservations.
    #[schemars(extend("nullable" = true))]
    pub persistent_reservation_configuration: Option<Toggle>,
    /// Attestation of encrypted guests.
    #[schemars(extend("nullable" = true))]
    pub confidential_compute: Option<ConfidentialComputeConfiguration>,
    /// Whether user roles join the cluster's own.
    pub role_aggregation_strategy: Option<RoleAggregationStrategy>,
}

/// Feature gates, emulation and overcommitment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeveloperConfiguration {
    /// Features that are turned on.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub feature_gates: Vec<String>,
    /// Features that are turned off.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub disabled_feature_gates: Vec<String>,
    /// Percent of a disk's size that may be missing on its claim.
    pub pvc_tolerate_less_space_up_to_percent: Option<i64>,
    /// Bytes kept free on each claim.
    #[serde(rename = "minimumReservePVCBytes")]
    pub minimum_reserve_pvc_bytes: Option<u64>,
    /// Percent of its request that a guest gets as memory; 100 when unset.
    #[schemars(range(min = 10))]
    pub memory_overcommit: Option<i64>,
    /// Labels that every guest's node must have.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub node_selectors: BTreeMap<String, String>,
    /// Guests run without hardware virtualisation where it is missing.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub use_emulation: bool,
    /// Virtual CPUs per requested CPU; 10 when unset.
    pub cpu_allocation_ratio: Option<i64>,
    /// Lowest time stamp counter frequency of the cluster, in hertz.
    #[serde(rename = "minimumClusterTSCFrequency")]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    /// Check of container disks.
    pub disk_verification: Option<DiskVerification>,
    /// How much components log.
    pub log_verbosity: Option<LogVerbosity>,
    /// Lets the components be profiled.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub cluster_profiler: bool,
}

/// Check of container disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskVerification {
    /// Memory that the check may use.
    pub memory_limit: Quantity,
}

/// How much components log.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogVerbosity {
    /// virt-api
    #[serde(rename = "virtAPI")]
    pub virt_api: Option<u32>,
    /// virt-controller
    pub virt_controller: Option<u32>,
    /// virt-handler
    pub virt_handler: Option<u32>,
    /// virt-launcher
    pub virt_launcher: Option<u32>,
    /// virt-operator
    pub virt_operator: Option<u32>,
    /// virt-synchronization-controller
    pub virt_synchronization_controller: Option<u32>,
    /// virt-handler on single nodes.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub node_verbosity: BTreeMap<String, u32>,
}

/// Networks of guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfiguration {
    /// Binding of guests that name none; `bridge` when unset.
    pub default_network_interface: Option<String>,
    /// Deprecated and not used.
    pub permit_slirp_interface: Option<bool>,
    /// Allows the bridge binding on the pod network; yes when unset.
    pub permit_bridge_interface_on_pod_network: Option<bool>,
    /// Registered binding plugins.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub binding: BTreeMap<String, InterfaceBindingPlugin>,
}

/// What guests read about their maker in SMBIOS.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SmbiosConfiguration {
    /// Manufacturer.
    pub manufacturer: Option<String>,
    /// Product.
    pub product: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// SKU number.
    pub sku: Option<String>,
    /// Family.
    pub family: Option<String>,
}

/// Settings per CPU architecture.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchConfiguration {
    /// For x86-64.
    pub amd64: Option<ArchSpecificConfiguration>,
    /// For AArch64.
    pub arm64: Option<ArchSpecificConfiguration>,
    /// Deprecated: not supported any more.
    pub ppc64le: Option<ArchSpecificConfiguration>,
    /// For IBM Z.
    pub s390x: Option<ArchSpecificConfiguration>,
    /// Architecture of guests that name none.
    pub default_architecture: Option<String>,
}

/// Settings of one CPU architecture.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchSpecificConfiguration {
    /// Directory with the EFI firmware.
    pub ovmf_path: Option<String>,
    /// Machine types that are allowed, with wildcards.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub emulated_machines: Vec<String>,
    /// Machine type of guests that name none.
    pub machine_type: Option<String>,
}

/// Resources of a helper container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportContainerResources {
    /// The container.
    pub r#type: SupportContainerType,
    /// Its resources.
    pub resources: ContainerResources,
}

string_enum! {
    /// Helper containers.
    pub enum SupportContainerType {
        /// Attaches volumes.
        HotplugDisk = "hotplug-disk",
        /// Brings a disk image.
        ContainerDisk = "container-disk",
        /// Shares a directory.
        Virtiofs = "virtiofs",
        /// Hook of a guest.
        Sidecar = "sidecar",
        /// Exports a volume.
        VmExport = "vmexport",
        /// Logs the serial console.
        GuestConsoleLog = "guest-console-log",
    }
}

/// CPU and memory of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResources {
    /// What it may use at most.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub limits: BTreeMap<String, Quantity>,
    /// What is reserved.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub requests: BTreeMap<String, Quantity>,
}

/// Limits of a component.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReloadableComponentConfiguration {
    /// Its requests to the API server.
    pub rest_client: Option<RestClientConfiguration>,
}

/// Requests to the API server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestClientConfiguration {
    /// How many of them.
    pub rate_limiter: Option<RateLimiter>,
}

/// How many requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimiter {
    /// A token bucket.
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
}

/// A token bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenBucketRateLimiter {
    /// Requests per second.
    pub qps: f64,
    /// Requests at once.
    pub burst: i64,
}

/// TLS of all components.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfiguration {
    /// Lowest version; TLS 1.2 when unset.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: Option<TlsProtocolVersion>,
    /// Cipher suites up to TLS 1.2.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub ciphers: Vec<String>,
}

string_enum! {
    /// Versions of TLS.
    pub enum TlsProtocolVersion {
        /// 1.0
        Tls10 = "VersionTLS10",
        /// 1.1
        Tls11 = "VersionTLS11",
        /// 1.2
        Tls12 = "VersionTLS12",
        /// 1.3
        Tls13 = "VersionTLS13",
    }
}

/// Seccomp profile of launchers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeccompConfiguration {
    /// The profile.
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// Seccomp profile of launchers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceProfile {
    /// A profile other than the default.
    pub custom_profile: Option<CustomProfile>,
}

/// A seccomp profile; one of the two is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomProfile {
    /// A file on the node.
    pub localhost_profile: Option<String>,
    /// The container runtime's own.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub runtime_default_profile: bool,
}

/// Options of all guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineOptions {
    /// Guests do not give free pages back.
    pub disable_free_page_reporting: Option<Empty>,
    /// Serial consoles are not logged.
    pub disable_serial_console_log: Option<Empty>,
}

/// Nodes that share equal memory pages.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KsmConfiguration {
    /// The nodes; all of them when empty.
    pub node_label_selector: Option<LabelSelector>,
}

/// How much can be plugged while a guest runs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveUpdateConfiguration {
    /// Factor on CPUs and memory at start; 4 when unset.
    pub max_hotplug_ratio: Option<u32>,
    /// Sockets at most.
    pub max_cpu_sockets: Option<u32>,
    /// Memory at most.
    pub max_guest: Option<Quantity>,
}

string_enum! {
    /// Whether changes reach running guests.
    pub enum VmRolloutStrategy {
        /// At the next start.
        Stage = "Stage",
        /// At once where possible.
        LiveUpdate = "LiveUpdate",
    }
}

/// Something that can be turned off.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Toggle {
    /// Whether it is on.
    #[schemars(extend("nullable" = true))]
    pub enabled: Option<bool>,
}

/// How machines keep their instance type.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeConfiguration {
    /// Whether it stays a reference.
    #[schemars(extend("nullable" = true))]
    pub reference_policy: Option<InstancetypeReferencePolicy>,
}

string_enum! {
    /// How a machine keeps its instance type.
    pub enum InstancetypeReferencePolicy {
        /// As a reference to a copy.
        Reference = "reference",
        /// Written out into the machine, unless a copy is recorded.
        Expand = "expand",
        /// Always written out into the machine.
        ExpandAll = "expandAll",
    }
}

/// A hypervisor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorConfiguration {
    /// Which one.
    pub name: Option<HypervisorName>,
}

string_enum! {
    /// Hypervisors.
    pub enum HypervisorName {
        /// KVM
        Kvm = "kvm",
        /// Microsoft's hypervisor, with nested partitions beside each other.
        HypervDirect = "hyperv-direct",
    }
}

/// Machines whose changed blocks are tracked; one match is enough.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBlockTrackingSelectors {
    /// Namespaces.
    pub namespace_label_selector: Option<LabelSelector>,
    /// Machines.
    pub virtual_machine_label_selector: Option<LabelSelector>,
}

/// Attestation of encrypted guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfidentialComputeConfiguration {
    /// Intel TDX.
    #[schemars(extend("nullable" = true))]
    pub tdx: Option<TdxConfiguration>,
}

/// Intel TDX.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TdxConfiguration {
    /// Its attestation.
    pub attestation: Option<TdxAttestationConfiguration>,
}

/// Attestation of Intel TDX.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TdxAttestationConfiguration {
    /// Guests must be able to attest.
    #[schemars(extend("x-default" = false))]
    pub enforced: Option<bool>,
    /// Socket of the quote generation service on the node.
    #[schemars(extend("x-default" = "/var/run/tdx-qgs/qgs.socket"))]
    pub qgs_socket_path: Option<String>,
}

string_enum! {
    /// Whether user roles join the cluster's own.
    pub enum RoleAggregationStrategy {
        /// They join `admin`, `edit` and `view`.
        AggregateToDefault = "AggregateToDefault",
        /// They are bound by hand.
        Manual = "Manual",
    }
}
