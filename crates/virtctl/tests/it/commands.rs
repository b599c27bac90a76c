//! Commands that ask once.

use crate::fixture::{Cluster, start_handler};

#[tokio::test]
async fn a_guest_is_paused_and_goes_on() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let (code, out, err) = cluster.run(&["pause", "vmi", "web"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "VMI web was scheduled to pause\n", ""));
    let (code, out, _) = cluster.run(&["pause", "vmi/web", "--dry-run=true"]).await;
    assert_eq!((code, out.as_str()), (0, "Dry Run execution\nVMI web was scheduled to pause\n"));
    let (code, out, err) = cluster.run(&["unpause", "vmi", "web"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("Error unpausing VirtualMachineInstance web: "), "{err}");
    let (code, _, err) = cluster.run(&["pause", "vm", "web"]).await;
    assert_eq!(code, 1);
    assert!(err.starts_with("Error getting VirtualMachine web: "), "{err}");
    assert!(err.contains("\nhint: "), "{err}");
}

#[tokio::test]
async fn refusals_of_the_node_are_shown() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let (code, _, err) = cluster.run(&["reset", "web"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("the domain is shutting down"), "{err}");
    let (code, out, _) = cluster.run(&["soft-reboot", "web"]).await;
    assert_eq!((code, out.as_str()), (0, "VMI web was scheduled to soft-reboot\n"));
}

#[tokio::test]
async fn what_the_agent_tells_is_printed() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &["AgentConnected"]).await;
    let (code, out, _) = cluster.run(&["userlist", "web"]).await;
    assert_eq!(code, 0);
    let users: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(users["items"][0]["userName"], "root");
    let (_, out, _) = cluster.run(&["userlist", "vmi/web", "-o", "yaml"]).await;
    assert!(out.contains("userName: root"), "{out}");
}

#[tokio::test]
async fn versions_of_both_sides() {
    let cluster = Cluster::start().await;
    let (code, out, _) = cluster.run(&["version"]).await;
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("Client Version: version.Info{GitVersion:\"v1.9.0+ferrovirt."), "{out}");
    assert!(lines[1].starts_with("Server Version: version.Info{GitVersion:\"v1.9.0+ferrovirt."), "{out}");
}

#[tokio::test]
async fn a_cluster_that_is_away_is_named() {
    let cluster = Cluster::start().await;
    let (code, out, err) = cluster.run(&["version", "--server", "http://127.0.0.1:1"]).await;
    assert_eq!(code, 1);
    assert!(out.starts_with("Client Version: "), "{out}");
    assert!(err.contains("cannot reach the cluster at http://127.0.0.1:1/"), "{err}");
    assert!(err.contains("hint: is the cluster up?"), "{err}");
}

#[tokio::test]
async fn wrong_words_are_refused_before_the_cluster_is_asked() {
    let cluster = Cluster::start().await;
    let (code, _, err) = cluster.run(&["stop", "web", "--force"]).await;
    assert_eq!((code, err.as_str()), (1, "Must both use --force=true and set --grace-period.\n"));
    let (code, _, err) = cluster.run(&["pause", "pod", "web"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("unsupported resource type 'pod'"), "{err}");
    assert_eq!(cluster.run(&["port-forward", "web", "80"]).await.0, 1);
    assert_eq!(cluster.run(&["nonsense"]).await.0, 2);
}
