//! Where each device sits on the guest's PCI buses, so that libvirt has nothing to choose.
//!
//! A guest's operating system names devices after their address and binds licences and boot entries to it: a device must stay
//! where it is when the guest restarts, moves, or gets one more device. So an address follows from a device's role and its number
//! within that role, and from nothing else.
//!
//! ```text
//! 00:01.0           video
//! 00:02.0 … 0d.7    root ports 1 to 96, one bus each: 1 to 4 for network cards 1 to 4, 5 to 12 for virtio disks 1 to 8,
//!                   13 to 16 for cards 5 to 8, 17 to 24 for disks 9 to 16, and so on
//! 00:0e.0 … 1b.7    what is never plugged while the guest runs, see [`Role`]
//! 00:1d.0, 1e.0     ports of the bridges for transitional virtio devices, which cannot sit in a PCI Express port themselves
//! 00:1f.x           the chipset
//! ```
//!
//! The first network card is the only device on bus 1, so that Linux calls it `enp1s0` as people are used to. Ports that no device
//! uses are free for hotplug. There are as many as KubeVirt's third topology gives: 8 ports and at least 3 free ones for guests of
//! up to 2 GiB, 16 and at least 6 for larger ones.

use std::collections::BTreeMap;
use std::fmt;

use crate::Unsupported;
use crate::xml::Address;
use crate::xml::devices::{Controller, Named, PortTarget};

/// Slots of bus 0 with root ports, eight in each.
const FIRST_PORT_SLOT: u8 = 2;
const PORTS_PER_SLOT: u8 = 8;
const LAST_PORT: u8 = 96;
/// Ports come in blocks of so many for cards and so many for disks.
const CARDS_PER_BLOCK: usize = 4;
const DISKS_PER_BLOCK: usize = 8;
/// Buses 1 and 2 are ports with a bridge in each, which are buses 3 and 4; the other root ports come after them.
const BRIDGES: u8 = 2;
const CARD_BRIDGE: u8 = 3;
const DISK_BRIDGE: u8 = 4;
/// The first slot after the devices of bus 0.
const BRIDGE_SLOT: u8 = 0x1d;
/// A bridge has slots 1 to 31.
const SLOTS_PER_BRIDGE: usize = 31;
const SMALL_GUEST: u64 = 2 << 30;

/// A function of a PCI device in domain 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) bus: u8,
    pub(crate) slot: u8,
    pub(crate) function: u8,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000:{:02x}:{:02x}.{:x}", self.bus, self.slot, self.function)
    }
}

impl Place {
    pub(crate) fn address(self, multifunction: bool) -> Address {
        Address {
            kind: "pci",
            domain: Some("0x0000"),
            bus: Some(format!("0x{:02x}", self.bus)),
            slot: Some(format!("0x{:02x}", self.slot)),
            function: Some(format!("0x{:x}", self.function)),
            multifunction: multifunction.then_some("on"),
            ..Address::default()
        }
    }

    /// Reads `0000:81:00.0`: domain, bus and slot in hexadecimal, function in octal, as everywhere.
    fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (slot, function) = rest.split_once('.')?;
        let hex = |digits: &str| u8::from_str_radix(digits, 16).ok();
        let place = Self { bus: hex(bus)?, slot: hex(slot)?, function: hex(function)? };
        (domain == "0000" && place.slot < 32 && place.function < 8).then_some(place)
    }
}

/// Devices with a slot of their own on bus 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Video,
    Scsi,
    Serial,
    Balloon,
    Rng,
    Usb,
    Vsock,
    Watchdog,
    Panic,
    Memory,
    /// Second and further SATA controllers; the first is part of the chipset.
    Sata,
    /// Network cards of conventional PCI.
    LegacyCard,
    Input,
    Filesystem,
    Sound,
}

impl Role {
    /// The slot, and how many of its functions the role may use.
    const fn slot(self) -> (u8, u8) {
        match self {
            Self::Video => (0x01, 1),
            Self::Scsi => (0x0e, 1),
            Self::Serial => (0x0f, 1),
            Self::Balloon => (0x10, 1),
            Self::Rng => (0x11, 1),
            Self::Usb => (0x12, 1),
            Self::Vsock => (0x13, 1),
            Self::Watchdog => (0x14, 1),
            Self::Panic => (0x15, 1),
            Self::Memory => (0x16, 1),
            Self::Sata => (0x17, 8),
            Self::LegacyCard => (0x18, 8),
            Self::Input => (0x19, 8),
            Self::Filesystem => (0x1a, 8),
            Self::Sound => (0x1b, 1),
        }
    }
}

/// Devices that may be plugged while the guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pluggable {
    Card,
    Disk,
}

