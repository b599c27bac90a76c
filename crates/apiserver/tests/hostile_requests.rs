//! Requests that once brought a handler down, found by the fuzz targets: each gets the answer of kube-apiserver.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::server::{Machine, Peer};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
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
