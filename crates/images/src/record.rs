//! What the store remembers about images: references, files and leases, as files of its directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{Digest, ImageConfig, ImageError, Reference};

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its complete name.
    pub reference: String,
    /// The digest of its configuration, which stands for its content.
    pub id: Digest,
    /// The digest of its manifest, where it came with one.
    pub digest: Option<Digest>,
    /// Its files. Shared by all who use the image: mount it read only.
    pub rootfs: PathBuf,
    /// How a container of it starts.
    pub config: ImageConfig,
    /// Bytes that its files occupy.
    pub size: u64,
    /// Whether it was imported from a file. Such an image is never pulled, since its name may be unknown to any registry.
    pub imported: bool,
}

impl Image {
    /// What a container status shows as its image id: the repository with the digest of the manifest, or the id.
    pub fn image_id(&self) -> String {
        let Some(digest) = &self.digest else { return self.id.to_string() };
        match Reference::parse(&self.reference) {
            Ok(reference) => format!("{}/{}@{digest}", reference.registry(), reference.repository()),
            Err(_) => digest.to_string(),
        }
    }
}

/// The file of one reference.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) reference: String,
    pub(crate) id: Digest,
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u64,
    pub(crate) imported: bool,
    pub(crate) config: ImageConfig,
}

/// The store's directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    pub(crate) fn open(directory: &Path) -> Result<Self, ImageError> {
        let files = Self { directory: directory.to_owned() };
        for part in ["images", "rootfs", "leases", "staging", "locks"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(|source| ImageError::storage("create", path, source))?;
        }
        files.clean_staging()?;
        Ok(files)
    }

    /// Where the files of an image are.
    pub(crate) fn rootfs(&self, id: &Digest) -> PathBuf {
        self.directory.join("rootfs").join(id.hex())
    }

    /// The image of that reference, if its files are there.
    pub(crate) fn find(&self, reference: &Reference) -> Result<Option<Image>, ImageError> {
        self.read(&self.record_file(&reference.to_string()))
    }

    /// The image of that reference; one with a digest is known by it, whatever tag the image came under.
    pub(crate) fn find_any(&self, reference: &Reference) -> Result<Option<Image>, ImageError> {
        let found = self.find(reference)?;
        let (None, Some(digest)) = (&found, reference.digest()) else { return Ok(found) };
        let is_meant = |image: &Image| {
            let named = Reference::parse(&image.reference);
            let is_same = named.is_ok_and(|named| {
                named.registry() == reference.registry() && named.repository() == reference.repository()
            });
            is_same && image.digest.as_ref() == Some(digest)
        };
        Ok(self.list()?.into_iter().find(is_meant))
    }

    /// All images.
    pub(crate) fn list(&self) -> Result<Vec<Image>, ImageError> {
        let directory = self.directory.join("images");
        let mut images = Vec::new();
        for path in entries(&directory)? {
            if path.extension().is_some_and(|extension| extension == "json") {
                images.extend(self.read(&path)?);
            }
        }
        images.sort_by(|one, two| one.reference.cmp(&two.reference));
        Ok(images)
    }

    pub(crate) fn remember(&self, record: &Record) -> Result<(), ImageError> {
        let path = self.record_file(&record.reference);
        let failed = |source: io::Error| ImageError::storage("write", &path, source);
        let content = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        let staging = self.staging()?;
        let temporary = staging.path().join("record");
        fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, &path)).map_err(failed)
    }

    pub(crate) fn forget(&self, reference: &str) -> Result<(), ImageError> {
        let path = self.record_file(reference);
        absent_is_fine(fs::remove_file(&path)).map_err(|source| ImageError::storage("remove", path, source))
    }

    /// Removes the files of an image: out of sight first, so that nobody finds a half of them.
    pub(crate) fn remove_rootfs(&self, id: &Digest) -> Result<(), ImageError> {
        let staging = self.staging()?;
        let path = self.rootfs(id);
        absent_is_fine(fs::rename(&path, staging.path().join("removed")))
            .map_err(|source| ImageError::storage("remove", path, source))
    }

    /// The ids whose files are there.
    pub(crate) fn ids(&self) -> Result<Vec<Digest>, ImageError> {
        let paths = entries(&self.directory.join("rootfs"))?;
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        Ok(names.filter_map(|name| format!("sha256:{name}").parse().ok()).collect())
    }

    /// Who needs the image.
    pub(crate) fn holders(&self, id: &Digest) -> Result<Vec<String>, ImageError> {
        let paths = entries(&self.directory.join("leases").join(id.hex()))?;
        Ok(paths.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    pub(crate) fn add_lease(&self, id: &Digest, holder: &str) -> Result<(), ImageError> {
        let path = self.directory.join("leases").join(id.hex()).join(holder);
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        parent.and_then(|()| fs::write(&path, "")).map_err(|source| ImageError::storage("write", path, source))
    }

    pub(crate) fn drop_leases(&self, holder: &str) -> Result<(), ImageError> {
        for image in entries(&self.directory.join("leases"))? {
            let path = image.join(holder);
            absent_is_fine(fs::remove_file(&path)).map_err(|source| ImageError::storage("remove", path, source))?;
        }
        Ok(())
    }

    /// Everyone who needs some image.
    pub(crate) fn all_holders(&self) -> Result<Vec<String>, ImageError> {
        let mut holders = Vec::new();
        for id in self.ids()? {
            holders.extend(self.holders(&id)?);
        }
        holders.sort();
        holders.dedup();
        Ok(holders)
    }

    /// Waits until nobody else works on the image. Blocks the thread.
    pub(crate) fn lock(&self, id: &Digest) -> Result<fs::File, ImageError> {
        let path = self.directory.join("locks").join(id.hex());
        lock(&path, FlockOperation::LockExclusive).map_err(|source| ImageError::storage("lock", path, source))
    }

    /// A directory to make something in.
    pub(crate) fn staging(&self) -> Result<Staging, ImageError> {
        let parent = self.directory.join("staging");
        let failed = |source: io::Error| ImageError::storage("create a directory in", &parent, source);
        let lock = lock(&self.staging_lock(), FlockOperation::LockShared).map_err(failed)?;
        let number = STAGING.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = parent.join(format!("{}-{number}", std::process::id()));
        // What is there is from a process that had this number before.
        absent_is_fine(fs::remove_dir_all(&path)).and_then(|()| fs::create_dir(&path)).map_err(failed)?;
        Ok(Staging { path, _lock: lock })
    }

    /// Empties the staging directory, unless somebody works there.
    fn clean_staging(&self) -> Result<(), ImageError> {
        let Ok(_lock) = lock(&self.staging_lock(), FlockOperation::NonBlockingLockExclusive) else { return Ok(()) };
        for path in entries(&self.directory.join("staging"))? {
            fs::remove_dir_all(&path).map_err(|source| ImageError::storage("remove", path, source))?;
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<Option<Image>, ImageError> {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ImageError::storage("read", path, source)),
        };
        let Ok(record) = serde_json::from_slice::<Record>(&content) else {
            // As good as absent: the image is pulled again, and the file is written anew.
            tracing::warn!(path = %path.display(), "a record of an image is damaged and ignored");
            return Ok(None);
        };
        let rootfs = self.rootfs(&record.id);
        let Record { reference, id, digest, size, imported, config } = record;
        Ok(rootfs.is_dir().then_some(Image { reference, id, digest, rootfs, config, size, imported }))
    }

    fn record_file(&self, reference: &str) -> PathBuf {
        self.directory.join("images").join(format!("{}.json", Digest::of(reference.as_bytes()).hex()))
    }

    fn staging_lock(&self) -> PathBuf {
        self.directory.join("locks").join("staging")
    }
}

static STAGING: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// A directory that goes away with the value.
pub(crate) struct Staging {
    path: PathBuf,
    _lock: fs::File,
}

impl Staging {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = absent_is_fine(fs::remove_dir_all(&self.path)) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a staging directory; the next start does");
        }
    }
}

fn lock(path: &Path, operation: FlockOperation) -> io::Result<fs::File> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
    flock(&file, operation)?;
    Ok(file)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let failed = |source| ImageError::storage("list", directory, source);
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
