//! The entries of a tar archive, read with bounded memory: long names and extended headers of a hostile archive have no say in it.
//!
//! Understood are the ustar, GNU (long names, large numbers) and pax formats, which is what builders of images write. Sparse entries
//! are refused.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

use crate::tree::Access;

const BLOCK: u64 = 512;
/// Long names and extended headers: more than any file system allows in a path.
const MAX_EXTENSION: u64 = 256 * 1024;

/// One entry. Its content is read from the [`Tape`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryType,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) access: Access,
}

/// What extended headers say about the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
}

/// A tar archive. Reading from it reads the content of the entry that came last.
pub(crate) struct Tape<R> {
    reader: R,
    left: u64,
    padding: u64,
}

impl<R: Read> Tape<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, left: 0, padding: 0 }
    }

    /// The next entry; what is left of the one before is skipped.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extension = Extension::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            self.start(header.entry_size()?);
            match header.entry_type() {
                EntryType::GNULongName => extension.path = Some(trimmed(self.extension()?)),
                EntryType::GNULongLink => extension.link = Some(trimmed(self.extension()?)),
                EntryType::XHeader => extension.read(&self.extension()?)?,
                EntryType::XGlobalHeader => {}
                EntryType::GNUSparse => return Err(invalid("sparse entries are not supported")),
                _ => return self.entry(&header, extension).map(Some),
            }
        }
    }

    /// Ends the reading and gives the archive back, for whatever follows the last entry.
    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    fn entry(&mut self, header: &Header, extension: Extension) -> io::Result<Entry> {
        if let Some(size) = extension.size {
            self.start(size);
        }
        // Some archives give a hard link the size of its file, but never the content.
        if header.entry_type().is_hard_link() {
            self.start(0);
        }
        let number = |value: u64| u32::try_from(value).map_err(|_| invalid("an owner that is no user id"));
        let access = Access {
            mode: header.mode()?,
            uid: number(extension.uid.map_or_else(|| owner(&header.as_old().uid, header.uid()), Ok)?)?,
            gid: number(extension.gid.map_or_else(|| owner(&header.as_old().gid, header.gid()), Ok)?)?,
        };
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extension.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        // Old archives mark a directory by a slash at the end of its name only.
        let directory = header.entry_type() == EntryType::Regular && path.ends_with(b"/");
        let kind = if directory { EntryType::Directory } else { header.entry_type() };
        Ok(Entry { kind, path, link, access })
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        if header.cksum()? != sum {
            return Err(invalid("this is no tar archive, or a damaged one: a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    fn start(&mut self, size: u64) {
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK).saturating_sub(size);
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        (self.left, self.padding) = (0, 0);
        let skipped = io::copy(&mut self.reader.by_ref().take(rest), &mut io::sink())?;
        if skipped < rest { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_EXTENSION {
            return Err(invalid("an extended header that is too long"));
        }
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }
}

impl<R: Read> Read for Tape<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.by_ref().take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= u64::try_from(count).unwrap_or_default();
        Ok(count)
    }
}

impl Extension {
    fn read(&mut self, content: &[u8]) -> io::Result<()> {
        for record in PaxExtensions::new(content) {
            let record = record?;
            let value = record.value_bytes();
            let number = || {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse().ok()).ok_or_else(|| invalid("a number of an extended header is none"))
            };
            match record.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number()?),
                b"uid" => self.uid = Some(number()?),
                b"gid" => self.gid = Some(number()?),
                key if key.starts_with(b"GNU.sparse.") => return Err(invalid("sparse entries are not supported")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Archives that were written without owners have blanks there, which stand for root.
fn owner(field: &[u8], parsed: io::Result<u64>) -> io::Result<u64> {
    let blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if blank { Ok(0) } else { parsed }
}

/// Long names end with a zero byte.
fn trimmed(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    name
}

pub(crate) fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: EntryType, path: &str, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(107);
        header.set_gid(107);
        header.set_cksum();
        header
    }

    fn archive(parts: &[(Header, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (header, content) in parts {
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }

    #[test]
    fn long_names_and_extended_headers_belong_to_the_next_entry() {
        let long = "d/".repeat(150) + "file";
        let name = [long.as_bytes(), b"\0"].concat();
        let pax = b"19 path=from-a-pax\n10 size=3\n13 uid=12345\n";
        let bytes = archive(&[
            (header(EntryType::GNULongName, "././@LongLink", name.len() as u64), &name),
            (header(EntryType::Regular, "short", 5), b"hello"),
            (header(EntryType::XHeader, "pax", pax.len() as u64), pax),
            (header(EntryType::Regular, "ignored", 0), b"abc"),
            (header(EntryType::Regular, "directory/", 0), b""),
        ]);
        let mut tape = Tape::new(bytes.as_slice());
        let first = tape.next().unwrap().unwrap();
        assert_eq!((first.path, first.access.uid), (long.into_bytes(), 107));
        let second = tape.next().unwrap().unwrap();
        assert_eq!((second.path.as_slice(), second.access.uid), (b"from-a-pax".as_slice(), 12345));
        let mut content = String::new();
        tape.read_to_string(&mut content).unwrap();
        assert_eq!(content, "abc");
        assert_eq!(tape.next().unwrap().unwrap().kind, EntryType::Directory);
        assert!(tape.next().unwrap().is_none());
    }

    #[test]
    fn what_is_damaged_or_too_large_is_refused() {
        let first_error = |bytes: &[u8]| {
            let mut tape = Tape::new(bytes);
            loop {
                match tape.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error.to_string()),
                }
            }
        };
        let long = archive(&[(header(EntryType::GNULongName, "x", 1 << 40), b"")]);
        assert_eq!(first_error(&long).unwrap(), "an extended header that is too long");
        let sparse = archive(&[(header(EntryType::GNUSparse, "x", 0), b"")]);
        assert_eq!(first_error(&sparse).unwrap(), "sparse entries are not supported");
        let good = archive(&[(header(EntryType::Regular, "x", 600), &[1; 600])]);
        assert_eq!(first_error(&good), None);
        assert_eq!(first_error(&good[..700]).unwrap(), "unexpected end of file");
        assert_eq!(first_error(&good[..100]).unwrap(), "unexpected end of file");
        let mut damaged = good.clone();
        damaged[0] ^= 1;
        assert!(first_error(&damaged).unwrap().contains("checksum"));
    }
}
