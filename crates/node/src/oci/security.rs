//! Whom a container runs as and what it may do.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::spec::{Capabilities, User};

/// What a container gets that asks for nothing, as other runtimes give it, and the most that any gets: each of the others is a way to
/// the machine or to other pods, as there is no user namespace around containers.
pub const CAPABILITIES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Settings of the kernel that a pod may have: they hold for its own namespaces, and harm nobody else. Those that a kubelet calls safe.
pub const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Why a container's security settings cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// Root is not wanted.
    #[error("container has runAsNonRoot and would run as root: set runAsUser, or use an image with another user")]
    Root,
    /// A number is out of range.
    #[error("{field} {value} is not a user or group id")]
    Id {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The image names a user that it does not have.
    #[error("image user {0:?} is not in the image's /etc/passwd or /etc/group")]
    UnknownUser(String),
}

/// Larger ones mean other things to the kernel: the last of all is "leave it as it is", which is root.
const LARGEST_ID: u32 = i32::MAX.unsigned_abs();

fn id(field: &'static str, value: i64) -> Result<u32, SecurityError> {
    let id = u32::try_from(value).ok().filter(|&id| id <= LARGEST_ID);
    id.ok_or(SecurityError::Id { field, value })
}

/// A user or group that an image writes as a number.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id <= LARGEST_ID)
}

/// The user of a container: its own setting, the pod's, the image's, root. `passwd` and `group` are the image's files.
pub fn user(
    spec: &PodSpec,
    container: &Container,
    image_user: &str,
    passwd: &str,
    group: &str,
) -> Result<User, SecurityError> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let (image_uid, image_gid) = look_up(image_user, passwd, group)?;
    let set_user = own.run_as_user.or(pod.run_as_user);
    let uid = set_user.map_or(Ok(image_uid), |value| id("runAsUser", value))?;
    // The image's group belongs to the image's user.
    let default_gid = if set_user.is_some() { group_of(uid, passwd).unwrap_or(0) } else { image_gid };
    let gid = own.run_as_group.or(pod.run_as_group).map_or(Ok(default_gid), |value| id("runAsGroup", value))?;
    if own.run_as_non_root.or(pod.run_as_non_root) == Some(true) && uid == 0 {
        return Err(SecurityError::Root);
    }
    let mut further = BTreeSet::new();
    if let Some(value) = pod.fs_group {
        further.insert(id("fsGroup", value)?);
    }
    for value in pod.supplemental_groups.into_iter().flatten() {
        further.insert(id("supplementalGroups", value)?);
    }
    Ok(User { uid, gid, additional_gids: further.into_iter().collect() })
}

/// `user[:group]` as numbers.
fn look_up(user: &str, passwd: &str, group: &str) -> Result<(u32, u32), SecurityError> {
    let unknown = || SecurityError::UnknownUser(user.to_owned());
    let (name, group_name) = user.split_once(':').map_or((user, None), |(name, group)| (name, Some(group)));
    let uid = match name {
        "" => 0,
        name => number(name).or_else(|| column(passwd, name, 2)).ok_or_else(unknown)?,
    };
    let gid = match group_name {
        Some(name) => number(name).or_else(|| column(group, name, 2)).ok_or_else(unknown)?,
        None => group_of(uid, passwd).unwrap_or(0),
    };
    Ok((uid, gid))
}

/// A number of the line that begins with `name`.
fn column(file: &str, name: &str, index: usize) -> Option<u32> {
    let line = file.lines().find(|line| line.split(':').next() == Some(name))?;
    number(line.split(':').nth(index)?)
}

fn group_of(uid: u32, passwd: &str) -> Option<u32> {
    let uid = uid.to_string();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    number(line.split(':').nth(3)?)
}

/// A capability as it is called here, however it is written.
pub fn capability_name(written: &str) -> String {
    let name = written.to_ascii_uppercase();
    name.strip_prefix("CAP_").unwrap_or(&name).to_owned()
}

/// The first capability that a container wants and that none gets.
pub fn excessive_capability(container: &Container) -> Option<&str> {
    let asked = container.security_context.as_ref()?.capabilities.as_ref()?.add.as_ref()?;
    asked.iter().map(String::as_str).find(|name| !CAPABILITIES.contains(&capability_name(name).as_str()))
}

/// The first setting of the kernel that a pod wants and that none gets.
pub fn excessive_sysctl(spec: &PodSpec) -> Option<&str> {
    let asked = spec.security_context.as_ref()?.sysctls.as_ref()?;
    asked.iter().map(|setting| setting.name.as_str()).find(|name| !SYSCTLS.contains(name))
}

/// A pod's settings of the kernel.
pub fn sysctls(spec: Option<&PodSpec>) -> BTreeMap<String, String> {
    let context = spec.and_then(|spec| spec.security_context.as_ref());
    let asked = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    let asked = asked.filter(|setting| SYSCTLS.contains(&setting.name.as_str()));
    asked.map(|setting| (setting.name.clone(), setting.value.clone())).collect()
}

