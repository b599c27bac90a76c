//! Values with rules: what a field of one of these types holds has been checked, and is written back as it was read.

mod cpu_topology;
mod duration;
mod firmware_uuid;
mod ipv4;
mod limits;
mod mac_address;
mod quantity;
mod text;

pub use cpu_topology::{CpuTopology, TooManyCpus};
pub use duration::{Duration, InvalidDuration};
pub use firmware_uuid::{FirmwareUuid, InvalidFirmwareUuid};
pub use ipv4::ipv4;
pub use limits::{MOST_MEMORY_OF_A_MACHINE, MOST_VCPUS_OF_A_MACHINE};
pub use mac_address::{InvalidMacAddress, MacAddress};
pub use quantity::{Format, InvalidQuantity, Quantity};
