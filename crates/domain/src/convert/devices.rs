//! Devices other than disks, network cards and controllers.

use ferrovirt_api::names::annotations;
use ferrovirt_api::vmi::{Input as WantedInput, InputBus, InputType, PanicDeviceModel, SoundModel, WatchdogAction};
use ferrovirt_launcher_rpc::paths;

use super::{Guest, disks, firmware, memory};
use crate::facts::Version;
use crate::pci::{Places, Role};
use crate::unsupported::Unsupported;
use crate::xml::devices::{
    Audio, Channel, ChannelTarget, Cid, Devices, Directory, Filesystem, FilesystemDriver, Graphics, Input, Listen, Log,
    Panic, Port, Rng, RngBackend, Serial, Socket, Sound, Tpm, TpmBackend, UnixSource, Video, VideoModel, Vsock,
    Watchdog,
};
use crate::xml::{Address, Alias};

const PATH: &str = "spec.domain.devices";
const GUEST_AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";
const VIDEO_MEMORY_KIB: u32 = 16_384;
/// Requests that can be under way in a shared directory.
const FILESYSTEM_QUEUE: u32 = 1024;
/// libvirt has the PCI panic device from here on.
const PCI_PANIC: Version = Version(9, 1);

/// Everything but disks, network cards and controllers.
pub(super) fn devices(guest: &Guest<'_>, places: &mut Places) -> Result<Devices, Unsupported> {
    let wanted = &guest.spec.devices;
    let graphics = wanted.autoattach_graphics_device != Some(false);
    let uid = &guest.identity.uid;
    let listen = Listen { kind: "socket", socket: paths::vnc_socket(uid) };
    let sound = sound(guest, places)?;
    let tpm = wanted.tpm.as_ref().filter(|tpm| tpm.enabled != Some(false));
    Ok(Devices {
        emulator: guest.facts.emulator.clone(),
        filesystem: filesystems(guest, places)?,
        serial: serial(guest)?,
        channel: vec![Channel {
            kind: "unix",
            target: ChannelTarget { kind: "virtio", name: GUEST_AGENT_CHANNEL },
            address: Address::virtio_serial(1),
        }],
        input: inputs(guest, places)?,
        tpm: tpm.map(|_| Tpm { model: "tpm-tis", backend: TpmBackend { kind: "emulator", version: "2.0" } }),
        graphics: graphics.then_some(Graphics { kind: "vnc", listen }),
        audio: sound.is_some().then_some(Audio { id: 1, kind: "none" }),
        sound,
        video: video(guest, graphics, places)?,
        watchdog: watchdog(guest, places)?,
        rng: rng(guest, places)?,
        memory: memory::device(guest, places)?,
        memballoon: Some(memory::balloon(guest, places)?),
        panic: panics(guest, places)?,
        vsock: vsock(guest, places)?,
        ..Devices::default()
    })
}

fn serial(guest: &Guest<'_>) -> Result<Option<Serial>, Unsupported> {
    let (wanted, uid) = (&guest.spec.devices, &guest.identity.uid);
    if wanted.autoattach_serial_console == Some(false) {
        let bootloader = guest.spec.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
        let bios = bootloader.and_then(|bootloader| bootloader.bios.as_ref());
        if bios.is_some_and(|bios| bios.use_serial == Some(true)) {
            let why = "the guest has no serial console; see spec.domain.devices.autoattachSerialConsole";
            return Err(Unsupported::new("spec.domain.firmware.bootloader.bios.useSerial", true, why));
        }
        return Ok(None);
    }
    let logged = wanted.log_serial_console.unwrap_or(guest.facts.log_serial_console);
    Ok(Some(Serial {
        kind: "unix",
        source: UnixSource { mode: "bind", path: paths::serial_socket(uid) },
        log: logged.then(|| Log { file: paths::serial_log(uid), append: "on" }),
        target: Port { port: 0 },
    }))
}

/// Directories that are shared with the guest; the volume's own virtiofsd listens on a socket.
fn filesystems(guest: &Guest<'_>, places: &mut Places) -> Result<Vec<Filesystem>, Unsupported> {
    let wanted = guest.spec.devices.filesystems.iter().enumerate();
    let convert = |(index, wanted): (usize, &ferrovirt_api::vmi::Filesystem)| {
        let path = format!("{PATH}.filesystems[{}]", wanted.name);
        if !guest.vmi.spec.volumes.iter().any(|volume| volume.name == wanted.name) {
            return Err(Unsupported::new(path, &wanted.name, "there is no volume of this name"));
        }
        Ok(Filesystem {
            kind: "mount",
            driver: FilesystemDriver { kind: "virtiofs", queue: FILESYSTEM_QUEUE },
            source: Socket { socket: paths::virtiofs_socket(&wanted.name) },
            target: Directory { dir: wanted.name.clone() },
            alias: Alias::of(&wanted.name),
            address: places.fixed(Role::Filesystem, index, &path)?,
        })
    };
    wanted.map(convert).collect()
}

