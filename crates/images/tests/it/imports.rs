//! Images from files, and what the store does with them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use ferrovirt_images::{
    Image, ImageConfig, ImageError, PullPolicy, Store,
    build::{self, Layer},
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn scene() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("store")).unwrap();
    (directory, store)
}

fn config() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/bin/sh".into()],
        env: vec!["A=b".into()],
        user: "107".into(),
        ..ImageConfig::default()
    }
}

fn layers() -> Vec<Layer> {
    vec![
        Layer::new()
            .content("bin/sh", "#!lower", 0o4755)
            .content("etc/old", "old", 0o600)
            .symbolic_link("lib", "usr/lib")
            .owned_by(107),
        Layer::new().content("usr/lib/x.so", "upper", 0o644).content("etc/.wh.old", "", 0o600),
    ]
}

/// What `docker save` writes: the OCI layout's blobs, and a document of its own that points to them.
fn docker_archive(name: &str, out: &Path) {
    let layout = out.with_extension("layout");
    let digest = build::oci_layout(&layers(), &config(), name, &layout).unwrap();
    let blob = |digest: &str| format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"));
    let manifest: Value = serde_json::from_slice(&fs::read(layout.join(blob(&digest.to_string()))).unwrap()).unwrap();
    let path = |descriptor: &Value| blob(descriptor["digest"].as_str().unwrap());
    let layers: Vec<_> = manifest["layers"].as_array().unwrap().iter().map(path).collect();
    let document = json!([{"Config": path(&manifest["config"]), "RepoTags": [name], "Layers": layers}]);
    fs::write(layout.join("manifest.json"), document.to_string()).unwrap();
    let tar = Command::new("tar").arg("-C").arg(&layout).arg("-cf").arg(out).args(["manifest.json", "blobs"]).status();
    assert!(tar.unwrap().success());
    fs::remove_dir_all(layout).unwrap();
}

fn check(image: &Image) {
    let read = |path: &str| fs::read_to_string(image.rootfs.join(path));
    assert_eq!(read("bin/sh").unwrap(), "#!lower");
    assert_eq!(read("lib/x.so").unwrap(), "upper");
    assert!(read("etc/old").is_err() && read("etc/.wh.old").is_err(), "the upper layer removed it");
    let status = fs::metadata(image.rootfs.join("bin/sh")).unwrap();
    assert_eq!((status.permissions().mode() & 0o7777, status.uid()), (0o755, 107), "set-user-id is dropped");
    assert_eq!(image.config, config());
}

#[tokio::test]
async fn docker_archives_are_imported_and_answered_for_every_policy() {
    let (directory, store) = scene();
    let archive = directory.path().join("image.tar");
    docker_archive("example.com/team/app:v1", &archive);
    let image = store.import(&archive, None).await.unwrap();
    assert_eq!(image.reference, "example.com/team/app:v1");
    check(&image);
    for policy in [PullPolicy::Never, PullPolicy::IfNotPresent, PullPolicy::Always] {
        assert_eq!(store.resolve("example.com/team/app:v1", policy, None).await.unwrap(), image);
    }
    let error = store.resolve("example.com/team/app:v2", PullPolicy::Never, None).await.unwrap_err();
    assert_eq!(error.reason(), "ErrImageNeverPull");
    assert_eq!(
        error.to_string(),
        "Container image \"example.com/team/app:v2\" is not present with pull policy of Never"
    );
    // Another process sees the same.
    let other = Store::open(&directory.path().join("store")).unwrap();
    assert_eq!(other.list().unwrap(), [image]);
    assert!(staging_is_empty(directory.path()));
}

#[tokio::test]
async fn layouts_are_imported_as_directories_and_archives_compressed_or_not() {
    let (directory, store) = scene();
    let layout = directory.path().join("layout");
    build::oci_layout(&layers(), &config(), "example.com/team/app:v1", &layout).unwrap();
    let image = store.import(&layout, None).await.unwrap();
    check(&image);
    assert_eq!(image.image_id(), format!("example.com/team/app@{}", image.digest.clone().unwrap()));
    // By its digest it is known too, and only in its own repository.
    for policy in [PullPolicy::Never, PullPolicy::IfNotPresent, PullPolicy::Always] {
        assert_eq!(store.resolve(&image.image_id(), policy, None).await.unwrap(), image);
    }
    let elsewhere = image.image_id().replace("team/app", "team/other");
    assert!(store.resolve(&elsewhere, PullPolicy::Never, None).await.is_err());
    let archive = directory.path().join("layout.tar.gz");
    let status = Command::new("tar").arg("-C").arg(&layout).arg("-czf").arg(&archive).arg(".").status().unwrap();
    assert!(status.success());
    let again = store.import(&archive, Some("other:2")).await.unwrap();
    assert_eq!((again.reference.as_str(), &again.id), ("docker.io/library/other:2", &image.id));
    assert_eq!(store.list().unwrap().len(), 2);
}

