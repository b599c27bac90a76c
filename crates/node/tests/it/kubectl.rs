//! `kubectl logs`, `exec` and `port-forward` with the real kubectl. Where there is none, `KUBECTL` names one.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::harness::{Cluster, shell};

/// The kubectl that the black-box suites build, or the one in the path.
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("KUBECTL") {
        return path.into();
    }
    let cache = std::env::var_os("FERROVIRT_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/ferrovirt")));
    let built = cache.map(|cache| cache.join("reference/bin/kubectl")).filter(|path| path.exists());
    built.unwrap_or_else(|| PathBuf::from("kubectl"))
}

fn kubectl(cluster: &Cluster) -> Command {
    let mut command = Command::new(program());
    command.env("KUBECONFIG", cluster.kubeconfig()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run(cluster: &Cluster, arguments: &[&str]) -> Output {
    let output = kubectl(cluster).args(arguments).output();
    tokio::time::timeout(Duration::from_secs(60), output)
        .await
        .expect("kubectl takes too long")
        .expect("kubectl starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn logs_are_read_and_followed() {
    let cluster = Cluster::with_socket().await;
    cluster.run("web", shell("for i in 1 2 3; do echo line $i; done; echo oops >&2; while ! [ -e /tmp/go ]; do sleep 0.1; done; echo last")).await;
    cluster.until_phase("web", "Running").await;
    cluster.until_log("web", "main", "oops").await;
    let all = run(&cluster, &["logs", "web"]).await;
    assert_eq!(text(&all.stdout), "line 1\nline 2\nline 3\noops\n", "{}", text(&all.stderr));
    assert_eq!(text(&run(&cluster, &["logs", "web", "--tail=2"]).await.stdout), "line 3\noops\n");
    assert_eq!(text(&run(&cluster, &["logs", "web", "--limit-bytes=4"]).await.stdout), "line");
    assert!(text(&run(&cluster, &["logs", "web", "--timestamps"]).await.stdout).contains("Z line 1\n"));
    let previous = run(&cluster, &["logs", "web", "--previous"]).await;
    assert!(text(&previous.stderr).contains("previous terminated container \"main\" in pod \"web\" not found"));
    let mut follow = kubectl(&cluster).args(["logs", "-f", "--tail=1", "web"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("oops"));
    assert!(run(&cluster, &["exec", "web", "--", "touch", "/tmp/go"]).await.status.success());
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("last"));
    // The end of the container ends the reading.
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert!(follow.wait().await.unwrap().success());
}

#[tokio::test]
async fn exec_has_streams_exit_codes_and_the_containers_identity() {
    let cluster = Cluster::with_socket().await;
    let mut spec = shell("while :; do sleep 0.1; done");
    spec["containers"][0]["securityContext"] = serde_json::json!({"runAsUser": 107, "runAsGroup": 107});
    spec["containers"][0]["env"] = serde_json::json!([{"name": "GREETING", "value": "hello"}]);
    cluster.run("web", spec).await;
    cluster.until_phase("web", "Running").await;
    let output = run(&cluster, &["exec", "web", "--", "sh", "-c", "id -u; echo $GREETING; echo bad >&2; exit 7"]).await;
    assert_eq!(text(&output.stdout), "107\nhello\n", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("bad"));
    assert_eq!(output.status.code(), Some(7));
    // Standard input reaches the program, and its end does too.
    let mut child = kubectl(&cluster)
        .args(["exec", "-i", "web", "--", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&vec![b'x'; 300_000]).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(text(&output.stdout).trim(), "300000");
    let missing = run(&cluster, &["exec", "web", "--", "no-such-program"]).await;
    assert!(!missing.status.success());
    assert!(text(&missing.stderr).contains("no-such-program"), "{}", text(&missing.stderr));
}

#[tokio::test]
async fn exec_has_a_terminal_of_the_right_size() {
    let cluster = Cluster::with_socket().await;
    cluster.run("web", shell("while :; do sleep 0.1; done")).await;
    cluster.until_phase("web", "Running").await;
    // `script` gives kubectl a terminal; its size is what the program in the container must see.
    let inner = format!(
        "stty rows 33 cols 77; {} exec -it web -- sh -c 'sleep 1; tty; stty size; exit 3'",
        program().display()
    );
    let mut child = Command::new("script")
        .args(["-qefc", &inner, "/dev/null"])
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let stdin = child.stdin.take();
    let mut seen = String::new();
    let mut stdout = child.stdout.take().unwrap();
    tokio::time::timeout(Duration::from_secs(60), stdout.read_to_string(&mut seen)).await.unwrap().unwrap();
    drop(stdin);
    assert!(seen.contains("/dev/pts/"), "{seen}");
    assert!(seen.contains("33 77"), "{seen}");
    assert_eq!(child.wait().await.unwrap().code(), Some(3), "{seen}");
}

#[tokio::test]
async fn port_forward_reaches_ports_inside_of_the_pod() {
    let cluster = Cluster::with_socket().await;
    cluster.run("web", shell("exec busybox nc -ll -p 8080 -e cat")).await;
    cluster.until_phase("web", "Running").await;
    for websockets in ["true", "false"] {
        let mut child = kubectl(&cluster)
            .args(["port-forward", "pod/web", ":8080"])
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap().unwrap();
        let address = line.split(' ').nth(2).unwrap().to_owned();
        let talk = |size: usize| {
            let address = address.clone();
            async move {
                let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
                let sent: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
                let expected = sent.clone();
                tokio::spawn(async move {
                    write.write_all(&sent).await.unwrap();
                    write.shutdown().await.unwrap();
                });
                let mut got = Vec::new();
                read.read_to_end(&mut got).await.unwrap();
                assert!(got == expected, "{} of {size} bytes came back", got.len());
            }
        };
        let talks = async { tokio::join!(talk(5), talk(1_000_000), talk(70_000)) };
        tokio::time::timeout(Duration::from_secs(60), talks).await.expect("the echo takes too long");
        child.kill().await.unwrap();
    }
}
