//! How Ferrovirt is installed and updated; the settings themselves are in `configuration`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Configuration;
use crate::meta::PullPolicy;
use crate::string_enum::string_enum;
use crate::values::Duration;
use crate::wire::{is_default, or_default};

/// How the system is installed, updated and configured.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtSpec {
    /// Tag of the components' images.
    pub image_tag: Option<String>,
    /// Registry of the components' images.
    pub image_registry: Option<String>,
    /// When to pull the components' images.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secrets for the registry.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Namespace of the Prometheus that scrapes the components.
    pub monitor_namespace: Option<String>,
    /// Namespace of the ServiceMonitor.
    pub service_monitor_namespace: Option<String>,
    /// Service account of the Prometheus.
    pub monitor_account: Option<String>,
    /// What an update does to running guests.
    pub workload_update_strategy: Option<WorkloadUpdateStrategy>,
    /// What removal does while guests exist.
    pub uninstall_strategy: Option<UninstallStrategy>,
    /// How long certificates live.
    pub certificate_rotate_strategy: Option<CertificateRotateStrategy>,
    /// Label of all components: version.
    pub product_version: Option<String>,
    /// Label of all components: product.
    pub product_name: Option<String>,
    /// Label of all components: part of the product.
    pub product_component: Option<String>,
    /// Port for moves between clusters.
    pub synchronization_port: Option<String>,
    /// Settings.
    pub configuration: Option<Configuration>,
    /// Placement of the control plane.
    pub infra: Option<ComponentConfig>,
    /// Placement of the node agents.
    pub workloads: Option<ComponentConfig>,
    /// Patches to what gets installed.
    pub customize_components: Option<CustomizeComponents>,
}

/// What an update does to running guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadUpdateStrategy {
    /// Allowed ways, the gentlest first; none when empty.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub workload_update_methods: Vec<WorkloadUpdateMethod>,
    /// How many guests are evicted at a time; 10 when unset.
    pub batch_eviction_size: Option<i64>,
    /// Time between two batches; 1m when unset.
    pub batch_eviction_interval: Option<Duration>,
}

string_enum! {
    /// Ways to bring a running guest up to date.
    pub enum WorkloadUpdateMethod {
        /// Move it into a new launcher.
        LiveMigrate = "LiveMigrate",
        /// End it; its owner starts a new one.
        Evict = "Evict",
    }
}

string_enum! {
    /// What removal does while guests exist.
    pub enum UninstallStrategy {
        /// Guests are removed too.
        RemoveWorkloads = "RemoveWorkloads",
        /// Removal is refused.
        BlockUninstallIfWorkloadsExist = "BlockUninstallIfWorkloadsExist",
    }
}

/// How long certificates live.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRotateStrategy {
    /// Certificates of the system's own authority.
    pub self_signed: Option<SelfSignConfiguration>,
}

/// Lifetimes of self-signed certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelfSignConfiguration {
    /// Deprecated: use `ca.duration`.
    pub ca_rotate_interval: Option<Duration>,
    /// Deprecated: use `server.duration`.
    pub cert_rotate_interval: Option<Duration>,
    /// Deprecated: use `ca.renewBefore`.
    pub ca_overlap_interval: Option<Duration>,
    /// The authority's certificate.
    pub ca: Option<CertConfig>,
    /// All other certificates.
    pub server: Option<CertConfig>,
}

/// Lifetime of a certificate.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertConfig {
    /// How long it is valid.
    pub duration: Option<Duration>,
    /// How long before its end it is renewed.
    pub renew_before: Option<Duration>,
}

/// Placement of components.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentConfig {
    /// Nodes that they may run on.
    pub node_placement: Option<NodePlacement>,
    /// How many of each run; not for node agents.
    pub replicas: Option<u8>,
}

/// Nodes that components may run on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// Labels that a node must have.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules that attract them to nodes and other pods or keep them away.
    pub affinity: Option<Affinity>,
    /// Node taints that they accept.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub tolerations: Vec<Toleration>,
}

/// Changes to what gets installed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizeComponents {
    /// Patches to installed objects.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Vec<ComponentPatch>,
    /// Command line flags of components.
    pub flags: Option<ComponentFlags>,
}

/// A patch to an installed object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentPatch {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub resource_name: String,
    /// Kind of the object.
    #[schemars(length(min = 1))]
    pub resource_type: String,
    /// The patch, as JSON.
    pub patch: String,
    /// How it is applied.
    pub r#type: PatchType,
}

string_enum! {
    /// How a patch is applied.
    pub enum PatchType {
        /// JSON patch
        Json = "json",
        /// JSON merge patch
        Merge = "merge",
        /// Strategic merge patch
        Strategic = "strategic",
    }
}

/// Command line flags of components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentFlags {
    /// Of virt-api.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub api: BTreeMap<String, String>,
    /// Of virt-controller.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub controller: BTreeMap<String, String>,
    /// Of virt-handler.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub handler: BTreeMap<String, String>,
}