/// Capabilities of a container: the usual ones, less those dropped, and those taken back by being added.
pub fn capabilities(container: &Container) -> Capabilities {
    let asked =
        container.security_context.as_ref().and_then(|context| context.capabilities.clone()).unwrap_or_default();
    let names = |list: Option<Vec<String>>| list.into_iter().flatten().map(|name| capability_name(&name));
    let drop: BTreeSet<String> = names(asked.drop).collect();
    let mut set: BTreeSet<String> = CAPABILITIES.iter().map(|&name| name.to_owned()).collect();
    if drop.contains("ALL") {
        set.clear();
    }
    set.retain(|name| !drop.contains(name));
    // A pod that wants others is not run at all; this holds whatever led here.
    set.extend(names(asked.add).filter(|name| CAPABILITIES.contains(&name.as_str())));
    let names: Vec<String> = set.into_iter().map(|name| format!("CAP_{name}")).collect();
    // Without an ambient set, a user other than root loses them with the first program, as with other runtimes.
    Capabilities { bounding: names.clone(), effective: names.clone(), permitted: names, ..Capabilities::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PASSWD: &str = "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\n";

    fn user_of(pod: &serde_json::Value, own: &serde_json::Value, image: &str) -> Result<(u32, u32), SecurityError> {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [], "securityContext": pod})).unwrap();
        let container: Container = serde_json::from_value(json!({"name": "a", "securityContext": own})).unwrap();
        user(&spec, &container, image, PASSWD, GROUP).map(|user| (user.uid, user.gid))
    }

    #[test]
    fn the_container_the_pod_and_the_image_name_the_user_in_this_order() {
        assert_eq!(user_of(&json!({"runAsUser": 7}), &json!({"runAsUser": 33}), "5:6"), Ok((33, 34)));
        assert_eq!(user_of(&json!({"runAsUser": 7, "runAsGroup": 8}), &json!({}), "5:6"), Ok((7, 8)));
        assert_eq!(user_of(&json!({}), &json!({}), "5:6"), Ok((5, 6)));
        assert_eq!(user_of(&json!({}), &json!({}), "web"), Ok((33, 34)));
        assert_eq!(user_of(&json!({}), &json!({}), "web:staff"), Ok((33, 50)));
        assert_eq!(user_of(&json!({}), &json!({}), ""), Ok((0, 0)));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        assert_eq!(user_of(&json!({"runAsNonRoot": true}), &json!({}), ""), Err(SecurityError::Root));
        assert_eq!(
            user_of(&json!({"runAsUser": -1}), &json!({}), ""),
            Err(SecurityError::Id { field: "runAsUser", value: -1 })
        );
        let largest = i64::from(u32::MAX);
        assert_eq!(
            user_of(&json!({"runAsUser": largest, "runAsNonRoot": true}), &json!({}), ""),
            Err(SecurityError::Id { field: "runAsUser", value: largest })
        );
        let image = "4294967295";
        assert_eq!(
            user_of(&json!({"runAsNonRoot": true}), &json!({}), image),
            Err(SecurityError::UnknownUser(image.into()))
        );
        assert_eq!(user_of(&json!({}), &json!({}), "nobody"), Err(SecurityError::UnknownUser("nobody".into())));
    }

    #[test]
    fn capabilities_are_dropped_then_added() {
        let container: Container = serde_json::from_value(json!({
            "name": "a", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
        }))
        .unwrap();
        assert_eq!(capabilities(&container).bounding, ["CAP_NET_BIND_SERVICE"]);
        assert_eq!(capabilities(&Container::default()).bounding.len(), CAPABILITIES.len());
    }

    #[test]
    fn none_gets_more_than_the_usual_ones_however_they_are_written() {
        for name in ["SYS_ADMIN", "CAP_SYS_ADMIN", "cap_dac_read_search", "NET_ADMIN", "ALL", "CAP_CAP_SYS_ADMIN", ""] {
            let container: Container = serde_json::from_value(json!({
                "name": "a", "securityContext": {"capabilities": {"add": ["cap_chown", name]}},
            }))
            .unwrap();
            assert_eq!(excessive_capability(&container), Some(name));
            assert_eq!(capabilities(&container), capabilities(&Container::default()), "{name}");
        }
        let usual: Container = serde_json::from_value(json!({
            "name": "a", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["cap_net_bind_service"]}},
        }))
        .unwrap();
        assert_eq!(excessive_capability(&usual), None);
    }

    #[test]
    fn settings_of_the_kernel_are_those_of_the_pod_alone() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [], "securityContext": {"sysctls": [
            {"name": "net.ipv4.tcp_syncookies", "value": "1"}, {"name": "kernel.core_pattern", "value": "|/x"},
        ]}}))
        .unwrap();
        assert_eq!(excessive_sysctl(&spec), Some("kernel.core_pattern"));
        let set = sysctls(Some(&spec));
        assert_eq!(set.keys().collect::<Vec<_>>(), ["net.ipv4.tcp_syncookies"]);
    }
}
