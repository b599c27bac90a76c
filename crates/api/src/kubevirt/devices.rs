//! Devices of nodes, and plugins that wire interfaces.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::ContainerResources;
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

/// Devices that guests may have passed through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermittedHostDevices {
    /// PCI devices.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pci_host_devices: Vec<PciHostDevice>,
    /// Mediated devices.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices: Vec<MediatedHostDevice>,
    /// USB devices.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub usb: Vec<UsbHostDevice>,
}

/// A kind of PCI device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PciHostDevice {
    /// Vendor and product, such as `10DE:1EB8`.
    pub pci_vendor_selector: String,
    /// Resource that nodes offer it as.
    pub resource_name: String,
    /// Another device plugin offers it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub external_resource_provider: bool,
}

/// A kind of mediated device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MediatedHostDevice {
    /// Name of the type.
    pub mdev_name_selector: String,
    /// Resource that nodes offer it as.
    pub resource_name: String,
    /// Another device plugin offers it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub external_resource_provider: bool,
}

/// A kind of USB device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsbHostDevice {
    /// Resource that nodes offer it as.
    pub resource_name: String,
    /// The devices; all of them form one unit.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub selectors: Vec<UsbSelector>,
    /// Another device plugin offers it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub external_resource_provider: bool,
}

/// A USB device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsbSelector {
    /// Vendor, as four hexadecimal digits.
    pub vendor: String,
    /// Product, as four hexadecimal digits.
    pub product: String,
}

/// Mediated devices to make on nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MediatedDevicesConfiguration {
    /// Deprecated: use `mediatedDeviceTypes`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices_types: Vec<String>,
    /// Types for nodes without settings of their own.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_device_types: Vec<String>,
    /// Types for single nodes.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig>,
    /// Deprecated: whether devices are made at all.
    pub enabled: Option<bool>,
}

/// Mediated devices of single nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMediatedDeviceTypesConfig {
    /// The nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Deprecated: use `mediatedDeviceTypes`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_devices_types: Vec<String>,
    /// The types.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mediated_device_types: Vec<String>,
}

/// A plugin that wires interfaces.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceBindingPlugin {
    /// Image of its sidecar.
    pub sidecar_image: Option<String>,
    /// Its network: `name` or `namespace/name`.
    pub network_attachment_definition: Option<String>,
    /// How the guest is attached.
    pub domain_attachment_type: Option<DomainAttachmentType>,
    /// What happens to the interface on a move.
    pub migration: Option<InterfaceBindingMigration>,
    /// What the sidecar is told.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<NetworkBindingDownwardApiType>,
    /// Resources that it needs.
    pub compute_resource_overhead: Option<ContainerResources>,
}

string_enum! {
    /// How a plugin attaches a guest.
    pub enum DomainAttachmentType {
        /// A tap device that exists.
        Tap = "tap",
        /// A tap device that is made for it.
        ManagedTap = "managedTap",
    }
}

string_enum! {
    /// What a plugin's sidecar is told.
    pub enum NetworkBindingDownwardApiType {
        /// The devices of the network.
        DeviceInfo = "device-info",
    }
}

/// What happens to an interface on a move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceBindingMigration {
    /// How the guest notices.
    pub method: Option<InterfaceMigrationMethod>,
}

string_enum! {
    /// How a guest notices a move.
    pub enum InterfaceMigrationMethod {
        /// Its link goes down and up.
        LinkRefresh = "link-refresh",
    }
}
