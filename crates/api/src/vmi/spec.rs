//! What a user asks of one guest: placement, lifecycle, identity, and the virtual machine itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodDNSConfig, Toleration, TopologySpreadConstraint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{AccessCredential, DomainSpec, Network, Probe, UtilityVolume, Volume};
use crate::meta::DnsPolicy;
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

/// The wanted shape of one guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceSpec {
    /// Priority class of the launcher pod.
    pub priority_class_name: Option<String>,
    /// The virtual hardware.
    pub domain: DomainSpec,
    /// Labels that a node must have to run the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Rules that attract the guest to nodes and other pods or keep it away.
    pub affinity: Option<Affinity>,
    /// The scheduler that places the guest; the cluster's default when unset.
    pub scheduler_name: Option<String>,
    /// The service account of the launcher pod; `default` when unset.
    pub service_account_name: Option<String>,
    /// Node taints that the guest accepts.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub tolerations: Vec<Toleration>,
    /// How guests spread over zones, nodes and other domains.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"]))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// What happens when the node is drained; the cluster's setting when unset.
    pub eviction_strategy: Option<EvictionStrategy>,
    /// `Paused` starts the guest without running it.
    pub start_strategy: Option<StartStrategy>,
    /// Seconds that the guest gets to shut down before it is powered off.
    pub termination_grace_period_seconds: Option<i64>,
    /// Storage and data that disks and filesystems refer to by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub volumes: Vec<Volume>,
    /// Ends the guest when it fails.
    pub liveness_probe: Option<Box<Probe>>,
    /// Decides whether the guest counts as ready for traffic.
    pub readiness_probe: Option<Box<Probe>>,
    /// Host name of the guest; its own name when unset.
    pub hostname: Option<String>,
    /// With a headless service of that name the guest is known as `hostname.subdomain.namespace.svc`.
    pub subdomain: Option<String>,
    /// Networks that interfaces attach to by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub networks: Vec<Network>,
    /// Where the guest gets its name servers from.
    pub dns_policy: Option<DnsPolicy>,
    /// Name servers and search domains on top of the policy.
    pub dns_config: Option<PodDNSConfig>,
    /// Keys and passwords that are put into the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub access_credentials: Vec<AccessCredential>,
    /// CPU architecture of the guest; the cluster's default when unset.
    pub architecture: Option<Architecture>,
    /// Dynamic resource claims that devices may refer to.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_claims: Vec<VirtualMachineInstanceResourceClaim>,
    /// Volumes that the system plugs in for its own work, such as memory dumps and backups.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub utility_volumes: Vec<UtilityVolume>,
}

/// A dynamic resource claim of the launcher pod: by name, or made from a template.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceResourceClaim {
    /// Name that devices refer to.
    pub name: String,
    /// An existing claim in the same namespace.
    pub resource_claim_name: Option<String>,
    /// The template to make a claim from.
    pub resource_claim_template_name: Option<String>,
}

string_enum! {
    /// What a node drain does to a guest.
    pub enum EvictionStrategy {
        /// The pod is evicted and the guest ends.
        None = "None",
        /// The guest moves; a guest that cannot move blocks the drain.
        LiveMigrate = "LiveMigrate",
        /// The guest moves when it can and ends otherwise.
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        /// The guest is marked and something outside the cluster's controllers acts.
        External = "External",
    }
}

string_enum! {
    /// How a guest comes up.
    pub enum StartStrategy {
        /// The guest is loaded and waits to be unpaused.
        Paused = "Paused",
    }
}

string_enum! {
    /// CPU architectures that guests can have.
    pub enum Architecture {
        /// x86-64
        Amd64 = "amd64",
        /// AArch64
        Arm64 = "arm64",
        /// IBM Z
        S390x = "s390x",
    }
}
