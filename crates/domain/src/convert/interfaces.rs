//! Network cards on taps that were set up in the pod.

use ferrovirt_api::vmi::{Interface as Wanted, InterfaceModel, InterfaceState};
use ferrovirt_launcher_rpc::network::GuestLink;
use serde_json::json;

use super::Guest;
use crate::facts::Version;
use crate::pci::{Places, Pluggable, Role};
use crate::unsupported::Unsupported;
use crate::xml::interface::{AcpiIndex, Driver, Interface, Mac, Mtu, Rom, Tap};
use crate::xml::{Address, Alias, Boot, State, Typed};

/// libvirt and QEMU have the card `igb` from here on.
const IGB: (Version, Version) = (Version(9, 3), Version(8, 0));

/// All cards that are plugged, in the order of the specification.
pub(super) fn interfaces(guest: &Guest<'_>, places: &mut Places) -> Result<Vec<Interface>, Unsupported> {
    let placed = placed(guest, places)?;
    placed.into_iter().map(|(wanted, address)| interface(guest, wanted, address)).collect()
}

/// What the config drive tells the guest about tagged cards, as JSON; `None` when there are none.
pub(super) fn tagged_devices(guest: &Guest<'_>) -> Result<Option<String>, Unsupported> {
    let placed = placed(guest, &mut Places::new(guest.transitional()))?;
    let tagged = placed.iter().filter_map(|(wanted, address)| {
        let tag = wanted.tag.as_ref().filter(|tag| !tag.is_empty())?;
        let mac = link(guest, wanted).map(|link| link.mac.as_str());
        Some(json!({"type": "nic", "bus": "pci", "address": text(address), "mac": mac, "tags": [tag]}))
    });
    let devices: Vec<_> = tagged.collect();
    Ok((!devices.is_empty()).then(|| serde_json::Value::Array(devices).to_string()))
}

/// `0000:01:00.0`
fn text(address: &Address) -> String {
    let digits = |part: &Option<String>| part.as_deref().unwrap_or_default().trim_start_matches("0x").to_owned();
    format!("0000:{}:{}.{}", digits(&address.bus), digits(&address.slot), digits(&address.function))
}

/// Every plugged card and its place. A card that is unplugged keeps its place for when it comes back.
fn placed<'a>(guest: &Guest<'a>, places: &mut Places) -> Result<Vec<(&'a Wanted, Address)>, Unsupported> {
    let (mut express, mut legacy) = (0, 0);
    let mut placed = Vec::new();
    for wanted in &guest.spec.devices.interfaces {
        let path = format!("spec.domain.devices.interfaces[{}]", wanted.name);
        let conventional = matches!(
            wanted.model,
            Some(InterfaceModel::E1000 | InterfaceModel::Ne2kPci | InterfaceModel::Pcnet | InterfaceModel::Rtl8139)
        );
        let number = if conventional { &mut legacy } else { &mut express };
        let index = *number;
        *number += 1;
        if wanted.state == Some(InterfaceState::Absent) {
            continue;
        }
        let chosen = wanted.pci_address.as_deref().filter(|text| !text.is_empty());
        let virtio = matches!(wanted.model, None | Some(InterfaceModel::Virtio));
        let address = match chosen {
            Some(text) => places.chosen(text, &format!("{path}.pciAddress"))?.address(false),
            None if conventional => places.fixed(Role::LegacyCard, index, &path)?,
            None => {
                let bridged = guest.transitional() && virtio;
                places.pluggable(Pluggable::Card, index, bridged, &path)?.address(false)
            }
        };
        placed.push((wanted, address));
    }
    Ok(placed)
}

fn link<'a>(guest: &Guest<'a>, wanted: &Wanted) -> Option<&'a GuestLink> {
    guest.links.iter().find(|link| link.interface == wanted.name)
}

fn interface(guest: &Guest<'_>, wanted: &Wanted, address: Address) -> Result<Interface, Unsupported> {
    let path = format!("spec.domain.devices.interfaces[{}]", wanted.name);
    let link = link(guest, wanted)
        .ok_or_else(|| Unsupported::new(&path, &wanted.name, "no network link was set up for this interface"))?;
    let model = wanted.model.unwrap_or(InterfaceModel::Virtio);
    let (libvirt, qemu) = (guest.facts.libvirt, guest.facts.qemu);
    if model == InterfaceModel::Igb && (libvirt < IGB.0 || qemu < IGB.1) {
        let why = format!(
            "this node has libvirt {libvirt} and QEMU {qemu}, {} and {} are needed; e1000e is close to it",
            IGB.0, IGB.1
        );
        return Err(Unsupported::new(format!("{path}.model"), "igb", why));
    }
    let virtio = model == InterfaceModel::Virtio;
    let vhost = guest.facts.vhost_net && guest.kvm();
    Ok(Interface {
        kind: "ethernet",
        mac: Mac { address: link.mac.clone() },
        target: Tap { dev: link.tap.clone(), managed: "no" },
        model: Typed { kind: if virtio { guest.virtio_model() } else { model.as_str() } },
        driver: virtio.then(|| Driver {
            name: if vhost { "vhost" } else { "qemu" },
            queues: Some(link.queues).filter(|queues| *queues > 1),
        }),
        boot: wanted.boot_order.map(|order| Boot { order }),
        mtu: Mtu { size: link.mtu },
        link: (wanted.state == Some(InterfaceState::Down)).then_some(State { state: "down" }),
        // Without it the firmware does not look for a network to boot from, which takes seconds.
        rom: wanted.boot_order.is_none().then_some(Rom { enabled: "no" }),
        acpi: wanted.acpi_index.filter(|index| *index > 0).map(|index| AcpiIndex { index }),
        alias: Alias::of(&wanted.name),
        address,
    })
}
