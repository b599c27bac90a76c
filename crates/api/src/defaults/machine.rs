//! Architecture, machine type, firmware, features and timers.

use super::Inputs;
use crate::kubevirt::{ArchSpecificConfiguration, Configuration};
use crate::meta::FeatureState;
use crate::values::FirmwareUuid;
use crate::vmi::{
    Architecture, CpuFeature, CpuFeaturePolicy, DomainSpec, FeatureHyperv, FeatureSpinlocks, Features, SynicTimer,
    Timer, VirtualMachineInstanceSpec,
};

/// Tries before a Windows guest gives way to the hypervisor; fewer is not allowed.
const SPINLOCK_RETRIES: u32 = 4096;

/// Makes another number of a random one.
const SERIAL_MASK: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834;

/// The guest's architecture, which everything else depends on.
pub(super) fn architecture(
    spec: &mut VirtualMachineInstanceSpec,
    cluster: &Configuration,
    inputs: &Inputs,
) -> Architecture {
    let settings = cluster.architecture_configuration.as_ref();
    let wished = settings.and_then(|settings| settings.default_architecture.as_deref()?.parse().ok());
    *spec.architecture.get_or_insert(wished.unwrap_or(inputs.architecture))
}

pub(super) fn fill(
    spec: &mut VirtualMachineInstanceSpec,
    cluster: &Configuration,
    architecture: Architecture,
    inputs: &Inputs,
) {
    fill_type(spec, cluster, architecture);
    let domain = &mut spec.domain;
    let firmware = domain.firmware.get_or_insert_default();
    firmware.uuid.get_or_insert_with(|| FirmwareUuid::from_u128(inputs.uuid));
    if architecture == Architecture::Arm64 {
        // AArch64 machines have no BIOS, and their EFI comes without keys.
        let bootloader = firmware.bootloader.get_or_insert_default();
        bootloader.efi.get_or_insert_default().secure_boot.get_or_insert(false);
    }
    features(domain.features.get_or_insert_default(), architecture);
    if let Some(timer) = domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) {
        timers(timer);
    }
    nested_hyperv(domain);
}

/// The machine type.
pub(super) fn fill_type(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration, architecture: Architecture) {
    let kind = &mut spec.domain.machine.get_or_insert_default().r#type;
    if kind.as_ref().is_none_or(String::is_empty) {
        *kind = Some(machine_type(cluster, architecture));
    }
}

/// UUID and serial number, which licences are bound to.
pub(super) fn fill_identity(spec: &mut VirtualMachineInstanceSpec, inputs: &Inputs) {
    let firmware = spec.domain.firmware.get_or_insert_default();
    firmware.uuid.get_or_insert_with(|| FirmwareUuid::from_u128(inputs.uuid));
    if firmware.serial.as_ref().is_none_or(String::is_empty) {
        // One random number for both: nobody can tell one from the other.
        let serial = FirmwareUuid::from_u128(inputs.uuid.rotate_left(64) ^ SERIAL_MASK);
        firmware.serial = Some(serial.as_str().to_owned());
    }
}

fn machine_type(cluster: &Configuration, architecture: Architecture) -> String {
    let settings = cluster.architecture_configuration.as_ref();
    let (own, older, built_in) = match architecture {
        Architecture::Amd64 => (settings.and_then(|s| s.amd64.as_ref()), cluster.machine_type.as_ref(), "q35"),
        Architecture::Arm64 => (settings.and_then(|s| s.arm64.as_ref()), None, "virt"),
        Architecture::S390x => (settings.and_then(|s| s.s390x.as_ref()), None, "s390-ccw-virtio"),
    };
    let own = own.and_then(|ArchSpecificConfiguration { machine_type, .. }| machine_type.as_ref());
    own.or(older).filter(|kind| !kind.is_empty()).map_or_else(|| built_in.to_owned(), Clone::clone)
}

/// A feature that is listed is on unless it says otherwise.
fn on(state: &mut Option<FeatureState>) {
    if let Some(state) = state {
        state.enabled.get_or_insert(true);
    }
}

fn features(features: &mut Features, architecture: Architecture) {
    let acpi = features.acpi.get_or_insert_default();
    acpi.enabled.get_or_insert(architecture != Architecture::S390x);
    on(&mut features.smm);
    on(&mut features.pvspinlock);
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    if let Some(passthrough) = &mut features.hyperv_passthrough {
        passthrough.enabled.get_or_insert(true);
    }
    if let Some(hyperv) = &mut features.hyperv {
        self::hyperv(hyperv);
    }
}

fn hyperv(hyperv: &mut FeatureHyperv) {
    needed_by_others(hyperv);
    for state in [
        &mut hyperv.relaxed,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.reset,
        &mut hyperv.frequencies,
        &mut hyperv.reenlightenment,
        &mut hyperv.ipi,
        &mut hyperv.evmcs,
    ] {
        on(state);
    }
    if let Some(FeatureSpinlocks { enabled, spinlocks }) = &mut hyperv.spinlocks
        && *enabled.get_or_insert(true)
    {
        spinlocks.get_or_insert(SPINLOCK_RETRIES);
    }
    if let Some(SynicTimer { enabled, direct }) = &mut hyperv.synictimer {
        enabled.get_or_insert(true);
        on(direct);
    }
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
        on(&mut flush.direct);
        on(&mut flush.extended);
    }
}

/// Some features rest on others; those come with them. In this order, because one may bring the next.
fn needed_by_others(hyperv: &mut FeatureHyperv) {
    let on = |state: Option<FeatureState>| state.is_some_and(FeatureState::is_on);
    let need = |state: &mut Option<FeatureState>| {
        state.get_or_insert_default();
    };
    if hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled.unwrap_or(true)) {
        need(&mut hyperv.synic);
    }
    let flush = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled.unwrap_or(true));
    if on(hyperv.synic) || flush || on(hyperv.ipi) {
        need(&mut hyperv.vpindex);
    }
    if on(hyperv.evmcs) {
        need(&mut hyperv.vapic);
    }
}

/// Faster nested guests need the processor's own virtualisation inside the guest.
fn nested_hyperv(domain: &mut DomainSpec) {
    const VMX: &str = "vmx";
    let hyperv = domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    if !hyperv.is_some_and(|hyperv| hyperv.evmcs.is_some_and(FeatureState::is_on)) {
        return;
    }
    let features = &mut domain.cpu.get_or_insert_default().features;
    match features.iter_mut().find(|feature| feature.name == VMX) {
        Some(feature) => feature.policy = Some(CpuFeaturePolicy::Require),
        None => features.push(CpuFeature { name: VMX.to_owned(), policy: Some(CpuFeaturePolicy::Require) }),
    }
}

fn timers(timer: &mut Timer) {
    let present = [
        timer.hpet.as_mut().map(|timer| &mut timer.present),
        timer.kvm.as_mut().map(|timer| &mut timer.present),
        timer.pit.as_mut().map(|timer| &mut timer.present),
        timer.rtc.as_mut().map(|timer| &mut timer.present),
        timer.hyperv.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}
