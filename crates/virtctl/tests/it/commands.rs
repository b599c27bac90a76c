//! Commands that ask once.

use ferrovirt_apiserver::internal::Place;
use serde_json::{Value, json};

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
    let users: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(users["items"][0]["userName"], "root");
    let (_, out, _) = cluster.run(&["userlist", "vmi/web", "-o", "yaml"]).await;
    assert!(out.contains("userName: root"), "{out}");
}

#[tokio::test]
async fn nobody_vouches_for_a_pod_without_a_yes() {
    let cluster = Cluster::start().await;
    cluster.guest("web", "Running", &["PodUnaccounted"]).await;
    let (code, _, err) = cluster.run(&["vouch", "vm", "web", "--yes"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("there is nothing to vouch for"), "{err}");
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let missing = |guest: &mut Value| guest["status"]["activePods"] = json!({"u1": "node1"});
    guests.change(&Place::new("default", "web"), "", missing).await.unwrap();
    let vouched =
        || guests.get("default", "web").unwrap()["metadata"]["annotations"]["ferrovirt.io/vouched-pods"].clone();
    let (code, _, err) = cluster.run(&["vouch", "vm", "web"]).await;
    assert_eq!(code, 1);
    assert!(err.contains("pod u1 on node node1") && err.contains("nothing was vouched for"), "{err}");
    assert_eq!(vouched(), Value::Null);
    let (code, out, err) = cluster.run(&["vouch", "vm", "web", "--yes"]).await;
    assert_eq!((code, out.as_str()), (0, "VMI web: one pod was vouched for\n"), "{err}");
    assert_eq!(vouched(), "u1");
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

/// A machine that is off.
async fn machine(cluster: &Cluster, strategy: &str) {
    let machine = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}},
    });
    cluster.create("kubevirt.io", "virtualmachines", machine).await;
}

fn strategy(cluster: &Cluster) -> Value {
    let machines = cluster.server.internal("kubevirt.io", "v1", "virtualmachines", "test").unwrap();
    machines.get("default", "web").unwrap()["spec"]["runStrategy"].clone()
}

#[tokio::test]
async fn a_machine_is_switched_on_and_off() {
    let cluster = Cluster::start().await;
    machine(&cluster, "Halted").await;
    let (code, out, _) = cluster.run(&["start", "web", "--dry-run"]).await;
    assert_eq!((code, out.as_str()), (0, "Dry Run execution\nVM web was scheduled to start\n"));
    assert_eq!(strategy(&cluster), "Halted");
    let (code, out, err) = cluster.run(&["start", "vm/web"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "VM web was scheduled to start\n", ""));
    assert_eq!(strategy(&cluster), "Always");
    let (code, out, err) = cluster.run(&["start", "web"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("Error starting VirtualMachine Operation cannot be fulfilled on virtualmachine"), "{err}");
    let (code, out, _) = cluster.run(&["stop", "web"]).await;
    assert_eq!((code, out.as_str()), (0, "VM web was scheduled to stop\n"));
    assert_eq!(strategy(&cluster), "Halted");
    let (code, _, err) = cluster.run(&["restart", "web"]).await;
    assert!(code == 1 && err.starts_with("error restarting VirtualMachine "), "{err}");
    let (code, _, err) = cluster.run(&["stop", "web", "--force", "--grace-period=0"]).await;
    assert!(code == 1 && err.starts_with("error force stopping VirtualMachine: "), "{err}");
    let (code, _, err) = cluster.run(&["start", "other"]).await;
    assert!(code == 1 && err.contains("not found") && err.contains("hint: "), "{err}");
}

#[tokio::test]
async fn a_migration_is_started_and_cancelled() {
    let cluster = Cluster::start().await;
    machine(&cluster, "Always").await;
    let (code, _, err) = cluster.run(&["migrate-cancel", "web"]).await;
    assert_eq!((code, err.as_str()), (1, "Found no migration to cancel for web\n"));
    let (code, _, err) = cluster.run(&["migrate", "web"]).await;
    assert!(code == 1 && err.starts_with("Error migrating VirtualMachine "), "{err}");
}

#[tokio::test]
async fn what_is_not_there_yet_is_said() {
    let cluster = Cluster::start().await;
    machine(&cluster, "Halted").await;
    let (code, _, err) = cluster.run(&["addvolume", "web", "--volume-name", "data"]).await;
    assert!(code == 1 && err.contains("Volume data is not a DataVolume or PersistentVolumeClaim"), "{err}");
    let (code, _, err) = cluster.run(&["removevolume", "web", "--volume-name", "data"]).await;
    assert!(code == 1 && err.starts_with("error removing volume, ") && err.contains("not supported yet"), "{err}");
}

#[tokio::test]
async fn a_machine_is_expanded_and_exposed() {
    let cluster = Cluster::start().await;
    machine(&cluster, "Halted").await;
    let (code, out, err) = cluster.run(&["expand", "--vm", "web"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("runStrategy: Halted"), "{out}");
    let (code, out, err) = cluster.run(&["expose", "vm", "web", "--name", "web-ssh", "--port", "22"]).await;
    assert_eq!((code, out.as_str()), (0, "Service web-ssh successfully created for vm web\n"), "{err}");
    let (_, out, _) = cluster.run(&["get", "service", "web-ssh", "-o", "jsonpath={.spec.selector}"]).await;
    assert_eq!(out, "{\"vm.kubevirt.io/name\":\"web\"}");
}

#[tokio::test]
async fn pictures_and_displays() {
    let cluster = Cluster::start().await;
    start_handler(cluster.directory.path());
    cluster.guest("web", "Running", &[]).await;
    let (code, out, err) = cluster.run(&["vnc", "screenshot", "web", "-f", "-"]).await;
    assert_eq!((code, out.as_str()), (0, "pixels"), "{err}");
    let (code, _, err) = cluster.run(&["vnc", "screenshot", "none", "-f", "-"]).await;
    assert!(code == 1 && err.starts_with("Can't access VMI none: "), "{err}");
}
