//! `fsGroup`: a volume's files belong to a group of the pod.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// Gives a volume to a group. Only the root is looked at: when it is right, the rest was done before, and large volumes start fast.
pub(super) fn give_to_group(root: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    let metadata = fs::symlink_metadata(root)?;
    if metadata.gid() == group && metadata.mode() & 0o2070 == 0o2070 {
        return Ok(());
    }
    // Inner files first: the root is the mark that all is done.
    give(root, group)
}

fn give(path: &Path, group: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group)?;
        }
    }
    lchown(path, None, Some(group))?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let more = if metadata.is_dir() { 0o2770 } else { 0o660 };
    fs::set_permissions(path, fs::Permissions::from_mode(metadata.mode() & 0o7777 | more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_become_the_groups() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("link")).unwrap();
        give_to_group(directory.path(), Some(107)).unwrap();
        let of = |path: &Path| fs::symlink_metadata(path).map(|m| (m.gid(), m.mode() & 0o7070)).unwrap();
        assert_eq!(of(directory.path()), (107, 0o2070));
        assert_eq!(of(&inner.join("file")), (107, 0o060));
        assert_ne!(fs::metadata("/etc/hostname").unwrap().gid(), 107);
    }
}
