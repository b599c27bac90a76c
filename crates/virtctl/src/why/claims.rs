//! The disks that the guest needs from the cluster: claims, and the data volumes that fill them.

use serde_json::Value;

use super::object::{condition, text};
use super::snapshot::{Named, Snapshot};
use super::verdict::Finding;

/// The first claim or data volume that is not usable.
pub(super) fn blocker(seen: &Snapshot) -> Option<Finding> {
    seen.data_volumes
        .iter()
        .find_map(|volume| data_volume(seen, volume))
        .or_else(|| seen.claims.iter().find_map(|claim| self::claim(seen, claim)))
}

fn data_volume(seen: &Snapshot, named: &Named) -> Option<Finding> {
    let Named { name, volume, .. } = named;
    let object = format!("DataVolume {}/{name}", seen.namespace);
    let Some(found) = &named.object else {
        let has_claim = seen.claims.iter().any(|claim| claim.name == *name && claim.object.is_some());
        if has_claim {
            // The claim is all that a guest needs.
            return None;
        }
        let what =
            format!("volume \"{volume}\" is data volume {name}, and there is none, and no claim of that name either");
        let fix = format!(
            "create DataVolume {name} (with CDI), or PersistentVolumeClaim {name} with the disk's contents, or use containerDisk"
        );
        return Some(Finding::new(object, "DataVolumeMissing", what, fix));
    };
    let phase = text(found, "/status/phase").unwrap_or("Pending");
    let running = condition(found, "Running");
    let words =
        running.and_then(super::object::Condition::words).or_else(|| seen.warning_words("DataVolume", name, &[]));
    match phase {
        "Succeeded" | "WaitForFirstConsumer" | "PendingPopulation" => None,
        "Failed" => {
            let what = format!("the contents of volume \"{volume}\" could not be imported");
            let fix =
                format!("check the source that DataVolume {name} names, delete the data volume, and it is made again");
            Some(Finding::new(object, "DataVolumeFailed", what, fix).says(words))
        }
        _ if running.is_some_and(|running| running.reason == "Error") => {
            let what = format!("importing the contents of volume \"{volume}\" fails, and is tried again");
            let fix = format!("check the source that DataVolume {name} names: address, credentials, certificate");
            Some(Finding::new(object, "DataVolumeError", what, fix).says(words))
        }
        _ => {
            let progress = text(found, "/status/progress").map(|progress| format!(", {progress}")).unwrap_or_default();
            let what = format!("the contents of volume \"{volume}\" are not there yet ({phase}{progress})");
            let fix = match text(found, "/status/phase") {
                None => "nobody works on it: is an importer (CDI) installed in this cluster?".to_owned(),
                Some(_) => "wait for the import".to_owned(),
            };
            Some(Finding::new(object, "Provisioning", what, fix).says(words))
        }
    }
}

fn claim(seen: &Snapshot, named: &Named) -> Option<Finding> {
    let Named { name, volume, .. } = named;
    let object = format!("PersistentVolumeClaim {}/{name}", seen.namespace);
    let Some(found) = &named.object else {
        if seen.data_volumes.iter().any(|volume| volume.name == *name && volume.object.is_some()) {
            return None;
        }
        let what = format!("volume \"{volume}\" is claim {name}, and there is no such claim");
        let fix =
            format!("create PersistentVolumeClaim {name} in namespace {}, or name one that is there", seen.namespace);
        return Some(Finding::new(object, "ClaimMissing", what, fix));
    };
    match text(found, "/status/phase").unwrap_or("Pending") {
        "Bound" => None,
        "Lost" => {
            let what = format!("the storage behind volume \"{volume}\" is gone");
            let fix =
                "restore the PersistentVolume that the claim names, or restore the disk from a backup into a new claim";
            Some(Finding::new(object, "ClaimLost", what, fix))
        }
        _ => unbound(seen, named, found, object),
    }
}

/// A claim that waits for its first pod is in order as long as the pod has no node.
fn unbound(seen: &Snapshot, named: &Named, found: &Value, object: String) -> Option<Finding> {
    let trouble = seen.warning("PersistentVolumeClaim", &named.name, &["ProvisioningFailed", "FailedBinding"]);
    let words = trouble.and_then(|event| text(event, "/message")).map(str::to_owned);
    let waits_for_pod = seen.events.iter().any(|event| {
        event["involvedObject"]["kind"] == "PersistentVolumeClaim"
            && event["involvedObject"]["name"] == named.name.as_str()
            && event["reason"] == "WaitForFirstConsumer"
    });
    if trouble.is_none() && (waits_for_pod || seen.pods.is_empty()) {
        return None;
    }
    let class = text(found, "/spec/storageClassName");
    let what = format!("volume \"{}\" has no storage yet: claim {} is not bound", named.volume, named.name);
    let fix = match class {
        Some(class) => format!("is there a provisioner for storage class \"{class}\"? \"virtctl get storageclass\" shows the classes"),
        None => "the claim names no storage class and the cluster has no default: name one, or create a matching PersistentVolume"
            .to_owned(),
    };
    Some(Finding::new(object, "ClaimUnbound", what, fix).says(words))
}
