//! Commands that carry bytes.

use std::net::Ipv4Addr;
use std::process::Stdio;

use ferrovirt_apiserver::internal::Place;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::fixture::{Cluster, start_handler};

#[tokio::test]
async fn a_console_is_typed_into_until_the_guest_ends() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let (code, out, err) = cluster.feed(&["console", "web"], "root\nbye\n").await;
    assert_eq!((code, out.as_str()), (1, "guest[]\nroot\nbye\n"), "whoever loses the console hears of it: {err}");
    assert!(err.starts_with("Successfully connected to web console. Press Ctrl+] or Ctrl+5 to exit console."), "{err}");
    assert!(err.contains("The connection ended: the stream ended"), "{err}");
}

#[tokio::test]
async fn a_console_is_watched_without_typing() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    for (flags, query) in [
        (["--log", "--log"], "log=true"),
        (["--watch", "--watch"], "watch=true"),
        (["--log", "--follow"], "log=true&watch=true"),
    ] {
        let mut program = cluster.command(&["console", "web", flags[0]]);
        if flags[1] != flags[0] {
            program.arg(flags[1]);
        }
        let mut program = program.spawn().unwrap();
        assert_eq!(first_line(&mut program).await, format!("guest[{query}]"));
    }
}

#[tokio::test]
async fn a_console_is_left_by_its_key() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let (code, _, err) = cluster.feed(&["console", "vmi/web"], "x\x1dnever sent").await;
    assert_eq!(code, 0);
    assert!(!err.contains("The connection ended"), "{err}");
}

#[tokio::test]
async fn a_console_waits_for_its_guest() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Scheduling", &[]).await;
    let mut waiting = cluster.command(&["console", "web"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(waiting.stderr.take().unwrap()).lines();
    assert_eq!(err.next_line().await.unwrap().unwrap(), "web: Scheduling");
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let run = |guest: &mut Value| guest["status"]["phase"] = "Running".into();
    guests.change(&Place::new("default", "web"), "", run).await.unwrap();
    waiting.stdin.take().unwrap().write_all(b"bye\n").await.unwrap();
    let done = waiting.wait_with_output().await.unwrap();
    assert_eq!(done.status.code(), Some(1), "the guest's end is not what the user asked for");
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "guest[]\nbye\n");
}

/// A guest `web` whose pod has an address of this machine.
async fn reachable(cluster: &Cluster) {
    let guest = cluster.guest("web", "Running", &[]).await;
    let account = cluster.server.internal("", "v1", "serviceaccounts", "test").unwrap();
    while account.get("default", "default").is_none() {
        tokio::task::yield_now().await;
    }
    let pod = json!({
        "metadata": {"name": "virt-launcher-web", "namespace": "default", "labels": {
            "kubevirt.io/created-by": guest["metadata"]["uid"],
        }, "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "controller": true,
            "uid": guest["metadata"]["uid"],
        }]},
        "spec": {"nodeName": "node1", "containers": [{"name": "compute", "image": "a"}]},
    });
    cluster.create("", "pods", pod).await;
    let pods = cluster.server.internal("", "v1", "pods", "test").unwrap();
    let address = |pod: &mut Value| pod["status"] = json!({"phase": "Running", "podIP": Ipv4Addr::LOCALHOST});
    pods.change(&Place::new("default", "virt-launcher-web"), "status", address).await.unwrap();
}

/// A service of the guest that answers one line with itself in capitals, and its port.
async fn shouting_service() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut line = [0; 6];
            connection.read_exact(&mut line).await.unwrap();
            connection.write_all(&line.to_ascii_uppercase()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_port_is_standard_input_and_output() {
    let cluster = Cluster::start().await;
    reachable(&cluster).await;
    let port = shouting_service().await.to_string();
    let (code, out, err) = cluster.feed(&["port-forward", "--stdio=true", "vmi/web/default", &port], "hello\n").await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "HELLO\n", ""));
    let (code, _, err) = cluster.run(&["port-forward", "--stdio", "vmi/web", "1"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("can't access vmi/web.default: ") && err.contains("dialing VM: "), "{err}");
}

/// The first line of a program's output.
async fn first_line(program: &mut tokio::process::Child) -> String {
    BufReader::new(program.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap()
}

#[tokio::test]
async fn ports_are_opened_here() {
    let cluster = Cluster::start().await;
    reachable(&cluster).await;
    let port = shouting_service().await;
    let mut program = cluster.command(&["port-forward", "vmi/web", &format!("0:{port}")]).spawn().unwrap();
    let line = first_line(&mut program).await;
    let local = line.strip_prefix("forwarding tcp ").unwrap().strip_suffix(&format!(" to {port}")).unwrap();
    for _ in 0..2 {
        let mut connection = TcpStream::connect(local).await.unwrap();
        connection.write_all(b"hello\n").await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "HELLO\n");
    }
}

#[tokio::test]
async fn datagrams_are_carried() {
    let cluster = Cluster::start().await;
    reachable(&cluster).await;
    let service = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = service.local_addr().unwrap().port();
    let mut program = cluster.command(&["port-forward", "vmi/web", &format!("udp/0:{port}")]).spawn().unwrap();
    let line = first_line(&mut program).await;
    let local = line.strip_prefix("forwarding udp ").unwrap().split(' ').next().unwrap().to_owned();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut buffer = [0; 16];
    // Datagrams may be lost, so they are sent until one arrives.
    let mut again = tokio::time::interval(std::time::Duration::from_millis(200));
    let (length, from) = loop {
        tokio::select! {
            received = service.recv_from(&mut buffer) => break received.unwrap(),
            _ = again.tick() => drop(client.send_to(b"ping", &local).await.unwrap()),
        }
    };
    service.send_to(&buffer[..length].to_ascii_uppercase(), from).await.unwrap();
    let (length, _) = client.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..length], b"PING");
}

#[tokio::test]
async fn a_display_is_a_port_for_one_viewer() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let mut program = cluster.command(&["vnc", "web", "--proxy-only"]).spawn().unwrap();
    let line = first_line(&mut program).await;
    let told: Value = serde_json::from_str(&line).unwrap();
    let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
    let mut viewer = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    viewer.write_all(b"bye\n").await.unwrap();
    let mut seen = String::new();
    viewer.read_to_string(&mut seen).await.unwrap();
    assert_eq!(seen, "guest[]\nbye\n");
    assert!(program.wait().await.unwrap().success());
}
