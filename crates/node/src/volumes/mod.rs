//! Volumes of a pod on this machine, below the pod's directory.
//!
//! | volume | becomes |
//! |---|---|
//! | emptyDir | a directory, a tmpfs or a hugetlbfs |
//! | configMap, secret, downwardAPI, projected | a tmpfs with files that are replaced all at once ([`payload`]) |
//! | persistentVolumeClaim | the claim's directory, or its device ([`claim`], [`loops`]) |
//! | image | the image's tree, mounted read-only |
//! | hostPath | that path; who may ask for one is for admission to say |
//!
//! Everything can be prepared again: what is there is left alone, files that changed are replaced.

pub mod claim;
pub mod loops;
pub mod objects;
pub mod owner;
pub mod payload;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ferrovirt_api::values::Quantity;
use ferrovirt_kubernetes::Pod;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, PodSpec, Volume};

use self::objects::ObjectReader;
use self::payload::PayloadError;
use crate::layout::PodLayout;
use crate::mounts;
use crate::oci::container::PreparedVolume;
use crate::oci::environment::PodFacts;
use crate::pod::images;
use crate::sources::{Image, ImageProblem, ImageSource};

/// Why a volume is not there yet.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file of it could not be made up.
    #[error("volume {volume:?}: {source}")]
    Payload {
        /// The volume.
        volume: String,
        /// Why.
        source: PayloadError,
    },
    /// The API server did not answer.
    #[error("volume {volume:?}: {source}")]
    Api {
        /// The volume.
        volume: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The claim cannot be used.
    #[error("volume {volume:?}: {reason}")]
    Claim {
        /// The volume.
        volume: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The image is not there.
    #[error("volume {volume:?}: {source}")]
    Image {
        /// The volume.
        volume: String,
        /// Why.
        source: ImageProblem,
    },
    /// This node does not do that.
    #[error("volume {volume:?}: {reason}")]
    Unsupported {
        /// The volume.
        volume: String,
        /// What.
        reason: String,
    },
    /// The file system refused.
    #[error("volume {volume:?}: cannot {operation} {}: {source}", .path.display())]
    Io {
        /// The volume.
        volume: String,
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Whatever preparing a volume needs.
pub struct Preparation<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its directory.
    pub layout: &'a PodLayout,
    /// What it can be told about itself.
    pub facts: &'a PodFacts,
    /// Reads config maps, secrets, claims.
    pub objects: &'a ObjectReader,
    /// Images.
    pub images: &'a dyn ImageSource,
    /// Who holds them.
    pub holder: &'a str,
    /// Who uses which loop device.
    pub loops: &'a loops::LoopDevices,
}

impl Preparation<'_> {
    fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    fn fs_group(&self) -> Option<u32> {
        let group = self.spec()?.security_context.as_ref()?.fs_group?;
        u32::try_from(group).ok()
    }

    /// Makes every volume, one after the other.
    ///
    /// # Errors
    /// The first volume that cannot be made, and why.
    pub async fn all(&self) -> Result<Vec<PreparedVolume>, VolumeError> {
        let mut prepared = Vec::new();
        for volume in self.spec().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten() {
            prepared.push(self.one(volume).await?);
        }
        Ok(prepared)
    }

    /// Brings files of config maps, secrets and tokens up to date.
    ///
    /// # Errors
    /// The first volume that cannot be read.
    pub async fn refresh(&self) -> Result<(), VolumeError> {
        for volume in self.spec().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten() {
            if has_payload(volume) {
                self.payload(volume).await?;
            }
        }
        Ok(())
    }

    async fn one(&self, volume: &Volume) -> Result<PreparedVolume, VolumeError> {
        let prepared =
            |source: PathBuf, read_only| PreparedVolume { name: volume.name.clone(), source, read_only, image: None };
        if let Some(source) = &volume.empty_dir {
            return Ok(prepared(self.empty_dir(&volume.name, source)?, false));
        }
        if has_payload(volume) {
            return Ok(prepared(self.payload(volume).await?, true));
        }
        if let Some(source) = &volume.persistent_volume_claim {
            let claim = self.objects.claim(self.pod, &volume.name, &source.claim_name).await?;
            let path = self.claim(&volume.name, claim).await?;
            return Ok(prepared(path, source.read_only == Some(true)));
        }
        if let Some(source) = &volume.image {
            let image = self.image(&volume.name, source).await?;
            // All pods of the image share its tree, and a mount point inside of it would be made there.
            let path = self.layout.volume("image", &volume.name);
            let failed = |source| VolumeError::Io {
                volume: volume.name.clone(),
                operation: "mount the image on",
                path: path.clone(),
                source,
            };
            mounts::read_only(&image.root, &path).map_err(failed)?;
            return Ok(PreparedVolume { image: Some(image.digest), ..prepared(path, true) });
        }
        if let Some(source) = &volume.host_path {
            return Ok(prepared(host_path(&volume.name, source)?, false));
        }
        let reason = "this node knows emptyDir, configMap, secret, downwardAPI, projected, persistentVolumeClaim, image and hostPath";
        Err(VolumeError::Unsupported { volume: volume.name.clone(), reason: reason.to_owned() })
    }

    fn empty_dir(&self, volume: &str, source: &EmptyDirVolumeSource) -> Result<PathBuf, VolumeError> {
        let path = self.layout.volume("empty-dir", volume);
        let failed =
            |operation, source| VolumeError::Io { volume: volume.to_owned(), operation, path: path.clone(), source };
        let is_new = !path.exists();
        match source.medium.as_deref().unwrap_or_default() {
            "" => fs::create_dir_all(&path).map_err(|error| failed("make", error))?,
            "Memory" => {
                let limit = source.size_limit.as_ref().and_then(|limit| Quantity::try_from(limit).ok());
                let limit = limit.map(|limit| format!("size={}", limit.value())).unwrap_or_default();
                mounts::memory(&path, "tmpfs", &limit).map_err(|error| failed("mount a tmpfs on", error))?;
            }
            medium => {
                let size = medium.strip_prefix("HugePages").ok_or_else(|| VolumeError::Unsupported {
                    volume: volume.to_owned(),
                    reason: format!("medium {medium:?} is not known"),
                })?;
                let size = size.trim_start_matches('-').trim_end_matches('i');
                let options = if size.is_empty() { String::new() } else { format!("pagesize={size}") };
                mounts::memory(&path, "hugetlbfs", &options).map_err(|error| failed("mount huge pages on", error))?;
            }
        }
        if is_new || source.medium.is_some() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(|error| failed("open", error))?;
            owner::give_to_group(&path, self.fs_group()).map_err(|error| failed("give to fsGroup", error))?;
        }
        Ok(path)
    }

    async fn payload(&self, volume: &Volume) -> Result<PathBuf, VolumeError> {
        let payload = self.objects.payload(self.pod, volume, self.facts).await?;
        let path = self.layout.volume(plugin(volume), &volume.name);
        let failed =
            |source| VolumeError::Io { volume: volume.name.clone(), operation: "write to", path: path.clone(), source };
        mounts::memory(&path, "tmpfs", "mode=755").map_err(failed)?;
        payload::write(&path, &payload, self.fs_group()).map_err(failed)?;
        Ok(path)
    }

    async fn claim(&self, volume: &str, claim: claim::BoundClaim) -> Result<PathBuf, VolumeError> {
        let failed = |operation, source| VolumeError::Io {
            volume: volume.to_owned(),
            operation,
            path: claim.path.clone(),
            source,
        };
        if claim.block {
            let (loops, path, layout) = (self.loops.clone(), claim.path.clone(), self.layout.clone());
            let attached = tokio::task::spawn_blocking(move || loops.attach(&path, &layout)).await;
            let attached = attached.unwrap_or_else(|error| Err(io::Error::other(error)));
            return attached.map_err(|error| failed("attach a device to", error));
        }
        if !claim.path.is_dir() {
            let reason = format!(
                "the directory {} of persistent volume {} is not on this node",
                claim.path.display(),
                claim.volume
            );
            return Err(VolumeError::Claim { volume: volume.to_owned(), reason });
        }
        // It may be large, and grow under the hands of its pods.
        let (path, group) = (claim.path.clone(), self.fs_group());
        let given = tokio::task::spawn_blocking(move || owner::give_to_group(&path, group)).await;
        let given = given.unwrap_or_else(|error| Err(io::Error::other(error)));
        given.map_err(|error| failed("give to fsGroup", error))?;
        Ok(claim.path.clone())
    }

    async fn image(&self, volume: &str, source: &ImageVolumeSource) -> Result<Image, VolumeError> {
        let reference = source.reference.as_deref().unwrap_or_default();
        let policy = images::policy(source.pull_policy.as_deref(), reference);
        let secrets = self.objects.pull_secrets(self.pod).await;
        let image = self.images.resolve(reference, policy, &secrets, self.holder).await;
        image.map_err(|source| VolumeError::Image { volume: volume.to_owned(), source })
    }
}