/// Tablets and keyboards; a tablet for VNC when none is listed and one is wanted.
fn inputs(guest: &Guest<'_>, places: &mut Places) -> Result<Vec<Input>, Unsupported> {
    let automatic = [WantedInput { bus: Some(InputBus::Usb), r#type: InputType::Tablet, name: "default-0".to_owned() }];
    let wanted = match guest.spec.devices.inputs.as_slice() {
        [] if guest.spec.devices.autoattach_input_device == Some(true) => &automatic[..],
        listed => listed,
    };
    let (mut usb, mut virtio) = (0, 0);
    let mut inputs = Vec::new();
    for wanted in wanted {
        let path = format!("{PATH}.inputs[{}]", wanted.name);
        let on_usb = wanted.bus.unwrap_or(InputBus::Usb) == InputBus::Usb;
        let address = if on_usb {
            usb += 1;
            disks::usb_port((disks::USB_PORTS + 1).saturating_sub(usb), &path)?
        } else {
            virtio += 1;
            places.fixed(Role::Input, virtio - 1, &path)?
        };
        let (kind, bus) = (wanted.r#type.as_str(), if on_usb { "usb" } else { "virtio" });
        inputs.push(Input { kind, bus, alias: Alias::of(&wanted.name), address });
    }
    Ok(inputs)
}

fn sound(guest: &Guest<'_>, places: &mut Places) -> Result<Option<Sound>, Unsupported> {
    let Some(wanted) = &guest.spec.devices.sound else {
        return Ok(None);
    };
    let address = places.fixed(Role::Sound, 0, &format!("{PATH}.sound"))?;
    let model = wanted.model.unwrap_or(SoundModel::Ich9).as_str();
    Ok(Some(Sound { model, alias: Alias::of(&wanted.name), address }))
}

/// The graphics card: VGA for a BIOS, the simpler bochs card for EFI, which needs no VGA.
fn video(guest: &Guest<'_>, graphics: bool, places: &mut Places) -> Result<Option<Video>, Unsupported> {
    let wanted = guest.spec.devices.video.as_ref().and_then(|video| video.r#type.as_deref());
    let path = format!("{PATH}.video.type");
    if !graphics {
        return match wanted {
            None => Ok(None),
            Some(wanted) => {
                let why = "a graphics card needs spec.domain.devices.autoattachGraphicsDevice";
                Err(Unsupported::new(path, wanted, why))
            }
        };
    }
    let plain_efi = firmware::is_efi(guest) && guest.annotation(annotations::VGA_DISPLAY_EFI_X86).is_none();
    let default = if plain_efi { "bochs" } else { "vga" };
    let (heads, vram) = (Some(1), Some(VIDEO_MEMORY_KIB));
    let model = |kind, heads, vram| VideoModel { kind, heads, vram };
    let model = match wanted.unwrap_or(default) {
        "vga" => model("vga", heads, vram),
        "bochs" => model("bochs", heads, vram),
        "cirrus" => model("cirrus", heads, vram),
        "virtio" => model("virtio", heads, None),
        "ramfb" => return Ok(Some(Video { model: model("ramfb", heads, None), address: None })),
        other => return Err(Unsupported::new(path, other, "cards are vga, bochs, cirrus, virtio and ramfb")),
    };
    Ok(Some(Video { model, address: Some(places.fixed(Role::Video, 0, &path)?) }))
}

fn watchdog(guest: &Guest<'_>, places: &mut Places) -> Result<Option<Watchdog>, Unsupported> {
    let Some(wanted) = &guest.spec.devices.watchdog else {
        return Ok(None);
    };
    let action = wanted.i6300esb.as_ref().and_then(|watchdog| watchdog.action).unwrap_or(WatchdogAction::Reset);
    let address = places.fixed(Role::Watchdog, 0, &format!("{PATH}.watchdog"))?;
    Ok(Some(Watchdog { model: "i6300esb", action: action.as_str(), alias: Alias::of(&wanted.name), address }))
}

fn rng(guest: &Guest<'_>, places: &mut Places) -> Result<Option<Rng>, Unsupported> {
    if guest.spec.devices.rng.is_none() {
        return Ok(None);
    }
    let backend = RngBackend { model: "random", device: "/dev/urandom" };
    let address = places.fixed(Role::Rng, 0, &format!("{PATH}.rng"))?;
    Ok(Some(Rng { model: guest.virtio_model(), backend, address }))
}

fn panics(guest: &Guest<'_>, places: &mut Places) -> Result<Vec<Panic>, Unsupported> {
    let mut panics = Vec::new();
    for (index, wanted) in guest.spec.devices.panic_devices.iter().enumerate() {
        let path = format!("{PATH}.panicDevices[{index}].model");
        panics.push(match wanted.model.unwrap_or(PanicDeviceModel::Isa) {
            PanicDeviceModel::Pvpanic if guest.facts.libvirt < PCI_PANIC => {
                let why = format!("this node's libvirt is {}, {PCI_PANIC} is needed; isa works", guest.facts.libvirt);
                return Err(Unsupported::new(path, "pvpanic", why));
            }
            PanicDeviceModel::Pvpanic => {
                Panic { model: "pvpanic", address: Some(places.fixed(Role::Panic, 0, &path)?) }
            }
            PanicDeviceModel::Hyperv if !guest.kvm() => {
                let why = "it needs KVM, which this node does not have; isa works";
                return Err(Unsupported::new(path, "hyperv", why));
            }
            model => Panic { model: model.as_str(), address: None },
        });
    }
    Ok(panics)
}

fn vsock(guest: &Guest<'_>, places: &mut Places) -> Result<Option<Vsock>, Unsupported> {
    if guest.spec.devices.autoattach_vsock != Some(true) {
        return Ok(None);
    }
    let path = format!("{PATH}.autoattachVSOCK");
    let cid = guest.vmi.status.as_ref().and_then(|status| status.vsock_cid);
    let address = cid.ok_or_else(|| Unsupported::new(&path, true, "the guest has no status.VSOCKCID yet"))?;
    let cid = Cid { auto: "no", address };
    Ok(Some(Vsock { model: guest.virtio_model(), cid, address: places.fixed(Role::Vsock, 0, &path)? }))
}
