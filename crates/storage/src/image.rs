//! What a disk image is, from its first bytes.
//!
//! The bytes are hostile. A qcow2 can name other files that QEMU would open for the guest, so an image from a user must stand alone:
//! no backing file, no external data file, no encryption whose key nobody has, no feature that we do not know, no size that makes
//! QEMU allocate tables without end. Everything that is not one of the known container formats is a raw image.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How much of an image [`inspect`] looks at; a qcow2 header with its usual extensions is far shorter.
pub const HEAD: usize = 4096;
/// No disk of a guest is larger: 64 TiB. QEMU keeps an L1 table in memory, 8 bytes for each 512 MiB.
pub const MAX_VIRTUAL_SIZE: u64 = 64 << 40;
/// QEMU's own limit for the L1 table: 32 MiB.
const MAX_L1_ENTRIES: u64 = (32 << 20) / 8;
/// QEMU's limit for the name of a backing file.
const MAX_BACKING_NAME: u64 = 1023;
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";

/// Incompatible features that QEMU knows and that are harmless: dirty (repaired when opened), compression type, extended L2.
const HARMLESS: u64 = 1 | 1 << 3 | 1 << 4;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;

/// The formats that a guest can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// Sector for sector.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl ImageFormat {
    /// QEMU's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// An image that a guest can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// The format.
    pub format: ImageFormat,
    /// What the guest sees, in bytes.
    pub virtual_size: u64,
}

/// Why an image is refused. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageProblem {
    /// Nothing in it.
    #[error("it is empty: store a raw or qcow2 disk image")]
    Empty,
    /// Shorter than its own header says.
    #[error("it is cut off: its {what} ends after the end of the file: copy the image again")]
    Truncated {
        /// Which part.
        what: &'static str,
    },
    /// A format that guests here do not get.
    #[error("it is a {0} image: convert it with `qemu-img convert -O qcow2`")]
    Foreign(&'static str),
    /// Where only raw is possible.
    #[error("it is a qcow2 image and a raw one is needed here: convert it with `qemu-img convert -O raw`")]
    NotRaw,
    /// Only versions 2 and 3 exist.
    #[error(
        "it is a qcow2 of version {0}, and versions 2 and 3 are known: convert it with `qemu-img convert -O qcow2`"
    )]
    Version(u32),
    /// It depends on another file.
    #[error("it has a backing file{}: make it stand alone with `qemu-img convert -O qcow2`", named(.0))]
    BackingFile(Option<String>),
    /// Its data is in another file.
    #[error("its data is in an external data file: make it stand alone with `qemu-img convert -O qcow2`")]
    ExternalDataFile,
    /// Nobody has the key.
    #[error("it is encrypted: decrypt it with `qemu-img convert -O qcow2`")]
    Encrypted,
    /// QEMU marked it.
    #[error("it is marked as corrupt: repair it with `qemu-img check -r all`")]
    MarkedCorrupt,
    /// Features from the future or nonsense.
    #[error("it needs unknown features (bits {0:#x}): convert it with `qemu-img convert -O qcow2`")]
    UnknownFeatures(u64),
    /// A field that no program writes.
    #[error("it is damaged: its {field} is {value}: copy or make the image again")]
    Nonsense {
        /// The header's field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// Larger than any disk.
    #[error("its disk is {0} bytes large, and 64 TiB is the limit: make a smaller disk")]
    TooLarge(u64),
}

fn named(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!(" ({name})"))
}

/// Reads and inspects an open image of `length` bytes.
pub fn inspect_file(file: &File, length: u64) -> io::Result<Result<ImageInfo, ImageProblem>> {
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    while filled < HEAD {
        match file.read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inspect(&head[..filled], length))
}

/// Says what the image is whose first bytes ([`HEAD`] or all) are `head` and which is `length` bytes long.
pub fn inspect(head: &[u8], length: u64) -> Result<ImageInfo, ImageProblem> {
    if length == 0 || head.is_empty() {
        return Err(ImageProblem::Empty);
    }
    if let Some(format) = foreign(head) {
        return Err(ImageProblem::Foreign(format));
    }
    let info = if head.starts_with(QCOW2_MAGIC) {
        qcow2(head, length)?
    } else {
        ImageInfo { format: ImageFormat::Raw, virtual_size: length }
    };
    if info.virtual_size > MAX_VIRTUAL_SIZE {
        return Err(ImageProblem::TooLarge(info.virtual_size));
    }
    Ok(info)
}