fn host_path(volume: &str, source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    let unsupported = |reason: String| VolumeError::Unsupported { volume: volume.to_owned(), reason };
    let path = PathBuf::from(&source.path);
    let failed = |error| VolumeError::Io {
        volume: volume.to_owned(),
        operation: "make",
        path: PathBuf::from(&source.path),
        source: error,
    };
    let kind = source.type_.as_deref().unwrap_or_default();
    match kind {
        "DirectoryOrCreate" => fs::create_dir_all(&path).map_err(failed)?,
        "FileOrCreate" if !path.exists() => drop(fs::File::create(&path).map_err(failed)?),
        _ => {}
    }
    if matches_kind(&path, kind) {
        return Ok(path);
    }
    Err(unsupported(format!("hostPath {} is not there or is no {kind}", path.display())))
}

fn matches_kind(path: &Path, kind: &str) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = fs::metadata(path) else { return false };
    let found = metadata.file_type();
    match kind {
        "Directory" | "DirectoryOrCreate" => found.is_dir(),
        "File" | "FileOrCreate" => found.is_file(),
        "Socket" => found.is_socket(),
        "CharDevice" => found.is_char_device(),
        "BlockDevice" => found.is_block_device(),
        _ => true,
    }
}

/// The volume's files come from the API.
pub fn has_payload(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// The directory name that a kubelet uses.
fn plugin(volume: &Volume) -> &'static str {
    match volume {
        Volume { config_map: Some(_), .. } => "configmap",
        Volume { secret: Some(_), .. } => "secret",
        Volume { downward_api: Some(_), .. } => "downward-api",
        _ => "projected",
    }
}
