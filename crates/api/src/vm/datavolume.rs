//! Data volumes that a virtual machine brings along, in the shape that the Containerized Data Importer gives them.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{AccessMode, Condition, Empty};
use crate::object::object;
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

object! {
    /// A claim and what it is filled with. The kind is the importer's; it is read and created here, not defined.
    pub struct DataVolume {
        spec: DataVolumeSpec,
        status: DataVolumeStatus,
    }
    group: "cdi.kubevirt.io", version: "v1beta1", older: [],
    singular: "datavolume", plural: "datavolumes", scope: NamespaceResourceScope
}

/// How far the importer is. Its words are its own: an unknown one is no error.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// Where the data volume is in its life, such as `ImportInProgress` or `Succeeded`.
    pub phase: Option<String>,
    /// How much is done, such as `42.1%`.
    pub progress: Option<String>,
    /// Single facts, such as `Running`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// A data volume that is made for a virtual machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeTemplateSpec {
    /// `cdi.kubevirt.io/v1beta1`, when given.
    pub api_version: Option<String>,
    /// `DataVolume`, when given.
    pub kind: Option<String>,
    /// Name, labels and annotations.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true, "nullable" = true))]
    pub metadata: Option<ObjectMeta>,
    /// Where the content comes from and where it goes.
    pub spec: DataVolumeSpec,
    /// Not used.
    #[schemars(extend("nullable" = true))]
    pub status: Option<Empty>,
}

/// Where the content of a volume comes from and where it goes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSpec {
    /// Where the content comes from.
    pub source: Option<DataVolumeContentSource>,
    /// The same, by reference.
    pub source_ref: Option<DataVolumeSourceRef>,
    /// The claim to make, in full.
    pub pvc: Option<PersistentVolumeClaimSpec>,
    /// The claim to make; what is left open comes from the storage profile.
    pub storage: Option<StorageSpec>,
    /// Priority class of the pods that do the work.
    pub priority_class_name: Option<String>,
    /// Whether the content is a disk image.
    pub content_type: Option<DataVolumeContentType>,
    /// Steps of a warm import.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub checkpoints: Vec<DataVolumeCheckpoint>,
    /// The listed checkpoints are the last.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub final_checkpoint: bool,
    /// All of the space is allocated.
    pub preallocation: Option<bool>,
}

string_enum! {
    /// Kinds of content.
    pub enum DataVolumeContentType {
        /// A disk image.
        Kubevirt = "kubevirt",
        /// A tar archive.
        Archive = "archive",
    }
}

/// A claim; what is left open comes from the storage profile.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Access modes.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub access_modes: Vec<AccessMode>,
    /// Volumes that may be bound.
    pub selector: Option<LabelSelector>,
    /// Size.
    pub resources: Option<VolumeResourceRequirements>,
    /// The volume to bind.
    pub volume_name: Option<String>,
    /// Storage class; the default class when unset.
    pub storage_class_name: Option<String>,
    /// Filesystem or block.
    pub volume_mode: Option<StorageVolumeMode>,
    /// Snapshot or claim that fills it.
    pub data_source: Option<TypedLocalObjectReference>,
    /// Any object that fills it.
    pub data_source_ref: Option<TypedObjectReference>,
}

string_enum! {
    /// How a claim made by the importer is used.
    pub enum StorageVolumeMode {
        /// With a filesystem.
        Filesystem = "Filesystem",
        /// As a raw device.
        Block = "Block",
        /// As the storage profile says.
        FromStorageProfile = "FromStorageProfile",
    }
}

/// One step of a warm import.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeCheckpoint {
    /// The snapshot before.
    pub previous: String,
    /// The snapshot to copy.
    pub current: String,
}

/// Where the content comes from; exactly one is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeContentSource {
    /// A web server.
    pub http: Option<DataVolumeSourceHttp>,
    /// An S3 bucket.
    pub s3: Option<DataVolumeSourceS3>,
    /// A Google Cloud bucket.
    pub gcs: Option<DataVolumeSourceGcs>,
    /// A container registry.
    pub registry: Option<DataVolumeSourceRegistry>,
    /// A claim that is cloned.
    pub pvc: Option<DataVolumeSourcePvc>,
    /// An upload by a client.
    pub upload: Option<Empty>,
    /// Nothing: an empty disk.
    pub blank: Option<Empty>,
    /// An oVirt image server.
    pub imageio: Option<DataVolumeSourceImageIo>,
    /// A VMware host.
    pub vddk: Option<DataVolumeSourceVddk>,
    /// A volume snapshot that is cloned.
    pub snapshot: Option<DataVolumeSourceSnapshot>,
}

/// A claim that is cloned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourcePvc {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A volume snapshot that is cloned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceSnapshot {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An S3 bucket.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceS3 {
    /// Address of the object.
    pub url: String,
    /// Secret with the keys.
    pub secret_ref: Option<String>,
    /// Config map with certificates to trust.
    pub cert_config_map: Option<String>,
}

/// A Google Cloud bucket.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceGcs {
    /// Address of the object.
    pub url: String,
    /// Secret with the keys.
    pub secret_ref: Option<String>,
}

/// A container registry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceRegistry {
    /// Address of the image.
    pub url: Option<String>,
    /// An image stream in the cluster.
    pub image_stream: Option<String>,
    /// Who pulls the image.
    pub pull_method: Option<RegistryPullMethod>,
    /// Secret for the registry.
    pub secret_ref: Option<String>,
    /// Config map with certificates to trust.
    pub cert_config_map: Option<String>,
    /// Which image of a multi-platform one.
    pub platform: Option<PlatformOptions>,
}

/// Which image of a multi-platform one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlatformOptions {
    /// CPU architecture.
    pub architecture: Option<String>,
}

string_enum! {
    /// Who pulls an image.
    pub enum RegistryPullMethod {
        /// The importer's pod.
        Pod = "pod",
        /// The node's container runtime.
        Node = "node",
    }
}

/// A web server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceHttp {
    /// Address of the image.
    pub url: String,
    /// Secret with user and password.
    pub secret_ref: Option<String>,
    /// Config map with certificates to trust.
    pub cert_config_map: Option<String>,
    /// Headers for the request.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub extra_headers: Vec<String>,
    /// Secrets with headers for the request.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub secret_extra_headers: Vec<String>,
}

/// An oVirt image server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceImageIo {
    /// Address of the server.
    pub url: String,
    /// The disk.
    pub disk_id: String,
    /// Secret with user and password.
    pub secret_ref: Option<String>,
    /// Config map with certificates to trust.
    pub cert_config_map: Option<String>,
    /// The server's certificate is not checked.
    pub insecure_skip_verify: Option<bool>,
}

/// A VMware host.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceVddk {
    /// Address of the host.
    pub url: Option<String>,
    /// The machine that the disk belongs to.
    pub uuid: Option<String>,
    /// The disk's file.
    pub backing_file: Option<String>,
    /// Fingerprint of the host's certificate.
    pub thumbprint: Option<String>,
    /// Secret with user and password.
    pub secret_ref: Option<String>,
    /// Image with the VDDK library.
    #[serde(rename = "initImageURL")]
    pub init_image_url: Option<String>,
    /// Config map with arguments for the library.
    pub extra_args: Option<String>,
}

/// Content by reference.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceRef {
    /// Kind of the object, `DataSource`.
    pub kind: String,
    /// Its namespace; the data volume's own when unset.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}
