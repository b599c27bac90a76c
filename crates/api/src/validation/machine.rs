//! Machine type, firmware, clock and features: the board that everything is plugged into.

use super::Guest;
use super::Reason::{Invalid, NotSupported, Required};
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::{is_clean_path, is_label_word};
use crate::meta::FeatureState;
use crate::vmi::{
    Acpi, Bootloader, Clock, Efi, FeatureHyperv, Features, Firmware, HpetTickPolicy, KernelBoot, PitTickPolicy,
};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;

/// Machine types of amd64 when the cluster does not say.
const EMULATED: [&str; 2] = ["q35*", "pc-q35*"];
/// Fewer tries than this are refused by the hypervisor.
const FEWEST_SPINLOCK_RETRIES: u32 = 4096;
/// The CPUID leaf has room for so many characters.
const LONGEST_VENDOR: usize = 12;

impl<'a> Guest<'a> {
    fn firmware(&self) -> Option<&'a Firmware> {
        self.spec.domain.firmware.as_ref()
    }

    fn bootloader(&self) -> Option<&'a Bootloader> {
        self.firmware()?.bootloader.as_ref()
    }

    fn efi(&self) -> Option<&'a Efi> {
        self.bootloader()?.efi.as_ref()
    }

    fn kernel_boot(&self) -> Option<&'a KernelBoot> {
        self.firmware()?.kernel_boot.as_ref()
    }

    fn acpi(&self) -> Option<&'a Acpi> {
        self.firmware()?.acpi.as_ref()
    }

    fn clock(&self) -> Option<&'a Clock> {
        self.spec.domain.clock.as_ref()
    }

    fn features(&self) -> Option<&'a Features> {
        self.spec.domain.features.as_ref()
    }

    fn hyperv(&self) -> Option<&'a FeatureHyperv> {
        self.features()?.hyperv.as_ref()
    }

    fn machine_type(&self) -> Option<&'a str> {
        self.spec.domain.machine.as_ref()?.r#type.as_deref().filter(|kind| !kind.is_empty())
    }

    fn is_secret_volume(&self, name: &str) -> bool {
        self.spec.volumes.iter().any(|volume| volume.name == name && volume.secret.is_some())
    }
}

