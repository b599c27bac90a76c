//! What changes on the host itself: masquerading and forwarding. Also its name servers, which pods use too.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use crate::{
    NetworkError,
    addresses::Range,
    firewall::{Purpose, apply},
    state::{RUN, absent_is_fine, write},
};

const IPV4_FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const IPV6_FORWARDING: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// Replaces the cluster's table in one transaction, so that there is no moment without it.
pub(crate) async fn masquerade(table: &str, range: &Range) -> Result<(), NetworkError> {
    apply(None, Purpose { operation: "create", table }, rules(table, range)).await
}

/// Removes the cluster's table, if it is there.
pub(crate) async fn stop_masquerading(table: &str) -> Result<(), NetworkError> {
    let script = format!("table inet {table}\ndelete table inet {table}\n");
    apply(None, Purpose { operation: "remove", table }, script).await
}

fn rules(table: &str, range: &Range) -> String {
    let (v4, v6) = (range.v4(), range.v6());
    format!(
        "table inet {table}
delete table inet {table}
table inet {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {v4} ip daddr != {v4} oifname != \"{table}\" masquerade
    ip6 saddr {v6} ip6 daddr != {v6} oifname != \"{table}\" masquerade
  }}
}}
"
    )
}

/// Who on this machine needs forwarding, and whether it was us who switched it on. Kept in `/run`, as the setting ends with the boot too.
pub(crate) struct Forwarding {
    directory: PathBuf,
    setting: PathBuf,
}

impl Forwarding {
    /// The host's.
    pub(crate) fn host() -> Self {
        Self { directory: Path::new(RUN).join("forwarding"), setting: PathBuf::from(IPV4_FORWARDING) }
    }

    /// Switches forwarding on for the cluster. To be called with the host's lock held.
    pub(crate) fn need(&self, cluster: &str) -> Result<(), NetworkError> {
        let on = fs::read_to_string(&self.setting).map_err(|source| self.failed("read", source))?.trim() != "0";
        if !on {
            write(&self.switched_on(), b"")?;
            tracing::info!("switching net.ipv4.ip_forward on: pods reach the outside through this machine");
            fs::write(&self.setting, "1").map_err(|source| self.failed("write", source))?;
        }
        write(&self.directory.join("clusters").join(cluster), b"")
    }

    /// The cluster no longer needs it; the last one restores what was before the first. To be called with the host's lock held.
    pub(crate) fn release(&self, cluster: &str) -> Result<(), NetworkError> {
        let clusters = self.directory.join("clusters");
        absent_is_fine(fs::remove_file(clusters.join(cluster))).map_err(|source| NetworkError::State {
            operation: "remove from",
            path: clusters.clone(),
            source,
        })?;
        let needed = fs::read_dir(&clusters).is_ok_and(|mut entries| entries.next().is_some());
        if needed || !self.switched_on().exists() {
            return Ok(());
        }
        fs::write(&self.setting, "0").map_err(|source| self.failed("write", source))?;
        absent_is_fine(fs::remove_file(self.switched_on()))
            .map_err(|source| self.failed("forget the change of", source))
    }

    fn switched_on(&self) -> PathBuf {
        self.directory.join("switched-on")
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> NetworkError {
        NetworkError::State { operation, path: self.setting.clone(), source }
    }
}

/// Whether the host forwards IPv6.
pub(crate) fn forwards_ipv6() -> bool {
    fs::read_to_string(IPV6_FORWARDING).is_ok_and(|content| content.trim() != "0")
}

/// How names are resolved: what a pod's `resolv.conf` has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolver {
    pub(crate) servers: Vec<IpAddr>,
    pub(crate) searches: Vec<String>,
}

/// The host's name servers, as far as pods can reach them: where the host asks a stub on its loopback interface, the servers behind it.
pub(crate) fn resolver() -> Resolver {
    let files = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
    let parsed = files.iter().filter_map(|file| fs::read_to_string(file).ok()).map(|content| parse_resolver(&content));
    parsed.into_iter().find(|resolver| !resolver.servers.is_empty()).unwrap_or_default()
}

fn parse_resolver(content: &str) -> Resolver {
    let mut resolver = Resolver::default();
    for line in content.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                resolver.servers.extend(address.filter(|address| !address.is_loopback()));
            }
            Some("search") => resolver.searches = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    resolver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_is_restored_by_the_last_cluster_and_only_if_it_was_off() {
        let directory = tempfile::tempdir().unwrap();
        let forwarding =
            Forwarding { directory: directory.path().join("forwarding"), setting: directory.path().join("setting") };
        let setting = || fs::read_to_string(&forwarding.setting).unwrap().trim().to_owned();
        fs::write(&forwarding.setting, "0\n").unwrap();
        forwarding.need("a").unwrap();
        forwarding.need("b").unwrap();
        forwarding.need("a").unwrap();
        assert_eq!(setting(), "1");
        forwarding.release("a").unwrap();
        assert_eq!(setting(), "1");
        forwarding.release("b").unwrap();
        assert_eq!(setting(), "0");

        fs::write(&forwarding.setting, "1\n").unwrap();
        forwarding.need("a").unwrap();
        forwarding.release("a").unwrap();
        assert_eq!(setting(), "1");
    }

    #[test]
    fn servers_on_the_loopback_interface_are_of_no_use_to_pods() {
        let content = "# made by hand\nsearch a.example b.example\nnameserver 127.0.0.53\nnameserver ::1\nnameserver 192.0.2.1\nnameserver fd00::1 # two\noptions edns0\n";
        let resolver = parse_resolver(content);
        assert_eq!(resolver.servers, ["192.0.2.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
        assert_eq!(resolver.searches, ["a.example", "b.example"]);
    }
}
