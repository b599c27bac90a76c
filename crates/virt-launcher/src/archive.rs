//! The capability cache as a tar of plain files: packed for the node, and unpacked without trust.
//!
//! Only the last part of a name counts, and it has to look like one of libvirt's cache files; everything goes into one directory.
//! So nothing in the archive can choose another place.

use std::io;
use std::path::Path;

const BLOCK: usize = 512;
/// QEMU has a binary per architecture; a node has a handful.
const FILES_MAX: usize = 64;
/// A cache file has about 200 KiB.
const FILE_MAX: usize = 4 * 1024 * 1024;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It ends in the middle of a file.
    #[error("the archive of capabilities ends in the middle of {0:?}")]
    Truncated(String),
    /// A header is not one of tar's.
    #[error("the archive of capabilities has a malformed header at byte {0}")]
    Header(usize),
    /// A name that no cache file has.
    #[error("the archive of capabilities holds {0:?}, which is no cache file of libvirt")]
    Name(String),
    /// Too large or too many.
    #[error("the archive of capabilities holds {0:?}, which is more than {FILES_MAX} files or {FILE_MAX} bytes")]
    TooLarge(String),
    /// It cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// What.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It cannot be stored.
    #[error("{path} cannot be written")]
    Write {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// A plain file in an archive.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'a> {
    name: &'a str,
    content: &'a [u8],
}

/// Unpacks `archive` into `directory`, which exists; how many files there were.
pub fn unpack(archive: &[u8], directory: &Path) -> Result<usize, ArchiveError> {
    let entries = read(archive)?;
    for entry in &entries {
        let path = directory.join(entry.name);
        let write = |source| ArchiveError::Write { path: path.display().to_string(), source };
        std::fs::write(&path, entry.content).map_err(write)?;
    }
    Ok(entries.len())
}

