//! Every kind of task with real files, real `qemu-img` and media that `xorriso` reads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferrovirt_launcher_rpc::disks::{CloudInitLayout, CloudInitSeed, DiskTask, SeedText};
use ferrovirt_storage::{Prepared, StorageError, prepare};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = PathBuf::from(self.path(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        self.path(name)
    }

    fn sparse(&self, name: &str, size: u64) -> String {
        let path = self.file(name, b"boot");
        fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
        path
    }

    fn qcow2(&self, name: &str, arguments: &[&str]) -> String {
        fs::create_dir_all(Path::new(&self.path(name)).parent().unwrap()).unwrap();
        let mut all = vec!["create", "-q", "-f", "qcow2"];
        all.extend(arguments);
        let path = self.path(name);
        let at = all.iter().position(|argument| *argument == "@").unwrap();
        all[at] = &path;
        qemu_img(&all);
        path
    }

    fn container_disk(&self, path: Option<&str>) -> DiskTask {
        DiskTask::ContainerDisk {
            volume: "root".into(),
            tree: self.path("tree"),
            path: path.map(str::to_owned),
            overlay: self.path("disk-data/root/disk.qcow2"),
        }
    }
}

fn qemu_img(arguments: &[&str]) -> String {
    let output = Command::new("qemu-img").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn info(path: &str) -> serde_json::Value {
    serde_json::from_str(&qemu_img(&["info", "--output=json", path])).unwrap()
}

fn error(task: &DiskTask) -> String {
    prepare(task).unwrap_err().to_string()
}

#[test]
fn a_container_disk_gets_an_overlay_of_the_right_format_and_size() {
    for format in ["raw", "qcow2"] {
        let place = Place::new();
        let image = place.path("tree/disk/guest.img");
        fs::create_dir_all(place.path("tree/disk")).unwrap();
        qemu_img(&["create", "-q", "-f", format, &image, "64M"]);
        let overlay = prepare(&place.container_disk(None)).unwrap();
        assert!(overlay.made);
        let info = info(&overlay.path);
        assert_eq!(info["backing-filename"], image);
        assert_eq!(info["backing-filename-format"], format);
        assert_eq!(info["virtual-size"], 64 << 20);
    }
}

#[test]
fn an_overlay_that_a_guest_has_used_stays() {
    let place = Place::new();
    place.sparse("tree/disk/guest.img", 1 << 20);
    let task = place.container_disk(None);
    let overlay = prepare(&task).unwrap().path;
    fs::File::options().append(true).open(&overlay).unwrap().write_all(b"written by a guest").unwrap();
    let before = fs::read(&overlay).unwrap();
    assert_eq!(prepare(&task).unwrap(), Prepared { path: overlay.clone(), made: false });
    assert_eq!(fs::read(&overlay).unwrap(), before);
}

#[test]
fn the_path_chooses_among_several_files() {
    let place = Place::new();
    place.sparse("tree/disk/one.img", 1 << 20);
    place.sparse("tree/disk/two.img", 2 << 20);
    assert_eq!(
        error(&place.container_disk(None)),
        "volume root: the image has several files in /disk (\"one.img\", \"two.img\"): set containerDisk.path to the one to use"
    );
    let overlay = prepare(&place.container_disk(Some("/disk/two.img"))).unwrap();
    assert_eq!(info(&overlay.path)["virtual-size"], 2 << 20);
}

#[test]
fn a_tree_without_an_image_says_where_it_was_looked_for() {
    let place = Place::new();
    place.file("tree/elsewhere/guest.img", b"x");
    assert!(error(&place.container_disk(None)).contains("no file in /disk"));
    assert!(error(&place.container_disk(Some("/disk/none.img"))).contains("/disk/none.img does not exist"));
    assert!(matches!(prepare(&place.container_disk(Some("/elsewhere"))), Err(StorageError::WrongKind { .. })));
}

#[test]
fn no_path_in_a_tree_leads_out_of_it() {
    let place = Place::new();
    place.sparse("secret.img", 1 << 20);
    place.file("tree/other", b"x");
    fs::create_dir(place.path("tree/disk")).unwrap();
    symlink(place.path("secret.img"), place.path("tree/disk/guest.img")).unwrap();
    symlink(place.path("."), place.path("tree/out")).unwrap();
    for path in
        [None, Some("disk/guest.img"), Some("../secret.img"), Some("/out/secret.img"), Some("disk/../../secret.img")]
    {
        assert!(matches!(prepare(&place.container_disk(path)), Err(StorageError::Outside { .. })), "{path:?}");
    }
    assert!(!Path::new(&place.path("disk-data")).exists());
}

#[test]
fn an_image_that_names_other_files_is_refused_with_volume_file_reason_and_fix() {
    let place = Place::new();
    let secret = place.sparse("secret.img", 1 << 20);
    place.qcow2("tree/disk/guest.img", &["-F", "raw", "-b", &secret, "@"]);
    let expected = format!(
        "volume root: {}/disk/guest.img cannot be used: it has a backing file ({secret}): make it stand alone with `qemu-img convert -O qcow2`",
        place.path("tree")
    );
    assert_eq!(error(&place.container_disk(None)), expected);
    let data = format!("data_file={}", place.path("data"));
    place.qcow2("tree/disk/guest.img", &["-o", &data, "@", "1M"]);
    assert!(error(&place.container_disk(None)).contains("external data file"));
}

#[test]
fn a_broken_qcow2_is_refused() {
    let place = Place::new();
    let image = place.qcow2("tree/disk/guest.img", &["@", "1G"]);
    fs::File::options().write(true).open(&image).unwrap().set_len(70_000).unwrap();
    assert!(error(&place.container_disk(None)).contains("it is cut off"));
    assert_eq!(prepare(&place.container_disk(None)).unwrap_err().reason(), "ImageRefused");
}

#[test]
fn what_only_qemu_img_finds_is_reported_in_its_words() {
    let place = Place::new();
    let image = place.qcow2("tree/disk/guest.img", &["@", "1G"]);
    let file = fs::File::options().write(true).open(&image).unwrap();
    // More snapshots than QEMU accepts.
    std::os::unix::fs::FileExt::write_all_at(&file, &u32::MAX.to_be_bytes(), 60).unwrap();
    let error = prepare(&place.container_disk(None)).unwrap_err();
    assert!(matches!(error, StorageError::QemuImg { .. }), "{error}");
    assert!(!Path::new(&place.path("disk-data/root/disk.qcow2.new")).exists());
}

#[test]
fn a_claim_that_is_only_read_gets_an_overlay_and_must_be_raw() {
    let place = Place::new();
    let backing = place.sparse("claim/disk.img", 1 << 20);
    let task = DiskTask::Overlay { volume: "data".into(), backing: backing.clone(), overlay: place.path("overlay") };
    assert_eq!(info(&prepare(&task).unwrap().path)["backing-filename-format"], "raw");
    let qcow2 = place.qcow2("claim/qcow2", &["@", "1M"]);
    let task = DiskTask::Overlay { volume: "data".into(), backing: qcow2, overlay: place.path("other") };
    assert!(error(&task).contains("a raw one is needed"));
}

#[test]
fn a_raw_image_is_made_sparse_once() {
    let place = Place::new();
    fs::create_dir(place.path("claim")).unwrap();
    let path = place.path("claim/disk.img");
    let task = |create| DiskTask::RawImage { volume: "data".into(), path: path.clone(), create };
    assert!(matches!(prepare(&task(None)), Err(StorageError::Missing { .. })));
    assert!(prepare(&task(Some(1 << 30))).unwrap().made);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), std::os::unix::fs::MetadataExt::blocks(&metadata)), (1 << 30, 0));
    assert!(!prepare(&task(Some(2 << 30))).unwrap().made);
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 30);
    fs::File::create(&path).unwrap();
    assert!(prepare(&task(Some(1 << 20))).unwrap().made, "an image that was never finished");
}

