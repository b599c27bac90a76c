//! The store: answers images, pulls and imports them, and removes those that nobody needs.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{BoxFuture, Shared},
};

use crate::{
    Credentials, Digest, Image, ImageError, Limits, Reference,
    archive::{self, ArchiveError, Content},
    manifest::{ConfigFile, Descriptor, Manifest, Platform},
    record::{Files, Record, Staging},
    registry::{Registries, Session},
    unpack::Unpacker,
};

/// How many layers of an image are downloaded at once.
const PARALLEL_DOWNLOADS: usize = 3;

/// When an image is pulled, as containers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PullPolicy {
    /// The registry is asked every time what the name stands for.
    Always,
    /// Only an image that is not in the store is pulled.
    IfNotPresent,
    /// Nothing is pulled.
    Never,
}

/// What may be chosen about a store.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What an image may use.
    pub limits: Limits,
    /// Registries (`host` or `host:port`) that are spoken to without TLS, besides those on the loopback interface.
    pub insecure_registries: HashSet<String>,
}

/// The machine's images. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Inner>,
}

type Pull = Shared<BoxFuture<'static, Result<Image, ImageError>>>;
type PullKey = (Reference, Option<Credentials>);

struct Inner {
    files: Files,
    registries: Registries,
    limits: Limits,
    pulls: Mutex<HashMap<PullKey, Pull>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in `directory`, which is made if it is missing. Needs root, as files of images keep their owners.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(directory: &Path) -> Result<Self, ImageError> {
        Self::open_with(directory, Options::default())
    }

    /// Opens the store with other options.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open_with(directory: &Path, options: Options) -> Result<Self, ImageError> {
        let shared = Inner {
            files: Files::open(directory)?,
            registries: Registries::new(options.insecure_registries)?,
            limits: options.limits,
            pulls: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The image of that name, pulled if the policy wants it. Those who ask for the same image with the same credentials at the same
    /// time share one pull. An imported image is never pulled.
    ///
    /// # Errors
    /// Says whether the name is wrong, the image is missing, access is denied, the registry cannot be reached or the image is bad.
    pub async fn resolve(
        &self,
        reference: &str,
        policy: PullPolicy,
        credentials: Option<Credentials>,
    ) -> Result<Image, ImageError> {
        let parsed = Reference::parse(reference)?;
        let present = self.shared.files.find_any(&parsed)?;
        match (present, policy) {
            (Some(image), PullPolicy::IfNotPresent | PullPolicy::Never) => Ok(image),
            (Some(image), PullPolicy::Always) if image.imported => Ok(image),
            (None, PullPolicy::Never) => Err(ImageError::NeverPull { reference: reference.to_owned() }),
            _ => self.pull(parsed, credentials).await,
        }
    }

    /// Takes an image from an OCI layout (directory or archive) or from what `docker save` writes, under the given name or the one that it
    /// has there.
    ///
    /// # Errors
    /// When there is no image in the file, or none for this machine, or no name for it.
    pub async fn import(&self, path: &Path, name: Option<&str>) -> Result<Image, ImageError> {
        let wanted = name.map(Reference::parse).transpose()?;
        let (inner, path) = (self.shared.clone(), path.to_owned());
        blocking(move || inner.import(&path, wanted)).await
    }

    /// All images, by name.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.shared.files.list()
    }

    /// Removes a name, and the image with it when it has no other name.
    ///
    /// # Errors
    /// When the image is leased, or there is none.
    pub async fn remove(&self, reference: &str) -> Result<(), ImageError> {
        let parsed = Reference::parse(reference)?;
        let inner = self.shared.clone();
        blocking(move || inner.remove(&parsed)).await
    }

    /// Removes the files of images that have no name and no lease any more, as pulling a tag that moved leaves them. Answers their ids.
    ///
    /// # Errors
    /// When the store cannot be read or changed.
    pub async fn prune(&self) -> Result<Vec<Digest>, ImageError> {
        let inner = self.shared.clone();
        blocking(move || inner.prune()).await
    }

