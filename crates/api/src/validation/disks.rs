//! Disks, LUNs and CD drives, and the places that they take.

use super::Guest;
use super::Reason::{Duplicate, Invalid, NotFound, NotSupported, Required};
use super::pci;
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::{is_dns_label, is_serial};
use crate::gates;
use crate::meta::FeatureState;
use crate::vmi::{CustomBlockSize, Disk, DiskBus, DriverCache, DriverIo, Filesystem, InputBus, Volume};

type DiskRule = Row<fn(&DiskOf<'_>) -> Problem>;
type SharedRule = Row<fn(&SharedOf<'_>) -> Problem>;
type GuestRule = Row<fn(&Guest<'_>) -> Problem>;

const LONGEST_SERIAL: usize = 256;
const SMALLEST_BLOCK: u32 = 512;
const LARGEST_BLOCK: u32 = 2 << 20;
/// Ports of the one USB controller.
const USB_PORTS: usize = 15;
/// Six disks on the chipset's controller and on each of eight more.
const MOST_SATA_DISKS: usize = 54;

/// One disk, where it is in the list, and its volume.
pub(super) struct DiskOf<'a> {
    pub(super) disk: &'a Disk,
    pub(super) index: usize,
    pub(super) volume: Option<&'a Volume>,
    pub(super) guest: &'a Guest<'a>,
}

/// The bus of a disk that has its defaults.
pub(super) fn bus(disk: &Disk) -> DiskBus {
    let lun = disk.lun.as_ref().map(|lun| lun.bus.unwrap_or(DiskBus::Scsi));
    let cdrom = disk.cdrom.as_ref().map(|cdrom| cdrom.bus.unwrap_or(DiskBus::Sata));
    let plain = disk.disk.as_ref().and_then(|disk| disk.bus);
    lun.or(cdrom).or(plain).unwrap_or(DiskBus::Sata)
}

impl DiskOf<'_> {
    fn bus(&self) -> DiskBus {
        bus(self.disk)
    }

    fn is_plain(&self) -> bool {
        self.disk.lun.is_none() && self.disk.cdrom.is_none()
    }

    fn custom(&self) -> Option<&CustomBlockSize> {
        self.disk.block_size.as_ref()?.custom.as_ref()
    }

    /// Content on storage of which the cluster knows something.
    fn is_claim(&self) -> bool {
        self.volume.is_some_and(|volume| volume.persistent_volume_claim.is_some() || volume.data_volume.is_some())
    }

    fn address(&self) -> Option<&str> {
        self.disk.disk.as_ref()?.pci_address.as_deref().filter(|address| !address.is_empty())
    }
}

const DISK: &[DiskRule] = &[
    ("disk-name-is-a-dns-label", "name", Invalid, |it| label(&it.disk.name)),
    ("disk-names-differ", "name", Duplicate, |it| {
        let disks = &it.guest.spec.domain.devices.disks[..it.index];
        let first = disks.iter().position(|before| before.name == it.disk.name)?;
        Some(format!("is '{}', as domain.devices.disks[{first}].name is: names must differ", it.disk.name))
    }),
    ("disk-has-a-volume", "name", NotFound, |it| {
        let empty_drive = it.disk.cdrom.is_some() && gates::is_on(it.guest.cluster, gates::DECLARATIVE_HOTPLUG);
        when(it.volume.is_none() && !empty_drive, || {
            format!("is '{}', but spec.volumes has no volume of that name", it.disk.name)
        })
    }),
    ("disk-is-one-of-disk-lun-cdrom", "", Invalid, |it| {
        let targets = [it.disk.disk.is_some(), it.disk.lun.is_some(), it.disk.cdrom.is_some()];
        if_so(targets.into_iter().filter(|set| *set).count() > 1, "has several of disk, lun and cdrom: keep one")
    }),
    ("lun-is-on-a-claim", "lun", Invalid, |it| {
        it.disk.lun.as_ref()?;
        if_so(it.volume.is_some() && !it.is_claim(), "can only show a persistentVolumeClaim or dataVolume: use disk")
    }),
    ("lun-bus-is-scsi", "lun.bus", NotSupported, |it| {
        it.disk.lun.as_ref()?;
        when(it.bus() != DiskBus::Scsi, || format!("is '{}': a LUN can only be on bus scsi", it.bus().as_str()))
    }),
    ("cdrom-bus-is-not-virtio", "cdrom.bus", NotSupported, |it| {
        it.disk.cdrom.as_ref()?;
        if_so(it.bus() == DiskBus::Virtio, "is 'virtio', and there is no such CD drive: use sata or scsi")
    }),
    ("sata-disk-is-writable", "disk.readonly", Invalid, |it| {
        let read_only = it.disk.disk.as_ref().is_some_and(|disk| disk.readonly)
            || it
                .volume
                .and_then(|volume| volume.persistent_volume_claim.as_ref())
                .is_some_and(|claim| claim.read_only);
        if_so(
            it.is_plain() && read_only && it.bus() == DiskBus::Sata,
            "cannot hold on bus sata: use virtio or scsi, or a cdrom",
        )
    }),
    ("disk-boot-order-counts-from-1", "bootOrder", Invalid, |it| {
        if_so(it.disk.boot_order == Some(0), "is 0: places are counted from 1")
    }),
    ("disk-pci-address-needs-virtio", "disk.pciAddress", Invalid, |it| {
        it.address()?;
        if_so(it.bus() != DiskBus::Virtio, "is for bus virtio only: other disks are no PCI devices")
    }),
    ("disk-pci-address-is-one", "disk.pciAddress", Invalid, |it| pci::problem(it.guest, it.address()?)),
    ("dedicated-io-thread-needs-virtio", "dedicatedIOThread", Invalid, |it| {
        let dedicated = it.disk.dedicated_io_thread == Some(true);
        if_so(dedicated && it.bus() != DiskBus::Virtio, "is for bus virtio only")
    }),
    ("disk-serial-is-plain", "serial", Invalid, |it| {
        let serial = it.disk.serial.as_deref()?;
        when(!is_serial(serial), || format!("is '{serial}': use letters, digits, '_', '.', '+' and '-'"))
    }),
    ("disk-serial-is-short", "serial", Invalid, |it| {
        let length = it.disk.serial.as_deref()?.len();
        when(length > LONGEST_SERIAL, || format!("has {length} characters: use at most {LONGEST_SERIAL}"))
    }),
    ("shared-disk-is-not-cached", "cache", Invalid, |it| {
        let cache = it.disk.cache.filter(|cache| *cache != DriverCache::None && it.disk.shareable == Some(true))?;
        Some(format!("is '{}': a shareable disk must not be cached, use none", cache.as_str()))
    }),
    ("native-io-is-not-cached", "io", Invalid, |it| {
        let uncached = it.disk.cache == Some(DriverCache::None) || it.disk.shareable == Some(true);
        let known = uncached || (it.disk.cache.is_none() && it.is_claim());
        if_so(it.disk.io == Some(DriverIo::Native) && !known, "is 'native', which needs cache none")
    }),
    ("block-size-is-custom-or-the-volumes", "blockSize", Invalid, |it| {
        let size = it.disk.block_size.as_ref()?;
        let matched = size.match_volume.is_some_and(FeatureState::is_on);
        if_so(size.custom.is_some() && matched, "has both custom and matchVolume: keep one")
    }),
    ("block-size-of-a-claim-is-known", "blockSize.matchVolume", Invalid, |it| {
        let matched = it.disk.block_size.as_ref()?.match_volume.is_some_and(FeatureState::is_on);
        if_so(matched && !it.is_claim(), "needs a persistentVolumeClaim or dataVolume: use custom")
    }),
    ("block-sizes-are-given", "blockSize.custom", Required, |it| {
        let custom = it.custom()?;
        if_so(custom.logical.is_none() || custom.physical.is_none(), "needs both logical and physical")
    }),
    ("block-sizes-are-powers-of-two", "blockSize.custom", Invalid, |it| {
        let custom = it.custom()?;
        let sizes = [custom.logical, custom.physical].into_iter().flatten();
        let wrong = sizes
            .into_iter()
            .find(|size| !size.is_power_of_two() || !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(size))?;
        Some(format!("has the size {wrong}: use powers of two from {SMALLEST_BLOCK} to {LARGEST_BLOCK}"))
    }),
    ("logical-block-fits-the-physical", "blockSize.custom.logical", Invalid, |it| {
        let (logical, physical) = (it.custom()?.logical?, it.custom()?.physical?);
        when(logical > physical, || format!("is {logical}, more than the physical size {physical}"))
    }),
    ("sata-blocks-are-512", "blockSize.custom.logical", Invalid, |it| {
        let logical = it.custom()?.logical?;
        when(it.bus() == DiskBus::Sata && logical != SMALLEST_BLOCK, || format!("is {logical}: on bus sata it is 512"))
    }),
    ("discards-are-whole-blocks", "blockSize.custom.discardGranularity", Invalid, |it| {
        let (granularity, logical) =
            (it.custom()?.discard_granularity?, it.custom()?.logical.filter(|size| *size > 0)?);
        when(granularity % logical != 0, || {
            format!("is {granularity}, which is no multiple of the logical size {logical}")
        })
    }),
    ("cdrom-cannot-be-shared", "shareable", Invalid, |it| {
        if_so(it.disk.cdrom.is_some() && it.disk.shareable == Some(true), "is for disks only")
    }),
];

const GUEST: &[GuestRule] = &[
    ("usb-devices-have-ports", "domain.devices", Invalid, |it| {
        let devices = &it.spec.domain.devices;
        let inputs = devices.inputs.iter().filter(|input| input.bus.unwrap_or(InputBus::Usb) == InputBus::Usb).count();
        let count = inputs + on_bus(it, DiskBus::Usb);
        when(count > USB_PORTS, || format!("has {count} USB devices: a guest has {USB_PORTS} ports"))
    }),
    ("sata-disks-have-room", "domain.devices.disks", Invalid, |it| {
        let count = on_bus(it, DiskBus::Sata);
        when(count > MOST_SATA_DISKS, || {
            format!("has {count} disks on bus sata: use at most {MOST_SATA_DISKS}, or scsi")
        })
    }),
    ("virtio-disks-have-room", "domain.devices.disks", Invalid, |it| {
        let (count, most) = (on_bus(it, DiskBus::Virtio), pci::most_disks(it));
        when(count > most, || format!("has {count} disks on bus virtio: use at most {most}, or scsi"))
    }),
];

fn on_bus(guest: &Guest<'_>, wanted: DiskBus) -> usize {
    guest.spec.domain.devices.disks.iter().filter(|disk| bus(disk) == wanted).count()
}

fn label(name: &str) -> Problem {
    when(!is_dns_label(name), || format!("is '{name}', which is no DNS label: use lower case letters, digits and '-'"))
}

struct SharedOf<'a> {
    shared: &'a Filesystem,
    index: usize,
    guest: &'a Guest<'a>,
}