/// The places that are taken.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Virtio devices are transitional: they sit behind a bridge.
    transitional: bool,
    taken: BTreeMap<Place, String>,
}

impl Places {
    pub(crate) fn new(transitional: bool) -> Self {
        Self { transitional, taken: BTreeMap::new() }
    }

    /// The place of the device number `index` of a role on bus 0; `path` is the field that asks for it.
    pub(crate) fn fixed(&mut self, role: Role, index: usize, path: &str) -> Result<Address, Unsupported> {
        let (slot, functions) = role.slot();
        let function = u8::try_from(index).ok().filter(|function| *function < functions);
        let Some(function) = function else {
            return Err(Unsupported::new(path, index + 1, format!("a guest has room for {functions} of them")));
        };
        let place = self.take(Place { bus: 0, slot, function }, path)?;
        Ok(place.address(functions > 1 && function == 0))
    }

    /// The place of the card or virtio disk number `index`.
    pub(crate) fn pluggable(
        &mut self,
        kind: Pluggable,
        index: usize,
        transitional: bool,
        path: &str,
    ) -> Result<Place, Unsupported> {
        if transitional {
            let bus = if kind == Pluggable::Card { CARD_BRIDGE } else { DISK_BRIDGE };
            let slot = u8::try_from(index + 1).ok().filter(|slot| usize::from(*slot) <= SLOTS_PER_BRIDGE);
            let why = || format!("a guest has room for {SLOTS_PER_BRIDGE} transitional devices of a kind");
            let slot = slot.ok_or_else(|| Unsupported::new(path, index + 1, why()))?;
            return self.take(Place { bus, slot, function: 0 }, path);
        }
        let (size, before) = match kind {
            Pluggable::Card => (CARDS_PER_BLOCK, 0),
            Pluggable::Disk => (DISKS_PER_BLOCK, CARDS_PER_BLOCK),
        };
        let port = index / size * (CARDS_PER_BLOCK + DISKS_PER_BLOCK) + before + index % size + 1;
        let port = u8::try_from(port).ok().filter(|port| *port <= LAST_PORT).ok_or_else(|| {
            Unsupported::new(path, index + 1, "no PCI Express port is left; disks on bus scsi need none")
        })?;
        self.take(Place { bus: self.first_bus() - 1 + port, slot: 0, function: 0 }, path)
    }

    /// The place that a user chose.
    pub(crate) fn chosen(&mut self, text: &str, path: &str) -> Result<Place, Unsupported> {
        let refuse = |why: String| Unsupported::new(path, text, why);
        let place = Place::parse(text).ok_or_else(|| refuse("an address looks like 0000:05:00.0".to_owned()))?;
        let (first, last) = (self.first_bus(), self.first_bus() - 1 + LAST_PORT);
        let free = match place.bus {
            0 => {
                !(FIRST_PORT_SLOT..FIRST_PORT_SLOT + LAST_PORT / PORTS_PER_SLOT).contains(&place.slot)
                    && (1..BRIDGE_SLOT - 1).contains(&place.slot)
            }
            bus => (first..=last).contains(&bus) && place.slot == 0 && place.function == 0,
        };
        if !free {
            let why = format!("devices can be at 0000:{first:02x}:00.0 to 0000:{last:02x}:00.0, one on each bus");
            return Err(refuse(why));
        }
        self.take(place, path)
    }

    fn take(&mut self, place: Place, path: &str) -> Result<Place, Unsupported> {
        if let Some(owner) = self.taken.insert(place, path.to_owned()) {
            let why = format!("this PCI address belongs to {owner}; choose another one");
            return Err(Unsupported::new(path, place, why));
        }
        Ok(place)
    }

    /// The bus of root port 1.
    fn first_bus(&self) -> u8 {
        if self.transitional { 2 * BRIDGES + 1 } else { 1 }
    }

    /// How many root ports a guest with so much memory has.
    fn ports(&self, memory: u64, hotplug: bool) -> u8 {
        let first = self.first_bus();
        let buses: Vec<u8> = self.taken.keys().map(|place| place.bus).filter(|bus| *bus >= first).collect();
        let highest = buses.iter().max().map_or(0, |bus| bus + 1 - first);
        if !hotplug {
            return highest;
        }
        let used = u8::try_from(buses.len()).unwrap_or(LAST_PORT);
        let (all, free): (u8, u8) = if memory <= SMALL_GUEST { (8, 3) } else { (16, 6) };
        let free = free.max(all.saturating_sub(used));
        highest.max(used.saturating_add(free)).min(LAST_PORT)
    }

