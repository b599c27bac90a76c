//! The pseudo image [`IMAGE`]: the machine's own `/usr`, read-only, with a small `/etc` of ours and private `/run`, `/tmp` and `/var`.
//!
//! A launcher needs libvirt and QEMU, and the machine has them: nothing is downloaded to start a guest. The tree that this file makes
//! holds what is not below `/usr`. It is changed in place, never replaced, since running containers see it.
//!
//! ```text
//!   /            layer of the container            /usr         layer of the container
//!   └ below it   the tree, one for the node        └ below it   the machine's /usr
//! ```
//!
//! A pod's author says where volumes and last words are mounted, and what is missing on the way there is made. So each container has
//! layers of its own, in memory, which take what is made and go with it. The machine's directories and the tree are only ever read.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::oci::spec::Mount;
use crate::{files, mounts};

/// The image's name.
pub const IMAGE: &str = "host.ferrovirt.io/usr";
/// Where our own programs are inside.
pub const BINARIES: &str = "/opt/ferrovirt/bin";
/// Those that containers start. Beside them may be anything of the machine, such as somebody's home, so nothing else is shown.
const PROGRAMS: &[&str] = &["virt-launcher", "container-disk"];
/// The file system of a container's layers, which hold mount points and nothing else. Too little, and pods with many mounts do not
/// start; each file takes a kilobyte of the machine, whatever the pod's limits are.
const LAYERS: &str = "mode=700,size=1m,nr_inodes=8k";
/// Programs are looked for in this order.
pub const SEARCH_PATH: &str =
    "/opt/ferrovirt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/libvirt:/usr/libexec";

/// Directories of the tree and their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("opt/ferrovirt", 0o755),
    ("opt/ferrovirt/bin", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// Links of a system whose programs are all below `/usr`, and the two that lead from `/var` to `/run`.
const LINKS: &[(&str, &str)] = &[
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib32", "usr/lib32"),
    ("lib64", "usr/lib64"),
    ("libx32", "usr/libx32"),
    ("sbin", "usr/sbin"),
    ("var/run", "/run"),
    ("var/lock", "/run/lock"),
    ("etc/mtab", "/proc/self/mounts"),
    ("etc/os-release", "../usr/lib/os-release"),
];

const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nqemu:x:107:107:qemu:/tmp:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nqemu:x:107:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n"),
    // Mounted over for each pod.
    ("etc/hosts", ""),
    ("etc/hostname", ""),
    ("etc/resolv.conf", ""),
];

/// What programs of the machine read from its `/etc`: the linker's cache, alternatives that lead to programs, and the settings of
/// swtpm, TLS and name look-up. Copied, not mounted: each mount costs every start.
const COPIED: &[&str] = &[
    "alternatives",
    "crypto-policies",
    "gai.conf",
    "gnutls",
    "host.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "libnl-3",
    "localtime",
    "mke2fs.conf",
    "protocols",
    "qemu",
    "sasl2",
    "services",
    "swtpm-localca.conf",
    "swtpm-localca.options",
    "swtpm_setup.conf",
    "terminfo",
];

/// Everybody may read the file.
const OTHERS_READ: u32 = 0o004;
/// Everybody may list a directory and go into it.
const OTHERS_ENTER: u32 = 0o005;

/// Makes the tree, or brings it up to date with the machine's `/etc`.
///
/// # Errors
/// When the tree cannot be written.
pub fn prepare(root: &Path, machine_etc: &Path) -> io::Result<()> {
    for (directory, mode) in DIRECTORIES {
        let path = root.join(directory);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
    }
    for (link, target) in LINKS {
        put_link(&root.join(link), Path::new(target))?;
    }
    for (file, content) in FILES {
        put_file(&root.join(file), content.as_bytes())?;
    }
    for name in COPIED {
        copy(&machine_etc.join(name), &root.join("etc").join(name))?;
    }
    Ok(())
}

/// Makes one container's root below `directory`: its path, and what is mounted into it. Its layers are there until everything below
/// `directory` is unmounted.
pub(crate) fn assemble(tree: &Path, binaries: &Path, directory: &Path) -> io::Result<(PathBuf, Vec<Mount>)> {
    mounts::memory(directory, "tmpfs", LAYERS)?;
    let root = mounts::overlay(tree, &directory.join("root"))?;
    let usr = view(Path::new("/usr"), &directory.join("usr"))?;
    let programs: Vec<PathBuf> =
        PROGRAMS.iter().map(|name| binaries.join(name)).filter(|path| path.is_file()).collect();
    Ok((root, mounted(&usr, &programs)))
}

/// A directory of the machine below a layer. Layers show one file system each, so what is mounted further inside gets one as well.
fn view(machine: &Path, directory: &Path) -> io::Result<PathBuf> {
    let view = mounts::overlay(machine, directory)?;
    let mut inside = mounts::below(machine)?;
    // Outer ones first, and once where one hides another.
    inside.sort();
    inside.dedup();
    for (number, inner) in inside.iter().filter(|inner| *inner != machine && inner.is_dir()).enumerate() {
        let Ok(place) = inner.strip_prefix(machine) else { continue };
        let layered = mounts::overlay_at(inner, &directory.join(format!("inside-{number}")), &view.join(place));
        if let Err(error) = layered {
            // Not every file system can be below a layer. The root is good without it.
            tracing::warn!(directory = %inner.display(), %error, "containers with the machine's programs do not see what is mounted there");
        }
    }
    Ok(view)
}

