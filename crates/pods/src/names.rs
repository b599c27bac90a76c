//! Names that follow from a guest: its pod's, its host name, the label that finds its pod.

use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};

/// What the names of launcher pods begin with.
const PREFIX: &str = "virt-launcher-";
/// Characters of the guest's uid at the end of the name: they tell a guest from its predecessor of the same name.
const UID_CHARACTERS: usize = 5;
/// Characters of the migration's uid at the end of a target pod's name. A guest has one first pod and many targets; more characters keep
/// all of them apart.
const TARGET_UID_CHARACTERS: usize = 10;
/// Host names, labels and the names of many things that are made from a pod's name end here.
const LONGEST: usize = 63;

/// The name of the guest's launcher pod: `virt-launcher-<name>-<5 characters of the uid>`.
///
/// A name that is too long keeps its beginning and gets a fingerprint of the whole, so that guests that differ in the end of
/// their names (as those of a pool do) do not fight for one pod name.
pub fn pod_name(vmi: &VirtualMachineInstance) -> String {
    launcher_name(vmi, vmi.metadata.uid.as_deref(), UID_CHARACTERS)
}

/// The name of the pod that the guest moves to: `virt-launcher-<name>-<10 characters of the migration's uid>`.
pub fn target_pod_name(vmi: &VirtualMachineInstance, migration: &VirtualMachineInstanceMigration) -> String {
    launcher_name(vmi, migration.metadata.uid.as_deref(), TARGET_UID_CHARACTERS)
}

fn launcher_name(vmi: &VirtualMachineInstance, uid: Option<&str>, characters: usize) -> String {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let uid: String = uid.unwrap_or_default().chars().filter(char::is_ascii_alphanumeric).take(characters).collect();
    let room = LONGEST - PREFIX.len() - 1 - characters;
    format!("{PREFIX}{}-{}", fitted(&plain(name), room), uid.to_ascii_lowercase())
}

/// The guest's host name: the one it asks for, else its name up to the first dot.
pub fn hostname(vmi: &VirtualMachineInstance) -> String {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let wanted = vmi.spec.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let first = plain(wanted.unwrap_or(name));
    let first = first.split('.').find(|label| !label.is_empty()).unwrap_or("guest");
    let cut: String = first.chars().take(LONGEST).collect();
    cut.trim_matches('-').to_owned()
}

/// The value of the label that finds the guest's pod by its name.
pub fn id_label(vmi: &VirtualMachineInstance) -> String {
    fitted(vmi.metadata.name.as_deref().unwrap_or_default(), LONGEST)
}

/// `name`, or its beginning and a fingerprint of it.
fn fitted(name: &str, room: usize) -> String {
    if name.len() <= room {
        return name.to_owned();
    }
    let fingerprint = format!("{:08x}", fingerprint(name));
    let head: String = name.chars().take(room - fingerprint.len() - 1).collect();
    format!("{}-{fingerprint}", head.trim_end_matches(['-', '.']))
}

/// The API server lets only names in that are plain already; this holds for whatever else comes.
fn plain(name: &str) -> String {
    let plain = name.chars().map(|letter| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '.' | '-') => letter,
        _ => '-',
    });
    let plain: String = plain.collect();
    let labels = plain.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    let plain = labels.collect::<Vec<_>>().join(".");
    if plain.is_empty() { "guest".to_owned() } else { plain }
}

/// FNV-1a, folded: stable over versions and machines, which names must be. Nothing secret rests on it.
fn fingerprint(text: &str) -> u32 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guest(name: &str, uid: &str) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.name = Some(name.to_owned());
        vmi.metadata.uid = Some(uid.to_owned());
        vmi
    }

    /// Kubernetes' rule for one part of a name.
    fn is_label(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        (1..=63).contains(&text.len())
            && text.bytes().all(|byte| plain(byte) || byte == b'-')
            && text.bytes().next().is_some_and(plain)
            && text.bytes().last().is_some_and(plain)
    }

    #[test]
    fn the_name_is_made_of_the_guests_name_and_uid() {
        assert_eq!(pod_name(&guest("web", "8f3a92c1-77aa-4d52")), "virt-launcher-web-8f3a9");
        assert_eq!(pod_name(&guest("a.b", "8f3a92c1")), "virt-launcher-a.b-8f3a9");
    }

    #[test]
    fn long_names_that_differ_in_the_end_stay_apart() {
        let long = "a".repeat(60);
        let first = pod_name(&guest(&format!("{long}-0"), "11111111"));
        let second = pod_name(&guest(&format!("{long}-1"), "11111111"));
        assert_ne!(first, second);
        assert_eq!(first.len(), 63);
    }

    #[test]
    fn the_host_name_is_the_wanted_one_or_the_first_label() {
        assert_eq!(hostname(&guest("web.example", "1")), "web");
        let mut vmi = guest("web", "1");
        vmi.spec.hostname = Some("node-7".to_owned());
        assert_eq!(hostname(&vmi), "node-7");
    }

    proptest! {
        #[test]
        fn names_are_valid_whatever_the_guest_is_called(name in "\\PC{0,80}|[a-z0-9.-]{1,253}", uid in "[0-9a-f]{8}-[0-9a-f]{4}") {
            let vmi = guest(&name, &uid);
            let pod = pod_name(&vmi);
            prop_assert!(pod.len() <= 63 && pod.split('.').all(is_label), "{pod}");
            prop_assert!(is_label(&hostname(&vmi)), "{}", hostname(&vmi));
            prop_assert_eq!(pod_name(&vmi), pod, "the same every time");
        }

        #[test]
        fn id_labels_are_valid_for_valid_names(name in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?(\\.[a-z0-9]{1,60}){0,3}") {
            let label = id_label(&guest(&name, "1"));
            let ends = label.starts_with(|letter: char| letter.is_ascii_alphanumeric())
                && label.ends_with(|letter: char| letter.is_ascii_alphanumeric());
            prop_assert!(label.len() <= 63 && ends, "{label}");
        }
    }
}
