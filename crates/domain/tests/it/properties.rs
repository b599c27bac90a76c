//! What holds for every guest: its document is valid, and a device stays where it is when another one comes.

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_domain::{NodeFacts, domain};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{samples, schema};

/// A disk, without its name.
fn disk() -> impl Strategy<Value = Value> {
    let bus = prop::sample::select(vec!["virtio", "virtio", "sata", "scsi", "usb"]);
    let cache = prop::option::of(prop::sample::select(vec!["none", "writethrough", "writeback"]));
    let policy = prop::option::of(prop::sample::select(vec!["stop", "ignore", "report", "enospace"]));
    (bus, cache, policy, any::<bool>(), any::<bool>()).prop_map(|(bus, cache, policy, cdrom, shareable)| {
        let kind = if cdrom && bus != "virtio" { "cdrom" } else { "disk" };
        let cache = if shareable { Some("none") } else { cache };
        json!({kind: {"bus": bus}, "cache": cache, "errorPolicy": policy, "shareable": shareable})
    })
}

/// A network card, without its name.
fn card() -> impl Strategy<Value = Value> {
    let model =
        prop::option::of(prop::sample::select(vec!["virtio", "e1000", "e1000e", "rtl8139", "pcnet", "ne2k_pci"]));
    let state = prop::option::of(prop::sample::select(vec!["up", "down", "absent"]));
    (model, state).prop_map(|(model, state)| json!({"bridge": {}, "model": model, "state": state}))
}

/// Switches that change which devices there are.
fn switches() -> impl Strategy<Value = Value> {
    prop::collection::vec(any::<bool>(), 12).prop_map(|on| {
        json!({
            "rng": on[0].then(|| json!({})),
            "tpm": on[1].then(|| json!({})),
            "sound": on[2].then(|| json!({"name": "audio"})),
            "watchdog": on[3].then(|| json!({"name": "dog", "i6300esb": {}})),
            "autoattachGraphicsDevice": on[4],
            "autoattachSerialConsole": on[5],
            "autoattachMemBalloon": on[6],
            "autoattachInputDevice": on[7],
            "useVirtioTransitional": on[8],
            "disableHotplug": on[9],
            "blockMultiQueue": on[10],
            "panicDevices": if on[11] { json!([{"model": "isa"}]) } else { json!([]) },
        })
    })
}

fn named(items: Vec<Value>, prefix: &str) -> Vec<Value> {
    let named = items.into_iter().enumerate().map(|(index, mut item)| {
        item["name"] = json!(format!("{prefix}-{index}"));
        item
    });
    named.collect()
}

fn guest(disks: &[Value], cards: &[Value], switches: &Value, sockets: u32, gibibytes: u32) -> VirtualMachineInstance {
    let (disks, cards) = (named(disks.to_vec(), "disk"), named(cards.to_vec(), "card"));
    let volumes: Vec<Value> =
        disks.iter().map(|disk| json!({"name": disk["name"], "emptyDisk": {"capacity": "1Gi"}})).collect();
    let mut devices = switches.clone();
    devices["disks"] = json!(disks);
    devices["interfaces"] = json!(cards);
    let domain = json!({
        "cpu": {"sockets": sockets, "maxSockets": sockets * 4},
        "memory": {"guest": format!("{gibibytes}Gi"), "maxGuest": format!("{}Gi", gibibytes * 4)},
        "devices": devices,
    });
    samples::guest(&json!({"spec": {"domain": domain, "volumes": volumes}}).to_string())
}

fn xml(vmi: &VirtualMachineInstance) -> String {
    domain(vmi, &NodeFacts::default(), &samples::links(vmi)).unwrap_or_else(|error| panic!("{error}")).to_xml()
}

/// The address of each device with a name, and of the controllers and devices that there is one of.
fn places(xml: &str) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    let mut owner = String::new();
    for line in xml.lines() {
        let element = line.trim();
        // Devices are indented by four.
        let device = line.len() - line.trim_start().len() == 4 && !element.starts_with("</");
        if device || element.starts_with("<alias") {
            owner = element.to_owned();
        } else if element.starts_with("<address") {
            places.insert(owner.clone(), element.to_owned());
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn every_guest_is_valid(
        disks in prop::collection::vec(disk(), 0..14),
        cards in prop::collection::vec(card(), 0..8),
        switches in switches(),
        sockets in 1_u32..4,
        gibibytes in 1_u32..4,
    ) {
        schema::assert_valid("generated", &xml(&guest(&disks, &cards, &switches, sockets, gibibytes)));
    }
}

proptest! {
    #[test]
    fn a_device_stays_when_another_one_comes(
        disks in prop::collection::vec(disk(), 1..14),
        cards in prop::collection::vec(card(), 1..8),
        switches in switches(),
        gibibytes in 1_u32..4,
    ) {
        let placed = |disks: &[Value], cards: &[Value]| places(&xml(&guest(disks, cards, &switches, 1, gibibytes)));
        let all = placed(&disks, &cards);
        let (last_disk, last_card) = (disks.len() - 1, cards.len() - 1);
        for less in [placed(&disks[..last_disk], &cards), placed(&disks, &cards[..last_card])] {
            for (device, place) in less {
                prop_assert_eq!(all.get(&device), Some(&place), "{}", device);
            }
        }
    }

    #[test]
    fn a_device_stays_when_memory_and_processors_change(
        disks in prop::collection::vec(disk(), 0..14),
        cards in prop::collection::vec(card(), 0..8),
        switches in switches(),
    ) {
        let small = places(&xml(&guest(&disks, &cards, &switches, 1, 1)));
        let large = places(&xml(&guest(&disks, &cards, &switches, 4, 64)));
        for (device, place) in small {
            prop_assert_eq!(large.get(&device), Some(&place), "{}", device);
        }
    }
}
