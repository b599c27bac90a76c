//! Requests that once brought a handler down, found by the fuzz targets: each gets the answer of kube-apiserver.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::serve;
use ferrovirt_apiserver::server::{Machine, Peer};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

async fn answer(request: Request<&'static str>) -> (u16, String) {
    let keys = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
    let body = |text: &'static str| {
        Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
    };
    let peer = Peer::Trusted(UserInfo::new("admin", ["system:masters"]));
    let answer = server.handle(request.map(body), &peer).await;
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    stop.cancel();
    keeper.stopped().await;
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    (status, value["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_apply_whose_metadata_is_a_number() {
    let request = Request::patch("/api/v1/namespaces/default?fieldManager=m")
        .header("content-type", "application/apply-patch+yaml")
        .body(r#"{"apiVersion":"v1","kind":"Namespace","metadata":5}"#)
        .unwrap();
    let want = "failed to create typed patch object (/; /v1, Kind=Namespace): .metadata: expected map, got &{5}";
    assert_eq!(answer(request).await, (500, want.to_owned()));
}

#[tokio::test]
async fn a_watch_that_is_to_last_for_longer_than_there_is_time() {
    let keys = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
    let request = Request::get("/api/v1/namespaces?watch=1&timeoutSeconds=9223372036854775807");
    let request = request.body(Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()).unwrap();
    let peer = Peer::Trusted(UserInfo::new("admin", ["system:masters"]));
    let mut events = server.handle(request, &peer).await.into_body();
    let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(br#"{"type":"ADDED""#), "{first:?}");
    stop.cancel();
    keeper.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_ask_for_nothing_end() {
    let keys = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
    let peer = || Peer::Trusted(UserInfo::new("admin", ["system:masters"]));
    for said in ["", "GET / HTTP/1.1\r\nhost: a\r\nx: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let (mut client, theirs) = tokio::io::duplex(1024);
        client.write_all(said.as_bytes()).await.unwrap();
        serve::connection(server.clone(), theirs, peer(), stop.clone()).await;
    }
    // One that has asked may think about its next question, for a while.
    let (mut client, theirs) = tokio::io::duplex(1024);
    let ask = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
    client.write_all(ask.as_bytes()).await.unwrap();
    let connection = tokio::spawn(serve::connection(server.clone(), theirs, peer(), stop.clone()));
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!connection.is_finished(), "it was used");
    connection.await.unwrap();
    stop.cancel();
    keeper.stopped().await;
}
