//! What a running domain's XML tells about it.

use ferrovirt_launcher_rpc::messages::DomainInterface;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// The channel of the guest agent.
const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";
/// Devices that virt-handler named have this in front of the name.
const USER_ALIAS: &str = "ua-";

/// The part of a domain's XML that is reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// The machine type that libvirt resolved.
    pub machine_type: Option<String>,
    /// The guest's instructions are emulated.
    pub emulated: bool,
    /// The guest's memory in bytes.
    pub memory: Option<u64>,
    /// Network interfaces.
    pub interfaces: Vec<DomainInterface>,
    /// Disks: the VMI's volume and `vda`.
    pub disks: Vec<(String, String)>,
    /// Those of them (`vda`) that the guest can only read.
    pub read_only: Vec<String>,
    /// Those of them that are files: `vda` and the path.
    pub files: Vec<(String, String)>,
    /// The agent holds its end of the channel.
    pub agent_connected: bool,
}

/// A device while it is read.
#[derive(Debug, Default)]
struct Device {
    alias: Option<String>,
    target: Option<String>,
    mac: Option<String>,
    queues: Option<u32>,
    link_down: bool,
    file: Option<String>,
    read_only: bool,
    agent_connected: bool,
}

impl Description {
    /// Reads libvirt's XML.
    pub fn parse(xml: &str) -> Result<Self, quick_xml::Error> {
        let mut reader = Reader::from_str(xml);
        let mut description = Self::default();
        let mut path: Vec<String> = Vec::new();
        let mut device = Device::default();
        let mut memory_unit = 1024;
        loop {
            match reader.read_event()? {
                Event::Start(element) => {
                    path.push(name(&element));
                    description.element(&path, &element, &mut device, &mut memory_unit)?;
                }
                Event::Empty(element) => {
                    path.push(name(&element));
                    description.element(&path, &element, &mut device, &mut memory_unit)?;
                    description.end(&path, &mut device);
                    path.pop();
                }
                Event::Text(text) if is(&path, &["domain", "currentMemory"]) => {
                    description.memory = text
                        .xml10_content()
                        .trim()
                        .parse::<u64>()
                        .ok()
                        .and_then(|count| count.checked_mul(memory_unit));
                }
                Event::End(_) => {
                    description.end(&path, &mut device);
                    path.pop();
                }
                Event::Eof => return Ok(description),
                _ => {}
            }
        }
    }

    fn element(
        &mut self,
        path: &[String],
        element: &BytesStart<'_>,
        device: &mut Device,
        memory_unit: &mut u64,
    ) -> Result<(), quick_xml::Error> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["domain"] => self.emulated = attribute(element, "type")?.as_deref() == Some("qemu"),
            ["domain", "os", "type"] => self.machine_type = attribute(element, "machine")?,
            ["domain", "currentMemory"] => *memory_unit = bytes_per_unit(attribute(element, "unit")?.as_deref()),
            ["domain", "devices", "interface" | "disk" | "channel"] => *device = Device::default(),
            ["domain", "devices", _, "alias"] => device.alias = attribute(element, "name")?,
            ["domain", "devices", "channel", "target"] => {
                device.agent_connected = attribute(element, "name")?.as_deref() == Some(AGENT_CHANNEL)
                    && attribute(element, "state")?.as_deref() == Some("connected");
            }
            ["domain", "devices", _, "target"] => device.target = attribute(element, "dev")?,
            ["domain", "devices", "disk", "source"] => device.file = attribute(element, "file")?,
            ["domain", "devices", "disk", "readonly"] => device.read_only = true,
            ["domain", "devices", "interface", "mac"] => device.mac = attribute(element, "address")?,
            ["domain", "devices", "interface", "driver"] => {
                device.queues = attribute(element, "queues")?.and_then(|queues| queues.parse().ok());
            }
            ["domain", "devices", "interface", "link"] => {
                device.link_down = attribute(element, "state")?.as_deref() == Some("down");
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, path: &[String], device: &mut Device) {
        if is(path, &["domain", "devices", "interface"]) {
            self.interfaces.extend(std::mem::take(device).interface());
        } else if is(path, &["domain", "devices", "disk"]) {
            let device = std::mem::take(device);
            self.read_only.extend(device.target.clone().filter(|_| device.read_only));
            self.files.extend(device.target.clone().zip(device.file.clone()));
            self.disks.extend(device.disk());
        } else if is(path, &["domain", "devices", "channel"]) {
            self.agent_connected |= std::mem::take(device).agent_connected;
        }
    }
}

