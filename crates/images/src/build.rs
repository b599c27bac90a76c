//! Images made from files, without a builder: archives as `docker save` writes them, and OCI layouts.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::{
    Digest, ImageConfig, ImageError, Reference,
    digest::HashingWriter,
    manifest::{ConfigFile, Platform, RootFs},
};

/// The user that guests run as, who has to read their disks.
const QEMU: u64 = 107;

/// Writes an archive with an image whose only file is a disk for a guest: `/disk/<name of the file>`.
///
/// # Errors
/// When the file cannot be read, or the archive cannot be written.
pub fn container_disk(file: &Path, name: &str, out: &Path) -> Result<(), ImageError> {
    let disk = Path::new("disk").join(file.file_name().unwrap_or("disk.img".as_ref()));
    docker_archive(&[Layer::new().file(disk, file)], &ImageConfig::default(), name, out)
}

/// One layer of an image that is being made: entries in order.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: Vec<(PathBuf, Entry)>,
}

#[derive(Clone, Debug)]
enum Entry {
    Content(Vec<u8>, u32),
    File(PathBuf),
    Link(PathBuf),
}

impl Layer {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file of the host.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, source: &Path) -> Self {
        self.entries.push((path.into(), Entry::File(source.to_owned())));
        self
    }

    /// A file with that content and mode.
    #[must_use]
    pub fn content(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entries.push((path.into(), Entry::Content(content.into(), mode)));
        self
    }

    /// A symbolic link.
    #[must_use]
    pub fn symbolic_link(mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.entries.push((path.into(), Entry::Link(target.into())));
        self
    }

    fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for directory in self.directories() {
            let mut header = header(EntryType::Directory, 0, 0o755);
            archive.append_data(&mut header, &directory, io::empty())?;
        }
        for (path, entry) in &self.entries {
            match entry {
                Entry::Content(content, mode) => {
                    let length = u64::try_from(content.len()).unwrap_or_default();
                    let mut header = header(EntryType::Regular, length, *mode);
                    archive.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::File(source) => {
                    let source = File::open(source)?;
                    let length = source.metadata()?.len();
                    let mut header = header(EntryType::Regular, length, 0o444);
                    archive.append_data(&mut header, path, source.take(length))?;
                }
                Entry::Link(target) => {
                    archive.append_link(&mut header(EntryType::Symlink, 0, 0o777), path, target)?;
                }
            }
        }
        archive.into_inner()?.flush()
    }

    /// The directories above all entries, outer ones first.
    fn directories(&self) -> std::collections::BTreeSet<PathBuf> {
        let parents = self.entries.iter().flat_map(|(path, _)| path.ancestors().skip(1));
        parents.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect()
    }
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(QEMU);
    header.set_gid(QEMU);
    header.set_mtime(0);
    header
}

/// Writes an image as `docker save` does.
///
/// # Errors
/// When the name is none, or the archive cannot be written.
pub fn docker_archive(layers: &[Layer], config: &ImageConfig, name: &str, out: &Path) -> Result<(), ImageError> {
    let reference = Reference::parse(name)?;
    let failed = |source| ImageError::storage("write", out, source);
    let staging = Staging::beside(out).map_err(failed)?;
    let made = staging.layers(layers).map_err(failed)?;
    let config = config_file(config, &made);
    let names: Vec<String> = made.iter().map(|digest| format!("{}.tar", digest.hex())).collect();
    let config_name = format!("{}.json", Digest::of(&config).hex());
    let manifest = json!([{"Config": config_name, "RepoTags": [reference.to_string()], "Layers": names}]);
    let write = || -> io::Result<()> {
        let partial = staging.path.join("archive");
        let mut archive = Builder::new(BufWriter::new(File::create_new(&partial)?));
        append(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
        append(&mut archive, &config_name, &config)?;
        for (digest, name) in made.iter().zip(&names) {
            let file = File::open(staging.path.join(digest.hex()))?;
            let mut header = header(EntryType::Regular, file.metadata()?.len(), 0o644);
            archive.append_data(&mut header, name, file)?;
        }
        archive.into_inner()?.flush()?;
        fs::rename(&partial, out)
    };
    write().map_err(failed)
}

/// Writes an image as an OCI layout: a directory that must not be there.
///
/// # Errors
/// When the name is none, or the directory cannot be written.
pub fn oci_layout(layers: &[Layer], config: &ImageConfig, name: &str, out: &Path) -> Result<(), ImageError> {
    let reference = Reference::parse(name)?;
    let failed = |source| ImageError::storage("write", out, source);
    let staging = Staging::beside(out).map_err(failed)?;
    let made = staging.layers(layers).map_err(failed)?;
    let config = config_file(config, &made);
    let write = || -> io::Result<()> {
        let layout = staging.path.join("layout");
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let mut descriptors = Vec::new();
        for digest in &made {
            let blob = blobs.join(digest.hex());
            fs::copy(staging.path.join(digest.hex()), &blob)?;
            let size = fs::metadata(&blob)?.len();
            let media_type = "application/vnd.oci.image.layer.v1.tar";
            descriptors.push(json!({"mediaType": media_type, "digest": digest, "size": size}));
        }
        let put = |media_type: &str, content: &[u8]| -> io::Result<serde_json::Value> {
            let digest = Digest::of(content);
            fs::write(blobs.join(digest.hex()), content)?;
            Ok(json!({"mediaType": media_type, "digest": digest, "size": content.len()}))
        };
        let manifest_type = "application/vnd.oci.image.manifest.v1+json";
        let config = put("application/vnd.oci.image.config.v1+json", &config)?;
        let manifest = json!({"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": descriptors});
        let mut entry = put(manifest_type, manifest.to_string().as_bytes())?;
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("platform".to_owned(), json!(Platform::here()));
            entry.insert("annotations".to_owned(), json!({"io.containerd.image.name": reference.to_string()}));
        }
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(layout.join("index.json"), index.to_string())?;
        fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        fs::rename(&layout, out)
    };
    write().map_err(failed)
}

fn config_file(config: &ImageConfig, layers: &[Digest]) -> Vec<u8> {
    let Platform { architecture, os } = Platform::here();
    let rootfs = RootFs { kind: "layers".to_owned(), diff_ids: layers.to_vec() };
    json!(ConfigFile { architecture, os, config: Some(config.clone()), rootfs }).to_string().into_bytes()
}

fn append(archive: &mut Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    let length = u64::try_from(content.len()).unwrap_or_default();
    archive.append_data(&mut header(EntryType::Regular, length, 0o644), name, content)
}

/// A directory beside the result, so that the result appears at once and complete. It goes away with the value.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn beside(out: &Path) -> io::Result<Self> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let path = out.with_file_name(name);
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// Writes layers to files that are named by their digest.
    fn layers(&self, layers: &[Layer]) -> io::Result<Vec<Digest>> {
        let mut digests = Vec::new();
        for layer in layers {
            let partial = self.path.join("layer");
            let mut out = HashingWriter::new(BufWriter::new(File::create(&partial)?));
            layer.write(&mut out)?;
            let digest = out.finish();
            fs::rename(&partial, self.path.join(digest.hex()))?;
            digests.push(digest);
        }
        Ok(digests)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
