//! Disks of a guest that moves: which have to be copied, and what the launcher that gets the guest makes or checks.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{Disk, Volume};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::network::GuestLink;

use crate::facts::NodeFacts;
use crate::unsupported::Unsupported;

/// Volumes whose disks live in the launcher pod and can be written: the target has disks of its own for them, so they are copied.
/// Media that are only read are made again from what they were made from.
pub fn copied_volumes(vmi: &VirtualMachineInstance) -> Vec<String> {
    let written = vmi.spec.domain.devices.disks.iter().filter(|disk| !is_read_only(disk));
    let volumes = written.filter_map(|disk| vmi.spec.volumes.iter().find(|volume| volume.name == disk.name));
    volumes.filter(|volume| is_in_pod(volume)).map(|volume| volume.name.clone()).collect()
}

/// As [`disk_tasks`](crate::disk_tasks), for the launcher that gets a moving guest. What is shared is in use by the source: it has to be
/// there, and is neither made nor changed.
pub fn target_disk_tasks(
    vmi: &VirtualMachineInstance,
    facts: &NodeFacts,
    links: &[GuestLink],
) -> Result<Vec<DiskTask>, Unsupported> {
    let mut tasks = crate::disk_tasks(vmi, facts, links)?;
    for task in &mut tasks {
        if let DiskTask::RawImage { create, .. } = task {
            *create = None;
        }
    }
    Ok(tasks)
}

fn is_read_only(disk: &Disk) -> bool {
    let cdrom = disk.cdrom.as_ref().is_some_and(|cdrom| cdrom.readonly != Some(false));
    let lun = disk.lun.as_ref().is_some_and(|lun| lun.readonly);
    cdrom || lun || disk.disk.as_ref().is_some_and(|disk| disk.readonly)
}

/// Claims and disks of the host are outside of the pod; everything else is made in it.
fn is_in_pod(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_none()
        && volume.data_volume.is_none()
        && volume.host_disk.is_none()
        && volume.memory_dump.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::{Claim, Claims};

    fn guest() -> VirtualMachineInstance {
        let vmi = json!({
            "metadata": {"name": "db", "namespace": "shop", "uid": "6c2ad3b0-3d2c-4d4c-8f53-0d9a6f3f0a01"},
            "spec": {
                "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "data", "disk": {"bus": "virtio"}},
                    {"name": "scratch", "disk": {"bus": "virtio"}},
                    {"name": "seed", "disk": {"bus": "virtio"}},
                    {"name": "settings", "cdrom": {"bus": "sata"}},
                    {"name": "fixed", "disk": {"bus": "virtio", "readonly": true}},
                ]}},
                "volumes": [
                    {"name": "root", "containerDisk": {"image": "demo"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
                    {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
                    {"name": "settings", "configMap": {"name": "settings"}},
                    {"name": "fixed", "containerDisk": {"image": "demo"}},
                ],
            },
        });
        serde_json::from_value(vmi).unwrap()
    }

    #[test]
    fn what_the_guest_can_write_in_its_pod_is_copied() {
        assert_eq!(copied_volumes(&guest()), ["root", "scratch", "seed"]);
    }

    #[test]
    fn a_target_makes_its_own_disks_and_leaves_shared_ones_alone() {
        let claims = Claims::from([("data".to_owned(), Claim::filesystem(1 << 30))]);
        let facts = NodeFacts { claims, ..NodeFacts::default() };
        let made =
            |tasks: &[DiskTask]| tasks.iter().any(|task| matches!(task, DiskTask::RawImage { create: Some(_), .. }));
        assert!(made(&crate::disk_tasks(&guest(), &facts, &[]).unwrap()));
        let tasks = target_disk_tasks(&guest(), &facts, &[]).unwrap();
        assert!(!made(&tasks));
        assert_eq!(tasks.len(), 6);
    }
}