    /// The root bus, bridges and root ports, once every device has its place.
    pub(crate) fn controllers(&self, memory: u64, hotplug: bool) -> Vec<Controller> {
        let root = Controller { kind: "pci", index: 0, model: Some("pcie-root"), ..Controller::default() };
        let mut controllers = vec![root];
        if self.transitional {
            controllers.extend((0..BRIDGES).map(bridge_port).chain((0..BRIDGES).map(bridge)));
        }
        let first = self.first_bus();
        controllers.extend((1..=self.ports(memory, hotplug)).map(|port| root_port(port, first - 1 + port)));
        controllers
    }
}

fn bridge_port(number: u8) -> Controller {
    port_at(Place { bus: 0, slot: BRIDGE_SLOT + number, function: 0 }, LAST_PORT + 1 + number, number + 1)
}

fn bridge(number: u8) -> Controller {
    let place = Place { bus: number + 1, slot: 0, function: 0 };
    Controller {
        kind: "pci",
        index: (BRIDGES + number + 1).into(),
        model: Some("pcie-to-pci-bridge"),
        hardware: Some(Named { name: "pcie-pci-bridge" }),
        address: Some(place.address(false)),
        ..Controller::default()
    }
}

fn root_port(port: u8, bus: u8) -> Controller {
    let slot = FIRST_PORT_SLOT + (port - 1) / PORTS_PER_SLOT;
    port_at(Place { bus: 0, slot, function: (port - 1) % PORTS_PER_SLOT }, port, bus)
}

/// A root port; chassis and port number make it known to the guest's hotplug driver.
fn port_at(place: Place, chassis: u8, bus: u8) -> Controller {
    let port = format!("0x{:x}", place.slot * PORTS_PER_SLOT + place.function);
    Controller {
        kind: "pci",
        index: bus.into(),
        model: Some("pcie-root-port"),
        hardware: Some(Named { name: "pcie-root-port" }),
        target: Some(PortTarget { chassis: chassis.into(), port }),
        address: Some(place.address(place.function == 0 && place.slot < BRIDGE_SLOT)),
        ..Controller::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cards_and_disks_have_ports_of_their_own() {
        let mut places = Places::new(false);
        let mut buses = |kind, count| -> Vec<u8> {
            (0..count).map(|index| places.pluggable(kind, index, false, "x").unwrap().bus).collect()
        };
        assert_eq!(buses(Pluggable::Card, 6), [1, 2, 3, 4, 13, 14]);
        assert_eq!(buses(Pluggable::Disk, 10), [5, 6, 7, 8, 9, 10, 11, 12, 17, 18]);
    }

    #[test]
    fn ports_follow_the_third_topology() {
        let mut places = Places::new(false);
        places.pluggable(Pluggable::Card, 0, false, "card").unwrap();
        places.pluggable(Pluggable::Disk, 0, false, "disk").unwrap();
        assert_eq!(places.ports(1 << 30, true), 8);
        assert_eq!(places.ports(4 << 30, true), 16);
        assert_eq!(places.ports(4 << 30, false), 5);
        for index in 1..8 {
            places.pluggable(Pluggable::Disk, index, false, "disk").unwrap();
        }
        assert_eq!(places.ports(1 << 30, true), 12, "nine are used, three are free");
    }

    #[test]
    fn a_taken_place_names_its_owner() {
        let mut places = Places::new(false);
        places.pluggable(Pluggable::Card, 0, false, "spec.domain.devices.interfaces[0]").unwrap();
        let error = places.chosen("0000:01:00.0", "spec.domain.devices.disks[0].disk.pciAddress").unwrap_err();
        assert!(error.why.contains("interfaces[0]"), "{error}");
        assert_eq!(error.value, "0000:01:00.0");
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        let mut places = Places::new(false);
        for text in
            ["", "1", "0001:01:00.0", "0000:00:03.0", "0000:00:1f.0", "0000:02:01.0", "0000:61:00.0", "0000:02:00.9"]
        {
            assert!(places.chosen(text, "x").is_err(), "{text}");
        }
        assert!(places.chosen("0000:60:00.0", "x").is_ok());
    }

    proptest! {
        #[test]
        fn no_two_devices_share_a_place(cards in 0_usize..32, disks in 0_usize..64, transitional: bool) {
            let mut places = Places::new(transitional);
            let mut seen = std::collections::BTreeSet::new();
            for (kind, count) in [(Pluggable::Card, cards.min(31)), (Pluggable::Disk, if transitional { disks.min(31) } else { disks })] {
                for index in 0..count {
                    let place = places.pluggable(kind, index, transitional, "x").unwrap();
                    prop_assert!(seen.insert(place));
                }
            }
            let indexes: Vec<u32> = places.controllers(1 << 30, true).iter().map(|one| one.index).collect();
            prop_assert!(indexes.iter().zip(0..).all(|(index, number)| *index == number), "{indexes:?}");
            prop_assert!(seen.iter().all(|place| indexes.contains(&u32::from(place.bus))));
        }
    }
}