const SHARED: &[SharedRule] = &[
    ("filesystem-name-is-a-dns-label", "name", Invalid, |it| label(&it.shared.name)),
    ("filesystem-names-differ", "name", Duplicate, |it| {
        let before = &it.guest.spec.domain.devices.filesystems[..it.index];
        if_so(before.iter().any(|before| before.name == it.shared.name), "is there twice: names must differ")
    }),
    ("filesystem-has-a-volume", "name", NotFound, |it| {
        let has = it.guest.volume(&it.shared.name).is_some();
        when(!has, || format!("is '{}', but spec.volumes has no volume of that name", it.shared.name))
    }),
];

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    let devices = &guest.spec.domain.devices;
    let list = path.field("domain.devices.disks");
    for (index, disk) in devices.disks.iter().enumerate() {
        let subject = DiskOf { disk, index, volume: guest.volume(&disk.name), guest };
        findings.apply(DISK, &subject, &list.index(index));
    }
    let list = path.field("domain.devices.filesystems");
    for (index, shared) in devices.filesystems.iter().enumerate() {
        findings.apply(SHARED, &SharedOf { shared, index, guest }, &list.index(index));
    }
    findings.apply(GUEST, guest, path);
    boot_order(guest, path, findings);
    pci::check(guest, path, findings);
}

