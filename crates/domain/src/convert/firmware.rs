//! Machine type, firmware, what boots, and what the guest reads about its manufacturer.

use ferrovirt_api::names::annotations;
use ferrovirt_api::vmi::{Efi, Firmware, StartStrategy};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::paths;

use super::{Guest, in_kernel_image};
use crate::facts::Version;
use crate::unsupported::Unsupported;
use crate::xml::os::{Acpi, AcpiTable, Bios, BootMenu, Entries, Entry, Loader, Machine, Nvram, Os, Sysinfo};
use crate::xml::{Mode, yes_no};

/// How long the boot menu of a guest that starts paused waits for somebody to look, in milliseconds.
const BOOT_MENU_TIMEOUT: u32 = 10_000;
/// libvirt knows the table from here on.
const MSDM_TABLE: Version = Version(11, 2);
/// Where Ignition looks for its configuration.
const IGNITION_ENTRY: &str = "opt/com.coreos/config";

/// The `os` element.
pub(super) fn os(guest: &Guest<'_>) -> Result<Os, Unsupported> {
    let firmware = guest.spec.firmware.as_ref();
    let bootloader = firmware.and_then(|firmware| firmware.bootloader.as_ref());
    let bios = bootloader.and_then(|bootloader| bootloader.bios.as_ref());
    let (loader, nvram) = efi(guest).map(|_| efi_images(guest)).unzip();
    let kernel = kernel(guest)?;
    let paused = guest.vmi.spec.start_strategy == Some(StartStrategy::Paused);
    Ok(Os {
        kind: Machine { arch: "x86_64", machine: machine(guest)?, kind: "hvm" },
        loader,
        nvram,
        kernel: kernel.file,
        initrd: kernel.initrd,
        cmdline: kernel.arguments,
        bootmenu: paused.then_some(BootMenu { enable: "yes", timeout: BOOT_MENU_TIMEOUT }),
        smbios: Mode { mode: "sysinfo" },
        bios: bios.and_then(|bios| bios.use_serial).map(|serial| Bios { use_serial: yes_no(serial) }),
        acpi: acpi_tables(guest, firmware)?,
    })
}

/// The machine type: a q35 that this node's QEMU knows.
fn machine(guest: &Guest<'_>) -> Result<String, Unsupported> {
    let wanted = guest.spec.machine.as_ref().and_then(|machine| machine.r#type.as_deref());
    let machine = wanted.filter(|machine| !machine.is_empty()).unwrap_or(&guest.facts.default_machine);
    let refuse = |why: String| Unsupported::new("spec.domain.machine.type", machine, why);
    if machine != "q35" && !machine.starts_with("pc-q35") {
        return Err(refuse("only q35 machines are supported".to_owned()));
    }
    let known = &guest.facts.machines;
    if known.is_empty() || machine == "q35" || known.iter().any(|known| known == machine) {
        return Ok(machine.to_owned());
    }
    let usable: Vec<&str> = known.iter().map(String::as_str).filter(|name| name.contains("q35")).collect();
    Err(refuse(format!("this node's QEMU {} knows {}", guest.facts.qemu, usable.join(", "))))
}

fn efi<'a>(guest: &Guest<'a>) -> Option<&'a Efi> {
    guest.spec.firmware.as_ref()?.bootloader.as_ref()?.efi.as_ref()
}

/// The guest boots by EFI.
pub(super) fn is_efi(guest: &Guest<'_>) -> bool {
    efi(guest).is_some()
}

/// The guest boots by EFI, and only signed code.
pub(super) fn secure_boot(guest: &Guest<'_>) -> bool {
    efi(guest).is_some_and(|efi| efi.secure_boot != Some(false))
}

fn efi_images(guest: &Guest<'_>) -> (Loader, Nvram) {
    let secure = secure_boot(guest);
    let image = if secure { &guest.facts.ovmf.secure } else { &guest.facts.ovmf.plain };
    let loader = Loader { readonly: "yes", secure: yes_no(secure), kind: "pflash", path: image.code.clone() };
    (loader, Nvram { template: image.variables.clone(), path: paths::nvram(&guest.identity.name) })
}

/// What boots instead of a disk.
#[derive(Default)]
struct Kernel {
    file: Option<String>,
    initrd: Option<String>,
    arguments: Option<String>,
}