/// Packs the cache files in `directory`.
pub fn pack(directory: &Path) -> Result<Vec<u8>, ArchiveError> {
    let failed = |path: &Path, source| ArchiveError::Read { path: path.display().to_string(), source };
    let mut archive = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|source| failed(directory, source))? {
        let path = entry.map_err(|source| failed(directory, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What libvirt is still writing has another name.
        if cache_file_name(&name).is_some() && name.len() < 100 {
            let content = std::fs::read(&path).map_err(|source| failed(&path, source))?;
            archive.extend(member(&name, b'0', &content));
        }
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

/// A member of an archive, with a name of less than 100 bytes.
fn member(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, "00000000000");
    put(257, "ustar\x0000");
    header[156] = kind;
    header[148..156].fill(b' ');
    let sum: usize = header.iter().map(|byte| usize::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.extend_from_slice(content);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}

fn read(archive: &[u8]) -> Result<Vec<Entry<'_>>, ArchiveError> {
    let mut entries = Vec::new();
    let mut position = 0;
    while let Some(header) = archive.get(position..position + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let (path, size) = parse_header(header).ok_or(ArchiveError::Header(position))?;
        position += BLOCK;
        if matches!(header[156], b'0' | 0) {
            if size > FILE_MAX || entries.len() == FILES_MAX {
                return Err(ArchiveError::TooLarge(path.to_owned()));
            }
            let content =
                archive.get(position..position + size).ok_or_else(|| ArchiveError::Truncated(path.to_owned()))?;
            let name = cache_file_name(path).ok_or_else(|| ArchiveError::Name(path.to_owned()))?;
            entries.push(Entry { name, content });
        } else if size > FILE_MAX {
            return Err(ArchiveError::TooLarge(path.to_owned()));
        }
        // Directories have no content; links and the like are passed over.
        position += size.next_multiple_of(BLOCK);
    }
    Ok(entries)
}

fn parse_header(header: &[u8]) -> Option<(&str, usize)> {
    let sum = octal(header.get(148..156)?)?;
    let actual: usize = header
        .iter()
        .enumerate()
        .map(|(at, byte)| usize::from(if (148..156).contains(&at) { b' ' } else { *byte }))
        .sum();
    (sum == actual).then_some(())?;
    Some((text(header.get(..100)?)?, octal(header.get(124..136)?)?))
}

fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok()
}

fn octal(field: &[u8]) -> Option<usize> {
    usize::from_str_radix(text(field)?.trim(), 8).ok()
}

/// libvirt names a cache file after a hash of the emulator's path.
fn cache_file_name(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let stem = name.strip_suffix(".xml")?;
    let plain = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    plain.then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_files_are_unpacked_wherever_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let archive = [
            member("capabilities/", b'5', b""),
            member("capabilities/ab12.xml", b'0', b"<a/>"),
            member("../../etc/cd34.xml", b'0', b"<b/>"),
            vec![0; 2 * BLOCK],
        ]
        .concat();
        assert_eq!(unpack(&archive, directory.path()).unwrap(), 2);
        assert_eq!(std::fs::read(directory.path().join("ab12.xml")).unwrap(), b"<a/>");
        assert_eq!(std::fs::read(directory.path().join("cd34.xml")).unwrap(), b"<b/>");
    }

    #[test]
    fn a_tar_of_the_real_program_is_understood() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ab12.xml"), "<a/>").unwrap();
        let archive = std::process::Command::new("tar").arg("-c").arg("-C").arg(directory.path()).arg(".").output();
        let target = tempfile::tempdir().unwrap();
        assert_eq!(unpack(&archive.unwrap().stdout, target.path()).unwrap(), 1);
        assert_eq!(std::fs::read(target.path().join("ab12.xml")).unwrap(), b"<a/>");
    }

    #[test]
    fn the_real_program_understands_what_is_packed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ab12.xml"), "x".repeat(700)).unwrap();
        std::fs::write(directory.path().join("ab12.xml.new"), "unfinished").unwrap();
        let archive = pack(directory.path()).unwrap();
        let target = tempfile::tempdir().unwrap();
        let file = target.path().join("archive");
        std::fs::write(&file, &archive).unwrap();
        let tar =
            std::process::Command::new("tar").arg("-x").arg("-C").arg(target.path()).arg("-f").arg(&file).status();
        assert!(tar.unwrap().success());
        assert_eq!(std::fs::read(target.path().join("ab12.xml")).unwrap(), [b'x'; 700]);
        assert!(!target.path().join("ab12.xml.new").exists());
        assert_eq!(read(&archive).unwrap(), [Entry { name: "ab12.xml", content: &[b'x'; 700] }]);
    }

    #[test]
    fn nothing_is_fine() {
        assert_eq!(unpack(&[], Path::new("/nonexistent")).unwrap(), 0);
    }

    #[test]
    fn links_are_passed_over() {
        assert!(read(&member("a.xml", b'2', b"")).unwrap().is_empty());
        assert!(read(&member("a.xml", b'1', b"")).unwrap().is_empty());
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["a.txt", ".xml", "a/..", "a b.xml", "é.xml"] {
            assert!(matches!(read(&member(name, b'0', b"")), Err(ArchiveError::Name(_))), "{name}");
        }
    }

    #[test]
    fn broken_archives_are_refused() {
        let good = member("a.xml", b'0', &[1; 600]);
        assert!(matches!(read(&good[..BLOCK + 10]), Err(ArchiveError::Truncated(_))));
        let mut bad = good;
        bad[0] = b'b';
        assert!(matches!(read(&bad), Err(ArchiveError::Header(0))));
    }

    #[test]
    fn sizes_are_limited() {
        let mut huge = member("a.xml", b'0', b"");
        huge[124..135].copy_from_slice(b"77777777777");
        huge[148..156].fill(b' ');
        let sum: usize = huge[..BLOCK].iter().map(|byte| usize::from(*byte)).sum();
        huge[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        assert!(matches!(read(&huge), Err(ArchiveError::TooLarge(_))));
        let many = member("a.xml", b'0', b"").repeat(FILES_MAX + 1);
        assert!(matches!(read(&many), Err(ArchiveError::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, kind: u8, size in 0..2000usize) {
            let _ = read(&bytes);
            let mut archive = member("a.xml", kind, &vec![7; size]);
            archive.extend_from_slice(&bytes);
            let _ = read(&archive);
        }
    }
}