/// The rule about places in the boot order.
const BOOT_ORDER: &str = "boot-order-is-there-once";

/// Two devices cannot be tried at the same place.
fn boot_order(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    let devices = &guest.spec.domain.devices;
    let disks = devices.disks.iter().enumerate().map(|(index, disk)| ("disks", index, disk.boot_order));
    let cards = devices.interfaces.iter().enumerate().map(|(index, card)| ("interfaces", index, card.boot_order));
    let ordered =
        disks.chain(cards).filter_map(|(list, index, order)| Some((list, index, order.filter(|order| *order > 0)?)));
    for (list, index, order) in ordered.clone() {
        let mut before = ordered.clone().take_while(|other| (other.0, other.1) != (list, index));
        let Some((other, place, _)) = before.find(|other| other.2 == order) else { continue };
        let list = path.field(if list == "disks" { "domain.devices.disks" } else { "domain.devices.interfaces" });
        let path = list.index(index);
        let problem = format!("is {order}, as domain.devices.{other}[{place}].bootOrder is: places must differ");
        findings.add(BOOT_ORDER, Duplicate, &path.field("bootOrder"), &problem);
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    let order = RuleInfo { name: BOOT_ORDER, field: "bootOrder", reason: Duplicate };
    names(DISK).chain(names(SHARED)).chain(names(GUEST)).chain([order]).chain(pci::rules())
}
