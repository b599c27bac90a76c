//! Images made from files, without a builder: OCI layouts, as directories and as archives. The same files give the same image.

mod layer;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::json;

pub use layer::Layer;

use crate::{
    Digest, ImageConfig, ImageError, Reference,
    digest::HashingWriter,
    manifest::{ConfigFile, Descriptor, Manifest, Platform, RootFs},
};

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The user that guests run as, who has to read their disks.
const QEMU: u32 = 107;

/// A layer whose only file is a disk for a guest: `/disk/<name of the file>`.
pub fn container_disk(file: &Path) -> Layer {
    let disk = Path::new("disk").join(file.file_name().unwrap_or("disk.img".as_ref()));
    Layer::new().file(disk, file, 0o444).owned_by(QEMU)
}

/// Writes an image as a tar archive of an OCI layout, and answers the digest of its manifest.
///
/// # Errors
/// When the name is none, a file cannot be read, or the archive cannot be written.
pub fn oci_archive(layers: &[Layer], config: &ImageConfig, name: &str, out: &Path) -> Result<Digest, ImageError> {
    let reference = Reference::parse(name)?;
    let failed = |source| ImageError::storage("write", out, source);
    let staging = Staging::beside(out).map_err(failed)?;
    let digest = staging.layout(layers, config, &reference).map_err(failed)?;
    let layout = Layer::directory(&staging.layout)?;
    let write = || -> io::Result<()> {
        let partial = staging.path.join("archive");
        layout.write(BufWriter::new(File::create_new(&partial)?))?;
        fs::rename(&partial, out)
    };
    write().map_err(failed)?;
    Ok(digest)
}

/// Writes an image as an OCI layout, a directory that must not be there, and answers the digest of its manifest.
///
/// # Errors
/// When the name is none, a file cannot be read, or the directory cannot be written.
pub fn oci_layout(layers: &[Layer], config: &ImageConfig, name: &str, out: &Path) -> Result<Digest, ImageError> {
    let reference = Reference::parse(name)?;
    let failed = |source| ImageError::storage("write", out, source);
    let staging = Staging::beside(out).map_err(failed)?;
    let digest = staging.layout(layers, config, &reference).map_err(failed)?;
    fs::rename(&staging.layout, out).map_err(failed)?;
    Ok(digest)
}

/// A directory beside the result, so that the result appears at once and complete. It goes away with the value.
struct Staging {
    path: PathBuf,
    /// Where the layout is made.
    layout: PathBuf,
    blobs: PathBuf,
}

impl Staging {
    fn beside(out: &Path) -> io::Result<Self> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let path = out.with_file_name(name);
        fs::create_dir(&path)?;
        let layout = path.join("layout");
        let staging = Self { blobs: layout.join("blobs/sha256"), layout, path };
        fs::create_dir_all(&staging.blobs)?;
        Ok(staging)
    }

    fn layout(&self, layers: &[Layer], config: &ImageConfig, reference: &Reference) -> io::Result<Digest> {
        let made = layers.iter().map(|layer| self.layer(layer)).collect::<io::Result<Vec<_>>>()?;
        let (diff_ids, layers) = made.into_iter().unzip();
        let Platform { architecture, os } = Platform::here();
        let rootfs = RootFs { kind: "layers".to_owned(), diff_ids };
        let config = ConfigFile { architecture, os, config: Some(config.clone()), rootfs };
        let config = self.document(CONFIG_TYPE, &config)?;
        let manifest = Manifest { schema_version: 2, media_type: Some(MANIFEST_TYPE.to_owned()), config, layers };
        let entry = self.document(MANIFEST_TYPE, &manifest)?;
        let digest = entry.digest.clone();
        // containerd reads the first name, skopeo and others the second.
        let mut names = vec![("io.containerd.image.name".to_owned(), reference.to_string())];
        names.extend(reference.tag().map(|tag| ("org.opencontainers.image.ref.name".to_owned(), tag.to_owned())));
        let annotations = Some(names.into_iter().collect());
        let entry = Descriptor { platform: Some(Platform::here()), annotations, ..entry };
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(self.layout.join("index.json"), index.to_string())?;
        fs::write(self.layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        Ok(digest)
    }

    /// Writes a layer, compressed, and answers the digest of what is in it and a pointer to it.
    fn layer(&self, layer: &Layer) -> io::Result<(Digest, Descriptor)> {
        let partial = self.path.join("layer");
        let blob = HashingWriter::new(BufWriter::new(File::create(&partial)?));
        let mut content = HashingWriter::new(GzEncoder::new(blob, Compression::default()));
        layer.write(&mut content)?;
        let (content, compressed) = content.finish();
        let (digest, mut file) = compressed.finish()?.finish();
        file.flush()?;
        let size = fs::metadata(&partial)?.len();
        fs::rename(&partial, self.blobs.join(digest.hex()))?;
        let media_type = LAYER_TYPE.to_owned();
        Ok((content, Descriptor { media_type, digest, size, platform: None, annotations: None }))
    }

    fn document(&self, media_type: &str, document: &impl serde::Serialize) -> io::Result<Descriptor> {
        let content = serde_json::to_vec(document)?;
        let digest = Digest::of(&content);
        fs::write(self.blobs.join(digest.hex()), &content)?;
        let size = u64::try_from(content.len()).unwrap_or_default();
        Ok(Descriptor { media_type: media_type.to_owned(), digest, size, platform: None, annotations: None })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
