//! What of the node's devices a guest can use, and device files that the launcher's user may open.
//!
//! A kubelet's runtime puts devices into a container as the node has them, which is root's: `/dev/kvm` for its group, a claim in block
//! mode for nobody else. The files are the container's own, so they are given to the launcher's user there; those of the node stay as
//! they are.

use std::io;
use std::os::fd::OwnedFd;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_domain::{Accelerator, Claims, NodeFacts};
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::paths::{self, RUNTIME_USER};
use rustix::fs::{AtFlags, FileType, ResolveFlags, chownat, fstat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::process::{IN_CONTAINER, look_at};

const KVM: &str = "devices.kubevirt.io/kvm";
const TUN: &str = "devices.kubevirt.io/tun";
const VHOST_NET: &str = "devices.kubevirt.io/vhost-net";

/// Resources that pods ask for, and the files that come with them.
const SHARED: [(&str, &str); 3] = [(KVM, "/dev/kvm"), (TUN, "/dev/net/tun"), (VHOST_NET, "/dev/vhost-net")];

/// Read and write for everybody.
const OPEN_TO_ALL: u32 = 0o006;

/// Why the launcher cannot have a device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error("{0} in the launcher is no device")]
    NoDevice(String),
    #[error("cannot {operation} {path} in the launcher: {source}")]
    System { path: String, operation: &'static str, source: io::Error },
}

/// The facts for one guest: it can use what the node has and its pod asked for.
pub(crate) fn facts(node: &NodeFacts, pod: &Pod, claims: Claims) -> NodeFacts {
    let kvm = node.accelerator == Accelerator::Kvm && has(pod, KVM);
    NodeFacts {
        accelerator: if kvm { Accelerator::Kvm } else { Accelerator::Tcg },
        vhost_net: node.vhost_net && has(pod, VHOST_NET),
        claims,
        ..node.clone()
    }
}

/// Whether some container of the pod has the resource.
fn has(pod: &Pod, resource: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    limits.any(|limits| limits.contains_key(resource))
}

/// Gives the launcher with this root its devices.
pub(crate) fn give(pod: &Pod, files: &[String], root: &OwnedFd) -> Result<(), DeviceError> {
    let shared = SHARED.iter().filter(|(resource, _)| has(pod, resource)).map(|(_, path)| *path);
    shared.chain(files.iter().map(String::as_str)).try_for_each(|path| give_one(root, path))
}

/// The device files of a guest's claims in block mode.
pub(crate) fn of_claims(vmi: &VirtualMachineInstance, claims: &Claims) -> Vec<String> {
    let is_block = |name: &str| claims.get(name).is_some_and(|claim| claim.mode == VolumeMode::Block);
    let volumes = ferrovirt_pods::claims_of(vmi).filter(|(_, claim)| is_block(claim));
    volumes.map(|(volume, _)| paths::block_device(volume)).collect()
}

fn give_one(root: &OwnedFd, path: &str) -> Result<(), DeviceError> {
    let (file, kind) = match look_at(root, path, IN_CONTAINER | ResolveFlags::NO_SYMLINKS) {
        Ok(found) => found,
        // QEMU says better what it misses.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(system(path, "open", errno)),
    };
    if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        return Err(DeviceError::NoDevice(path.to_owned()));
    }
    let found = fstat(&file).map_err(|errno| system(path, "look at", errno))?;
    if found.st_uid == RUNTIME_USER || found.st_mode & OPEN_TO_ALL == OPEN_TO_ALL {
        return Ok(());
    }
    if rustix::fs::stat("/dev").is_ok_and(|nodes| nodes.st_dev == found.st_dev) {
        tracing::warn!(
            "{path} in the launcher is the node's own file: it stays as it is, and may be closed to the guest"
        );
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(RUNTIME_USER), Gid::from_raw(RUNTIME_USER));
    chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH).map_err(|errno| system(path, "give", errno))
}

fn system(path: &str, operation: &'static str, errno: Errno) -> DeviceError {
    DeviceError::System { path: path.to_owned(), operation, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{CWD, Mode, OFlags, makedev, mknodat};
    use serde_json::json;

    use super::*;

    fn pod(resources: &[&str]) -> Pod {
        let limits: serde_json::Map<_, _> = resources.iter().map(|&name| (name.to_owned(), json!("1"))).collect();
        let container = json!({"name": "compute", "resources": {"limits": limits}});
        serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [container]}})).unwrap()
    }

    #[test]
    fn a_guest_uses_what_its_pod_asked_for() {
        let node = NodeFacts { accelerator: Accelerator::Kvm, vhost_net: true, ..NodeFacts::default() };
        let found = |node: &NodeFacts, pod: &Pod| {
            let found = facts(node, pod, Claims::default());
            (found.accelerator, found.vhost_net)
        };
        assert_eq!(found(&node, &pod(&[KVM, VHOST_NET])), (Accelerator::Kvm, true));
        assert_eq!(found(&node, &pod(&[TUN])), (Accelerator::Tcg, false));
        assert_eq!(found(&NodeFacts::default(), &pod(&[KVM, VHOST_NET])), (Accelerator::Tcg, false));
    }

    #[test]
    fn devices_of_the_launcher_change_their_owner_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let made = |name: &str, kind: FileType, mode: u32| {
            let path = directory.path().join(name);
            mknodat(CWD, &path, kind, Mode::from_raw_mode(mode), makedev(7, 250)).unwrap();
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).unwrap();
            path
        };
        let root = rustix::fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let disk = made("disk", FileType::BlockDevice, 0o660);
        let tun = made("tun", FileType::CharacterDevice, 0o666);
        let pipe = made("pipe", FileType::Fifo, 0o600);
        std::os::unix::fs::symlink(&disk, directory.path().join("link")).unwrap();
        for name in ["/disk", "/tun", "/missing"] {
            give_one(&root, name).unwrap();
        }
        assert_eq!((disk.metadata().unwrap().uid(), disk.metadata().unwrap().gid()), (RUNTIME_USER, RUNTIME_USER));
        assert_eq!(tun.metadata().unwrap().uid(), 0, "everybody may open it anyway");
        assert!(matches!(give_one(&root, "/pipe"), Err(DeviceError::NoDevice(_))));
        assert!(matches!(give_one(&root, "/link"), Err(DeviceError::System { .. })));
        assert_eq!(pipe.metadata().unwrap().uid(), 0);
    }
}
