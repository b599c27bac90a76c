//! Mounts that the node makes for a pod, and their end.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::files;

/// Paths of all mounts at or below `directory`, inner ones first.
pub(crate) fn below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mut found: Vec<PathBuf> =
        mount_points(&table).into_iter().map(PathBuf::from).filter(|path| path.starts_with(&directory)).collect();
    found.reverse();
    Ok(found)
}

/// The fifth column of the mount table, in its order, with its escapes undone.
fn mount_points(table: &str) -> Vec<String> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(|point| point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
        .collect()
}

/// Whether something is mounted exactly there.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_points(&table).iter().any(|point| Path::new(point) == path)
}

/// Unmounts everything at or below `directory`.
pub(crate) fn unmount_below(directory: &Path) -> io::Result<()> {
    for path in below(directory)? {
        match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Mounts a file system in memory, unless one is there.
pub(crate) fn memory(target: &Path, kind: &str, options: &str) -> io::Result<()> {
    fs::create_dir_all(target)?;
    if is_mount_point(target) {
        return Ok(());
    }
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    Ok(mount(kind, target, kind, MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))?)
}

/// Mounts a writable layer over a read-only tree.
pub(crate) fn overlay(lower: &Path, directory: &Path) -> io::Result<PathBuf> {
    let merged = directory.join("merged");
    fs::create_dir_all(&merged)?;
    overlay_at(lower, directory, &merged)?;
    Ok(merged)
}

/// The same, at a directory that is there. The layer is below `directory`.
pub(crate) fn overlay_at(lower: &Path, directory: &Path, target: &Path) -> io::Result<()> {
    let (upper, work) = (directory.join("upper"), directory.join("work"));
    for path in [&upper, &work] {
        fs::create_dir_all(path)?;
    }
    // What is above says who may go on, and the container is somebody else.
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))?;
    let layers = format!("lowerdir={},upperdir={},workdir={}", escaped(lower), escaped(&upper), escaped(&work));
    mount_overlay(target, &layers)
}

/// Mounts a tree so that nobody changes it there: a bind mount can be written to until it is told otherwise.
pub(crate) fn read_only(tree: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    // Without a layer for writes there have to be two for reads. The second one is empty, and what is mounted now hides it.
    mount_overlay(target, &format!("lowerdir={}:{}", escaped(tree), escaped(target)))
}

fn escaped(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\").replace(',', "\\,").replace(':', "\\:")
}

fn mount_overlay(target: &Path, layers: &str) -> io::Result<()> {
    if is_mount_point(target) {
        return Ok(());
    }
    let options = std::ffi::CString::new(layers).map_err(io::Error::other)?;
    Ok(mount("overlay", target, "overlay", MountFlags::NODEV, Some(options.as_c_str()))?)
}

/// Removes layers with all that was written to them, so that new ones can be made.
pub(crate) fn remove_layers(directory: &Path) -> io::Result<()> {
    unmount_below(directory)?;
    files::remove_tree(directory)
}

/// Mounts a part of a volume by itself. Whoever writes to the volume may put links in the way, so the part is opened without
/// following any and mounted through its descriptor.
pub(crate) fn part_of_volume(volume: &Path, part: &str, target: &Path) -> io::Result<()> {
    if is_mount_point(target) {
        return Ok(());
    }
    let root = rustix::fs::openat(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |path: &str| rustix::fs::openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    let opened = match open(part) {
        Err(rustix::io::Errno::NOENT) => {
            make_directories(&root, part, resolve)?;
            open(part)?
        }
        other => other?,
    };
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let is_directory = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode).is_dir();
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if is_directory {
        fs::create_dir_all(target)?;
    } else {
        fs::File::create(target)?;
    }
    Ok(mount_bind(source.as_str(), target)?)
}

fn make_directories(root: &rustix::fd::OwnedFd, part: &str, resolve: ResolveFlags) -> io::Result<()> {
    let mut made = PathBuf::new();
    for name in Path::new(part).components() {
        let parent = if made.as_os_str().is_empty() { Path::new(".") } else { made.as_path() };
        let directory = rustix::fs::openat2(root, parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        match rustix::fs::mkdirat(&directory, name.as_os_str(), Mode::from(0o750)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        made.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        let table = "1 2 0:1 / /a\\040b rw - tmpfs tmpfs rw\n3 1 0:1 / /a\\040b/c rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_points(table), ["/a b", "/a b/c"]);
    }

    #[test]
    fn a_link_in_a_volume_does_not_lead_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("volume");
        fs::create_dir_all(&volume).unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("link")).unwrap();
        let target = directory.path().join("target");
        part_of_volume(&volume, "link", &target).unwrap_err();
        part_of_volume(&volume, "link/sub", &target).unwrap_err();
        part_of_volume(&volume, "../x", &target).unwrap_err();
        assert!(!is_mount_point(&target));
        part_of_volume(&volume, "made/here", &target).unwrap();
        fs::write(volume.join("made/here/file"), "x").unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"x");
        unmount_below(directory.path()).unwrap();
        assert!(!is_mount_point(&target));
    }

    #[test]
    fn a_read_only_tree_takes_no_writes_there() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, target) = (directory.path().join("a:tree,"), directory.path().join("target"));
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("file"), "x").unwrap();
        for _ in 0..2 {
            read_only(&tree, &target).unwrap();
        }
        assert_eq!(fs::read(target.join("file")).unwrap(), b"x");
        let refused = [fs::create_dir(target.join("made")), fs::remove_file(target.join("file"))];
        // A part of it that is not there is not made either.
        let part = part_of_volume(&target, "made", &directory.path().join("part"));
        unmount_below(directory.path()).unwrap();
        for refused in refused.into_iter().chain([part]) {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        }
        assert_eq!(fs::read_dir(&tree).unwrap().count(), 1);
    }
}