#[tokio::test]
async fn a_container_disk_has_the_disk_where_guests_expect_it() {
    let (directory, store) = scene();
    let disk = directory.path().join("guest.img");
    let mut content = vec![0; 3 * 1024 * 1024];
    content[1_000_000] = 7;
    fs::write(&disk, &content).unwrap();
    let archive = directory.path().join("disk.tar");
    let layers = [build::container_disk(&disk)];
    build::oci_archive(&layers, &ImageConfig::default(), "ferrovirt/guest:test", &archive).unwrap();
    let image = store.import(&archive, None).await.unwrap();
    assert_eq!(image.reference, "docker.io/ferrovirt/guest:test");
    let unpacked = image.rootfs.join("disk/guest.img");
    assert_eq!(fs::read(&unpacked).unwrap(), content);
    let status = fs::metadata(unpacked).unwrap();
    assert_eq!((status.uid(), status.gid(), status.mode() & 0o777), (107, 107, 0o444));
    assert!(status.blocks() * 512 < 1024 * 1024, "zeros take no room");
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 3, "the store, the disk and the archive, and nothing half made");
}

#[tokio::test]
async fn images_are_removed_unless_they_are_leased() {
    let (directory, store) = scene();
    let archive = directory.path().join("image.tar");
    docker_archive("a:1", &archive);
    let image = store.import(&archive, None).await.unwrap();
    store.import(&archive, Some("b:1")).await.unwrap();
    store.lease(&image, "node_pod").await.unwrap();
    assert_eq!(store.holders().unwrap(), ["node_pod"]);

    store.remove("a:1").await.unwrap();
    assert!(image.rootfs.exists(), "it still has another name");
    let error = store.remove("b:1").await.unwrap_err();
    assert_eq!(error.to_string(), "image \"docker.io/library/b:1\" is in use by node_pod");
    let again = Store::open(&directory.path().join("store")).unwrap();
    assert!(matches!(again.remove("b:1").await, Err(ImageError::InUse { .. })), "leases outlive the process");

    store.release("node_pod").unwrap();
    store.release("node_pod").unwrap();
    store.remove("b:1").await.unwrap();
    assert!(!image.rootfs.exists());
    assert!(matches!(store.remove("b:1").await, Err(ImageError::Unknown { .. })));
    assert!(matches!(store.lease(&image, "late").await, Err(ImageError::Unknown { .. })));
    assert!(matches!(store.lease(&image, "../../x").await, Err(ImageError::Invalid { .. })));
    assert!(staging_is_empty(directory.path()));
}

#[tokio::test]
async fn what_a_crash_left_is_removed_and_damaged_records_are_ignored() {
    let (directory, store) = scene();
    let archive = directory.path().join("image.tar");
    docker_archive("a:1", &archive);
    let image = store.import(&archive, None).await.unwrap();
    let root = directory.path().join("store");
    fs::create_dir_all(root.join("staging/123-0/rootfs/x")).unwrap();
    for record in fs::read_dir(root.join("images")).unwrap() {
        fs::write(record.unwrap().path(), "{").unwrap();
    }
    let store = Store::open(&root).unwrap();
    assert!(staging_is_empty(directory.path()));
    assert!(store.list().unwrap().is_empty());
    assert_eq!(store.prune().await.unwrap(), [image.id]);
    assert!(!image.rootfs.exists());
}

#[tokio::test]
async fn files_without_an_image_say_what_is_missing() {
    let (directory, store) = scene();
    let import =
        async |name: &str| store.import(&directory.path().join(name), Some("a:1")).await.unwrap_err().to_string();
    assert!(import("absent").await.contains("No such file"));
    fs::write(directory.path().join("text"), "hello ".repeat(1000)).unwrap();
    let error = import("text").await;
    assert!(error.contains("is no archive of an image"), "{error}");
    fs::create_dir(directory.path().join("empty")).unwrap();
    let error = import("empty").await;
    assert!(error.contains("contains neither index.json"), "{error}");
}

fn staging_is_empty(directory: &Path) -> bool {
    fs::read_dir(directory.join("store/staging")).unwrap().next().is_none()
}