/// What is mounted into the root.
pub(crate) fn mounted(usr: &Path, programs: &[PathBuf]) -> Vec<Mount> {
    let private = |destination: &str, mode: &str| {
        // The tree's own directories and links come along.
        Mount::tmpfs(destination, &["nosuid", "nodev", mode, "tmpcopyup"])
    };
    let mut mounts = vec![
        Mount::bind("/usr", usr, &["rbind", "ro", "nosuid", "nodev"]),
        private("/run", "mode=755"),
        private("/tmp", "mode=1777"),
        private("/var", "mode=755"),
    ];
    mounts.extend(programs.iter().map(|program| {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        Mount::bind(&format!("{BINARIES}/{name}"), program, &["bind", "ro", "nosuid", "nodev"])
    }));
    mounts
}

/// Copies what every user of the machine may read. Some of these directories have passwords of other services too.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if metadata.is_symlink() {
        put_link(to, &fs::read_link(from)?)
    } else if metadata.is_dir() && metadata.permissions().mode() & OTHERS_ENTER == OTHERS_ENTER {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        Ok(())
    } else if metadata.is_file() && metadata.permissions().mode() & OTHERS_READ != 0 {
        put_file(to, &fs::read(from)?)
    } else {
        // It may have been open to all before.
        files::remove_tree(to)
    }
}

/// Writes a file only where it differs, and in one step: a container may be reading it.
fn put_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let next = path.with_extension("ferrovirt-new");
    fs::write(&next, content)?;
    fs::set_permissions(&next, fs::Permissions::from_mode(0o644))?;
    fs::rename(&next, path)
}

fn put_link(path: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|present| present == target) {
        return Ok(());
    }
    let next = path.with_extension("ferrovirt-new");
    let _ = fs::remove_file(&next);
    symlink(target, &next)?;
    fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_made_once_and_follows_the_machine() {
        let directory = tempfile::tempdir().unwrap();
        let (etc, root) = (directory.path().join("etc"), directory.path().join("root"));
        fs::create_dir_all(etc.join("alternatives")).unwrap();
        symlink("/usr/bin/a", etc.join("alternatives/x")).unwrap();
        fs::write(etc.join("shadow"), "secret").unwrap();
        prepare(&root, &etc).unwrap();
        assert_eq!(fs::read_link(root.join("etc/alternatives/x")).unwrap(), Path::new("/usr/bin/a"));
        assert_eq!(fs::metadata(root.join("tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
        assert!(!root.join("etc/shadow").exists());
        fs::remove_file(etc.join("alternatives/x")).unwrap();
        symlink("/usr/bin/b", etc.join("alternatives/x")).unwrap();
        prepare(&root, &etc).unwrap();
        assert_eq!(fs::read_link(root.join("etc/alternatives/x")).unwrap(), Path::new("/usr/bin/b"));
    }

    #[test]
    fn files_that_are_not_for_everybody_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let (etc, root) = (directory.path().join("etc"), directory.path().join("root"));
        fs::create_dir_all(etc.join("sasl2")).unwrap();
        for (name, mode) in [("open.conf", 0o644), ("secret.conf", 0o640)] {
            fs::write(etc.join("sasl2").join(name), "text").unwrap();
            fs::set_permissions(etc.join("sasl2").join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        prepare(&root, &etc).unwrap();
        assert!(root.join("etc/sasl2/open.conf").exists());
        assert!(!root.join("etc/sasl2/secret.conf").exists());
        fs::set_permissions(etc.join("sasl2/open.conf"), fs::Permissions::from_mode(0o600)).unwrap();
        prepare(&root, &etc).unwrap();
        assert!(!root.join("etc/sasl2/open.conf").exists());
    }

    #[test]
    fn what_is_made_in_a_view_does_not_reach_the_machine() {
        let directory = tempfile::tempdir().unwrap();
        let (machine, layers) = (directory.path().join("machine"), directory.path().join("layers"));
        // A file system of its own inside, as `/usr/local` may be.
        mounts::memory(&machine.join("local"), "tmpfs", "").unwrap();
        fs::create_dir(machine.join("bin")).unwrap();
        fs::write(machine.join("local/program"), "text").unwrap();
        mounts::memory(&layers, "tmpfs", LAYERS).unwrap();
        let machine = machine.canonicalize().unwrap();
        let view = view(&machine, &layers.join("usr")).unwrap();
        assert_eq!(fs::read(view.join("local/program")).unwrap(), b"text");
        for made in ["made", "bin/made", "local/made"] {
            fs::create_dir(view.join(made)).unwrap();
            assert!(!machine.join(made).exists(), "{made}");
        }
        fs::remove_file(view.join("local/program")).unwrap();
        mounts::unmount_below(&layers).unwrap();
        assert_eq!(fs::read_dir(&layers).unwrap().count(), 0);
        assert_eq!(fs::read(machine.join("local/program")).unwrap(), b"text");
        mounts::unmount_below(&machine).unwrap();
    }

    #[test]
    fn of_our_programs_only_those_that_containers_start_are_shown() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["virt-launcher", "ferrovirt", "id_rsa"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let (tree, layers) = (directory.path().join("tree"), directory.path().join("layers"));
        prepare(&tree, Path::new("/nonexistent")).unwrap();
        let (_, mounts) = assemble(&tree, directory.path(), &layers).unwrap();
        let shown: Vec<_> = mounts.iter().filter(|mount| mount.source.starts_with(directory.path())).collect();
        mounts::unmount_below(&layers).unwrap();
        assert_eq!(
            shown.iter().map(|mount| &*mount.destination).collect::<Vec<_>>(),
            ["/usr", "/opt/ferrovirt/bin/virt-launcher"]
        );
        assert!(shown[0].source.starts_with(&layers));
    }
}
