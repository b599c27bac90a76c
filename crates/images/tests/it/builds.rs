//! Images that are made of directories.

use std::{
    fs::{self, File, FileTimes},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    time::{Duration, SystemTime},
};

use ferrovirt_images::{
    ImageConfig, Store,
    build::{self, Layer},
};

/// A directory with something of each kind, made in that order and with that time.
fn tree(root: &Path, order: &[&str], time: Duration) {
    for directory in ["usr/bin", "tmp"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for name in order {
        let path = root.join("usr/bin").join(name);
        fs::write(&path, *name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + time);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    }
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(root.join("usr"), fs::Permissions::from_mode(0o750)).unwrap();
}

#[tokio::test]
async fn the_same_files_give_the_same_archive() {
    let directory = tempfile::tempdir().unwrap();
    let made = [("one", ["a", "b"], 1000), ("two", ["b", "a"], 2000)].map(|(name, order, seconds)| {
        let (root, archive) = (directory.path().join(name), directory.path().join(format!("{name}.tar")));
        tree(&root, &order, Duration::from_secs(seconds));
        let layers = [Layer::directory(&root).unwrap()];
        let config = ImageConfig { entrypoint: vec!["/bin/a".into()], user: "1001".into(), ..ImageConfig::default() };
        let digest = build::oci_archive(&layers, &config, "example.com/team/app:v1", &archive).unwrap();
        (digest, fs::read(&archive).unwrap())
    });
    assert!(made[0] == made[1], "names, contents and permissions alone count");

    let store = Store::open(&directory.path().join("store")).unwrap();
    let image = store.import(&directory.path().join("one.tar"), None).await.unwrap();
    assert_eq!((image.reference.as_str(), &image.digest), ("example.com/team/app:v1", &Some(made[0].0.clone())));
    let status = |path: &str| {
        let status = fs::metadata(image.rootfs.join(path)).unwrap();
        (status.mode() & 0o7777, status.uid(), status.mtime())
    };
    assert_eq!(fs::read_to_string(image.rootfs.join("bin/a")).unwrap(), "a");
    assert_eq!(status("usr/bin/a").0, 0o755, "no program of an image changes its user");
    assert_eq!((status("tmp").0, status("usr").0, status("usr/bin/b").1), (0o1777, 0o750, 0));
}

#[test]
fn what_no_image_can_have_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("run")).unwrap();
    let _listener = UnixListener::bind(root.join("run/socket")).unwrap();
    let error = Layer::directory(&root).unwrap_err().to_string();
    assert!(error.contains("run/socket: it is neither a file, a directory nor a symbolic link"), "{error}");
    let error = Layer::directory(&directory.path().join("absent")).unwrap_err().to_string();
    assert!(error.contains("absent: No such file"), "{error}");
    let archive = directory.path().join("image.tar");
    let gone = [build::container_disk(&directory.path().join("gone.img"))];
    let error = build::oci_archive(&gone, &ImageConfig::default(), "a:1", &archive).unwrap_err().to_string();
    assert!(error.contains("gone.img: No such file"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing half made is left");
}
