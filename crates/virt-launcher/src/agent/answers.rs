//! The agent's answers. The guest writes them: texts are cut and cleaned, lists are cut, addresses have to be addresses.

use std::net::IpAddr;

use ferrovirt_launcher_rpc::messages::{AgentFilesystem, AgentInterface, AgentUser, GuestOs};
use serde::Deserialize;

/// Longer than any name that means something.
const TEXT_MAX: usize = 256;
const INTERFACES_MAX: usize = 64;
const ADDRESSES_MAX: usize = 64;
const USERS_MAX: usize = 100;
const FILESYSTEMS_MAX: usize = 100;
const DISKS_MAX: usize = 32;

/// Every answer has this around it.
#[derive(Debug, Deserialize)]
pub(super) struct Answer<T> {
    #[serde(rename = "return")]
    pub(super) value: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct HostName {
    pub(super) host_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Timezone {
    zone: Option<String>,
    offset: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct OsInfo {
    name: String,
    kernel_release: String,
    version: String,
    pretty_name: String,
    version_id: String,
    kernel_version: String,
    machine: String,
    id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Interface {
    name: String,
    hardware_address: Option<String>,
    ip_addresses: Vec<Address>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Address {
    ip_address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    user: String,
    domain: Option<String>,
    login_time: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Filesystem {
    name: String,
    mountpoint: String,
    #[serde(rename = "type")]
    kind: String,
    used_bytes: u64,
    total_bytes: u64,
    disk: Vec<Disk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Disk {
    serial: Option<String>,
    bus_type: String,
}

/// Cut to a sane length, without control characters.
pub(super) fn clean(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(TEXT_MAX).collect()
}

pub(super) fn timezone(zone: &Timezone) -> String {
    format!("{}, {}", clean(zone.zone.as_deref().unwrap_or_default()), zone.offset)
}

pub(super) fn os(os: &OsInfo) -> GuestOs {
    GuestOs {
        name: clean(&os.name),
        kernel_release: clean(&os.kernel_release),
        version: clean(&os.version),
        pretty_name: clean(&os.pretty_name),
        version_id: clean(&os.version_id),
        kernel_version: clean(&os.kernel_version),
        machine: clean(&os.machine),
        id: clean(&os.id),
    }
}

/// All but the loopback.
pub(super) fn interfaces(all: Vec<Interface>) -> Vec<AgentInterface> {
    all.into_iter().filter(|interface| interface.name != "lo").take(INTERFACES_MAX).map(interface).collect()
}

fn interface(interface: Interface) -> AgentInterface {
    let addresses = interface.ip_addresses.iter().filter_map(|address| address.ip_address.parse::<IpAddr>().ok());
    AgentInterface {
        name: clean(&interface.name),
        mac: interface.hardware_address.filter(|mac| is_mac(mac)).unwrap_or_default().to_ascii_lowercase(),
        addresses: addresses.take(ADDRESSES_MAX).map(|address| address.to_string()).collect(),
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').take(7).collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(super) fn users(all: Vec<User>) -> Vec<AgentUser> {
    let user = |user: User| AgentUser {
        user: clean(&user.user),
        domain: user.domain.as_deref().map(clean),
        login_time: user.login_time,
    };
    all.into_iter().take(USERS_MAX).map(user).collect()
}

pub(super) fn filesystems(all: Vec<Filesystem>) -> Vec<AgentFilesystem> {
    let disk = |disk: &Disk| (clean(disk.serial.as_deref().unwrap_or_default()), clean(&disk.bus_type));
    let filesystem = |filesystem: Filesystem| AgentFilesystem {
        name: clean(&filesystem.name),
        mountpoint: clean(&filesystem.mountpoint),
        kind: clean(&filesystem.kind),
        used_bytes: filesystem.used_bytes,
        total_bytes: filesystem.total_bytes,
        disks: filesystem.disk.iter().take(DISKS_MAX).map(disk).collect(),
    };
    all.into_iter().take(FILESYSTEMS_MAX).map(filesystem).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;

    fn read<T: DeserializeOwned>(json: &str) -> T {
        serde_json::from_str::<Answer<T>>(json).unwrap().value
    }

    #[test]
    fn interfaces_lose_the_loopback_and_what_is_no_address() {
        let json = r#"{"return":[
            {"name":"lo","ip-addresses":[{"ip-address-type":"ipv4","ip-address":"127.0.0.1","prefix":8}]},
            {"name":"eth0","hardware-address":"02:00:00:AA:bb:01","statistics":{"tx-packets":1},"ip-addresses":[
              {"ip-address-type":"ipv4","ip-address":"10.0.2.2","prefix":24},
              {"ip-address-type":"ipv6","ip-address":"fe80::1","prefix":64},
              {"ip-address-type":"ipv4","ip-address":"<script>","prefix":64}]},
            {"name":"sit0","hardware-address":"not a mac"}]}"#;
        let interface = |name: &str, mac: &str, addresses: &[&str]| AgentInterface {
            name: name.to_owned(),
            mac: mac.to_owned(),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        };
        assert_eq!(
            interfaces(read(json)),
            [interface("eth0", "02:00:00:aa:bb:01", &["10.0.2.2", "fe80::1"]), interface("sit0", "", &[])]
        );
    }

    #[test]
    fn a_system_is_described() {
        let info = os(&read(
            r#"{"return":{"name":"Debian GNU/Linux","kernel-release":"6.1.0","version":"12 (bookworm)","pretty-name":"Debian",
                "version-id":"12","kernel-version":"\u001b[31m#1","machine":"x86_64","id":"debian","variant":"x"}}"#,
        ));
        assert_eq!((info.kernel_release.as_str(), info.version_id.as_str()), ("6.1.0", "12"));
        assert_eq!(info.kernel_version, "[31m#1");
        assert_eq!(timezone(&read(r#"{"return":{"zone":"UTC","offset":0}}"#)), "UTC, 0");
        assert_eq!(read::<HostName>(r#"{"return":{"host-name":"guest"}}"#).host_name, "guest");
        assert_eq!(read::<Info>(r#"{"return":{"version":"7.2","supported_commands":[]}}"#).version, "7.2");
    }

    #[test]
    fn users_and_file_systems_are_read() {
        let found = users(read(r#"{"return":[{"login-time":1.5,"user":"root"},{"user":"a","domain":"B"}]}"#));
        assert_eq!((found[0].user.as_str(), found[0].login_time), ("root", 1.5));
        assert_eq!(found[1].domain.as_deref(), Some("B"));
        let found = filesystems(read(
            r#"{"return":[{"name":"vda1","mountpoint":"/","type":"ext4","used-bytes":1,"total-bytes":2,
                "disk":[{"serial":"s","bus-type":"virtio","bus":0,"target":0,"unit":0}]}]}"#,
        ));
        assert_eq!((found[0].used_bytes, found[0].total_bytes), (1, 2));
        assert_eq!(found[0].disks, [("s".to_owned(), "virtio".to_owned())]);
    }

    #[test]
    fn lists_and_texts_are_cut() {
        let many = serde_json::json!({"return": vec![serde_json::json!({"user": "x".repeat(1000)}); 500]}).to_string();
        let found = users(read(&many));
        assert_eq!((found.len(), found[0].user.len()), (USERS_MAX, TEXT_MAX));
    }

    proptest! {
        #[test]
        fn cleaned_texts_are_short_and_printable(text: String) {
            let cleaned = clean(&text);
            prop_assert!(cleaned.chars().count() <= TEXT_MAX);
            prop_assert!(!cleaned.chars().any(char::is_control));
        }

        #[test]
        fn a_mac_is_six_pairs(text in "[0-9a-fA-F:]{0,24}") {
            prop_assert_eq!(is_mac(&text), text.len() == 17 && text.split(':').count() == 6 && text.split(':').all(|part| part.len() == 2));
        }
    }
}