impl Device {
    fn user_name(&self) -> Option<String> {
        self.alias.as_ref()?.strip_prefix(USER_ALIAS).map(str::to_owned)
    }

    fn interface(self) -> Option<DomainInterface> {
        Some(DomainInterface {
            name: self.user_name()?,
            mac: self.mac?,
            tap: self.target.unwrap_or_default(),
            queues: self.queues.unwrap_or(1),
            link_up: !self.link_down,
        })
    }

    fn disk(self) -> Option<(String, String)> {
        Some((self.user_name()?, self.target?))
    }
}

fn is(path: &[String], wanted: &[&str]) -> bool {
    path.iter().map(String::as_str).eq(wanted.iter().copied())
}

fn name(element: &BytesStart<'_>) -> String {
    element.local_name().as_ref().to_owned()
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, quick_xml::Error> {
    let Some(attribute) = element.try_get_attribute(name)? else { return Ok(None) };
    Ok(Some(attribute.normalized_value(XmlVersion::Implicit1_0)?.into_owned()))
}

/// libvirt writes KiB and reads anything.
fn bytes_per_unit(unit: Option<&str>) -> u64 {
    match unit {
        Some("b" | "bytes") => 1,
        Some("MiB" | "M") => 1 << 20,
        Some("GiB" | "G") => 1 << 30,
        _ => 1 << 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: &str = "<domain type='qemu' id='1'>
  <name>default_guest</name>
  <memory unit='KiB'>131072</memory>
  <currentMemory unit='KiB'>98304</currentMemory>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/a&amp;b'/>
      <backingStore type='file'><format type='raw'/><source file='/c'/><backingStore/></backingStore>
      <target dev='vda' bus='virtio'/>
      <alias name='ua-rootdisk'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda'/><readonly/><alias name='sata0-0-0'/></disk>
    <controller type='usb' index='0' model='none'><alias name='usb'/></controller>
    <interface type='ethernet'>
      <mac address='52:54:00:12:34:56'/><target dev='tap0' managed='no'/><model type='virtio-non-transitional'/>
      <driver queues='2'/><mtu size='1480'/><link state='down'/><alias name='ua-default'/>
    </interface>
    <interface type='ethernet'>
      <mac address='52:54:00:12:34:57'/><target dev='tap1' managed='no'/><alias name='ua-second'/>
    </interface>
    <channel type='unix'>
      <source mode='bind' path='/x'/><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>
      <alias name='channel0'/>
    </channel>
    <channel type='unix'><target type='virtio' name='other' state='disconnected'/></channel>
  </devices>
</domain>";

    #[test]
    fn everything_that_is_reported_is_found() {
        let description = Description::parse(RUNNING).unwrap();
        assert_eq!(description.machine_type.as_deref(), Some("pc-q35-7.2"));
        assert!(description.emulated && description.agent_connected);
        assert_eq!(description.memory, Some(96 << 20));
        assert_eq!(description.disks, [("rootdisk".to_owned(), "vda".to_owned())]);
        assert_eq!(description.read_only, ["sda"]);
        assert_eq!(description.files, [("vda".to_owned(), "/a&b".to_owned())]);
        let interface = |name: &str, mac: &str, tap: &str, queues, link_up| DomainInterface {
            name: name.to_owned(),
            mac: mac.to_owned(),
            tap: tap.to_owned(),
            queues,
            link_up,
        };
        assert_eq!(
            description.interfaces,
            [
                interface("default", "52:54:00:12:34:56", "tap0", 2, false),
                interface("second", "52:54:00:12:34:57", "tap1", 1, true),
            ]
        );
    }

    #[test]
    fn kvm_is_not_emulated_and_an_absent_agent_is_not_connected() {
        let description = Description::parse("<domain type='kvm'><devices/></domain>").unwrap();
        assert_eq!(description, Description::default());
    }

    #[test]
    fn broken_xml_is_an_error() {
        assert!(Description::parse("<domain></other>").is_err());
    }
}