/// Containers of other hypervisors: as raw images they would give a guest that does not boot and nobody knows why.
fn foreign(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(usize, &[u8], &str); 6] = [
        (0, b"KDMV", "VMDK"),
        (0, b"# Disk DescriptorFile", "VMDK"),
        (0, b"vhdxfile", "VHDX"),
        (0, b"conectix", "VHD"),
        (0, b"QED\0", "QED"),
        (64, b"\x7f\x10\xda\xbe", "VDI"),
    ];
    MAGICS
        .iter()
        .find(|(at, magic, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
        .map(|found| found.2)
}

/// Checks a qcow2 header, version 2 (72 bytes) or 3 (at least 104).
fn qcow2(head: &[u8], length: u64) -> Result<ImageInfo, ImageProblem> {
    let header = Header(head);
    let version = header.u32(4)?;
    if !(2..=3).contains(&version) {
        return Err(ImageProblem::Version(version));
    }
    let cluster_bits = header.u32(20)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(ImageProblem::Nonsense { field: "cluster size (bits)", value: u64::from(cluster_bits) });
    }
    if header.u64(8)? != 0 {
        return Err(ImageProblem::BackingFile(header.backing_name()));
    }
    if header.u32(32)? != 0 {
        return Err(ImageProblem::Encrypted);
    }
    let extended_l2 = if version == 3 { features(&header, cluster_bits)? } else { false };
    let virtual_size = header.u64(24)?;
    if virtual_size == 0 {
        return Err(ImageProblem::Nonsense { field: "disk size", value: 0 });
    }
    if virtual_size > MAX_VIRTUAL_SIZE {
        return Err(ImageProblem::TooLarge(virtual_size));
    }
    tables(&header, length, cluster_bits, extended_l2, virtual_size)?;
    Ok(ImageInfo { format: ImageFormat::Qcow2, virtual_size })
}

/// Version 3's feature bits and their neighbours; says whether L2 entries are extended.
fn features(header: &Header<'_>, cluster_bits: u32) -> Result<bool, ImageProblem> {
    let incompatible = header.u64(72)?;
    if incompatible & EXTERNAL_DATA != 0 {
        return Err(ImageProblem::ExternalDataFile);
    }
    if incompatible & CORRUPT != 0 {
        return Err(ImageProblem::MarkedCorrupt);
    }
    if incompatible & !HARMLESS != 0 {
        return Err(ImageProblem::UnknownFeatures(incompatible & !HARMLESS));
    }
    let refcount_order = header.u32(96)?;
    if refcount_order > 6 {
        return Err(ImageProblem::Nonsense { field: "width of reference counts", value: u64::from(refcount_order) });
    }
    let header_length = header.u32(100)?;
    if header_length < 104 || header_length > 1 << cluster_bits {
        return Err(ImageProblem::Nonsense { field: "header length", value: u64::from(header_length) });
    }
    Ok(incompatible & (1 << 4) != 0)
}

/// The L1 and the reference count table: large enough for the disk, and inside of the file.
fn tables(
    header: &Header<'_>,
    length: u64,
    cluster_bits: u32,
    extended_l2: bool,
    virtual_size: u64,
) -> Result<(), ImageProblem> {
    let entry_bits = if extended_l2 { 4 } else { 3 };
    let covered_bits = 2 * cluster_bits - entry_bits;
    let l1_entries = u64::from(header.u32(36)?);
    if l1_entries > MAX_L1_ENTRIES || l1_entries < virtual_size.div_ceil(1 << covered_bits) {
        return Err(ImageProblem::Nonsense { field: "number of L1 entries", value: l1_entries });
    }
    let clusters = u64::from(header.u32(56)?);
    let parts = [
        ("L1 table", header.u64(40)?, l1_entries * 8),
        ("reference count table", header.u64(48)?, clusters << cluster_bits),
    ];
    for (what, offset, size) in parts {
        if offset % (1 << cluster_bits) != 0 || offset == 0 {
            return Err(ImageProblem::Nonsense { field: "offset of a table", value: offset });
        }
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(ImageProblem::Truncated { what });
        }
    }
    Ok(())
}

/// Big-endian fields of a header that may end anywhere.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], ImageProblem> {
        let field = self.0.get(at..at + N).and_then(|field| field.try_into().ok());
        field.ok_or(ImageProblem::Truncated { what: "header" })
    }

    fn u32(&self, at: usize) -> Result<u32, ImageProblem> {
        self.bytes(at).map(u32::from_be_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, ImageProblem> {
        self.bytes(at).map(u64::from_be_bytes)
    }

    /// The backing file's name, if it is in what was read; for a message, so nothing in it may break a line.
    fn backing_name(&self) -> Option<String> {
        let length = u64::from(self.u32(16).ok()?);
        if length > MAX_BACKING_NAME {
            return None;
        }
        let start = usize::try_from(self.u64(8).ok()?).ok()?;
        let name = self.0.get(start..start.checked_add(usize::try_from(length).ok()?)?)?;
        Some(String::from_utf8_lossy(name).escape_debug().take(200).collect())
    }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
