//! Layers of an image, one on another, become a directory.
//!
//! A layer is a tar archive. An entry replaces what lower layers have of that name; `.wh.<name>` removes it, and `.wh..wh..opq` removes
//! all that lower layers have in a directory. Devices, pipes and sockets are left out.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use tar::EntryType;

use crate::{
    Digest,
    digest::HashingReader,
    tape::{Entry, Tape, invalid},
    tree::{EntryPath, Tree},
};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// A zstd stream may ask for so much memory at most; `zstd --ultra` asks for 128 MiB.
const ZSTD_WINDOW: u64 = 128 * 1024 * 1024;

/// What an image may use at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all layers, uncompressed.
    pub bytes: u64,
    /// Files, directories and links of all layers.
    pub entries: u64,
    /// Bytes of a manifest, index or configuration.
    pub document: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 30, entries: 2_000_000, document: 4 << 20 }
    }
}

/// Why a layer could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The archive is not acceptable.
    #[error("{0}")]
    Invalid(String),
    /// The archive cannot be read, or its files cannot be written.
    #[error("entry {entry:?}: {source}")]
    Entry { entry: String, source: io::Error },
    /// The blob cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
}

impl UnpackError {
    /// The error of the machine's disk that this is, if the image is not to blame.
    pub(crate) fn into_storage(self) -> Result<io::Error, Self> {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match self {
            Self::Entry { source, .. } | Self::Read(source)
                if matches!(source.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem | PermissionDenied) =>
            {
                Ok(source)
            }
            other => Err(other),
        }
    }
}

/// Unpacks layers into a directory and keeps count of what they use.
pub(crate) struct Unpacker {
    tree: Tree,
    left: Limits,
    devices: bool,
}

impl Unpacker {
    /// Unpacks into an empty directory.
    pub(crate) fn new(directory: &Path, limits: Limits) -> io::Result<Self> {
        Ok(Self { tree: Tree::open(directory)?, left: limits, devices: false })
    }

    /// Unpacks one layer and answers the digest of the uncompressed archive, with how many bytes it has.
    pub(crate) fn layer(&mut self, blob: impl Read + 'static) -> Result<Digest, UnpackError> {
        let reader = HashingReader::new(decompress(blob)?, self.left.bytes);
        let mut layer = Layer { unpacker: self, made: HashSet::new() };
        let mut tape = Tape::new(reader);
        while let Some(entry) = tape.next()? {
            layer.entry(&entry, &mut tape)?;
        }
        let (digest, read) = tape.into_inner().finish()?;
        self.left.bytes = self.left.bytes.saturating_sub(read);
        if self.devices {
            tracing::debug!("devices and pipes of the image are left out");
        }
        Ok(digest)
    }
}

/// The layer that is being unpacked.
struct Layer<'a> {
    unpacker: &'a mut Unpacker,
    /// What this layer has put there, with all directories above: an opaque directory keeps it.
    made: HashSet<PathBuf>,
}

