//! Devices other than disks and network cards, and text that has to survive in a domain's document.

use std::collections::BTreeSet;

use super::Guest;
use super::Reason::{Duplicate, Invalid, NotSupported, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::unprintable;
use crate::gates;
use crate::vmi::{Devices, InputBus, InputType, PanicDeviceModel};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;

const VIDEO: [&str; 5] = ["vga", "cirrus", "virtio", "ramfb", "bochs"];
/// Functions of the one PCI slot that virtio inputs share.
const MOST_VIRTIO_INPUTS: usize = 8;
/// The rule about text.
const PRINTABLE: &str = "text-is-printable";

impl<'a> Guest<'a> {
    fn devices(&self) -> &'a Devices {
        &self.spec.domain.devices
    }
}

const GUEST: &[GuestRule] = &[
    ("inputs-are-tablets", "domain.devices.inputs", NotSupported, |it| {
        let wrong = it.devices().inputs.iter().find(|input| input.r#type != InputType::Tablet)?;
        Some(format!("has '{}' of type {}: only tablets are supported", wrong.name, wrong.r#type.as_str()))
    }),
    ("virtio-inputs-have-room", "domain.devices.inputs", Invalid, |it| {
        let count = it.devices().inputs.iter().filter(|input| input.bus == Some(InputBus::Virtio)).count();
        when(count > MOST_VIRTIO_INPUTS, || format!("has {count} on bus virtio: use at most {MOST_VIRTIO_INPUTS}"))
    }),
    ("device-names-are-plain", "domain.devices", Invalid, |it| {
        let plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let wrong = free_names(it.devices()).find(|name| !plain(name))?;
        Some(format!("has a device named '{wrong}': use letters, digits, '-' and '_'"))
    }),
    ("device-names-differ", "domain.devices", Duplicate, |it| {
        let devices = it.devices();
        let disks = devices.disks.iter().map(|disk| disk.name.as_str());
        let cards = devices.interfaces.iter().map(|card| card.name.as_str());
        let mut seen: BTreeSet<&str> = disks.collect();
        let twice = cards.chain(free_names(devices)).find(|name| !seen.insert(name))?;
        Some(format!("has two devices named '{twice}': the hypervisor knows them by their names"))
    }),
    ("sound-has-a-name", "domain.devices.sound.name", Required, |it| {
        if_so(it.devices().sound.as_ref()?.name.is_empty(), "is missing: give the device a name")
    }),
    ("video-is-a-card", "domain.devices.video.type", NotSupported, |it| {
        let kind = it.devices().video.as_ref()?.r#type.as_deref()?;
        when(!VIDEO.contains(&kind), || format!("is '{kind}': use one of {}", VIDEO.join(", ")))
    }),
    ("video-needs-graphics", "domain.devices.video", Invalid, |it| {
        it.devices().video.as_ref()?;
        if_so(
            it.devices().autoattach_graphics_device == Some(false),
            "cannot be there while autoattachGraphicsDevice is false",
        )
    }),
    ("watchdog-is-an-i6300esb", "domain.devices.watchdog", NotSupported, |it| {
        if_so(
            it.devices().watchdog.as_ref()?.diag288.is_some(),
            "is a diag288, which s390x machines have: use i6300esb",
        )
    }),
    ("panic-devices-have-a-model", "domain.devices.panicDevices", Required, |it| {
        if_so(
            it.devices().panic_devices.iter().any(|device| device.model.is_none()),
            "has one without a model: use hyperv, isa or pvpanic",
        )
    }),
    ("panic-devices-differ", "domain.devices.panicDevices", Invalid, |it| {
        let devices = &it.devices().panic_devices;
        let count = |model| devices.iter().filter(|device| device.model == Some(model)).count();
        let models = [PanicDeviceModel::Hyperv, PanicDeviceModel::Isa, PanicDeviceModel::Pvpanic];
        let twice = models.into_iter().find(|model| count(*model) > 1)?;
        Some(format!("has {} of model {}: keep one", count(twice), twice.as_str()))
    }),
    ("vsock-needs-its-gate", "domain.devices.autoattachVSOCK", Invalid, |it| {
        let wanted = it.devices().autoattach_vsock == Some(true);
        if_so(wanted && !gates::is_on(it.cluster, gates::VSOCK), "needs the feature gate VSOCK")
    }),
    ("reboot-policy-needs-its-gate", "domain.rebootPolicy", Invalid, |it| {
        it.spec.domain.reboot_policy?;
        if_so(!gates::is_on(it.cluster, gates::REBOOT_POLICY), "needs the feature gate RebootPolicy")
    }),
    ("reserved-overhead-needs-its-gate", "domain.memory.reservedOverhead", Invalid, |it| {
        let overhead = it.spec.domain.memory.as_ref()?.reserved_overhead.as_ref()?;
        // What is not supported needs no gate either.
        overhead.added_overhead.as_ref()?;
        if_so(!gates::is_on(it.cluster, gates::RESERVED_OVERHEAD), "needs the feature gate ReservedOverheadMemlock")
    }),
    ("added-overhead-is-not-negative", "domain.memory.reservedOverhead.addedOverhead", Invalid, |it| {
        let added = it.spec.domain.memory.as_ref()?.reserved_overhead.as_ref()?.added_overhead.as_ref()?;
        when(added.nanos() < 0, || format!("is {added}: it cannot be negative"))
    }),
];

/// Names that are no other object's: of inputs, sound card and watchdog.
fn free_names(devices: &Devices) -> impl Iterator<Item = &str> {
    let inputs = devices.inputs.iter().map(|input| input.name.as_str());
    let sound = devices.sound.as_ref().map(|sound| sound.name.as_str());
    inputs.chain(sound).chain(devices.watchdog.as_ref().map(|watchdog| watchdog.name.as_str()))
}

/// Every free text of the virtual hardware: libvirt would only say that its document is broken.
fn texts<'a>(guest: &Guest<'a>) -> impl Iterator<Item = (&'static str, &'a str)> {
    let domain = &guest.spec.domain;
    let firmware = domain.firmware.as_ref();
    let boot = firmware.and_then(|firmware| firmware.kernel_boot.as_ref());
    let container = boot.and_then(|boot| boot.container.as_ref());
    let chassis = domain.chassis.as_ref();
    let vendor =
        domain.features.as_ref().and_then(|features| features.hyperv.as_ref()?.vendorid.as_ref()?.vendorid.as_deref());
    let devices = &domain.devices;
    let single = [
        ("domain.firmware.serial", firmware.and_then(|it| it.serial.as_deref())),
        ("domain.firmware.kernelBoot.kernelArgs", boot.and_then(|it| it.kernel_args.as_deref())),
        ("domain.firmware.kernelBoot.container.image", container.map(|it| it.image.as_str())),
        (
            "domain.firmware.kernelBoot.container.imagePullSecret",
            container.and_then(|it| it.image_pull_secret.as_deref()),
        ),
        ("domain.firmware.kernelBoot.container.kernelPath", container.and_then(|it| it.kernel_path.as_deref())),
        ("domain.firmware.kernelBoot.container.initrdPath", container.and_then(|it| it.initrd_path.as_deref())),
        ("domain.chassis.manufacturer", chassis.and_then(|it| it.manufacturer.as_deref())),
        ("domain.chassis.version", chassis.and_then(|it| it.version.as_deref())),
        ("domain.chassis.serial", chassis.and_then(|it| it.serial.as_deref())),
        ("domain.chassis.asset", chassis.and_then(|it| it.asset.as_deref())),
        ("domain.chassis.sku", chassis.and_then(|it| it.sku.as_deref())),
        ("domain.features.hyperv.vendorid.vendorid", vendor),
        ("domain.devices.sound.name", devices.sound.as_ref().map(|it| it.name.as_str())),
        ("domain.devices.watchdog.name", devices.watchdog.as_ref().map(|it| it.name.as_str())),
    ];
    let inputs = devices.inputs.iter().map(|input| ("domain.devices.inputs", input.name.as_str()));
    let cards = devices.interfaces.iter().flat_map(|card| {
        let options = card.dhcp_options.as_ref();
        let private =
            options.into_iter().flat_map(|options| &options.private_options).map(|option| option.value.as_str());
        let single = [
            options.and_then(|it| it.boot_file_name.as_deref()),
            options.and_then(|it| it.tftp_server_name.as_deref()),
            card.tag.as_deref(),
        ];
        single.into_iter().flatten().chain(private).map(|text| ("domain.devices.interfaces", text))
    });
    single.into_iter().filter_map(|(field, text)| Some((field, text?))).chain(inputs).chain(cards)
}

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    findings.apply(GUEST, guest, path);
    for (field, text) in texts(guest) {
        if let Some(character) = unprintable(text) {
            let problem = format!("has the character {}: remove it", character.escape_unicode());
            findings.add(PRINTABLE, Invalid, &path.field(field), &problem);
        }
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST).chain([RuleInfo { name: PRINTABLE, field: "domain", reason: Invalid }])
}
