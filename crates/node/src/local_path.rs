//! Volumes on this machine's disk, for claims of the class `local-path`.
//!
//! A claim for a file system gets a directory, a claim for a block device a sparse file that nodes attach as a loop device. All nodes of
//! the machine see the same directory, so a volume may be used on any of them, and by several at a time: `ReadWriteMany` is no lie here,
//! and volumes are made at once, wherever their pod will run.
//!
//! What is made: `<directory>/pvc-<uid of the claim>_<namespace>_<name>`. The directory itself is closed to everybody but root; a volume
//! in it is open to all, as only pods that mount it can reach it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ferrovirt_api::values::Quantity;
use ferrovirt_apiserver::controllers::Provisioner;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use ferrovirt_kubernetes::{Foreign, StorageClass};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::api::storage::v1;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::files;

/// The name of the provisioner in storage classes.
pub const PROVISIONER: &str = "ferrovirt.io/local-path";
/// The name of the storage class.
pub const CLASS: &str = "local-path";

/// Makes volumes below a directory.
#[derive(Clone, Debug)]
pub struct LocalPath {
    directory: PathBuf,
}

/// Why a volume could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum LocalPathError {
    /// The claim asks for something that is not offered here.
    #[error("{field}: {reason}")]
    Unsupported {
        /// The field of the claim.
        field: &'static str,
        /// Why not.
        reason: String,
    },
    /// The claim is larger than the disk.
    #[error(
        "the claim wants {wanted} bytes, and the file system of {} has {total} in all: ask for less, or move the cluster's state to a larger disk",
        directory.display()
    )]
    TooLarge {
        /// The bytes of the claim.
        wanted: u64,
        /// The size of the file system.
        total: u64,
        /// Where volumes are.
        directory: PathBuf,
    },
    /// The disk is full.
    #[error("the disk is full: cannot {operation} {}; delete claims that nobody needs, or make room", path.display())]
    Full {
        /// What was tried.
        operation: &'static str,
        /// What it was tried with.
        path: PathBuf,
    },
    /// A file or directory could not be made or removed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Storage {
        /// What was tried.
        operation: &'static str,
        /// What it was tried with.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The volume is not one of this directory, so it is not touched.
    #[error("{path:?} is no volume below {}, so nothing is removed", directory.display())]
    Foreign {
        /// What the volume says.
        path: String,
        /// Where volumes are.
        directory: PathBuf,
    },
}

impl LocalPathError {
    fn of(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { operation, path },
            _ => Self::Storage { operation, path, source },
        }
    }
}

impl From<LocalPathError> for ApiError {
    fn from(error: LocalPathError) -> Self {
        let (code, reason) = match &error {
            LocalPathError::Unsupported { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        };
        Self::new(code, reason, error.to_string())
    }
}

/// What a claim asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    size: u64,
    block: bool,
}

impl LocalPath {
    /// Makes volumes below `directory`, which is made when it is needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The default storage class, to be created when a cluster starts.
    pub fn storage_class() -> StorageClass {
        let default = ("storageclass.kubernetes.io/is-default-class".to_owned(), "true".to_owned());
        Foreign(v1::StorageClass {
            metadata: ObjectMeta {
                name: Some(CLASS.to_owned()),
                annotations: Some([default].into()),
                ..ObjectMeta::default()
            },
            provisioner: PROVISIONER.to_owned(),
            reclaim_policy: Some("Delete".to_owned()),
            volume_binding_mode: Some("Immediate".to_owned()),
            ..v1::StorageClass::default()
        })
    }

    fn make(&self, wanted: &Wanted) -> Result<PathBuf, LocalPathError> {
        fs::create_dir_all(&self.directory)
            .and_then(|()| fs::set_permissions(&self.directory, Permissions::from_mode(0o700)))
            .map_err(LocalPathError::of("prepare", &self.directory))?;
        let path = self.directory.join(&wanted.name);
        let total = rustix::fs::statvfs(&self.directory)
            .map(|status| status.f_frsize.saturating_mul(status.f_blocks))
            .map_err(|error| LocalPathError::of("look at", &self.directory)(error.into()))?;
        if wanted.size > total {
            return Err(LocalPathError::TooLarge { wanted: wanted.size, total, directory: self.directory.clone() });
        }
        let made = if wanted.block { make_file(&path, wanted.size) } else { make_directory(&path) };
        made.map_err(LocalPathError::of("create", &path))?;
        Ok(path)
    }