impl Layer<'_> {
    fn entry(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), UnpackError> {
        let left = &mut self.unpacker.left.entries;
        *left = left.checked_sub(1).ok_or_else(|| UnpackError::Invalid("too many files".to_owned()))?;
        let failed = |source| UnpackError::Entry { entry: String::from_utf8_lossy(&entry.path).into_owned(), source };
        let Some(path) = EntryPath::parse(&entry.path).map_err(UnpackError::Invalid)? else {
            if entry.kind == EntryType::Directory {
                self.unpacker.tree.set_root_access(entry.access).map_err(failed)?;
            }
            return Ok(());
        };
        if path.name().as_bytes().starts_with(WHITEOUT) {
            return self.whiteout(&path).map_err(failed);
        }
        let made = self.make(&path, entry, content).map_err(failed)?;
        if made {
            // A directory that is known has all of its own parents known.
            for known in path.as_path().ancestors() {
                if !self.made.insert(known.to_owned()) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn make(&mut self, path: &EntryPath, entry: &Entry, content: &mut impl Read) -> io::Result<bool> {
        let tree = &self.unpacker.tree;
        let link = || entry.link.as_deref().ok_or_else(|| invalid("a link without a target"));
        match entry.kind {
            EntryType::Directory => tree.directory(path, entry.access)?,
            EntryType::Regular | EntryType::Continuous => {
                tree.file(path, entry.access, content)?;
            }
            EntryType::Symlink => tree.symbolic_link(path, Path::new(OsStr::from_bytes(link()?)))?,
            EntryType::Link => {
                let target = EntryPath::parse(link()?).map_err(|reason| invalid(&reason))?;
                tree.hard_link(path, &target.ok_or_else(|| invalid("a hard link to a directory"))?)?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.unpacker.devices = true;
                return Ok(false);
            }
            other => return Err(invalid(&format!("unknown type {other:?}"))),
        }
        Ok(true)
    }

    fn whiteout(&self, path: &EntryPath) -> io::Result<()> {
        let name = path.name().as_bytes();
        if name == OPAQUE {
            return self.unpacker.tree.clear(path.parent(), &|child| self.made.contains(child));
        }
        let hidden = name.strip_prefix(WHITEOUT).unwrap_or_default();
        if hidden.starts_with(WHITEOUT) {
            // Bookkeeping of an old file system, which builders left in their archives.
            return Ok(());
        }
        let hidden = path.parent().join(OsStr::from_bytes(hidden));
        let parsed = EntryPath::parse(hidden.as_os_str().as_bytes()).map_err(|reason| invalid(&reason))?;
        match parsed.filter(|target| target.parent() == path.parent()) {
            Some(target) => self.unpacker.tree.remove(&target),
            None => Err(invalid("a whiteout of nothing")),
        }
    }
}

/// The uncompressed content of a blob: gzip, zstd or plain, by its first bytes, since media types are not always right.
pub(crate) fn decompress(blob: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut reader = BufReader::with_capacity(128 * 1024, blob);
    let start = reader.fill_buf()?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(Zstd { state: ZstdState::Between(reader) })
        }
        _ => Box::new(reader),
    })
}

/// Opens a file and reads it uncompressed.
pub(crate) fn open_compressed(path: &Path) -> io::Result<Box<dyn Read>> {
    decompress(File::open(path)?)
}

/// Frames of a zstd stream, one after another. Those that carry metadata are skipped.
struct Zstd<R: BufRead> {
    state: ZstdState<R>,
}

enum ZstdState<R: BufRead> {
    Between(R),
    Inside(Box<StreamingDecoder<R, FrameDecoder>>),
    Ended,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, ZstdState::Ended) {
                ZstdState::Ended => return Ok(0),
                ZstdState::Inside(mut frame) => {
                    let count = frame.read(buffer)?;
                    if count > 0 || buffer.is_empty() {
                        self.state = ZstdState::Inside(frame);
                        return Ok(count);
                    }
                    self.state = ZstdState::Between(frame.into_inner());
                }
                ZstdState::Between(reader) => self.state = next_frame(reader)?,
            }
        }
    }
}

fn next_frame<R: BufRead>(mut reader: R) -> io::Result<ZstdState<R>> {
    let start = reader.fill_buf()?;
    match start {
        [] => Ok(ZstdState::Ended),
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let mut header = [0; 8];
            reader.read_exact(&mut header)?;
            let [.., a, b, c, d] = header;
            let length = u64::from(u32::from_le_bytes([a, b, c, d]));
            io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            Ok(ZstdState::Between(reader))
        }
        _ => {
            let frame = StreamingDecoder::new_with_max_window_size(reader, ZSTD_WINDOW).map_err(io::Error::other)?;
            Ok(ZstdState::Inside(Box::new(frame)))
        }
    }
}
