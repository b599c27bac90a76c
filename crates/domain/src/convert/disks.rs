//! Disks, LUNs and CD drives.

use std::collections::BTreeMap;

use ferrovirt_api::meta::FeatureState;
use ferrovirt_api::vmi::{Disk as Wanted, DiskBus, DiskErrorPolicy, DriverCache, DriverIo, TrayState};

use super::iothreads::Threads;
use super::{Guest, firmware};
use crate::facts::Version;
use crate::pci::{Places, Pluggable};
use crate::unsupported::Unsupported;
use crate::volumes::{Format, Source};
use crate::xml::disk::{BackingStore, BlockIo, Disk, Driver, IoThread, IoThreads, Source as XmlSource, Target};
use crate::xml::{Address, Alias, Boot, Flag, Typed};

/// Disks on one SATA controller.
pub(super) const DISKS_PER_SATA: u32 = 6;
/// Ports of the USB controller; disks use them from the first one on, input devices from the last one down.
pub(super) const USB_PORTS: u32 = 15;
/// libvirt knows the granularity of discards from here on.
const DISCARD_GRANULARITY: Version = Version(9, 7);

/// What the guest sees a volume as.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Device {
    Disk,
    Lun,
    CdRom,
}

impl Device {
    fn of(wanted: &Wanted) -> Self {
        match (&wanted.lun, &wanted.cdrom) {
            (Some(_), _) => Self::Lun,
            (_, Some(_)) => Self::CdRom,
            _ => Self::Disk,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Lun => "lun",
            Self::CdRom => "cdrom",
        }
    }
}

fn bus(wanted: &Wanted) -> DiskBus {
    let disk = wanted.disk.as_ref().and_then(|disk| disk.bus);
    match Device::of(wanted) {
        Device::Lun => wanted.lun.as_ref().and_then(|lun| lun.bus).unwrap_or(DiskBus::Scsi),
        Device::CdRom => wanted.cdrom.as_ref().and_then(|cdrom| cdrom.bus).unwrap_or(DiskBus::Sata),
        Device::Disk => disk.unwrap_or(DiskBus::Sata),
    }
}

/// A disk that has a PCI address, queues and IO threads of its own.
pub(super) fn is_virtio(wanted: &Wanted) -> bool {
    bus(wanted) == DiskBus::Virtio
}

/// How many disks of each bus came before.
#[derive(Default)]
struct Counters {
    by_bus: BTreeMap<DiskBus, u32>,
    vd: usize,
    sd: usize,
}

impl Counters {
    /// The number on its bus and the target name; names are what `status.volumeStatus` shows.
    fn next(&mut self, bus: DiskBus) -> (u32, String) {
        let number = self.by_bus.entry(bus).or_default();
        let (prefix, letters) = if bus == DiskBus::Virtio { ("vd", &mut self.vd) } else { ("sd", &mut self.sd) };
        let result = (*number, target_name(prefix, *letters));
        *number += 1;
        *letters += 1;
        result
    }
}

/// `vda` to `vdz`, then `vdaa`.
fn target_name(prefix: &str, mut number: usize) -> String {
    let mut letters = String::new();
    loop {
        letters.insert(0, char::from(b'a' + (number % 26) as u8));
        if number < 26 {
            return format!("{prefix}{letters}");
        }
        number = number / 26 - 1;
    }
}

/// All disks, in the order of the specification.
pub(super) fn disks(
    guest: &Guest<'_>,
    sources: &BTreeMap<&str, Source>,
    threads: &Threads,
    places: &mut Places,
) -> Result<Vec<Disk>, Unsupported> {
    let orders = boot_orders(guest, sources);
    let mut counters = Counters::default();
    let wanted = guest.spec.devices.disks.iter();
    wanted
        .map(|wanted| {
            let source = sources.get(wanted.name.as_str());
            let boot = orders.get(wanted.name.as_str()).copied();
            disk(guest, wanted, source, threads, places, counters.next(bus(wanted)), boot)
        })
        .collect()
}

/// The wanted order. When nobody says anything, every volume that may hold a system is tried, in the order of the list.
fn boot_orders<'a>(guest: &Guest<'a>, sources: &BTreeMap<&str, Source>) -> BTreeMap<&'a str, u32> {
    let devices = &guest.spec.devices;
    let wanted: BTreeMap<_, _> =
        devices.disks.iter().filter_map(|disk| Some((disk.name.as_str(), disk.boot_order?))).collect();
    let cards = devices.interfaces.iter().any(|card| card.boot_order.is_some());
    if !wanted.is_empty() || cards || firmware::boots_kernel(guest) {
        return wanted;
    }
    let bootable =
        devices.disks.iter().filter(|disk| sources.get(disk.name.as_str()).is_some_and(|source| source.bootable));
    bootable.zip(1..).map(|(disk, order)| (disk.name.as_str(), order)).collect()
}

