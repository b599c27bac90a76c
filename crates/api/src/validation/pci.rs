//! Addresses on the guest's PCI bus that its author chose: one device at each place, and only at places that exist.
//!
//! Devices without an address get the next root port of their kind. What is where is decided by `ferrovirt-domain`; the property test
//! "admitted means startable" holds the two together.

use super::Guest;
use super::Reason::Duplicate;
use super::disks::bus;
use super::table::{Findings, Path, Problem, RuleInfo, when};
use crate::vmi::{DiskBus, InterfaceModel, InterfaceState};

/// Root ports of a guest, each a bus.
const PORTS: u8 = 96;
/// The bus of the first root port, and with bridges for old virtio devices before it.
const FIRST_BUS: u8 = 1;
const FIRST_BUS_BEHIND_BRIDGES: u8 = 5;
/// Ports come in blocks: so many for network cards, so many for disks.
const CARDS_PER_BLOCK: usize = 4;
const DISKS_PER_BLOCK: usize = 8;
const BLOCKS: usize = 8;
/// Devices behind a bridge.
const SLOTS_PER_BRIDGE: usize = 31;
const CARD_BRIDGE: u8 = 3;
const DISK_BRIDGE: u8 = 4;
/// The rule about places that are taken.
const TAKEN: &str = "pci-address-is-there-once";

fn is_transitional(guest: &Guest<'_>) -> bool {
    guest.spec.domain.devices.use_virtio_transitional == Some(true)
}

fn first_bus(guest: &Guest<'_>) -> u8 {
    if is_transitional(guest) { FIRST_BUS_BEHIND_BRIDGES } else { FIRST_BUS }
}

/// How many virtio disks a guest can have.
pub(super) fn most_disks(guest: &Guest<'_>) -> usize {
    if is_transitional(guest) { SLOTS_PER_BRIDGE } else { DISKS_PER_BLOCK * BLOCKS }
}

/// The bus of an address such as `0000:05:00.0`, when it is that of a root port.
fn port(guest: &Guest<'_>, address: &str) -> Option<u8> {
    let bus = address.strip_prefix("0000:")?.strip_suffix(":00.0")?;
    let bus = u8::from_str_radix(bus, 16).ok().filter(|_| bus.len() == 2 && !bus.starts_with('+'))?;
    let first = first_bus(guest);
    (first..first + PORTS).contains(&bus).then_some(bus)
}

/// What is wrong with an address by itself.
pub(super) fn problem(guest: &Guest<'_>, address: &str) -> Problem {
    let first = first_bus(guest);
    when(port(guest, address).is_none(), || {
        format!(
            "is '{address}': use 0000:{first:02x}:00.0 to 0000:{:02x}:00.0, one device on each bus",
            first + PORTS - 1
        )
    })
}

/// A device with the place that it takes: its list, its number there, bus and slot, and whether its author chose them.
struct Taken {
    list: &'static str,
    index: usize,
    place: (u8, u8),
    chosen: bool,
}

/// Every plugged card and virtio disk with its place.
fn taken<'a>(guest: &'a Guest<'a>) -> impl Iterator<Item = Taken> + 'a {
    let devices = &guest.spec.domain.devices;
    let express = |model: Option<InterfaceModel>| {
        matches!(model, None | Some(InterfaceModel::Virtio | InterfaceModel::E1000e | InterfaceModel::Igb))
    };
    let cards = devices.interfaces.iter().enumerate().filter(move |(_, card)| express(card.model));
    let cards = cards.enumerate().filter(|(_, (_, card))| card.state != Some(InterfaceState::Absent));
    let cards = cards.filter_map(move |(number, (index, card))| {
        let old = is_transitional(guest) && matches!(card.model, None | Some(InterfaceModel::Virtio));
        let automatic = if old { behind(CARD_BRIDGE, number) } else { automatic(guest, number, CARDS_PER_BLOCK, 0) };
        place(guest, "domain.devices.interfaces", index, card.pci_address.as_deref(), automatic)
    });
    let disks = devices.disks.iter().enumerate().filter(|(_, disk)| bus(disk) == DiskBus::Virtio).enumerate();
    let disks = disks.filter_map(move |(number, (index, disk))| {
        let automatic = if is_transitional(guest) {
            behind(DISK_BRIDGE, number)
        } else {
            automatic(guest, number, DISKS_PER_BLOCK, CARDS_PER_BLOCK)
        };
        let chosen = disk.disk.as_ref().and_then(|disk| disk.pci_address.as_deref());
        place(guest, "domain.devices.disks", index, chosen, automatic)
    });
    cards.chain(disks)
}

fn place(
    guest: &Guest<'_>,
    list: &'static str,
    index: usize,
    chosen: Option<&str>,
    automatic: Option<(u8, u8)>,
) -> Option<Taken> {
    match chosen.filter(|address| !address.is_empty()) {
        Some(address) => Some(Taken { list, index, place: (port(guest, address)?, 0), chosen: true }),
        None => Some(Taken { list, index, place: automatic?, chosen: false }),
    }
}

fn automatic(guest: &Guest<'_>, number: usize, per_block: usize, before: usize) -> Option<(u8, u8)> {
    let port = number / per_block * (CARDS_PER_BLOCK + DISKS_PER_BLOCK) + before + number % per_block;
    let port = u8::try_from(port).ok().filter(|port| *port < PORTS)?;
    Some((first_bus(guest) + port, 0))
}

fn behind(bridge: u8, number: usize) -> Option<(u8, u8)> {
    Some((bridge, u8::try_from(number + 1).ok()?))
}

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    let devices = &guest.spec.domain.devices;
    let chosen_by_disk =
        devices.disks.iter().any(|disk| disk.disk.as_ref().is_some_and(|disk| disk.pci_address.is_some()));
    if !chosen_by_disk && devices.interfaces.iter().all(|card| card.pci_address.is_none()) {
        return;
    }
    let all: Vec<Taken> = taken(guest).collect();
    for (number, device) in all.iter().enumerate().filter(|(_, device)| device.chosen) {
        let clash = |(other, it): &(usize, &Taken)| {
            it.place == device.place && (*other < number || (*other > number && !it.chosen))
        };
        let Some((_, other)) = all.iter().enumerate().find(clash) else { continue };
        let list = path.field(device.list);
        let path = list.index(device.index);
        let field = if device.list.ends_with("disks") { "disk.pciAddress" } else { "pciAddress" };
        let problem = format!("is the place of {}[{}]: choose another one", other.list, other.index);
        findings.add(TAKEN, Duplicate, &path.field(field), &problem);
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    [RuleInfo { name: TAKEN, field: "pciAddress", reason: Duplicate }].into_iter()
}
