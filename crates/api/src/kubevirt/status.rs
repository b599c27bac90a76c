//! How far the installation is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

/// How far the installation is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtStatus {
    /// Where it is in its life.
    pub phase: Option<KubeVirtPhase>,
    /// Single facts, such as `Available`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Version of the operator.
    pub operator_version: Option<String>,
    /// Registry that is being installed from.
    pub target_kube_virt_registry: Option<String>,
    /// Version that is being installed.
    pub target_kube_virt_version: Option<String>,
    /// What is being installed, in full, as JSON.
    pub target_deployment_config: Option<String>,
    /// Hash of what is being installed.
    #[serde(rename = "targetDeploymentID")]
    pub target_deployment_id: Option<String>,
    /// Registry that was installed from.
    pub observed_kube_virt_registry: Option<String>,
    /// Version that is installed.
    pub observed_kube_virt_version: Option<String>,
    /// What is installed, in full, as JSON.
    pub observed_deployment_config: Option<String>,
    /// Hash of what is installed.
    #[serde(rename = "observedDeploymentID")]
    pub observed_deployment_id: Option<String>,
    /// Guests that run in an old launcher.
    pub outdated_virtual_machine_instance_workloads: Option<i64>,
    /// Generation that has been acted on.
    pub observed_generation: Option<i64>,
    /// Architecture of guests that name none.
    pub default_architecture: Option<String>,
    /// Generations of installed objects.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub generations: Vec<GenerationStatus>,
    /// Addresses for moves from other clusters.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub synchronization_addresses: Vec<String>,
}

string_enum! {
    /// Where an installation is in its life.
    pub enum KubeVirtPhase {
        /// Being installed or updated.
        Deploying = "Deploying",
        /// Installed.
        Deployed = "Deployed",
        /// Being removed.
        Deleting = "Deleting",
        /// Removed.
        Deleted = "Deleted",
    }
}

/// Generation of an installed object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GenerationStatus {
    /// API group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Generation after the last write.
    pub last_generation: i64,
    /// Hash of objects without a generation.
    pub hash: Option<String>,
}
