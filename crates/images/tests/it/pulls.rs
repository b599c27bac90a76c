//! Pulls from a registry.

use std::{
    fs,
    io::{Read, Write},
};

use ferrovirt_images::{
    Credentials, Digest, ImageConfig, ImageError, PullPolicy, Store,
    build::{self, Layer},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Guard, Server};

struct Scene {
    directory: TempDir,
    server: Server,
    store: Store,
    name: String,
}

impl Scene {
    async fn new(guard: Guard, redirect: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(guard, redirect).await;
        let store = Store::open(&directory.path().join("store")).unwrap();
        let name = format!("{}/team/app:v1", server.address);
        let scene = Self { directory, server, store, name };
        scene.publish("first");
        scene
    }

    /// Serves an image with that content under the tag.
    fn publish(&self, content: &str) {
        let layout = self.directory.path().join(format!("layout-{content}"));
        let layers = [Layer::new().content("a", content, 0o644), Layer::new().content("b", "two", 0o644)];
        build::oci_layout(&layers, &ImageConfig::default(), &self.name, &layout).unwrap();
        self.server.publish(&layout, "v1");
    }

    async fn resolve(&self, policy: PullPolicy, credentials: Option<Credentials>) -> Result<String, ImageError> {
        let image = self.store.resolve(&self.name, policy, credentials).await?;
        assert_eq!(fs::read_to_string(image.rootfs.join("b")).unwrap(), "two");
        Ok(fs::read_to_string(image.rootfs.join("a")).unwrap())
    }
}

fn me(password: &str) -> Option<Credentials> {
    Some(Credentials { username: "me".into(), password: password.into() })
}

#[tokio::test]
async fn policies_say_when_the_registry_is_asked() {
    let scene = Scene::new(Guard::Open, false).await;
    let error = scene.resolve(PullPolicy::Never, None).await.unwrap_err();
    assert_eq!(error.reason(), "ErrImageNeverPull");
    assert_eq!(scene.server.count(""), 0);
    assert_eq!(scene.resolve(PullPolicy::IfNotPresent, None).await.unwrap(), "first");
    let requests = scene.server.count("");
    scene.publish("second");
    assert_eq!(scene.resolve(PullPolicy::IfNotPresent, None).await.unwrap(), "first");
    assert_eq!(scene.server.count(""), requests, "what is there is not asked for");
    assert_eq!(scene.resolve(PullPolicy::Always, None).await.unwrap(), "second");
    let blobs = scene.server.count("/blobs/");
    assert_eq!(scene.resolve(PullPolicy::Always, None).await.unwrap(), "second");
    assert_eq!(scene.server.count("/blobs/"), blobs + 1, "only the configuration is asked for again");
    assert_eq!(scene.store.prune().await.unwrap().len(), 1, "the first image has no name any more");
    assert_eq!(scene.resolve(PullPolicy::Never, None).await.unwrap(), "second");
}

#[tokio::test]
async fn credentials_are_given_to_those_who_ask_and_to_nobody_else() {
    for guard in [Guard::Basic, Guard::Token] {
        let scene = Scene::new(guard, true).await;
        for wrong in [None, me("wrong")] {
            let error = scene.resolve(PullPolicy::Always, wrong).await.unwrap_err();
            assert!(matches!(error, ImageError::Unauthorized { .. }), "{error}");
            assert_eq!(error.reason(), "ErrImagePull");
        }
        assert_eq!(scene.resolve(PullPolicy::Always, me("secret")).await.unwrap(), "first");
        let elsewhere = scene.server.count("/elsewhere/");
        assert!(elsewhere > 0);
        let requests = scene.server.content.requests.lock().unwrap();
        let leaked =
            requests.iter().filter(|request| request.starts_with("/elsewhere/") && !request.ends_with("anonymous"));
        assert_eq!(leaked.count(), 0);
    }
}

#[tokio::test]
async fn everyone_who_waits_gets_the_result_of_one_pull() {
    let scene = Scene::new(Guard::Open, false).await;
    scene.server.content.gate.forget_permits(usize::MAX);
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let (store, name) = (scene.store.clone(), scene.name.clone());
        waiting.push(tokio::spawn(async move { store.resolve(&name, PullPolicy::Always, None).await }));
    }
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while scene.server.count("/blobs/") == 0 {
        assert!(tokio::time::Instant::now() < deadline, "no blob is asked for");
        tokio::task::yield_now().await;
    }
    scene.server.content.gate.add_permits(1000);
    for result in futures::future::join_all(waiting).await {
        assert_eq!(fs::read_to_string(result.unwrap().unwrap().rootfs.join("a")).unwrap(), "first");
    }
    assert_eq!(scene.server.count("/manifests/v1"), 1);
    assert_eq!(scene.server.count("/blobs/"), 3);
}