    /// Out of sight first: a volume that is half removed is found by nobody, and the rest goes with the next removal.
    fn delete(&self, volume: &Value) -> Result<(), LocalPathError> {
        let text = volume["spec"]["hostPath"]["path"].as_str().unwrap_or_default();
        let path = Path::new(text);
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with("pvc-"));
        let Some(name) = name.filter(|_| path.parent() == Some(&self.directory)) else {
            return Err(LocalPathError::Foreign { path: text.to_owned(), directory: self.directory.clone() });
        };
        let removed = self.directory.join(format!(".removed-{name}"));
        // Left by a removal that did not end.
        files::remove_tree(&removed).map_err(LocalPathError::of("remove", &removed))?;
        match fs::rename(path, &removed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(LocalPathError::of("remove", path))?,
        }
        files::remove_tree(&removed).map_err(LocalPathError::of("remove", &removed))
    }
}

impl Provisioner for LocalPath {
    fn name(&self) -> &str {
        PROVISIONER
    }

    fn provision<'a>(&'a self, claim: &'a Value, _class: &'a Value) -> BoxFuture<'a, ApiResult<Value>> {
        async move {
            let wanted = parse(claim)?;
            let this = self.clone();
            let path = blocking(move || this.make(&wanted)).await?;
            Ok(json!({"hostPath": {"path": path}}))
        }
        .boxed()
    }

    fn remove<'a>(&'a self, volume: &'a Value) -> BoxFuture<'a, ApiResult<()>> {
        let (this, volume) = (self.clone(), volume.clone());
        blocking(move || this.delete(&volume)).boxed()
    }
}

