//! Features of the machine and the hypervisor.

use ferrovirt_api::meta::FeatureState;
use ferrovirt_api::vmi::FeatureHyperv;
use ferrovirt_launcher_rpc::TRANSLATION_CACHE_MIB;

use super::{Guest, firmware};
use crate::facts::Version;
use crate::unsupported::Unsupported;
use crate::xml::features::{Apic, Detailed, Features, Hyperv, IoApic, Kvm, Mebibytes, Spinlocks, Tcg, VendorId};
use crate::xml::{Flag, State, on_off};

/// libvirt knows variants of `tlbflush` from here on.
const TLBFLUSH_VARIANTS: Version = Version(11, 0);

/// The features; `many_cpus` when interrupts have to be remapped.
pub(super) fn features(guest: &Guest<'_>, many_cpus: bool) -> Result<Features, Unsupported> {
    let wanted = guest.spec.features.clone().unwrap_or_default();
    let secure = firmware::secure_boot(guest);
    if secure && wanted.smm.is_some_and(|smm| !smm.is_on()) {
        let why = "secure boot needs it; switch it on, or spec.domain.firmware.bootloader.efi.secureBoot off";
        return Err(Unsupported::new("spec.domain.features.smm.enabled", false, why));
    }
    let apic = wanted.apic.as_ref().map_or((true, false), |apic| (apic.enabled != Some(false), apic.end_of_interrupt));
    let passthrough = wanted.hyperv_passthrough.as_ref().is_some_and(|hyperv| hyperv.enabled != Some(false));
    let hyperv = match &wanted.hyperv {
        _ if passthrough && !guest.kvm() => return Err(needs_kvm("spec.domain.features.hypervPassthrough")),
        _ if passthrough => Some(Hyperv { mode: "passthrough", ..Hyperv::default() }),
        Some(wanted) => hyperv(guest, wanted)?,
        None => None,
    };
    Ok(Features {
        acpi: wanted.acpi.is_none_or(FeatureState::is_on).then_some(Flag {}),
        apic: apic.0.then_some(Apic { eoi: apic.1.then_some("on") }),
        hyperv,
        kvm: wanted.kvm.as_ref().map(|kvm| Kvm { hidden: State::of(kvm.hidden) }),
        pvspinlock: wanted.pvspinlock.map(state),
        smm: if secure { Some(State::of(true)) } else { wanted.smm.map(state) },
        ioapic: many_cpus.then_some(IoApic { driver: "qemu" }),
        // VMware's backdoor: no guest of ours needs it, and it is one more thing to attack.
        vmport: Some(State::of(false)),
        tcg: (!guest.kvm()).then(|| Tcg { translation_cache: Mebibytes::new(TRANSLATION_CACHE_MIB) }),
    })
}

fn state(feature: FeatureState) -> State {
    State::of(feature.is_on())
}

fn hyperv(guest: &Guest<'_>, wanted: &FeatureHyperv) -> Result<Option<Hyperv>, Unsupported> {
    let stimer = wanted.synictimer.as_ref().map(|timer| Detailed {
        state: on_off(timer.enabled != Some(false)),
        direct: timer.direct.map(state),
        extended: None,
    });
    let tlbflush = wanted.tlbflush.as_ref().map(|flush| Detailed {
        state: on_off(flush.enabled != Some(false)),
        direct: flush.direct.map(state),
        extended: flush.extended.map(state),
    });
    let variants = tlbflush.as_ref().is_some_and(|flush| flush.direct.is_some() || flush.extended.is_some());
    if variants && guest.facts.libvirt < TLBFLUSH_VARIANTS {
        let why = format!("this node's libvirt is {}, {TLBFLUSH_VARIANTS} is needed", guest.facts.libvirt);
        return Err(Unsupported::new("spec.domain.features.hyperv.tlbflush", "direct or extended", why));
    }
    let spinlocks = wanted.spinlocks.as_ref().map(|locks| {
        let on = locks.enabled != Some(false);
        Spinlocks { state: on_off(on), retries: on.then_some(locks.spinlocks.unwrap_or(4096)) }
    });
    let vendor_id = wanted.vendorid.as_ref().map(|vendor| {
        let on = vendor.enabled != Some(false);
        VendorId { state: on_off(on), value: vendor.vendorid.clone().filter(|_| on) }
    });
    let hyperv = Hyperv {
        mode: "custom",
        relaxed: wanted.relaxed.map(state),
        vapic: wanted.vapic.map(state),
        spinlocks,
        vpindex: wanted.vpindex.map(state),
        runtime: wanted.runtime.map(state),
        synic: wanted.synic.map(state),
        stimer,
        reset: wanted.reset.map(state),
        vendor_id,
        frequencies: wanted.frequencies.map(state),
        reenlightenment: wanted.reenlightenment.map(state),
        tlbflush,
        ipi: wanted.ipi.map(state),
        evmcs: wanted.evmcs.map(state),
    };
    let none = Hyperv { mode: "custom", ..Hyperv::default() };
    let some = Some(hyperv).filter(|hyperv| *hyperv != none);
    if some.is_some() && !guest.kvm() {
        return Err(needs_kvm("spec.domain.features.hyperv"));
    }
    Ok(some)
}

fn needs_kvm(path: &str) -> Unsupported {
    Unsupported::new(path, "{…}", "Hyper-V features need KVM, which this node does not have")
}