fn kernel(guest: &Guest<'_>) -> Result<Kernel, Unsupported> {
    let path = "spec.domain.firmware.kernelBoot";
    let Some(boot) = guest.spec.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref()) else {
        return Ok(Kernel::default());
    };
    let arguments = boot.kernel_args.clone().filter(|arguments| !arguments.is_empty());
    let Some(container) = &boot.container else {
        return match arguments {
            None => Ok(Kernel::default()),
            Some(arguments) => {
                Err(Unsupported::new(format!("{path}.kernelArgs"), arguments, "arguments need a kernel: set container"))
            }
        };
    };
    let inside = |file: &Option<String>, field: &str| {
        let file = file.as_deref().filter(|file| !file.is_empty());
        file.map(|file| in_kernel_image(file, &format!("{path}.container.{field}"))).transpose()
    };
    Ok(Kernel {
        file: inside(&container.kernel_path, "kernelPath")?,
        initrd: inside(&container.initrd_path, "initrdPath")?,
        arguments,
    })
}

/// The guest's kernel comes from outside.
pub(super) fn boots_kernel(guest: &Guest<'_>) -> bool {
    let boot = guest.spec.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    boot.and_then(|boot| boot.container.as_ref()).is_some_and(|container| container.kernel_path.is_some())
}

/// The check of kernel and initrd before the guest starts.
pub(super) fn kernel_task(guest: &Guest<'_>) -> Result<Option<DiskTask>, Unsupported> {
    let boot = guest.spec.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let Some(container) = boot.and_then(|boot| boot.container.as_ref()) else {
        return Ok(None);
    };
    kernel(guest)?;
    let (kernel, initrd) = (container.kernel_path.clone(), container.initrd_path.clone());
    Ok(Some(DiskTask::KernelBoot { tree: paths::kernel_boot(), kernel, initrd }))
}

fn acpi_tables(guest: &Guest<'_>, firmware: Option<&Firmware>) -> Result<Option<Acpi>, Unsupported> {
    let Some(acpi) = firmware.and_then(|firmware| firmware.acpi.as_ref()) else {
        return Ok(None);
    };
    if let Some(volume) = acpi.msdm_name_ref.as_ref().filter(|_| guest.facts.libvirt < MSDM_TABLE) {
        let why = format!("this node's libvirt is {}, {MSDM_TABLE} is needed", guest.facts.libvirt);
        return Err(Unsupported::new("spec.domain.firmware.acpi.msdmNameRef", volume, why));
    }
    let tables = [("slic", "slicNameRef", &acpi.slic_name_ref), ("msdm", "msdmNameRef", &acpi.msdm_name_ref)];
    let mut table = Vec::new();
    for (kind, field, volume) in tables {
        let Some(volume) = volume else { continue };
        let secret = guest.vmi.spec.volumes.iter().any(|known| known.name == *volume && known.secret.is_some());
        if !secret {
            let path = format!("spec.domain.firmware.acpi.{field}");
            return Err(Unsupported::new(path, volume, "there must be a secret volume of this name"));
        }
        table.push(AcpiTable { kind, path: format!("{}/{kind}.bin", paths::config_source(volume)) });
    }
    Ok(Some(Acpi { table }))
}

/// SMBIOS tables, and Ignition's configuration.
pub(super) fn sysinfo(guest: &Guest<'_>) -> Vec<Sysinfo> {
    let (smbios, firmware) = (&guest.facts.smbios, guest.spec.firmware.as_ref());
    let serial = firmware.and_then(|firmware| firmware.serial.as_deref()).unwrap_or_default();
    let system = entries(&[
        ("manufacturer", &smbios.manufacturer),
        ("product", &smbios.product),
        ("version", &smbios.version),
        ("serial", serial),
        ("uuid", &guest.identity.uuid),
        ("sku", &smbios.sku),
        ("family", &smbios.family),
    ]);
    let chassis = guest.spec.chassis.as_ref().and_then(|chassis| {
        let fields = [
            ("manufacturer", &chassis.manufacturer),
            ("version", &chassis.version),
            ("serial", &chassis.serial),
            ("asset", &chassis.asset),
            ("sku", &chassis.sku),
        ];
        entries(&fields.map(|(name, value)| (name, value.as_deref().unwrap_or_default())))
    });
    let mut sysinfo = vec![Sysinfo { kind: "smbios", system, chassis, entry: Vec::new() }];
    if let Some(ignition) = guest.annotation(annotations::IGNITION_DATA).filter(|data| !data.is_empty()) {
        let entry = vec![Entry { name: IGNITION_ENTRY, value: ignition.to_owned() }];
        sysinfo.push(Sysinfo { kind: "fwcfg", system: None, chassis: None, entry });
    }
    sysinfo
}

fn entries(fields: &[(&'static str, &str)]) -> Option<Entries> {
    let present = fields.iter().filter(|(_, value)| !value.is_empty());
    let entry: Vec<Entry> = present.map(|(name, value)| Entry { name, value: (*value).to_owned() }).collect();
    (!entry.is_empty()).then_some(Entries { entry })
}