#[tokio::test]
async fn failures_name_their_cause() {
    let scene = Scene::new(Guard::Open, false).await;
    let missing = scene.name.replace("v1", "v2");
    let error = scene.store.resolve(&missing, PullPolicy::Always, None).await.unwrap_err();
    assert!(matches!(error, ImageError::NotFound { .. }), "{error}");
    assert!(error.to_string().contains("team/app/manifests/v2 not found"), "{error}");

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("{closed}/team/app:v1");
    let error = scene.store.resolve(&nobody, PullPolicy::IfNotPresent, None).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("onnection refused"), "{error}");

    let error = scene.store.resolve("Not A Name", PullPolicy::Always, None).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidImageName");
}

#[tokio::test]
async fn content_with_another_digest_is_refused() {
    let scene = Scene::new(Guard::Open, false).await;
    let changed = {
        let mut blobs = scene.server.content.blobs.lock().unwrap();
        let (digest, layer) = blobs.iter_mut().find(|(_, content)| content.starts_with(&GZIP)).unwrap();
        layer[9] ^= 1;
        digest.clone()
    };
    let error = scene.resolve(PullPolicy::Always, None).await.unwrap_err();
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains(&format!("when asked for {changed}")), "{error}");
    assert!(scene.store.list().unwrap().is_empty());
    let pinned = format!("{}@{}", scene.name, Digest::of(b"something else"));
    let index = scene.server.content.manifests.lock().unwrap()["v1"].clone();
    scene.server.content.manifests.lock().unwrap().insert(Digest::of(b"something else").to_string(), index);
    let error = scene.store.resolve(&pinned, PullPolicy::Always, None).await.unwrap_err();
    assert!(matches!(error, ImageError::Invalid { .. }), "{error}");
}

/// Replaces the layers of the published image by ones that are compressed in another way.
fn compress(scene: &Scene, compress: impl Fn(&[u8]) -> Vec<u8>) {
    let content = &scene.server.content;
    let mut manifests = content.manifests.lock().unwrap();
    let mut blobs = content.blobs.lock().unwrap();
    let mut index: Value = serde_json::from_slice(&manifests["v1"]).unwrap();
    let old = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let mut manifest: Value = serde_json::from_slice(&manifests[&old]).unwrap();
    for layer in manifest["layers"].as_array_mut().unwrap() {
        let compressed = compress(&gunzip(&blobs[layer["digest"].as_str().unwrap()]));
        let digest = Digest::of(&compressed).to_string();
        *layer = json!({"mediaType": "whatever", "digest": digest, "size": compressed.len()});
        blobs.insert(digest, compressed);
    }
    let manifest = manifest.to_string().into_bytes();
    index["manifests"][0]["digest"] = json!(Digest::of(&manifest));
    index["manifests"][0]["size"] = json!(manifest.len());
    manifests.insert(Digest::of(&manifest).to_string(), manifest);
    manifests.insert("v1".to_owned(), index.to_string().into_bytes());
}

type Compress = fn(&[u8]) -> Vec<u8>;

/// What compressed layers begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
    content
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Two frames, with one between that carries something else.
fn frames(bytes: &[u8]) -> Vec<u8> {
    let (one, two) = bytes.split_at(700);
    [zstd(one), vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3], zstd(two)].concat()
}

#[tokio::test]
async fn compressed_layers_are_unpacked() {
    let kinds: [Compress; 4] = [<[u8]>::to_vec, gzip, zstd, frames];
    for kind in kinds {
        let scene = Scene::new(Guard::Open, false).await;
        compress(&scene, kind);
        assert_eq!(scene.resolve(PullPolicy::Always, None).await.unwrap(), "first");
    }
}

#[tokio::test]
async fn a_layer_that_is_larger_than_announced_is_refused() {
    let scene = Scene::new(Guard::Open, false).await;
    compress(&scene, <[u8]>::to_vec);
    {
        let mut manifests = scene.server.content.manifests.lock().unwrap();
        let index: Value = serde_json::from_slice(&manifests["v1"]).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let mut manifest: Value = serde_json::from_slice(&manifests[&digest]).unwrap();
        manifest["layers"][0]["size"] = json!(100);
        manifests.insert("v1".to_owned(), manifest.to_string().into_bytes());
    }
    let error = scene.resolve(PullPolicy::Always, None).await.unwrap_err();
    assert!(error.to_string().contains("larger than announced"), "{error}");
}
