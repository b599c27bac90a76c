//! A guest's object, facts about its node and its network links become a libvirt domain. Pure: no IO, no clock, no chance.
//!
//! ```text
//! VirtualMachineInstance ─┐                        ┌─ domain()     → Domain::to_xml → libvirt
//! NodeFacts ──────────────┼─ refuse ─→ Guest ──────┤
//! GuestLink per interface ┘                        └─ disk_tasks() → what the launcher makes or checks first
//! ```
//!
//! * The same input gives the same document, to the byte: on every node, after every restart.
//! * Every device has an address that we chose (`pci.rs`), so a device stays where it is when others come and go.
//! * Nothing is dropped in silence: what cannot be had is [`Unsupported`], with the field, its value and the reason.
//! * Images are never probed: the format is always said, and what is below an overlay is either said or written by the launcher.
//!
//! Written for libvirt 9.0 and QEMU 7.2, run as a user without privileges, and for newer ones. Newer features are used where
//! [`NodeFacts`] says that they are there.

mod cloud_init;
mod convert;
mod facts;
mod identity;
mod moving;
mod pci;
mod refuse;
mod unsupported;
mod volumes;
mod xml;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::network::GuestLink;

pub use facts::{Accelerator, Claim, Claims, FirmwareImage, HostCpu, NodeFacts, Ovmf, Smbios, Version};
pub use moving::{copied_volumes, target_disk_tasks};
pub use unsupported::Unsupported;
pub use xml::Domain;

/// The libvirt domain of a guest. `links` has one entry for each interface that is plugged.
pub fn domain(vmi: &VirtualMachineInstance, facts: &NodeFacts, links: &[GuestLink]) -> Result<Domain, Unsupported> {
    refuse::refuse(vmi)?;
    convert::domain(vmi, facts, links)
}

/// What the launcher makes or checks before the domain starts, in order. The paths are those in the domain.
pub fn disk_tasks(
    vmi: &VirtualMachineInstance,
    facts: &NodeFacts,
    links: &[GuestLink],
) -> Result<Vec<DiskTask>, Unsupported> {
    convert::disk_tasks(vmi, facts, links)
}
