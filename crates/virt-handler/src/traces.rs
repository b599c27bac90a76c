//! Whether any process of this machine belongs to a pod, by what the kernel says: whatever became of the pod's object, of the
//! kubelet's and the runtime's records, and of the pod's directory.
//!
//! Containers of a pod see its volumes and files: mounts whose root is below the pod's directory on the machine, at places that do not
//! say so. The machine's own processes see such mounts only at places below that directory. A thread that ends loses its mounts before
//! the last of what it wrote has gone to a disk, and keeps its control group until nothing of it is left.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Looks at every thread, since one may outlive the first of its process. Blocks; takes some milliseconds.
pub(crate) fn of_pod(pod_uid: &str) -> io::Result<bool> {
    look(Path::new("/proc"), pod_uid)
}

fn look(processes: &Path, pod_uid: &str) -> io::Result<bool> {
    // Threads of one container share one list.
    let mut seen = BTreeSet::new();
    for process in numbered(processes)? {
        for thread in gone_is_nothing(numbered(&process.join("task")))?.unwrap_or_default() {
            // Who has more rights than this process shows its mounts, and not whose they are.
            let namespace = std::fs::read_link(thread.join("ns/mnt")).ok();
            if namespace.as_ref().is_some_and(|namespace| seen.contains(namespace)) {
                continue;
            }
            let runs = match gone_is_nothing(std::fs::read_to_string(thread.join("mountinfo")))? {
                Some(mounts) => mounts.lines().any(|mount| is_of_pod(mount, pod_uid)),
                None => is_ending_in(&thread, pod_uid)?,
            };
            if runs {
                return Ok(true);
            }
            // Not before: the thread may have ended in between, and the next one of its container tells.
            seen.extend(namespace.filter(|_| thread.join("ns/mnt").exists()));
        }
    }
    Ok(false)
}

/// Whether a thread without mounts is of the pod, by its control group, and has not ended yet.
fn is_ending_in(thread: &Path, pod_uid: &str) -> io::Result<bool> {
    let read = |name: &str| gone_is_nothing(std::fs::read_to_string(thread.join(name)));
    let Some(state) = read("stat")? else { return Ok(false) };
    // The state follows the program's name, which may have any characters.
    let is_over = state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    let groups = read("cgroup")?.unwrap_or_default();
    Ok(!is_over && (groups.contains(pod_uid) || groups.contains(&pod_uid.replace('-', "_"))))
}

/// Entries whose names are numbers.
fn numbered(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// A thread that ends while it is looked at is none. Any other failure is no answer.
fn gone_is_nothing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    const NO_SUCH_PROCESS: i32 = 3;
    const INVALID: i32 = 22;
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || matches!(error.raw_os_error(), Some(NO_SUCH_PROCESS | INVALID)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a line of `mountinfo` is a mount of the pod as its containers see it: the fourth field is the root in its file system, the
/// fifth the place.
fn is_of_pod(mount: &str, pod_uid: &str) -> bool {
    let mut fields = mount.split(' ').skip(3);
    let mut names = || fields.next().is_some_and(|path| path.split('/').any(|part| part == pod_uid));
    let (root, place) = (names(), names());
    root && !place
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f";

    #[test]
    fn a_containers_mounts_are_of_its_pod_and_the_machines_are_not() {
        let of_pod = |root: &str, place: &str| {
            is_of_pod(&format!("36 35 98:0 {root} {place} rw,noatime shared:1 - ext4 /dev/sda1 rw"), UID)
        };
        let pod = format!("/var/lib/kubelet/pods/{UID}");
        assert!(of_pod(&format!("{pod}/volumes/kubernetes.io~empty-dir/sockets"), "/var/run/sockets"));
        assert!(of_pod(&format!("{pod}/etc-hosts"), "/etc/hosts"));
        assert!(
            of_pod(&format!("{pod}/etc-hosts//deleted"), "/etc/hosts"),
            "the directory is gone, the container is not"
        );
        assert!(of_pod(&format!("/pods/{UID}/etc-hosts"), "/etc/hosts"), "a file system of its own");
        assert!(!of_pod("/", &format!("{pod}/volumes/kubernetes.io~secret/key")));
        assert!(!of_pod(&format!("{pod}/volumes/a"), &format!("{pod}/volume-subpaths/a")), "the kubelet's own");
        assert!(!of_pod("/var/lib/kubelet/pods/another/etc-hosts", "/etc/hosts"));
        assert!(!is_of_pod("", UID) && !is_of_pod("36 35", UID));
    }

    #[test]
    fn every_thread_is_looked_at_and_each_namespace_once() {
        let processes = tempfile::tempdir().unwrap();
        let thread = |path: &str, namespace: &str, mounts: Option<&str>| {
            let thread = processes.path().join(path);
            std::fs::create_dir_all(thread.join("ns")).unwrap();
            std::os::unix::fs::symlink(namespace, thread.join("ns/mnt")).unwrap();
            if let Some(mounts) = mounts {
                std::fs::write(thread.join("mountinfo"), mounts).unwrap();
            }
        };
        std::fs::create_dir_all(processes.path().join("sys/task/1")).unwrap();
        thread("1/task/1", "mnt:[1]", Some("1 1 0:1 / / rw"));
        thread("2/task/2", "mnt:[1]", None);
        // It ended while its second thread goes on.
        std::fs::create_dir_all(processes.path().join("3/task/3")).unwrap();
        assert!(!look(processes.path(), UID).unwrap());
        thread("3/task/4", "mnt:[2]", Some(&format!("1 1 0:1 /pods/{UID}/etc-hosts /etc/hosts rw")));
        assert!(look(processes.path(), UID).unwrap());
        assert!(!look(processes.path(), "another").unwrap());
        assert!(look(&processes.path().join("nothing"), UID).is_err(), "no answer is no");
    }

    #[test]
    fn nothing_of_this_machine_is_of_a_pod_that_never_was() {
        assert!(!of_pod(UID).unwrap(), "and the machine can tell");
    }
}