async fn blocking<T: Send + 'static>(
    function: impl FnOnce() -> Result<T, LocalPathError> + Send + 'static,
) -> ApiResult<T> {
    match tokio::task::spawn_blocking(function).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn parse(claim: &Value) -> Result<Wanted, LocalPathError> {
    // An empty volume in place of a copy would be a lost disk.
    for (field, name) in [("spec.dataSource", "dataSource"), ("spec.dataSourceRef", "dataSourceRef")] {
        if !claim["spec"][name].is_null() {
            let reason = "volumes of this class are made empty; leave it out".to_owned();
            return Err(LocalPathError::Unsupported { field, reason });
        }
    }
    let size = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or_default();
    let parsed = size.parse::<Quantity>().ok().and_then(|size| u64::try_from(size.value()).ok());
    let size = parsed.ok_or_else(|| LocalPathError::Unsupported {
        field: "spec.resources.requests.storage",
        reason: format!("{size:?} is no size"),
    })?;
    let part = |name: &str| {
        let text = claim["metadata"][name].as_str().unwrap_or_default();
        let allowed = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.');
        text.chars().filter(allowed).take(63).collect::<String>()
    };
    if part("uid").is_empty() {
        return Err(LocalPathError::Unsupported { field: "metadata.uid", reason: "the claim has none".to_owned() });
    }
    let name = format!("pvc-{}_{}_{}", part("uid"), part("namespace"), part("name"));
    Ok(Wanted { name, size, block: claim["spec"]["volumeMode"] == "Block" })
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    // Pods run as any user; nobody outside of them gets here.
    fs::set_permissions(path, Permissions::from_mode(0o777))
}

/// A file that grows as it is written. One that is there keeps its content, and is never made smaller.
fn make_file(path: &Path, size: u64) -> io::Result<()> {
    let file: File = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn claim(mode: &str, size: &str) -> Value {
        json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "0b1e"},
            "spec": {"volumeMode": mode, "resources": {"requests": {"storage": size}}},
        })
    }

    fn scene() -> (tempfile::TempDir, LocalPath) {
        let directory = tempfile::tempdir().unwrap();
        let volumes = LocalPath::new(directory.path().join("volumes"));
        (directory, volumes)
    }

    async fn provision(volumes: &LocalPath, claim: &Value) -> ApiResult<PathBuf> {
        let made = volumes.provision(claim, &json!({})).await?;
        Ok(PathBuf::from(made["hostPath"]["path"].as_str().unwrap()))
    }

    fn volume(path: &Path) -> Value {
        json!({"spec": {"hostPath": {"path": path}}})
    }

    #[tokio::test]
    async fn a_file_system_is_a_directory_for_every_user_of_a_pod_and_nobody_else() {
        let (directory, volumes) = scene();
        let path = provision(&volumes, &claim("Filesystem", "1Gi")).await.unwrap();
        assert_eq!(path, directory.path().join("volumes/pvc-0b1e_default_data"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        fs::write(path.join("disk.img"), "content").unwrap();
        assert_eq!(provision(&volumes, &claim("Filesystem", "1Gi")).await.unwrap(), path);
        assert_eq!(fs::read_to_string(path.join("disk.img")).unwrap(), "content", "asked again, nothing is lost");
        volumes.remove(&volume(&path)).await.unwrap();
        volumes.remove(&volume(&path)).await.unwrap();
        assert_eq!(fs::read_dir(directory.path().join("volumes")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_block_device_is_a_sparse_file_of_the_claims_size() {
        let (directory, volumes) = scene();
        let path = provision(&volumes, &claim("Block", "64Mi")).await.unwrap();
        let status = fs::metadata(&path).unwrap();
        assert_eq!((status.len(), status.blocks()), (64 << 20, 0));
        fs::write(&path, "short").unwrap();
        provision(&volumes, &claim("Block", "64Mi")).await.unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!((content.len(), &content[..5]), (64 << 20, b"short".as_slice()), "a crash before its size was set");
        volumes.remove(&volume(&path)).await.unwrap();
        assert_eq!(fs::read_dir(directory.path().join("volumes")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_given_is_refused_with_its_reason() {
        let (_directory, volumes) = scene();
        let error = provision(&volumes, &claim("Block", "1Ei")).await.unwrap_err();
        assert!(error.message().contains("has") && error.message().contains("ask for less"), "{}", error.message());
        let error = provision(&volumes, &claim("Block", "much")).await.unwrap_err();
        assert_eq!(error.message(), "spec.resources.requests.storage: \"much\" is no size");
        let mut copy = claim("Block", "1Mi");
        copy["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "other"});
        let error = provision(&volumes, &copy).await.unwrap_err();
        assert_eq!(error.message(), "spec.dataSource: volumes of this class are made empty; leave it out");
    }

    /// A small file system in memory, unmounted when the test ends.
    struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let options = c"size=1m,nr_inodes=4";
            rustix::mount::mount("tmpfs", directory.path(), "tmpfs", rustix::mount::MountFlags::empty(), options)
                .unwrap();
            Self(directory)
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }

    #[tokio::test]
    async fn a_full_disk_says_so() {
        let disk = SmallDisk::new();
        let volumes = LocalPath::new(disk.0.path().join("volumes"));
        fs::create_dir(disk.0.path().join("volumes")).unwrap();
        let mut made = 0;
        let error = loop {
            let mut claim = claim("Filesystem", "1");
            claim["metadata"]["uid"] = json!(format!("{made}"));
            match provision(&volumes, &claim).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 10, "the disk never fills");
        };
        assert!(error.message().starts_with("the disk is full: cannot create"), "{}", error.message());
    }

    #[tokio::test]
    async fn nothing_but_volumes_of_the_directory_is_removed() {
        let (directory, volumes) = scene();
        let outside = directory.path().join("pvc-outside");
        fs::create_dir(&outside).unwrap();
        let inside = provision(&volumes, &claim("Filesystem", "1")).await.unwrap();
        let sneaky = inside.join("../../pvc-outside");
        for path in [&outside, &sneaky, Path::new(""), Path::new("/"), &directory.path().join("volumes")] {
            let error = volumes.remove(&volume(path)).await.unwrap_err();
            assert!(error.message().contains("nothing is removed"), "{}", error.message());
        }
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        volumes.remove(&volume(&inside)).await.unwrap();
        assert!(outside.exists() && !inside.exists());
    }

    #[test]
    fn the_class_is_the_default_one() {
        let class = LocalPath::storage_class();
        assert_eq!(class.provisioner, PROVISIONER);
        let annotations = class.0.metadata.annotations.unwrap();
        assert_eq!(annotations["storageclass.kubernetes.io/is-default-class"], "true");
    }
}