#[test]
fn a_raw_image_that_is_a_link_or_a_directory_is_refused() {
    let place = Place::new();
    place.sparse("secret.img", 1 << 20);
    fs::create_dir_all(place.path("claim/directory")).unwrap();
    symlink("../secret.img", place.path("claim/disk.img")).unwrap();
    symlink("../new.img", place.path("claim/dangling")).unwrap();
    let task = |name: &str| DiskTask::RawImage {
        volume: "data".into(),
        path: place.path(&format!("claim/{name}")),
        create: Some(1 << 20),
    };
    assert!(matches!(prepare(&task("disk.img")), Err(StorageError::Outside { .. })));
    assert!(matches!(prepare(&task("dangling")), Err(StorageError::Outside { .. })));
    assert!(matches!(prepare(&task("directory")), Err(StorageError::WrongKind { .. })));
    assert!(!Path::new(&place.path("new.img")).exists());
}

/// A loop device, detached when it goes.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &str) -> Self {
        let output = Command::new("losetup").args(["--find", "--show", file]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_must_be_one() {
    let place = Place::new();
    let device = LoopDevice::new(&place.sparse("disk", 1 << 20));
    let task = |path: &str| DiskTask::BlockDevice { volume: "data".into(), path: path.to_owned() };
    assert!(!prepare(&task(&device.0)).unwrap().made);
    assert_eq!(
        error(&task(&place.path("disk"))),
        format!("volume data: {} is a plain file, and a block device is needed", place.path("disk"))
    );
    assert!(matches!(prepare(&task(&place.path("none"))), Err(StorageError::Missing { .. })));
    let overlay =
        DiskTask::Overlay { volume: "data".into(), backing: device.0.clone(), overlay: place.path("overlay") };
    assert_eq!(info(&prepare(&overlay).unwrap().path)["virtual-size"], 1 << 20);
}

#[test]
fn an_empty_disk_is_made_once() {
    let place = Place::new();
    let task = DiskTask::EmptyDisk {
        volume: "scratch".into(),
        path: place.path("empty-disks/scratch.qcow2"),
        capacity: 5 << 30,
    };
    let made = prepare(&task).unwrap();
    assert!(made.made && !prepare(&task).unwrap().made);
    assert_eq!(info(&made.path)["virtual-size"], 5_u64 << 30);
}

/// The files of an ISO.
fn extracted(iso: &str) -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("files");
    let output =
        Command::new("xorriso").args(["-osirrox", "on", "-indev", iso, "-extract", "/"]).arg(&root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = Command::new("find").args([".", "-type", "f", "-printf", "%P\n"]).current_dir(&root).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().map(|name| (name.to_owned(), fs::read_to_string(root.join(name)).unwrap())).collect()
}

fn seed(layout: CloudInitLayout) -> CloudInitSeed {
    CloudInitSeed {
        layout,
        user_data: Some(SeedText::Inline("#cloud-config\n".into())),
        network_data: None,
        instance_id: "vm.default".into(),
        hostname: "vm".into(),
        uuid: Some("5d307ca9-b3ef-428c-8861-06e72d69f223".into()),
        instance_type: None,
        public_key_directories: Vec::new(),
        devices: None,
    }
}

fn seeded(place: &Place, seed: CloudInitSeed) -> Result<BTreeMap<String, String>, StorageError> {
    let path = place.path("config-media/seed.iso");
    prepare(&DiskTask::CloudInit { volume: "init".into(), path, seed }).map(|made| extracted(&made.path))
}

#[test]
fn a_no_cloud_seed_has_its_three_files() {
    let place = Place::new();
    place.file("keys/mine", b"ssh-ed25519 AAAA me\n# comment\n\nssh-rsa BBBB other\n");
    let wanted = CloudInitSeed {
        network_data: Some(SeedText::Inline("version: 2\n".into())),
        instance_type: Some("u1.small".into()),
        public_key_directories: vec![place.path("keys")],
        ..seed(CloudInitLayout::NoCloud)
    };
    let files = seeded(&place, wanted).unwrap();
    assert_eq!(files["user-data"], "#cloud-config\n");
    assert_eq!(files["network-config"], "version: 2\n");
    let meta: serde_json::Value = serde_json::from_str(&files["meta-data"]).unwrap();
    assert_eq!(
        meta,
        serde_json::json!({
            "instance-id": "vm.default", "local-hostname": "vm", "instance-type": "u1.small",
            "public-keys": {"0": "ssh-ed25519 AAAA me", "1": "ssh-rsa BBBB other"},
        })
    );
}

#[test]
fn a_config_drive_has_openstacks_layout() {
    let place = Place::new();
    let devices = Some(r#"[{"type":"nic","tags":["a"]}]"#.to_owned());
    let files = seeded(&place, CloudInitSeed { devices, ..seed(CloudInitLayout::ConfigDrive) }).unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["openstack/latest/meta_data.json", "openstack/latest/user_data"]);
    let meta: serde_json::Value = serde_json::from_str(&files["openstack/latest/meta_data.json"]).unwrap();
    assert_eq!(meta["uuid"], "5d307ca9-b3ef-428c-8861-06e72d69f223");
    assert_eq!(meta["devices"][0]["tags"][0], "a");
}

#[test]
fn a_seed_without_user_data_still_is_a_seed() {
    let place = Place::new();
    let files = seeded(&place, CloudInitSeed { user_data: None, ..seed(CloudInitLayout::NoCloud) }).unwrap();
    assert_eq!(files["user-data"], "");
}

/// A volume as a kubelet lays it out: links to a directory that is replaced as a whole.
fn kubelet_volume(place: &Place, name: &str, files: &[(&str, &[u8])]) -> String {
    for (file, content) in files {
        place.file(&format!("{name}/..2026_11_16/{file}"), content);
        let first = file.split('/').next().unwrap();
        let _ = symlink(format!("..data/{first}"), place.path(&format!("{name}/{first}")));
    }
    symlink("..2026_11_16", place.path(&format!("{name}/..data"))).unwrap();
    place.path(name)
}

#[test]
fn seed_text_comes_from_the_first_key_of_a_secret() {
    let place = Place::new();
    let directory = kubelet_volume(&place, "secret", &[("userData", b"second"), ("userdata", b"first")]);
    let from = |keys: &[&str]| SeedText::File {
        directory: directory.clone(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    };
    let wanted = CloudInitSeed { user_data: Some(from(&["userdata", "userData"])), ..seed(CloudInitLayout::NoCloud) };
    assert_eq!(seeded(&place, wanted).unwrap()["user-data"], "first");
    let other = Place::new();
    let wanted = CloudInitSeed { user_data: Some(from(&["a", "b"])), ..seed(CloudInitLayout::NoCloud) };
    assert_eq!(
        seeded(&other, wanted).unwrap_err().to_string(),
        "volume init: the secret has no key a or b: add one of them"
    );
}

#[test]
fn bad_seeds_are_named() {
    let place = Place::new();
    place.file("keys/mine", b"\xff\xfe");
    let wanted = CloudInitSeed { public_key_directories: vec![place.path("keys")], ..seed(CloudInitLayout::NoCloud) };
    assert!(matches!(seeded(&place, wanted), Err(StorageError::NotText { .. })));
    let wanted = CloudInitSeed { devices: Some("{".into()), ..seed(CloudInitLayout::ConfigDrive) };
    assert!(matches!(seeded(&place, wanted), Err(StorageError::Devices { .. })));
}

#[test]
fn config_media_hold_what_a_kubelet_projected() {
    let place = Place::new();
    let source =
        kubelet_volume(&place, "map", &[("app.conf", b"a=1"), ("nested/deep.conf", b"b=2"), ("Unattend.xml", b"<x/>")]);
    let task = |required: &[&str], iso: &str| DiskTask::ConfigMedia {
        volume: "config".into(),
        path: place.path(iso),
        source: source.clone(),
        label: "cfgdata".into(),
        required: required.iter().map(|name| (*name).to_owned()).collect(),
    };
    let made = prepare(&task(&["autounattend.xml", "unattend.xml"], "config.iso")).unwrap();
    let expected = [("Unattend.xml", "<x/>"), ("app.conf", "a=1"), ("nested/deep.conf", "b=2")];
    assert_eq!(extracted(&made.path), expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    let before = fs::metadata(&made.path).unwrap().modified().unwrap();
    assert!(!prepare(&task(&[], "config.iso")).unwrap().made);
    assert_eq!(fs::metadata(&made.path).unwrap().modified().unwrap(), before);
    assert!(error(&task(&["answers.xml"], "other.iso")).contains("none of the files answers.xml is there"));
}

#[test]
fn config_media_do_not_follow_links_out() {
    let place = Place::new();
    place.file("secret", b"x");
    fs::create_dir(place.path("map")).unwrap();
    symlink("../secret", place.path("map/key")).unwrap();
    let task = DiskTask::ConfigMedia {
        volume: "config".into(),
        path: place.path("config.iso"),
        source: place.path("map"),
        label: "cfgdata".into(),
        required: Vec::new(),
    };
    assert!(matches!(prepare(&task), Err(StorageError::Outside { .. })));
}

#[test]
fn kernel_and_initrd_must_be_plain_files_with_content() {
    let place = Place::new();
    place.file("tree/boot/vmlinuz", b"MZ");
    place.file("tree/boot/empty", b"");
    symlink("/etc/passwd", place.path("tree/boot/link")).unwrap();
    let task = |kernel: &str, initrd: Option<&str>| DiskTask::KernelBoot {
        tree: place.path("tree"),
        kernel: Some(kernel.to_owned()),
        initrd: initrd.map(str::to_owned),
    };
    assert!(prepare(&task("/boot/vmlinuz", None)).is_ok());
    assert!(matches!(prepare(&task("/boot/vmlinuz", Some("/boot/link"))), Err(StorageError::Outside { .. })));
    assert!(matches!(prepare(&task("/boot/vmlinuz", Some("/boot/none"))), Err(StorageError::Missing { .. })));
    assert!(error(&task("/boot/empty", None)).contains("is an empty file, and a kernel or an initrd is needed"));
}
