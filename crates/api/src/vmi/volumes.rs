//! Volumes: where the content of disks and shared directories comes from.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, LocalObjectReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{Empty, PullPolicy};
use crate::string_enum::string_enum;
use crate::values::Quantity;
use crate::wire::{is_default, or_default};

/// A named piece of storage or data; exactly one source is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name that disks and filesystems refer to.
    pub name: String,
    /// A disk image file on the node.
    pub host_disk: Option<HostDisk>,
    /// A persistent volume claim of the same namespace.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// Cloud-init data on a no-cloud disk.
    pub cloud_init_no_cloud: Option<Box<CloudInitNoCloudSource>>,
    /// Cloud-init data on a config drive.
    pub cloud_init_config_drive: Option<Box<CloudInitConfigDriveSource>>,
    /// Windows answer files.
    pub sysprep: Option<SysprepSource>,
    /// A disk image shipped in a container image; changes are lost when the guest ends.
    pub container_disk: Option<ContainerDiskSource>,
    /// A throw-away layer over a claim that is not changed.
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// A fresh disk that lives as long as the guest.
    pub empty_disk: Option<EmptyDiskSource>,
    /// A data volume of the same namespace.
    pub data_volume: Option<DataVolumeSource>,
    /// The entries of a config map.
    pub config_map: Option<ConfigMapVolumeSource>,
    /// The entries of a secret.
    pub secret: Option<SecretVolumeSource>,
    /// Facts about the guest as files.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardApiVolumeSource>,
    /// The credentials of a service account.
    pub service_account: Option<ServiceAccountVolumeSource>,
    /// Host metrics as a small disk.
    pub downward_metrics: Option<Empty>,
    /// The claim that a memory dump is written to.
    pub memory_dump: Option<MemoryDumpVolumeSource>,
    /// A directory of the launcher pod, read-only.
    pub container_path: Option<ContainerPathVolumeSource>,
}

/// A disk image file on the node.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDisk {
    /// Where the file is on the node.
    pub path: String,
    /// Whether the file must exist.
    pub r#type: HostDiskType,
    /// Size of a file that is created.
    pub capacity: Option<Quantity>,
    /// Other guests use the file too.
    pub shared: Option<bool>,
}

string_enum! {
    /// Whether a host disk must exist.
    pub enum HostDiskType {
        /// The file must exist.
        Disk = "Disk",
        /// The file is created when missing.
        DiskOrCreate = "DiskOrCreate",
    }
}

/// A claim used as a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimVolumeSource {
    /// Name of the claim.
    pub claim_name: String,
    /// The claim is attached read-only.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The volume may be plugged and unplugged while the guest runs.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub hotpluggable: bool,
}

/// A throw-away layer over a claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralVolumeSource {
    /// The claim below the layer.
    pub persistent_volume_claim: Option<ClaimSource>,
}

/// A claim by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    /// Name of the claim.
    pub claim_name: String,
    /// The claim is attached read-only.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// Cloud-init data on a no-cloud disk; each part inline, as base64 or from a secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitNoCloudSource {
    /// Secret with the key `userdata`.
    pub secret_ref: Option<LocalObjectReference>,
    /// User data as base64.
    pub user_data_base64: Option<String>,
    /// User data.
    pub user_data: Option<String>,
    /// Secret with the key `networkdata`.
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Network data as base64.
    pub network_data_base64: Option<String>,
    /// Network data.
    pub network_data: Option<String>,
}

/// Cloud-init data on a config drive; each part inline, as base64 or from a secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitConfigDriveSource {
    /// Secret with the key `userdata`.
    pub secret_ref: Option<LocalObjectReference>,
    /// User data as base64.
    pub user_data_base64: Option<String>,
    /// User data.
    pub user_data: Option<String>,
    /// Secret with the key `networkdata`.
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Network data as base64.
    pub network_data_base64: Option<String>,
    /// Network data.
    pub network_data: Option<String>,
}

/// Windows answer files, from one of the two.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SysprepSource {
    /// Secret with the answer files.
    pub secret: Option<LocalObjectReference>,
    /// Config map with the answer files.
    pub config_map: Option<LocalObjectReference>,
}

/// A disk image in a container image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerDiskSource {
    /// The container image.
    pub image: String,
    /// Secret for the registry.
    pub image_pull_secret: Option<String>,
    /// Where the disk is inside the image; looked for below `/disk` when unset.
    pub path: Option<String>,
    /// When to pull the image.
    pub image_pull_policy: Option<PullPolicy>,
}

/// A fresh disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDiskSource {
    /// Size of the disk.
    pub capacity: Quantity,
}

/// A data volume used as a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSource {
    /// Name of the data volume, and of its claim.
    pub name: String,
    /// The volume may be plugged and unplugged while the guest runs.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub hotpluggable: bool,
}

/// The entries of a config map as a disk or directory.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapVolumeSource {
    /// Name of the config map.
    #[schemars(extend("x-default" = ""))]
    pub name: Option<String>,
    /// A missing config map is not an error.
    pub optional: Option<bool>,
    /// Label of the disk's filesystem.
    pub volume_label: Option<String>,
}

/// The entries of a secret as a disk or directory.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolumeSource {
    /// Name of the secret.
    pub secret_name: Option<String>,
    /// A missing secret is not an error.
    pub optional: Option<bool>,
    /// Label of the disk's filesystem.
    pub volume_label: Option<String>,
}

/// Facts about the guest as files.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownwardApiVolumeSource {
    /// The files.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub fields: Vec<DownwardAPIVolumeFile>,
    /// Label of the disk's filesystem.
    pub volume_label: Option<String>,
}

/// The credentials of a service account as a disk.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountVolumeSource {
    /// Name of the service account.
    pub service_account_name: Option<String>,
}

/// The claim that a memory dump is written to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryDumpVolumeSource {
    /// Name of the claim.
    pub claim_name: String,
    /// The claim is attached read-only.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// The volume may be plugged and unplugged while the guest runs.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub hotpluggable: bool,
}

/// A directory of the launcher pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPathVolumeSource {
    /// Absolute path in the launcher's main container.
    #[schemars(length(max = 4096), extend("x-kubernetes-validations" = [{"rule": "self.startsWith('/')", "message": "path must be absolute"}, {"rule": "!self.contains('..')", "message": "path must not contain '..'"}]))]
    pub path: String,
    /// Always true: the guest cannot write.
    #[schemars(extend("x-default" = true, "x-kubernetes-validations" = [{"rule": "self == true", "message": "readOnly must be true"}]))]
    pub read_only: Option<bool>,
}

/// What can be plugged into a running guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HotplugVolumeSource {
    /// A claim.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// A data volume.
    pub data_volume: Option<DataVolumeSource>,
}

/// A claim that the system plugs in for its own work.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UtilityVolume {
    /// Name of the volume.
    pub name: String,
    /// Name of the claim.
    pub claim_name: String,
    /// The claim is attached read-only.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// What it is for.
    pub r#type: Option<UtilityVolumeType>,
}

string_enum! {
    /// What a utility volume is for.
    pub enum UtilityVolumeType {
        /// A memory dump is written to it.
        MemoryDump = "MemoryDump",
        /// A backup is written to it.
        Backup = "Backup",
    }
}
