//! The pseudo image [`IMAGE`]: the machine's own `/usr`, read-only, with a small `/etc` of ours and private `/run`, `/tmp` and `/var`.
//!
//! A launcher needs libvirt and QEMU, and the machine has them: nothing is downloaded to start a guest. The tree that this file makes
//! holds what is not below `/usr`. It is changed in place, never replaced, since running containers have it as their root.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::oci::spec::Mount;

/// The image's name.
pub const IMAGE: &str = "host.ferrovirt.io/usr";
/// Where our own programs are inside.
pub const BINARIES: &str = "/opt/ferrovirt/bin";
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

/// What is mounted into the tree.
pub fn mounts(binaries: &Path) -> Vec<Mount> {
    let private = |destination: &str, mode: &str| {
        // The tree's own directories and links come along.
        Mount::tmpfs(destination, &["nosuid", "nodev", mode, "tmpcopyup"])
    };
    vec![
        Mount::bind("/usr", "/usr", &["rbind", "ro", "nosuid", "nodev"]),
        private("/run", "mode=755"),
        private("/tmp", "mode=1777"),
        private("/var", "mode=755"),
        Mount::bind(BINARIES, binaries, &["rbind", "ro", "nosuid", "nodev"]),
    ]
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if metadata.is_symlink() {
        put_link(to, &fs::read_link(from)?)
    } else if metadata.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        Ok(())
    } else if metadata.is_file() {
        put_file(to, &fs::read(from)?)
    } else {
        Ok(())
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
}