fn disk(
    guest: &Guest<'_>,
    wanted: &Wanted,
    source: Option<&Source>,
    threads: &Threads,
    places: &mut Places,
    (number, dev): (u32, String),
    boot: Option<u32>,
) -> Result<Disk, Unsupported> {
    let (device, bus) = (Device::of(wanted), bus(wanted));
    let path = format!("spec.domain.devices.disks[{}]", wanted.name);
    check(wanted, source, device, bus, &path)?;
    let read_only = match device {
        Device::CdRom => wanted.cdrom.as_ref().and_then(|cdrom| cdrom.readonly) != Some(false),
        Device::Lun => wanted.lun.as_ref().is_some_and(|lun| lun.readonly) || source.is_some_and(|one| one.read_only),
        Device::Disk => {
            wanted.disk.as_ref().is_some_and(|disk| disk.readonly) || source.is_some_and(|one| one.read_only)
        }
    };
    if read_only && device == Device::Disk && bus == DiskBus::Sata {
        let why = "a SATA disk cannot be read-only; use bus virtio or scsi, or a cdrom";
        return Err(Unsupported::new(format!("{path}.disk.readonly"), true, why));
    }
    let virtio = bus == DiskBus::Virtio;
    let tray = wanted.cdrom.as_ref().and_then(|cdrom| cdrom.tray).filter(|tray| *tray == TrayState::Open);
    Ok(Disk {
        kind: if source.is_some_and(|source| source.block) { "block" } else { "file" },
        device: device.word(),
        model: virtio.then(|| guest.virtio_model()),
        driver: driver(guest, wanted, source, threads, read_only, &path)?,
        source: source.map(|source| xml_source(&source.path, source.block)),
        backing_store: source.and_then(|source| backing_store(&source.format)),
        target: Target { dev, bus: bus.as_str(), tray: tray.map(TrayState::as_str) },
        blockio: block_io(guest, wanted, source, &path)?,
        serial: wanted.serial.clone().filter(|serial| !serial.is_empty()),
        readonly: read_only.then_some(Flag {}),
        shareable: (wanted.shareable == Some(true)).then_some(Flag {}),
        boot: boot.map(|order| Boot { order }),
        alias: Alias::of(&wanted.name),
        address: Some(address(guest, wanted, bus, number, places, &path)?),
    })
}

fn check(
    wanted: &Wanted,
    source: Option<&Source>,
    device: Device,
    bus: DiskBus,
    path: &str,
) -> Result<(), Unsupported> {
    let Some(source) = source else {
        if device == Device::CdRom {
            return Ok(());
        }
        return Err(Unsupported::new(format!("{path}.name"), &wanted.name, "there is no volume of this name"));
    };
    let bus_field = format!("{path}.{}.bus", device.word());
    match device {
        Device::Lun if !source.block => {
            let why = "a lun needs a claim with volumeMode Block; use disk";
            Err(Unsupported::new(format!("{path}.lun"), &source.path, why))
        }
        Device::Lun if bus != DiskBus::Scsi => {
            Err(Unsupported::new(bus_field, bus.as_str(), "a lun can only be on bus scsi"))
        }
        Device::CdRom if bus == DiskBus::Virtio => {
            Err(Unsupported::new(bus_field, bus.as_str(), "there is no virtio CD drive; use sata or scsi"))
        }
        _ => Ok(()),
    }
}

fn driver(
    guest: &Guest<'_>,
    wanted: &Wanted,
    source: Option<&Source>,
    threads: &Threads,
    read_only: bool,
    path: &str,
) -> Result<Driver, Unsupported> {
    let shareable = wanted.shareable == Some(true);
    if let Some(cache) = wanted.cache.filter(|cache| shareable && *cache != DriverCache::None) {
        let why = "a disk that is shared must not be cached; use none";
        return Err(Unsupported::new(format!("{path}.cache"), cache.as_str(), why));
    }
    let direct = shareable || source.is_some_and(|source| source.direct_io);
    let cache = wanted.cache.or(direct.then_some(DriverCache::None));
    let uncached = cache == Some(DriverCache::None);
    if wanted.io == Some(DriverIo::Native) && !uncached {
        let why = "native IO needs cache none";
        return Err(Unsupported::new(format!("{path}.io"), "native", why));
    }
    let native = uncached && source.is_some_and(|source| source.block);
    let io = wanted.io.or(native.then_some(DriverIo::Native));
    let virtio = is_virtio(wanted);
    let own = if virtio { threads.of(&wanted.name) } else { &[] };
    let many = own.len() > 1;
    Ok(Driver {
        name: "qemu",
        kind: if source.is_none_or(|source| source.format == Format::Raw) { "raw" } else { "qcow2" },
        cache: cache.map(DriverCache::as_str),
        error_policy: Some(wanted.error_policy.unwrap_or(DiskErrorPolicy::Stop).as_str()),
        io: io.map(DriverIo::as_str),
        discard: (Device::of(wanted) != Device::CdRom && !read_only).then_some("unmap"),
        iothread: own.first().copied().filter(|_| !many),
        queues: (virtio && guest.spec.devices.block_multi_queue == Some(true)).then(|| guest.topology.vcpus()),
        iothreads: many.then(|| IoThreads { iothread: own.iter().map(|&id| IoThread { id }).collect() }),
    })
}

