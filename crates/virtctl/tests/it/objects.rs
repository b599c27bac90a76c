//! `virtctl get`, `apply`, `delete` and `wait` on a real API server.

use std::process::Stdio;

use ferrovirt_apiserver::internal::Place;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::fixture::Cluster;

const MACHINES: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, labels: {app: shop}}
spec:
  runStrategy: Halted
  template: {spec: {domain: {devices: {}, memory: {guest: 64Mi}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, namespace: default}
data: {a: b}
";

#[tokio::test]
async fn objects_are_applied_shown_and_deleted() {
    let cluster = Cluster::start().await;
    let (code, out, err) = cluster.feed(&["apply", "-f", "-"], MACHINES).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, "virtualmachine.kubevirt.io/web created\nconfigmap/notes created\n");
    let (_, out, _) = cluster.feed(&["apply", "-f", "-"], MACHINES).await;
    assert!(out.ends_with("configmap/notes unchanged\n"), "{out}");
    let (_, out, _) = cluster.feed(&["apply", "-f", "-"], &MACHINES.replace("a: b", "a: c")).await;
    assert!(out.ends_with("configmap/notes configured\n"), "{out}");

    let (code, out, _) = cluster.run(&["get", "vm"]).await;
    assert_eq!(code, 0);
    let words: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(words, ["NAME", "AGE", "STATUS", "READY"], "{out}");
    assert!(out.lines().nth(1).unwrap().starts_with("web "), "{out}");
    let (_, out, _) = cluster.run(&["get", "vm,cm", "-A", "-l", "app=shop", "-o", "name"]).await;
    assert_eq!(out, "virtualmachine.kubevirt.io/web\n");
    let (_, out, _) = cluster.run(&["get", "configmap", "notes", "-o", "jsonpath={.data.a}"]).await;
    assert_eq!(out, "c");
    let (_, out, _) = cluster.run(&["get", "vm/web", "-o", "json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["kind"], "VirtualMachine");
    let (code, _, err) = cluster.run(&["get", "vm", "db"]).await;
    assert_eq!(code, 1);
    assert!(err.starts_with("virtualmachines.kubevirt.io \"db\" not found"), "{err}");
    let (code, _, err) = cluster.run(&["get", "cars"]).await;
    assert!(code == 1 && err.contains("the server doesn't have a resource type \"cars\""), "{err}");

    let (code, out, err) = cluster.run(&["delete", "configmap/notes", "--timeout=1m"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "configmap \"notes\" deleted\n", ""));
    assert_eq!(cluster.run(&["delete", "cm", "notes"]).await.0, 1);
    assert_eq!(cluster.run(&["delete", "cm", "notes", "--ignore-not-found"]).await.0, 0);
    let (code, _, err) = cluster.run(&["get", "cm", "-l", "app=none"]).await;
    assert_eq!((code, err.as_str()), (0, "No resources found in default namespace.\n"));
}

#[tokio::test]
async fn conflicts_of_owners_are_explained() {
    let cluster = Cluster::start().await;
    let notes = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"a": value}}).to_string()
    };
    assert_eq!(cluster.feed(&["apply", "-f", "-", "--field-manager", "one"], &notes("1")).await.0, 0);
    let (code, _, err) = cluster.feed(&["apply", "-f", "-"], &notes("2")).await;
    assert!(code == 1 && err.contains("--force-conflicts"), "{err}");
    assert_eq!(cluster.feed(&["apply", "-f", "-", "--force-conflicts"], &notes("2")).await.0, 0);
}

#[tokio::test]
async fn waiting_ends_when_it_is_so() {
    let cluster = Cluster::start().await;
    cluster.guest("web", "Scheduling", &[]).await;
    let (code, _, err) = cluster.run(&["wait", "vmi/web", "--for=condition=Ready", "--timeout=10ms"]).await;
    assert!(code == 1 && err.contains("timed out waiting for the condition on virtualmachineinstances/web"), "{err}");
    assert!(err.contains("virtctl why web"), "{err}");
    let for_phase = ["wait", "vmi", "web", "--for=jsonpath={.status.phase}=Running", "--timeout=1m"];
    let waiting = cluster.command(&for_phase).stdin(Stdio::null()).spawn().unwrap();
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let run = |guest: &mut Value| guest["status"]["phase"] = "Running".into();
    guests.change(&Place::new("default", "web"), "", run).await.unwrap();
    let done = waiting.wait_with_output().await.unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "virtualmachineinstance.kubevirt.io/web condition met\n");
    assert_eq!(cluster.run(&["wait", "vmi/none", "--for=delete"]).await.0, 0);
    assert_eq!(cluster.run(&["wait", "vmi/none", "--for=condition=Ready"]).await.0, 1);
}

#[tokio::test]
async fn changes_are_followed() {
    let cluster = Cluster::start().await;
    cluster.guest("web", "Scheduling", &[]).await;
    let mut program = cluster.command(&["get", "vmi", "-w"]).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().starts_with("NAME "));
    assert!(lines.next_line().await.unwrap().unwrap().contains("Scheduling"));
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let run = |guest: &mut Value| guest["status"]["phase"] = "Running".into();
    guests.change(&Place::new("default", "web"), "", run).await.unwrap();
    assert!(lines.next_line().await.unwrap().unwrap().contains("Running"));
}
