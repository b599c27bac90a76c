//! Names that become parts of paths, devices and host names.

use std::collections::BTreeMap;

use super::{Cause, Reason};
use crate::vmi::VirtualMachineInstanceSpec;

/// Kubernetes' longest label.
const LONGEST: usize = 63;

/// A label as DNS knows it.
pub(super) fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].iter().all(|byte| byte.is_some_and(|byte| plain(*byte)));
    ends && bytes.len() <= LONGEST && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

/// An absolute path in which nothing leads elsewhere.
pub(super) fn is_clean_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or("..");
    !path.contains('\0') && parts.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Every name of a list is a DNS label and there once.
pub(super) fn check_list<'a>(path: &str, names: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, name) in names.enumerate() {
        let field = format!("{path}[{index}].name");
        if !is_dns_label(name) {
            let problem = format!("is '{name}', which is no DNS label: use lower case letters, digits and '-'");
            causes.push(Cause::new(Reason::Invalid, &field, problem));
        }
        if let Some(first) = seen.get(name) {
            let problem = format!("is '{name}', as {path}[{first}].name is: names must differ");
            causes.push(Cause::new(Reason::Duplicate, &field, problem));
        }
        seen.entry(name).or_insert(index);
    }
}

pub(super) fn check(spec: &VirtualMachineInstanceSpec, causes: &mut Vec<Cause>) {
    let devices = &spec.domain.devices;
    let lists: [(&str, Vec<&str>); 5] = [
        ("spec.volumes", spec.volumes.iter().map(|volume| volume.name.as_str()).collect()),
        ("spec.networks", spec.networks.iter().map(|network| network.name.as_str()).collect()),
        ("spec.domain.devices.disks", devices.disks.iter().map(|disk| disk.name.as_str()).collect()),
        ("spec.domain.devices.filesystems", devices.filesystems.iter().map(|shared| shared.name.as_str()).collect()),
        ("spec.domain.devices.interfaces", devices.interfaces.iter().map(|card| card.name.as_str()).collect()),
    ];
    for (path, names) in lists {
        check_list(path, names.into_iter(), causes);
    }
    if let Some(hostname) = spec.hostname.as_deref().filter(|hostname| !is_dns_label(hostname)) {
        let problem = format!("is '{hostname}', which is no DNS label: use lower case letters, digits and '-'");
        causes.push(Cause::new(Reason::Invalid, "spec.hostname", problem));
    }
    let subdomain = spec.subdomain.as_deref().filter(|subdomain| !subdomain.split('.').all(is_dns_label));
    if let Some(subdomain) = subdomain {
        let problem = format!("is '{subdomain}', which is no DNS name: use labels separated by '.'");
        causes.push(Cause::new(Reason::Invalid, "spec.subdomain", problem));
    }
}