fn xml_source(path: &str, block: bool) -> XmlSource {
    let path = Some(path.to_owned());
    if block { XmlSource { file: None, dev: path } } else { XmlSource { file: path, dev: None } }
}

/// What libvirt is told about the layers below, so that it never opens what a header in a foreign image names. An empty element
/// ends the chain. Only for a container disk the chain is left out: libvirt then follows the one header that the launcher wrote,
/// with a format in it, to an image that was checked to have nothing below.
fn backing_store(format: &Format) -> Option<BackingStore> {
    match format {
        Format::Raw | Format::Qcow2 => Some(BackingStore::default()),
        Format::OverImage => None,
        Format::OverRaw { path, block } => Some(BackingStore {
            kind: Some(if *block { "block" } else { "file" }),
            format: Some(Typed { kind: "raw" }),
            source: Some(xml_source(path, *block)),
            end: Some(Flag {}),
        }),
    }
}

fn block_io(
    guest: &Guest<'_>,
    wanted: &Wanted,
    source: Option<&Source>,
    path: &str,
) -> Result<Option<BlockIo>, Unsupported> {
    let Some(size) = &wanted.block_size else {
        return Ok(None);
    };
    if let Some(custom) = &size.custom {
        let discard = custom.discard_granularity;
        if let Some(granularity) = discard.filter(|_| guest.facts.libvirt < DISCARD_GRANULARITY) {
            let why = format!("this node's libvirt is {}, {DISCARD_GRANULARITY} is needed", guest.facts.libvirt);
            return Err(Unsupported::new(format!("{path}.blockSize.custom.discardGranularity"), granularity, why));
        }
        return Ok(Some(BlockIo { logical: custom.logical, physical: custom.physical, discard }));
    }
    if !size.match_volume.is_some_and(FeatureState::is_on) {
        return Ok(None);
    }
    let known = source.and_then(|source| source.block_size).ok_or_else(|| {
        let why = "the volume's block size is not known; set custom.logical and custom.physical";
        Unsupported::new(format!("{path}.blockSize.matchVolume"), &wanted.name, why)
    })?;
    Ok(Some(BlockIo { logical: Some(known.0), physical: Some(known.1), discard: None }))
}

/// Where the disk number `number` of its bus sits.
fn address(
    guest: &Guest<'_>,
    wanted: &Wanted,
    bus: DiskBus,
    number: u32,
    places: &mut Places,
    path: &str,
) -> Result<Address, Unsupported> {
    let chosen = wanted.disk.as_ref().and_then(|disk| disk.pci_address.as_deref()).filter(|text| !text.is_empty());
    match (bus, chosen) {
        (DiskBus::Virtio, Some(text)) => Ok(places.chosen(text, &format!("{path}.disk.pciAddress"))?.address(false)),
        (DiskBus::Virtio, None) => {
            let place = places.pluggable(Pluggable::Disk, number as usize, guest.transitional(), path)?;
            Ok(place.address(false))
        }
        (_, Some(text)) => {
            let why = "only virtio disks are PCI devices";
            Err(Unsupported::new(format!("{path}.disk.pciAddress"), text, why))
        }
        (DiskBus::Scsi, None) => Ok(Address::drive(0, number)),
        (DiskBus::Sata, None) => Ok(Address::drive(number / DISKS_PER_SATA, number % DISKS_PER_SATA)),
        (DiskBus::Usb, None) => usb_port(number + 1, path),
    }
}

/// A port of the USB controller, counted from 1.
pub(super) fn usb_port(port: u32, path: &str) -> Result<Address, Unsupported> {
    if (1..=USB_PORTS).contains(&port) {
        return Ok(Address::usb(port));
    }
    Err(Unsupported::new(path, "usb", format!("a guest has {USB_PORTS} USB ports")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_names_go_on_after_z() {
        let names = [0, 1, 25, 26, 51, 52, 701, 702].map(|number| target_name("vd", number));
        assert_eq!(names, ["vda", "vdb", "vdz", "vdaa", "vdaz", "vdba", "vdzz", "vdaaa"]);
    }
}
