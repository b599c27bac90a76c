//! Whom a container runs as and what it may do.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::spec::{Capabilities, User};

/// What a container gets that asks for nothing, as other runtimes give it.
const DEFAULT_CAPABILITIES: &[&str] = &[
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

fn id(field: &'static str, value: i64) -> Result<u32, SecurityError> {
    u32::try_from(value).map_err(|_| SecurityError::Id { field, value })
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
        name => name.parse().ok().or_else(|| column(passwd, name, 2)).ok_or_else(unknown)?,
    };
    let gid = match group_name {
        Some(name) => name.parse().ok().or_else(|| column(group, name, 2)).ok_or_else(unknown)?,
        None => group_of(uid, passwd).unwrap_or(0),
    };
    Ok((uid, gid))
}

/// A number of the line that begins with `name`.
fn column(file: &str, name: &str, index: usize) -> Option<u32> {
    let line = file.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(index)?.parse().ok()
}

fn group_of(uid: u32, passwd: &str) -> Option<u32> {
    let uid = uid.to_string();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    line.split(':').nth(3)?.parse().ok()
}

/// Capabilities of a container: the usual ones, less those dropped, and those added.
pub fn capabilities(container: &Container) -> Capabilities {
    let asked =
        container.security_context.as_ref().and_then(|context| context.capabilities.clone()).unwrap_or_default();
    let plain = |name: &String| name.trim_start_matches("CAP_").to_ascii_uppercase();
    let drop: BTreeSet<String> = asked.drop.iter().flatten().map(plain).collect();
    let mut set: BTreeSet<String> = DEFAULT_CAPABILITIES.iter().map(|&name| name.to_owned()).collect();
    if drop.contains("ALL") {
        set.clear();
    }
    set.retain(|name| !drop.contains(name));
    set.extend(asked.add.iter().flatten().map(plain).filter(|name| name != "ALL"));
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
        assert_eq!(user_of(&json!({}), &json!({}), "nobody"), Err(SecurityError::UnknownUser("nobody".into())));
    }

    #[test]
    fn capabilities_are_dropped_then_added() {
        let container: Container = serde_json::from_value(json!({
            "name": "a", "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
        }))
        .unwrap();
        assert_eq!(capabilities(&container).bounding, ["CAP_NET_BIND_SERVICE"]);
        assert_eq!(capabilities(&Container::default()).bounding.len(), DEFAULT_CAPABILITIES.len());
    }
}
