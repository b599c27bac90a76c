//! Who a guest is: its name, its uid, the UUID that its firmware reports.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::values::FirmwareUuid;

use crate::unsupported::Unsupported;

/// The longest host name that DNS takes as one label.
const LONGEST_LABEL: usize = 63;

/// A guest's identity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// In canonical form.
    pub(crate) uuid: String,
}

impl Identity {
    /// Reads it off an object that an API server has stored. The UUID is the firmware's, else the object's uid, which is one: it
    /// is the same on every node that the guest ever runs on.
    pub(crate) fn of(vmi: &VirtualMachineInstance) -> Result<Self, Unsupported> {
        let metadata = &vmi.metadata;
        let missing =
            |path: &str| Unsupported::new(path, "\"\"", "only objects that an API server has stored can start");
        let name = metadata.name.clone().ok_or_else(|| missing("metadata.name"))?;
        let namespace = metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let uid = metadata.uid.clone().ok_or_else(|| missing("metadata.uid"))?;
        let wanted = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
        let uuid = match wanted {
            Some(uuid) => uuid,
            None => uid.parse().map_err(|_| Unsupported::new("metadata.uid", &uid, "a uid must be a UUID"))?,
        };
        let uuid = FirmwareUuid::from_u128(uuid.as_u128()).as_str().to_owned();
        Ok(Self { name, namespace, uid, uuid })
    }

    /// The name that libvirt knows the guest by.
    pub(crate) fn domain_name(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }
}

/// The guest's host name: the wanted one, else the object's name up to the first dot.
pub(crate) fn hostname(vmi: &VirtualMachineInstance) -> String {
    if let Some(hostname) = vmi.spec.hostname.as_ref().filter(|hostname| !hostname.is_empty()) {
        return hostname.clone();
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default();
    label.chars().take(LONGEST_LABEL).collect::<String>().trim_end_matches('-').to_owned()
}