    /// Keeps the image's files until the holder is released, also across restarts. A holder is a word such as `<node>_<pod uid>`.
    ///
    /// # Errors
    /// When the image was removed in the meantime: resolve it again.
    pub async fn lease(&self, image: &Image, holder: &str) -> Result<(), ImageError> {
        check_holder(holder)?;
        let (inner, image, holder) = (self.shared.clone(), image.clone(), holder.to_owned());
        blocking(move || {
            let _lock = inner.files.lock(&image.id)?;
            if !image.rootfs.is_dir() {
                return Err(ImageError::Unknown { reference: image.reference });
            }
            inner.files.add_lease(&image.id, &holder)
        })
        .await
    }

    /// Ends all leases of a holder. One that has none is fine.
    ///
    /// # Errors
    /// When the store cannot be changed.
    pub fn release(&self, holder: &str) -> Result<(), ImageError> {
        check_holder(holder)?;
        self.shared.files.drop_leases(holder)
    }

    /// Everyone who has a lease: those that are gone should be released.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn holders(&self) -> Result<Vec<String>, ImageError> {
        self.shared.files.all_holders()
    }

    /// Joins the pull of that image, or starts it. It goes on when those who wait for it go away.
    async fn pull(&self, reference: Reference, credentials: Option<Credentials>) -> Result<Image, ImageError> {
        let key = (reference, credentials);
        let pull = {
            let mut pulls = self.shared.pulls.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = pulls.entry(key.clone()).or_insert_with(|| start(self.shared.clone(), key));
            entry.clone()
        };
        pull.await
    }
}

/// A pull that runs by itself and takes itself off the list.
fn start(inner: Arc<Inner>, key: PullKey) -> Pull {
    let task = tokio::spawn(async move {
        let result = inner.pull(&key.0, key.1.as_ref()).await;
        inner.pulls.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        result
    });
    let outcome = async move { task.await.unwrap_or_else(|error| Err(panicked(&error))) };
    outcome.boxed().shared()
}

async fn blocking<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(function).await.unwrap_or_else(|error| Err(panicked(&error)))
}

fn panicked(error: &tokio::task::JoinError) -> ImageError {
    ImageError::storage("work on", "the image store", std::io::Error::other(error.to_string()))
}

fn check_holder(holder: &str) -> Result<(), ImageError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !holder.is_empty() && holder.len() <= 200 && !holder.starts_with('.') && holder.bytes().all(allowed) {
        return Ok(());
    }
    Err(ImageError::invalid(holder, "a holder of a lease is a word of letters, digits, '-', '_' and '.'"))
}

