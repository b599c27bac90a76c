//! Images that try to get out, or to fill the machine.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileTypeExt,
    path::Path,
};

use ferrovirt_images::{Digest, ImageError, Limits, Options, Store};
use serde_json::json;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// One entry of a layer: type, path, link target or content.
struct Entry<'a>(EntryType, &'a str, &'a str);

const FILE: EntryType = EntryType::Regular;
const DIRECTORY: EntryType = EntryType::Directory;
const SYMLINK: EntryType = EntryType::Symlink;
const LINK: EntryType = EntryType::Link;

/// Writes names as they are: a builder would refuse them.
fn tar(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for Entry(kind, path, rest) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        let content = if *kind == FILE { rest.as_bytes() } else { b"" };
        if *kind == SYMLINK || *kind == LINK {
            header.set_link_name_literal(rest).unwrap();
        }
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }
    archive.into_inner().unwrap()
}

struct Scene {
    directory: TempDir,
    limits: Limits,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        Self { directory, limits: Limits::default() }
    }

    /// Imports an image with these layers, and checks that the outside is as it was.
    async fn import(&self, layers: &[&[Entry<'_>]]) -> Result<std::path::PathBuf, ImageError> {
        let layers: Vec<_> = layers.iter().map(|entries| tar(entries)).collect();
        let ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let config = json!({"rootfs": {"type": "layers", "diff_ids": ids}}).to_string();
        let names: Vec<_> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
        let manifest = json!([{"Config": "config.json", "RepoTags": ["a:1"], "Layers": names}]).to_string();
        let mut files =
            vec![("manifest.json".to_owned(), manifest.into_bytes()), ("config.json".into(), config.into_bytes())];
        files.extend(names.into_iter().zip(layers));
        self.import_files(&files).await
    }

    async fn import_files(&self, files: &[(String, Vec<u8>)]) -> Result<std::path::PathBuf, ImageError> {
        let archive = self.directory.path().join("image.tar");
        let mut builder = Builder::new(File::create(&archive).unwrap());
        for (name, content) in files {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        builder.into_inner().unwrap();
        let options = Options { limits: self.limits, ..Options::default() };
        let store = Store::open_with(&self.directory.path().join("store"), options).unwrap();
        let result = store.import(&archive, None).await.map(|image| image.rootfs);
        assert_eq!(fs::read_to_string(self.directory.path().join("secret")).unwrap(), "secret");
        assert!(fs::read_dir(self.directory.path().join("outside")).unwrap().next().is_none());
        assert!(fs::read_dir(self.directory.path().join("store/staging")).unwrap().next().is_none());
        result
    }

    fn outside(&self) -> String {
        self.directory.path().join("outside").to_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn paths_that_lead_out_are_refused() {
    let scene = Scene::new();
    for path in ["../../outside/x", "a/../../x", "..", "./../x"] {
        let error = scene.import(&[&[Entry(FILE, path, "evil")]]).await.unwrap_err();
        assert!(error.to_string().contains("leads out of the image"), "{error}");
    }
    let error = scene.import(&[&[Entry(LINK, "a", "../../../secret")]]).await.unwrap_err();
    assert!(error.to_string().contains("leads out of the image"), "{error}");
}

#[tokio::test]
async fn links_lead_nowhere_but_into_the_image() {
    let scene = Scene::new();
    let outside = scene.outside();
    // An absolute link to a directory of the host: inside of the image there is none of that name.
    let absolute = scene.import(&[&[Entry(SYMLINK, "escape", &outside), Entry(FILE, "escape/x", "evil")]]).await;
    assert!(absolute.is_err());
    let rootfs = scene
        .import(&[
            &[Entry(DIRECTORY, "in", ""), Entry(SYMLINK, "up", "../../../../../../in"), Entry(SYMLINK, "abs", "/in")],
            &[Entry(FILE, "up/x", "one"), Entry(FILE, "abs/y", "two")],
        ])
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(rootfs.join("in/x")).unwrap(), "one");
    assert_eq!(fs::read_to_string(rootfs.join("in/y")).unwrap(), "two");
}

#[tokio::test]
async fn files_do_not_follow_links_of_their_own_name() {
    let scene = Scene::new();
    let secret = scene.directory.path().join("secret").to_str().unwrap().to_owned();
    let rootfs = scene
        .import(&[
            &[
                Entry(SYMLINK, "a", &secret),
                Entry(SYMLINK, "d", &scene.outside()),
                Entry(DIRECTORY, "full/of/things", ""),
            ],
            &[
                Entry(FILE, "a", "mine"),
                Entry(DIRECTORY, "d", ""),
                Entry(FILE, "d/x", "y"),
                Entry(FILE, "full", "file"),
            ],
        ])
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(rootfs.join("a")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(rootfs.join("full")).unwrap(), "file");
    assert!(fs::symlink_metadata(rootfs.join("d")).unwrap().is_dir());
}

#[tokio::test]
async fn hard_links_share_files_of_the_image_only() {
    let scene = Scene::new();
    let secret = scene.directory.path().join("secret").to_str().unwrap().to_owned();
    let entries = [Entry(FILE, "a", "x"), Entry(LINK, "b", "/a"), Entry(SYMLINK, "s", &secret), Entry(LINK, "c", "s")];
    let rootfs = scene.import(&[&entries]).await.unwrap();
    assert_eq!(fs::read_to_string(rootfs.join("b")).unwrap(), "x");
    assert!(fs::symlink_metadata(rootfs.join("c")).unwrap().is_symlink(), "the link itself, not what it leads to");
    let error = scene.import(&[&[Entry(LINK, "b", &secret)]]).await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[tokio::test]
async fn whiteouts_remove_files_of_the_image_only() {
    let scene = Scene::new();
    let outside = scene.directory.path().to_str().unwrap().to_owned();
    let rootfs = scene
        .import(&[
            &[
                Entry(FILE, "d/lower", "1"),
                Entry(FILE, "d/sub/lower", "1"),
                Entry(FILE, "gone", "1"),
                Entry(FILE, "tree/deep/file", "1"),
                Entry(SYMLINK, "escape", &outside),
            ],
            &[
                Entry(FILE, "d/upper", "2"),
                Entry(FILE, "d/sub/upper", "2"),
                Entry(FILE, "d/.wh..wh..opq", ""),
                Entry(FILE, ".wh.gone", ""),
                Entry(FILE, ".wh.tree", ""),
                Entry(FILE, ".wh.never-was", ""),
                Entry(FILE, "escape/.wh.secret", ""),
                Entry(FILE, "escape/outside/.wh..wh..opq", ""),
            ],
        ])
        .await
        .unwrap();
    for (path, there) in [
        ("d/lower", false),
        ("d/sub/lower", false),
        ("d/upper", true),
        ("d/sub/upper", true),
        ("gone", false),
        ("tree", false),
    ] {
        assert_eq!(rootfs.join(path).exists(), there, "{path}");
    }
    for name in [".wh...", ".wh..", ".wh."] {
        let error = scene.import(&[&[Entry(FILE, name, "")]]).await.unwrap_err();
        assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
    }
}

#[tokio::test]
async fn devices_are_left_out() {
    let scene = Scene::new();
    let rootfs = scene
        .import(&[&[
            Entry(EntryType::Char, "dev/null", ""),
            Entry(EntryType::Block, "sda", ""),
            Entry(EntryType::Fifo, "p", ""),
        ]])
        .await
        .unwrap();
    let special = |path: &str| fs::symlink_metadata(rootfs.join(path)).is_ok_and(|status| status.file_type().is_fifo());
    assert!(!special("p") && !rootfs.join("sda").exists() && !rootfs.join("dev/null").exists());
}

#[tokio::test]
async fn sizes_and_counts_are_limited() {
    let mut scene = Scene::new();
    scene.limits = Limits { bytes: 100_000, entries: 20, document: 10_000 };
    let many: Vec<_> = (0..30).map(|number| format!("file-{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| Entry(FILE, name, "")).collect();
    let error = scene.import(&[&many]).await.unwrap_err();
    assert!(error.to_string().contains("too many files"), "{error}");
    let big = "x".repeat(60_000);
    let halves = [Entry(FILE, "a", &big)];
    let error = scene.import(&[&halves, &halves]).await.unwrap_err();
    assert!(error.to_string().contains("larger than allowed"), "{error}");
    let document = format!("[{}]", " ".repeat(20_000)).into_bytes();
    let error = scene.import_files(&[("manifest.json".into(), document)]).await.unwrap_err();
    assert!(error.to_string().contains("is larger than 10000 bytes"), "{error}");
}

#[tokio::test]
async fn trees_that_are_deeper_than_a_path_are_refused() {
    let scene = Scene::new();
    let deep = "dddddddddddddddddddddddddddddddddddddddddddddddddd/dddddddddddddddddddddddddddddddddddddd";
    let mut entries = Vec::new();
    let names: Vec<String> = (0..80).map(|number| format!("s{number}")).collect();
    // Each link stands for the deepest directory so far, and the next directories go below it.
    let targets: Vec<String> = names.iter().map(|name| format!("{name}/{deep}")).collect();
    entries.push(Entry(DIRECTORY, "s0", ""));
    for (number, target) in targets.iter().enumerate().take(79) {
        entries.push(Entry(DIRECTORY, target, ""));
        entries.push(Entry(SYMLINK, &names[number + 1], target));
    }
    let error = scene.import(&[&entries]).await.unwrap_err();
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn documents_of_an_archive_are_read_inside_of_it_only() {
    let scene = Scene::new();
    let secret = scene.directory.path().join("secret").to_str().unwrap().to_owned();
    let manifest = json!([{"Config": secret, "RepoTags": ["a:1"], "Layers": []}]).to_string();
    let error = scene.import_files(&[("manifest.json".into(), manifest.into_bytes())]).await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    let config = json!({"rootfs": {"diff_ids": [Digest::of(b"")]}}).to_string().into_bytes();
    let manifest = json!([{"Config": "c", "Layers": ["../../../secret"]}]).to_string().into_bytes();
    let error =
        scene.import_files(&[("manifest.json".into(), manifest), ("c".into(), config.clone())]).await.unwrap_err();
    assert!(error.to_string().contains("leads out"), "{error}");
    // Layers that the configuration does not know, and content that it does not expect.
    let manifest = json!([{"Config": "c", "RepoTags": ["a:1"], "Layers": []}]).to_string().into_bytes();
    let error =
        scene.import_files(&[("manifest.json".into(), manifest), ("c".into(), config.clone())]).await.unwrap_err();
    assert!(error.to_string().contains("it has 0 layers, and its configuration names 1"), "{error}");
    let manifest = json!([{"Config": "c", "RepoTags": ["a:1"], "Layers": ["l"]}]).to_string().into_bytes();
    let files = [("manifest.json".into(), manifest), ("c".into(), config), ("l".into(), tar(&[Entry(FILE, "x", "y")]))];
    let error = scene.import_files(&files).await.unwrap_err();
    assert!(error.to_string().contains("layer 1 contains"), "{error}");
}

#[tokio::test]
async fn a_compressed_bomb_stops_at_the_limit() {
    let mut scene = Scene::new();
    scene.limits.bytes = 50_000_000;
    let mut bomb = Vec::new();
    let mut zeros = std::io::repeat(0).take(200_000_000);
    let mut header = Header::new_gnu();
    header.set_size(200_000_000);
    header.set_path("zeros").unwrap();
    header.set_mode(0o644);
    header.set_cksum();
    let start = &header.as_bytes()[..];
    flate2::read::GzEncoder::new(start.chain(&mut zeros), flate2::Compression::fast()).read_to_end(&mut bomb).unwrap();
    let manifest = json!([{"Config": "c", "RepoTags": ["a:1"], "Layers": ["l"]}]).to_string().into_bytes();
    let config = json!({"rootfs": {"diff_ids": [Digest::of(b"")]}}).to_string().into_bytes();
    let files = [("manifest.json".into(), manifest), ("c".into(), config), ("l".into(), bomb)];
    let error = scene.import_files(&files).await.unwrap_err();
    assert!(error.to_string().contains("larger than allowed"), "{error}");
    assert!(!Path::new(&scene.outside()).join("zeros").exists());
}
