//! Websockets: consoles through virt-handler, forwarded ports to a guest's pod.

use std::net::Ipv4Addr;

use ferrovirt_apiserver::internal::Place;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, UdpSocket};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::fixture::{Cluster, Handler};

/// A websocket to something of guest `a`; the refusal's code and `Status` otherwise.
async fn connect(cluster: &Cluster, wanted: &str) -> Result<WebSocketStream<DuplexStream>, (u16, Value)> {
    let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/{wanted}");
    let mut request = format!("ws://cluster{path}").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "plain.kubevirt.io".parse().unwrap());
    match tokio_tungstenite::client_async(request, cluster.connect()).await {
        Ok((socket, answer)) => {
            assert_eq!(answer.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
            Ok(socket)
        }
        Err(Error::Http(answer)) => {
            let status = serde_json::from_slice(answer.body().as_deref().unwrap_or_default()).unwrap_or_default();
            Err((answer.status().as_u16(), status))
        }
        Err(error) => panic!("no answer: {error}"),
    }
}

/// Sends bytes and reads as many back.
async fn round_trip(socket: &mut WebSocketStream<DuplexStream>, sent: &[u8]) -> Vec<u8> {
    socket.send(Message::Binary(sent.to_vec().into())).await.unwrap();
    let mut received = Vec::new();
    while received.len() < sent.len() {
        if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap() {
            received.extend_from_slice(&bytes);
        }
    }
    received
}

#[tokio::test]
async fn a_console_carries_bytes_both_ways() {
    let cluster = Cluster::start().await;
    let handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let mut console = connect(&cluster, "console").await.unwrap();
    assert_eq!(round_trip(&mut console, b"root\n\0\xff").await, b"root\n\0\xff");
    console.send(Message::Text("text is bytes too".into())).await.unwrap();
    assert_eq!(console.next().await.unwrap().unwrap().into_data(), "text is bytes too");
    console.send(Message::Ping("there?".into())).await.unwrap();
    assert_eq!(console.next().await.unwrap().unwrap(), Message::Pong("there?".into()));
    assert_eq!(handler.seen.lock().unwrap()[0].1, "/v1/namespaces/default/virtualmachineinstances/a/console");
    console.close(None).await.unwrap();
    while let Some(Ok(_)) = console.next().await {}
}

#[tokio::test]
async fn whoever_is_replaced_learns_why() {
    let cluster = Cluster::start().await;
    let handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let mut display = connect(&cluster, "vnc").await.unwrap();
    round_trip(&mut display, b"RFB").await;
    handler.end_streams.cancel();
    let Message::Close(Some(frame)) = display.next().await.unwrap().unwrap() else { panic!("no farewell") };
    assert_eq!(frame.code, CloseCode::Away, "an end that the client did not want is an error, as on KubeVirt");
    assert_eq!(frame.reason, "the stream ended: another client took it over, or the guest ended");
}

#[tokio::test]
async fn much_data_is_neither_lost_nor_kept() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let (mut sink, mut source) = connect(&cluster, "console").await.unwrap().split();
    let message: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let expected = message.repeat(50);
    // The reader begins after the writer is stuck, and everything in between is bounded.
    let writer = tokio::spawn(async move {
        for _ in 0..50 {
            sink.send(Message::Binary(message.clone().into())).await.unwrap();
        }
        sink
    });
    let mut received = Vec::new();
    while received.len() < expected.len() {
        received.extend_from_slice(&source.next().await.unwrap().unwrap().into_data());
    }
    assert!(received == expected, "the bytes differ");
    drop(writer.await.unwrap());
}

#[tokio::test]
async fn a_client_that_sends_too_much_at_once_is_cut_off() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let mut console = connect(&cluster, "console").await.unwrap();
    let _ = console.send(Message::Binary(vec![0; 2 << 20].into())).await;
    while let Some(Ok(message)) = console.next().await {
        assert!(!message.is_binary(), "nothing of it arrived");
    }
}

#[tokio::test]
async fn refusals_come_before_the_websocket() {
    let cluster = Cluster::start().await;
    cluster.guest("a", "Scheduled", &[]).await;
    let (code, _) = connect(&cluster, "console").await.unwrap_err();
    assert_eq!(code, 400);
    let (code, _) = connect(&cluster, "vnc?preserveSession=true").await.unwrap_err();
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_handler_that_is_away_is_no_websocket() {
    let cluster = Cluster::start().await;
    cluster.guest("a", "Running", &[]).await;
    assert_eq!(connect(&cluster, "console").await.unwrap_err().0, 503);
}

/// A guest whose pod has an address of this machine, and whose agent claims another.
async fn reachable(cluster: &Cluster) {
    let guest = cluster.guest("a", "Running", &[]).await;
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let claim =
        |guest: &mut Value| guest["status"]["interfaces"] = json!([{"name": "default", "ipAddress": "192.0.2.1"}]);
    guests.change(&Place::new("default", "a"), "", claim).await.unwrap();
    cluster.launcher(&guest).await;
}

#[tokio::test]
async fn ports_are_those_of_the_guest_s_pod() {
    let cluster = Cluster::start().await;
    reachable(&cluster).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(b"world").await.unwrap();
        request
    });
    let mut socket = connect(&cluster, &format!("portforward/{port}/tcp")).await.unwrap();
    assert_eq!(round_trip(&mut socket, b"hello").await, b"world");
    assert_eq!(&server.await.unwrap(), b"hello");
    let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else { panic!("no farewell") };
    assert_eq!(frame.reason, "the guest closed the connection");
    let (code, status) = connect(&cluster, &format!("portforward/{port}")).await.unwrap_err();
    assert_eq!(code, 500, "nobody listens any more");
    assert!(status["message"].as_str().unwrap().contains("dialing VM: 127.0.0.1:"), "{status}");
}

#[tokio::test]
async fn datagrams_stay_whole() {
    let cluster = Cluster::start().await;
    reachable(&cluster).await;
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = peer.local_addr().unwrap().port();
    let mut socket = connect(&cluster, &format!("portforward/{port}/udp")).await.unwrap();
    socket.send(Message::Binary(vec![7; 3000].into())).await.unwrap();
    let mut buffer = vec![0; 4096];
    let (length, from) = peer.recv_from(&mut buffer).await.unwrap();
    assert_eq!(length, 3000);
    peer.send_to(b"", from).await.unwrap();
    peer.send_to(&[8; 2000], from).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_data(), vec![8; 2000]);
}

#[tokio::test]
async fn a_guest_without_a_pod_has_no_ports() {
    let cluster = Cluster::start().await;
    cluster.guest("a", "Running", &[]).await;
    assert_eq!(connect(&cluster, "portforward/22").await.unwrap_err().0, 409);
}
