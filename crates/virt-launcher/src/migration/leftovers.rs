//! What a libvirt that was killed in the middle of a move leaves behind in QEMU.
//!
//! For each disk that is copied libvirt makes two block nodes, which lead to the target. A libvirt that starts again stops the copying, but
//! does not remember nodes that it had only just made. QEMU refuses a second node of the same name, and no later move of the guest could
//! copy the disk.

use ferrovirt_libvirt::{Connection, Domain};
use serde_json::{Value, json};

/// The nodes of a copied disk; the first lies above the second.
fn nodes_of(disk: &str) -> [String; 2] {
    ["format", "storage"].map(|layer| format!("migration-{disk}-{layer}"))
}

/// Removes what an earlier move may have left for these disks; what is still in use stays, and the next move says so.
pub(super) async fn remove(libvirt: &Connection, domain: &Domain, disks: &[String]) {
    for node in disks.iter().flat_map(|disk| nodes_of(disk)) {
        let command = json!({"execute": "blockdev-del", "arguments": {"node-name": node}});
        match libvirt.monitor_command(domain, &command.to_string()).await {
            Ok(answer) => match judge(&answer) {
                Removal::NotThere => {}
                Removal::Done => tracing::warn!(node, "a libvirt that ended left it in QEMU; it was removed"),
                Removal::Refused(reason) => tracing::warn!(node, reason, "what an earlier move left cannot be removed"),
            },
            Err(error) => tracing::warn!(node, %error, "QEMU cannot be asked what an earlier move left"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Removal {
    Done,
    NotThere,
    Refused(String),
}

/// What QEMU's answer means. A node that is not there has an error of the same class as one in use; only the words differ.
fn judge(answer: &str) -> Removal {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    match answer["error"]["desc"].as_str() {
        None if answer["return"].is_object() => Removal::Done,
        None => Removal::Refused(answer.to_string()),
        Some(reason) if reason.starts_with("Failed to find node") => Removal::NotThere,
        Some(reason) => Removal::Refused(reason.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_qemu_are_understood() {
        assert_eq!(judge(r#"{"return":{},"id":"libvirt-12"}"#), Removal::Done);
        let error =
            |desc: &str| json!({"error": {"class": "GenericError", "desc": desc}, "id": "libvirt-13"}).to_string();
        assert_eq!(judge(&error("Failed to find node with node-name='migration-vdc-format'")), Removal::NotThere);
        let busy = "Node migration-vdc-storage is in use";
        assert_eq!(judge(&error(busy)), Removal::Refused(busy.to_owned()));
        assert_eq!(judge("no json"), Removal::Refused("null".to_owned()));
    }

    #[test]
    fn the_upper_node_goes_first() {
        assert_eq!(nodes_of("vdc"), ["migration-vdc-format", "migration-vdc-storage"]);
    }
}
