//! Images in files: what `docker save` writes, and OCI layouts as directories or archives.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    Digest, Limits, Reference,
    manifest::{Descriptor, Document, Index, Manifest, Platform},
    tree::{EntryPath, Tree},
    unpack::{Unpacker, open_compressed},
};

/// Names that builders give to an entry of an index.
const NAME_ANNOTATIONS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// An image that is ready to be unpacked.
pub(crate) struct Content {
    pub(crate) config: Vec<u8>,
    pub(crate) layers: Vec<File>,
    /// The digest of the manifest, where there is one.
    pub(crate) digest: Option<Digest>,
    /// The name that the file gives to the image.
    pub(crate) name: Option<String>,
}

/// Why a file contains no image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("{0}")]
    Invalid(String),
    #[error("no room to unpack it: {0}")]
    Storage(io::Error),
    #[error("cannot read {what}: {source}")]
    Read { what: String, source: io::Error },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Opens the image in a file or directory. An archive is unpacked into `staging`, which has to live as long as the content is read.
pub(crate) fn open(
    path: &Path,
    wanted: Option<&Reference>,
    staging: &Path,
    limits: Limits,
) -> Result<Content, ArchiveError> {
    let what = path.display().to_string();
    let failed = |source| ArchiveError::Read { what: what.clone(), source };
    let directory = if fs::metadata(path).map_err(failed)?.is_dir() {
        path.to_owned()
    } else {
        let directory = staging.join("archive");
        fs::create_dir(&directory).map_err(failed)?;
        let archive = open_compressed(path).map_err(failed)?;
        let mut unpacker = Unpacker::new(&directory, limits).map_err(failed)?;
        unpacker.layer(archive).map_err(|error| match error.into_storage() {
            Ok(source) => ArchiveError::Storage(source),
            Err(error) => ArchiveError::Invalid(format!("{what} is no archive of an image: {error}")),
        })?;
        directory
    };
    let layout = Layout { tree: Tree::open(&directory).map_err(failed)?, limits };
    // Newer versions of `docker save` write both; the OCI documents say more.
    if layout.tree.read(Path::new("index.json")).is_ok() {
        return layout.oci(wanted);
    }
    if layout.tree.read(Path::new("manifest.json")).is_ok() {
        return layout.docker(wanted);
    }
    let reason = format!("{what} contains neither index.json (OCI layout) nor manifest.json (docker save)");
    Err(ArchiveError::Invalid(reason))
}

/// The files of an unpacked archive or a layout.
struct Layout {
    tree: Tree,
    limits: Limits,
}

impl Layout {
    fn oci(&self, wanted: Option<&Reference>) -> Result<Content, ArchiveError> {
        let index: Index = parse("index.json", &self.read(Path::new("index.json"))?)?;
        let platform = Platform::here();
        let chosen = match wanted.and_then(|wanted| named(&index, wanted)) {
            Some(chosen) => chosen,
            None => choose(&index, &platform)?,
        };
        let name = NAME_ANNOTATIONS.iter().find_map(|key| chosen.annotations.as_ref()?.get(*key).cloned());
        let (manifest, digest) = match self.document(&chosen.digest)? {
            Document::Manifest(manifest) => (manifest, chosen.digest.clone()),
            Document::Index(nested) => {
                let chosen = choose(&nested, &platform)?;
                match self.document(&chosen.digest)? {
                    Document::Manifest(manifest) => (manifest, chosen.digest.clone()),
                    Document::Index(_) => return Err(invalid("an index of indexes of indexes is not supported")),
                }
            }
        };
        self.content(&manifest, digest, name)
    }

    fn content(&self, manifest: &Manifest, digest: Digest, name: Option<String>) -> Result<Content, ArchiveError> {
        let config = self.checked(&manifest.config.digest)?;
        let layers = manifest.layers.iter().map(|layer| self.open(&blob(&layer.digest))).collect::<Result<_, _>>()?;
        // A tag alone names nothing.
        let name = name.filter(|name| name.contains('/'));
        Ok(Content { config, layers, digest: Some(digest), name })
    }

    fn docker(&self, wanted: Option<&Reference>) -> Result<Content, ArchiveError> {
        let manifests: Vec<DockerManifest> = parse("manifest.json", &self.read(Path::new("manifest.json"))?)?;
        let tagged = |manifest: &&DockerManifest| {
            let tags = manifest.repo_tags.iter().flatten();
            tags.filter_map(|tag| Reference::parse(tag).ok()).any(|tag| Some(&tag) == wanted)
        };
        let manifest = match manifests.as_slice() {
            [only] => only,
            several => several.iter().find(tagged).ok_or_else(|| {
                let tags: Vec<_> = several.iter().flat_map(|manifest| manifest.repo_tags.iter().flatten()).collect();
                ArchiveError::Invalid(format!("there are {} images, name one of them: {tags:?}", several.len()))
            })?,
        };
        let config = self.read(&inner(&manifest.config)?)?;
        let layers = manifest.layers.iter().map(|layer| self.open(&inner(layer)?)).collect::<Result<_, _>>()?;
        let name = manifest.repo_tags.iter().flatten().next().cloned();
        Ok(Content { config, layers, digest: None, name })
    }

    fn document(&self, digest: &Digest) -> Result<Document, ArchiveError> {
        parse(&digest.to_string(), &self.checked(digest)?)
    }

    fn checked(&self, digest: &Digest) -> Result<Vec<u8>, ArchiveError> {
        let content = self.read(&blob(digest))?;
        let computed = Digest::of(&content);
        if computed == *digest {
            return Ok(content);
        }
        Err(ArchiveError::Invalid(format!("the file of {digest} contains {computed}")))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, ArchiveError> {
        let limit = self.limits.document;
        let mut content = Vec::new();
        let read = self.open(path)?.take(limit + 1).read_to_end(&mut content);
        read.map_err(|source| ArchiveError::Read { what: path.display().to_string(), source })?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > limit {
            return Err(ArchiveError::Invalid(format!("{} is larger than {limit} bytes", path.display())));
        }
        Ok(content)
    }

    fn open(&self, path: &Path) -> Result<File, ArchiveError> {
        self.tree.read(path).map_err(|source| ArchiveError::Read { what: path.display().to_string(), source })
    }
}

/// The entry of an index that carries the wanted name, or its tag.
fn named<'a>(index: &'a Index, wanted: &Reference) -> Option<&'a Descriptor> {
    let full = wanted.to_string();
    index.manifests.iter().find(|entry| {
        let names = NAME_ANNOTATIONS.iter().filter_map(|key| entry.annotations.as_ref()?.get(*key));
        names.into_iter().any(|name| {
            wanted.tag() == Some(name.as_str()) || Reference::parse(name).is_ok_and(|name| name.to_string() == full)
        })
    })
}

fn choose<'a>(index: &'a Index, platform: &Platform) -> Result<&'a Descriptor, ArchiveError> {
    index.select(platform).map_err(ArchiveError::Invalid)
}

fn blob(digest: &Digest) -> PathBuf {
    Path::new("blobs/sha256").join(digest.hex())
}

fn inner(path: &str) -> Result<PathBuf, ArchiveError> {
    let parsed = EntryPath::parse(path.as_bytes()).map_err(ArchiveError::Invalid)?;
    parsed.map(|path| path.as_path().to_owned()).ok_or_else(|| invalid("an empty path"))
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, content: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(content)
        .map_err(|error| ArchiveError::Invalid(format!("{what} cannot be understood: {error}")))
}

fn invalid(reason: &str) -> ArchiveError {
    ArchiveError::Invalid(reason.to_owned())
}
