//! Control groups of pods: the runtime makes them, we look into them and remove what it leaves.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The roots of all hierarchies: one with version 2, one per controller with version 1.
fn hierarchies() -> Vec<PathBuf> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return vec![PathBuf::from(ROOT)];
    }
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

fn in_hierarchy(hierarchy: &Path, group: &str) -> PathBuf {
    hierarchy.join(group.trim_start_matches('/'))
}

/// Whether the kernel killed something in the group because memory ran out.
pub(crate) fn out_of_memory(group: &str) -> bool {
    hierarchies().iter().any(|hierarchy| {
        let directory = in_hierarchy(hierarchy, group);
        ["memory.events", "memory.oom_control"].iter().any(|file| {
            let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
            killed(&text)
        })
    })
}

fn killed(text: &str) -> bool {
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.is_some_and(|count| count.trim() != "0")
}

/// Removes a group and those below it, and above it those of ours that became empty. Processes must be gone.
pub(crate) fn remove(group: &str) -> io::Result<()> {
    for hierarchy in hierarchies() {
        remove_tree(&in_hierarchy(&hierarchy, group))?;
        let mut parent = Path::new(group).parent();
        while let Some(path) = parent.filter(|path| path.components().count() > 1) {
            // Not empty: other pods are in it.
            if fs::remove_dir(in_hierarchy(&hierarchy, &path.to_string_lossy())).is_err() {
                break;
            }
            parent = path.parent();
        }
    }
    Ok(())
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_seen_in_both_versions() {
        assert!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"));
        assert!(!killed("low 0\noom 3\noom_kill 0\n"));
        assert!(!killed(""));
    }
}