impl Inner {
    async fn pull(
        self: &Arc<Self>,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Image, ImageError> {
        tracing::info!(image = %reference, "pulling");
        let session = self.registries.session(reference, credentials);
        let (manifest, digest) = session.manifest(&Platform::here(), self.limits.document).await?;
        let config = session.blob(&manifest.config, self.limits.document).await?;
        let id = Digest::of(&config);
        let lock = {
            let (inner, id) = (self.clone(), id.clone());
            blocking(move || inner.files.lock(&id)).await?
        };
        let staging = self.files.staging()?;
        let layers = if self.files.rootfs(&id).is_dir() {
            Vec::new()
        } else {
            download(&session, &manifest, staging.path(), self.limits.bytes).await?
        };
        let content = Content { config, layers, digest: Some(digest), name: None };
        let (inner, name) = (self.clone(), reference.to_string());
        blocking(move || {
            let _lock = lock;
            inner.install(&name, content, false, &staging)
        })
        .await
    }

    fn import(&self, path: &Path, wanted: Option<Reference>) -> Result<Image, ImageError> {
        let staging = self.files.staging()?;
        let shown = path.display().to_string();
        let content =
            archive::open(path, wanted.as_ref(), staging.path(), self.limits).map_err(|error| match error {
                ArchiveError::Storage(source) => ImageError::storage("unpack", path, source),
                error => ImageError::invalid(&shown, error.to_string()),
            })?;
        let name = match (wanted, &content.name) {
            (Some(wanted), _) => wanted,
            (None, Some(name)) => Reference::parse(name)?,
            (None, None) => return Err(ImageError::invalid(&shown, "it has no name: give it one")),
        };
        let _lock = self.files.lock(&Digest::of(&content.config))?;
        self.install(&name.to_string(), content, true, &staging)
    }

    /// Makes an image of its content. To be called with the lock on its id held.
    fn install(&self, name: &str, content: Content, imported: bool, staging: &Staging) -> Result<Image, ImageError> {
        let id = Digest::of(&content.config);
        let config: ConfigFile = serde_json::from_slice(&content.config)
            .map_err(|error| ImageError::invalid(name, format!("its configuration cannot be understood: {error}")))?;
        let rootfs = self.files.rootfs(&id);
        if !rootfs.is_dir() {
            let directory = staging.path().join("rootfs");
            self.unpack(name, content.layers, &config.rootfs.diff_ids, &directory)?;
            fs::rename(&directory, &rootfs).map_err(|source| ImageError::storage("write", &rootfs, source))?;
        }
        let size = directory_size(&rootfs);
        let record = Record {
            reference: name.to_owned(),
            id,
            digest: content.digest,
            size,
            imported,
            config: config.config.unwrap_or_default(),
        };
        self.files.remember(&record)?;
        tracing::info!(image = name, id = %record.id, size, "image is ready");
        let Record { reference, id, digest, size, imported, config } = record;
        Ok(Image { reference, id, digest, rootfs, config, size, imported })
    }

    fn unpack(&self, name: &str, layers: Vec<File>, expected: &[Digest], directory: &Path) -> Result<(), ImageError> {
        if layers.len() != expected.len() {
            let reason = format!("it has {} layers, and its configuration names {}", layers.len(), expected.len());
            return Err(ImageError::invalid(name, reason));
        }
        let failed = |source: std::io::Error| ImageError::storage("write", directory, source);
        fs::create_dir(directory).map_err(failed)?;
        let mut unpacker = Unpacker::new(directory, self.limits).map_err(failed)?;
        for (number, (layer, expected)) in layers.into_iter().zip(expected).enumerate() {
            let unpacked = unpacker.layer(layer).map_err(|error| match error.into_storage() {
                Ok(source) => failed(source),
                Err(error) => ImageError::invalid(name, format!("layer {}: {error}", number + 1)),
            })?;
            if unpacked != *expected {
                let reason = format!("layer {} contains {unpacked}, and its configuration says {expected}", number + 1);
                return Err(ImageError::invalid(name, reason));
            }
        }
        // The name must not be on disk before the content is, or a power cut leaves an image with empty files.
        let synced = File::open(directory).and_then(|opened| Ok(rustix::fs::syncfs(&opened)?));
        synced.map_err(failed)
    }

    fn remove(&self, reference: &Reference) -> Result<(), ImageError> {
        let name = reference.to_string();
        let image = self.files.find(reference)?.ok_or_else(|| ImageError::Unknown { reference: name.clone() })?;
        let _lock = self.files.lock(&image.id)?;
        let others = self.files.list()?.into_iter().any(|other| other.id == image.id && other.reference != name);
        if !others {
            let holders = self.files.holders(&image.id)?;
            if !holders.is_empty() {
                return Err(ImageError::InUse { reference: name, holders });
            }
            self.files.remove_rootfs(&image.id)?;
        }
        self.files.forget(&name)
    }

    fn prune(&self) -> Result<Vec<Digest>, ImageError> {
        let mut pruned = Vec::new();
        for id in self.files.ids()? {
            let _lock = self.files.lock(&id)?;
            let named = self.files.list()?.into_iter().any(|image| image.id == id);
            if !named && self.files.holders(&id)?.is_empty() {
                self.files.remove_rootfs(&id)?;
                pruned.push(id);
            }
        }
        Ok(pruned)
    }
}

async fn download(
    session: &Session<'_>,
    manifest: &Manifest,
    staging: &Path,
    limit: u64,
) -> Result<Vec<File>, ImageError> {
    let total = manifest.layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
    if total > limit {
        return Err(session.too_large(total, limit));
    }
    let path = |number| staging.join(format!("layer-{number}"));
    let downloads: Vec<_> = manifest
        .layers
        .iter()
        .enumerate()
        .map(|(number, layer)| download_layer(session, layer, path(number)))
        .collect();
    futures::stream::iter(downloads).buffered(PARALLEL_DOWNLOADS).try_collect().await
}

async fn download_layer(session: &Session<'_>, layer: &Descriptor, path: PathBuf) -> Result<File, ImageError> {
    session.download(layer, &path).await?;
    tracing::debug!(layer = %layer.digest, bytes = layer.size, "layer is downloaded");
    File::open(&path).map_err(|source| ImageError::storage("read", path, source))
}

/// What the files of an image occupy on the disk.
fn directory_size(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}
