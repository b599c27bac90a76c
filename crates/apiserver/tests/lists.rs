//! Lists go to clients in pieces, in every form, and wait for nobody for long.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::http::respond::{Answer, ResponseBody};
use ferrovirt_apiserver::serve;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use http::Request;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

/// What is copied into one piece at most, with one object's share of it.
const LARGEST_PIECE: usize = 96 << 10;

struct Cluster {
    server: Arc<Server>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn admin() -> Peer {
    Peer::Trusted(UserInfo::new("admin", ["system:masters"]))
}

impl Cluster {
    async fn start() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        Self { server, stop, _keys: keys }
    }

    async fn ask(&self, method: &str, path: &str, accept: &str, body: Bytes) -> Answer {
        let request = Request::builder().method(method).uri(path).header("accept", accept);
        let request = request.header("content-type", "application/json").body(Full::new(body)).unwrap();
        self.server.handle(request.map(|body| body.map_err(|never| match never {}).boxed_unsync()), &admin()).await
    }

    async fn get(&self, path: &str, accept: &str) -> Answer {
        let answer = self.ask("GET", path, accept, Bytes::new()).await;
        assert_eq!(answer.status(), 200, "{path} as {accept}");
        answer
    }

    async fn make(&self, names: &[&str], size: usize) {
        for name in names {
            let annotations = json!({"two": "lines\n\n  of: text\n"});
            let value = json!({"metadata": {"name": name, "annotations": annotations}, "data": {"k": "v".repeat(size / 4 * 4)}});
            let answer = self.ask("POST", SECRETS, JSON, value.to_string().into()).await;
            assert_eq!(answer.status(), 201);
        }
    }
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn whole(answer: Answer) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

async fn value(answer: Answer) -> Value {
    serde_json::from_slice(&whole(answer).await).unwrap()
}

#[tokio::test]
async fn large_lists_are_made_a_piece_at_a_time() {
    let cluster = Cluster::start().await;
    for (at, size) in [(0, 300), (1, 15_000), (2, 17_000), (3, 400_000)] {
        let names: Vec<String> = (0..40).map(|i| format!("m{at}-{i}")).collect();
        cluster.make(&names.iter().map(String::as_str).collect::<Vec<_>>(), size).await;
    }
    for accept in [JSON, METADATA, TABLE, "application/yaml"] {
        let mut body = cluster.get(SECRETS, accept).await.into_body();
        let mut copied = Vec::new();
        while let Some(piece) = body.frame().await {
            copied.push(piece.unwrap().into_data().unwrap().len());
        }
        // An object that is sent from where it is, or that has to be made anew for this form, is a piece as large as it is.
        let largest = if accept == "application/yaml" { 500_000 } else { LARGEST_PIECE };
        assert!(copied.iter().all(|size| *size < largest || (400_000..401_000).contains(size)), "{accept}: {copied:?}");
        assert!(copied.len() > 1, "{accept}");
    }
}

#[tokio::test]
async fn lists_of_every_form_hold_the_same() {
    let cluster = Cluster::start().await;
    for (made, names) in [[].as_slice(), &["a", "b"], &["c", "d", "e", "f", "g", "h"]].into_iter().enumerate() {
        cluster.make(names, 30_000 * made).await;
        let plain = value(cluster.get(SECRETS, JSON).await).await;
        let items = plain["items"].as_array().unwrap();
        assert_eq!(items.len(), [0, 2, 8][made]);
        let indented = whole(cluster.get(&format!("{SECRETS}?pretty=true"), JSON).await).await;
        assert!(indented.starts_with(b"{\n  \""), "{indented:?}");
        assert_eq!(serde_json::from_slice::<Value>(&indented).unwrap()["items"], plain["items"]);
        let yaml = whole(cluster.get(SECRETS, "application/yaml").await).await;
        assert_eq!(serde_saphyr::from_slice::<Value>(&yaml).unwrap()["items"], plain["items"]);
        let metadata = value(cluster.get(SECRETS, METADATA).await).await;
        let table = value(cluster.get(SECRETS, TABLE).await).await;
        assert_eq!(table["kind"], "Table");
        for (at, item) in items.iter().enumerate() {
            assert_eq!(metadata["items"][at]["metadata"], item["metadata"]);
            assert_eq!(table["rows"][at]["cells"][0], item["metadata"]["name"]);
        }
        assert_eq!(table["rows"].as_array().unwrap().len(), items.len());
    }
}

/// Reads the first piece of a list that has more.
async fn first_piece(body: &mut ResponseBody) {
    assert!(body.frame().await.unwrap().unwrap().into_data().unwrap().len() < LARGEST_PIECE);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_is_let_go() {
    let cluster = Cluster::start().await;
    cluster.make(&["a", "b", "c"], 100_000).await;
    let mut list = cluster.get(SECRETS, JSON).await.into_body();
    let mut watch = cluster.get(&format!("{SECRETS}?watch=1"), JSON).await.into_body();
    first_piece(&mut list).await;
    watch.frame().await.unwrap().unwrap();
    let kept = cluster.server.store.find("/secrets", "default", "c").unwrap();
    let holders = Arc::strong_count(&kept);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(holders - Arc::strong_count(&kept), 2, "the list and the watch held it");
    let mut last = list.frame().await;
    while let Some(Ok(_)) = last {
        last = list.frame().await;
    }
    assert!(last.unwrap().unwrap_err().to_string().contains("too long"));
    let told = watch.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&told).contains(r#""code":410"#), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_client_takes_nothing_ends() {
    let cluster = Cluster::start().await;
    cluster.make(&["a", "b", "c"], 300_000).await;
    let (mut client, theirs) = tokio::io::duplex(1024);
    client.write_all(format!("GET {SECRETS} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    serve::connection(cluster.server.clone(), theirs, admin(), cluster.stop.clone()).await;
    // What was on its way is there, and then nothing more.
    let mut taken = Vec::new();
    client.read_to_end(&mut taken).await.unwrap();
    assert!(taken.starts_with(b"HTTP/1.1 200 OK"));
    assert!(taken.len() < 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn lists_in_yaml_are_what_they_are_in_json(texts in prop::collection::vec("[ -~\n\t:#'\"é]{0,60}", 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cluster = Cluster::start().await;
            for (at, text) in texts.iter().enumerate() {
                let secret = json!({"metadata": {"name": format!("m{at}"), "annotations": {"a": text}}, "type": "a/b"});
                assert_eq!(cluster.ask("POST", SECRETS, JSON, secret.to_string().into()).await.status(), 201);
            }
            let plain = value(cluster.get(SECRETS, JSON).await).await;
            let yaml = whole(cluster.get(SECRETS, "application/yaml").await).await;
            assert_eq!(serde_saphyr::from_slice::<Value>(&yaml).unwrap()["items"], plain["items"]);
            let indented = value(cluster.get(&format!("{SECRETS}?pretty=1"), JSON).await).await;
            assert_eq!(indented["items"], plain["items"]);
        });
    }
}