const GUEST: &[GuestRule] = &[
    ("machine-type-is-emulated", "domain.machine.type", NotSupported, |it| {
        let kind = it.machine_type()?;
        let settings = it.cluster.architecture_configuration.as_ref().and_then(|settings| settings.amd64.as_ref());
        let own = settings.map(|settings| settings.emulated_machines.as_slice()).filter(|list| !list.is_empty());
        let listed = own.unwrap_or(&it.cluster.emulated_machines);
        let patterns: Vec<&str> =
            if listed.is_empty() { EMULATED.to_vec() } else { listed.iter().map(String::as_str).collect() };
        when(!patterns.iter().any(|pattern| fits(pattern, kind)), || {
            format!("is '{kind}', which this cluster does not emulate: use one of {}", patterns.join(", "))
        })
    }),
    ("machine-type-is-a-q35", "domain.machine.type", NotSupported, |it| {
        let kind = it.machine_type()?;
        when(kind != "q35" && !kind.starts_with("pc-q35"), || {
            format!("is '{kind}', which is not supported yet; use q35 or one of its versions")
        })
    }),
    ("machine-type-is-a-word", "domain.machine.type", Invalid, |it| {
        let kind = it.machine_type()?;
        when(!is_label_word(kind), || format!("is '{kind}', which is no name of a machine type"))
    }),
    ("bootloader-is-bios-or-efi", "domain.firmware.bootloader", Invalid, |it| {
        let both = it.bootloader().is_some_and(|loader| loader.bios.is_some() && loader.efi.is_some());
        if_so(both, "has both bios and efi: keep one")
    }),
    ("secure-boot-needs-smm", "domain.features.smm", Invalid, |it| {
        let secure = it.efi()?.secure_boot != Some(false);
        let smm = it.features().and_then(|features| features.smm).is_some_and(FeatureState::is_on);
        if_so(
            secure && !smm,
            "must be enabled for secure boot: set smm.enabled, or firmware.bootloader.efi.secureBoot to false",
        )
    }),
    ("bios-on-serial-needs-a-console", "domain.firmware.bootloader.bios.useSerial", Invalid, |it| {
        let serial = it.bootloader()?.bios.as_ref()?.use_serial == Some(true);
        let console = it.spec.domain.devices.autoattach_serial_console != Some(false);
        if_so(serial && !console, "needs a serial console, which devices.autoattachSerialConsole removes")
    }),
    ("kernel-arguments-need-a-kernel", "domain.firmware.kernelBoot.kernelArgs", Invalid, |it| {
        let boot = it.kernel_boot()?;
        let arguments = boot.kernel_args.as_deref().is_some_and(|arguments| !arguments.is_empty());
        let kernel = boot.container.as_ref().is_some_and(|container| container.kernel_path.is_some());
        if_so(arguments && !kernel, "needs a kernel: set container.kernelPath")
    }),
    ("kernel-boot-needs-an-image", "domain.firmware.kernelBoot.container.image", Required, |it| {
        if_so(
            it.kernel_boot()?.container.as_ref()?.image.is_empty(),
            "is missing: name the container image with the kernel",
        )
    }),
    ("kernel-boot-boots-something", "domain.firmware.kernelBoot.container", Required, |it| {
        let container = it.kernel_boot()?.container.as_ref()?;
        if_so(
            container.kernel_path.is_none() && container.initrd_path.is_none(),
            "boots nothing: set kernelPath or initrdPath",
        )
    }),
    ("kernel-path-is-absolute-and-clean", "domain.firmware.kernelBoot.container.kernelPath", Invalid, |it| {
        clean(it.kernel_boot()?.container.as_ref()?.kernel_path.as_deref()?)
    }),
    ("initrd-path-is-absolute-and-clean", "domain.firmware.kernelBoot.container.initrdPath", Invalid, |it| {
        clean(it.kernel_boot()?.container.as_ref()?.initrd_path.as_deref()?)
    }),
    ("acpi-has-a-table", "domain.firmware.acpi", Required, |it| {
        let acpi = it.acpi()?;
        if_so(
            acpi.slic_name_ref.is_none() && acpi.msdm_name_ref.is_none(),
            "has no table: set slicNameRef or msdmNameRef",
        )
    }),
    ("slic-table-is-in-a-secret-volume", "domain.firmware.acpi.slicNameRef", Invalid, |it| {
        let name = it.acpi()?.slic_name_ref.as_deref()?;
        when(!it.is_secret_volume(name), || format!("is '{name}', but no volume of that name has a secret"))
    }),
    ("msdm-table-is-in-a-secret-volume", "domain.firmware.acpi.msdmNameRef", Invalid, |it| {
        let name = it.acpi()?.msdm_name_ref.as_deref()?;
        when(!it.is_secret_volume(name), || format!("is '{name}', but no volume of that name has a secret"))
    }),
    ("clock-is-utc-or-a-timezone", "domain.clock", Invalid, |it| {
        let clock = it.clock()?;
        if_so(clock.utc.is_some() && clock.timezone.is_some(), "has both utc and timezone: keep one")
    }),
    ("timezone-is-a-name", "domain.clock.timezone", Invalid, |it| {
        let zone = it.clock()?.timezone.as_deref()?;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-/".contains(&byte);
        when(zone.is_empty() || !zone.bytes().all(word), || {
            format!("is '{zone}', which is no time zone: use one such as Europe/Vienna")
        })
    }),
    ("pit-cannot-catch-up", "domain.clock.timer.pit.tickPolicy", NotSupported, |it| {
        let policy = it.clock()?.timer.as_ref()?.pit.as_ref()?.tick_policy?;
        if_so(policy == PitTickPolicy::Catchup, "is 'catchup', which QEMU's timer cannot do: use delay or discard")
    }),
    ("hpet-can-only-delay", "domain.clock.timer.hpet.tickPolicy", NotSupported, |it| {
        let policy = it.clock()?.timer.as_ref()?.hpet.as_ref()?.tick_policy?;
        when(policy != HpetTickPolicy::Delay, || {
            format!("is '{}', which QEMU's timer cannot do: use delay", policy.as_str())
        })
    }),
    ("hyperv-is-listed-or-passed-through", "domain.features.hyperv", Invalid, |it| {
        let passed = it.features()?.hyperv_passthrough.as_ref().is_some_and(|it| it.enabled != Some(false));
        if_so(passed && it.hyperv().is_some(), "cannot be listed while hypervPassthrough is enabled: keep one")
    }),
    ("hyperv-synic-needs-vpindex", "domain.features.hyperv.synic", Invalid, |it| {
        let hyperv = it.hyperv()?;
        if_so(on(hyperv.synic) && !on(hyperv.vpindex), "needs hyperv.vpindex enabled")
    }),
    ("hyperv-synictimer-needs-synic", "domain.features.hyperv.synictimer", Invalid, |it| {
        let hyperv = it.hyperv()?;
        let timer = hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled != Some(false));
        if_so(timer && !on(hyperv.synic), "needs hyperv.synic enabled")
    }),
    ("hyperv-tlbflush-needs-vpindex", "domain.features.hyperv.tlbflush", Invalid, |it| {
        let hyperv = it.hyperv()?;
        let flush = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled != Some(false));
        if_so(flush && !on(hyperv.vpindex), "needs hyperv.vpindex enabled")
    }),
    ("hyperv-ipi-needs-vpindex", "domain.features.hyperv.ipi", Invalid, |it| {
        let hyperv = it.hyperv()?;
        if_so(on(hyperv.ipi) && !on(hyperv.vpindex), "needs hyperv.vpindex enabled")
    }),
    ("hyperv-evmcs-needs-vapic", "domain.features.hyperv.evmcs", Invalid, |it| {
        let hyperv = it.hyperv()?;
        if_so(on(hyperv.evmcs) && !on(hyperv.vapic), "needs hyperv.vapic enabled")
    }),
    ("hyperv-spinlocks-are-many", "domain.features.hyperv.spinlocks.spinlocks", Invalid, |it| {
        let locks = it.hyperv()?.spinlocks.as_ref().filter(|locks| locks.enabled != Some(false))?;
        let retries = locks.spinlocks.filter(|retries| *retries < FEWEST_SPINLOCK_RETRIES)?;
        Some(format!("is {retries}: use at least {FEWEST_SPINLOCK_RETRIES}"))
    }),
    ("hyperv-vendor-fits", "domain.features.hyperv.vendorid.vendorid", Invalid, |it| {
        let vendor = it.hyperv()?.vendorid.as_ref().filter(|vendor| vendor.enabled != Some(false))?;
        let name = vendor.vendorid.as_deref().unwrap_or_default();
        let fits = (1..=LONGEST_VENDOR).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        when(!fits, || format!("is '{name}': use 1 to {LONGEST_VENDOR} characters without spaces and commas"))
    }),
];

fn on(state: Option<FeatureState>) -> bool {
    state.is_some_and(FeatureState::is_on)
}

fn clean(path: &str) -> Problem {
    when(!is_clean_path(path), || format!("is '{path}': use an absolute path without '.' and '..'"))
}

/// Whether a word fits a pattern whose `*` stands for anything.
fn fits(pattern: &str, word: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == word };
    let Some(rest) = word.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fits(tail, &rest[at..]))
}

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    findings.apply(GUEST, guest, path);
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, word) in
            [("q35*", "q35"), ("pc-q35*", "pc-q35-7.2"), ("*", ""), ("a*b*c", "a1b2c"), ("q35", "q35")]
        {
            assert!(fits(pattern, word), "{pattern} {word}");
        }
        for (pattern, word) in [("q35*", "pc"), ("q35", "q35-1"), ("a*b", "ac"), ("", "a")] {
            assert!(!fits(pattern, word), "{pattern} {word}");
        }
    }
}
