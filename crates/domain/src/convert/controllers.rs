//! Controllers: PCI buses and ports, SCSI, SATA, USB and virtio serial.

use super::iothreads::Threads;
use super::{Guest, disks};
use crate::pci::{Places, Role};
use crate::unsupported::Unsupported;
use crate::xml::Kibibytes;
use crate::xml::devices::{Controller, ControllerDriver, Devices};
use crate::xml::disk::Disk;
use ferrovirt_api::names::annotations;

/// The controllers that the guest's devices need, and those for hotplug. Last to be called: all other devices have their places.
pub(super) fn controllers(
    guest: &Guest<'_>,
    disks: &[Disk],
    devices: &Devices,
    threads: &Threads,
    places: &mut Places,
) -> Result<Vec<Controller>, Unsupported> {
    let on_bus = |bus: &str| disks.iter().filter(|disk| disk.target.bus == bus).count();
    let hotplug = !guest.spec.devices.disable_hotplug;
    let mut others = vec![usb(devices, on_bus("usb"), places)?];
    others.extend(sata(on_bus("sata"), places)?);
    if hotplug || on_bus("scsi") > 0 {
        others.push(scsi(guest, threads, places)?);
    }
    others.push(Controller {
        kind: "virtio-serial",
        model: Some(guest.virtio_model()),
        address: Some(places.fixed(Role::Serial, 0, "the guest agent's channel")?),
        ..Controller::default()
    });
    let mut controllers = places.controllers(guest.memory, hotplug);
    if guest.annotation(annotations::DISABLE_PCI_HOLE64) == Some("true") {
        controllers[0].pcihole64 = Some(Kibibytes::from_bytes(0));
    }
    controllers.extend(others);
    Ok(controllers)
}

/// USB costs the host wake-ups: only guests that use it have it.
fn usb(devices: &Devices, disks: usize, places: &mut Places) -> Result<Controller, Unsupported> {
    let inputs = devices.input.iter().filter(|input| input.bus == "usb").count();
    let path = "spec.domain.devices";
    if disks + inputs == 0 {
        return Ok(Controller { kind: "usb", model: Some("none"), ..Controller::default() });
    }
    if disks + inputs > disks::USB_PORTS as usize {
        let why = format!("a guest has {} USB ports", disks::USB_PORTS);
        return Err(Unsupported::new(path, format!("{} USB devices", disks + inputs), why));
    }
    Ok(Controller {
        kind: "usb",
        model: Some("qemu-xhci"),
        ports: Some(disks::USB_PORTS),
        address: Some(places.fixed(Role::Usb, 0, path)?),
        ..Controller::default()
    })
}

/// The first SATA controller is the chipset's; it is always there.
fn sata(disks: usize, places: &mut Places) -> Result<Vec<Controller>, Unsupported> {
    let chipset = crate::pci::Place { bus: 0, slot: 0x1f, function: 2 };
    let first = Controller { kind: "sata", index: 0, address: Some(chipset.address(false)), ..Controller::default() };
    let more = disks.div_ceil(disks::DISKS_PER_SATA as usize).saturating_sub(1);
    let others = (0..more).zip(1..).map(|(number, index)| {
        let address = Some(places.fixed(Role::Sata, number, "spec.domain.devices.disks")?);
        Ok(Controller { kind: "sata", index, address, ..Controller::default() })
    });
    std::iter::once(Ok(first)).chain(others).collect()
}

fn scsi(guest: &Guest<'_>, threads: &Threads, places: &mut Places) -> Result<Controller, Unsupported> {
    let queues = (guest.spec.devices.block_multi_queue == Some(true)).then(|| guest.topology.vcpus());
    let driver = ControllerDriver { queues, iothread: threads.shared() };
    Ok(Controller {
        kind: "scsi",
        model: Some(guest.virtio_model()),
        driver: Some(driver).filter(|driver| *driver != ControllerDriver::default()),
        address: Some(places.fixed(Role::Scsi, 0, "spec.domain.devices.disks")?),
        ..Controller::default()
    })
}
