//! From creation to the last trace: running, status, restart of the node, deletion.

use ferrovirt_kubernetes::{Node, Pod};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ContainerStatus;
use kube::api::{Api, DeleteParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::harness::{Cluster, shell};

fn status(pod: &Pod) -> ContainerStatus {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone()
}

fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
    conditions.iter().find(|condition| condition.type_ == kind).unwrap().status.clone()
}

/// Process ids of the container's first process, by the file that the monitor writes.
fn pid(cluster: &Cluster, pod: &Pod) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let path = cluster.config.directory.join("pods").join(uid).join("containers/main/pid");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_pod_runs_is_reported_once_and_leaves_nothing() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    let mut changes = cluster.pods().watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    cluster.run("web", shell("trap 'echo asked; exit 3' TERM; id -u; while :; do sleep 0.1; done")).await;
    let pod = cluster.until_phase("web", "Running").await;
    assert!(status(&pod).ready);
    assert!(status(&pod).state.unwrap().running.is_some());
    for kind in ["Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled"] {
        assert_eq!(condition(&pod, kind), "True", "{kind}");
    }
    let report = pod.status.as_ref().unwrap();
    assert_eq!(report.host_ip.as_deref(), Some("192.0.2.7"));
    assert_eq!(report.pod_ip.as_deref(), Some("127.0.0.1"));
    assert_eq!(report.qos_class.as_deref(), Some("BestEffort"));
    // Created, then one status: nothing in between.
    let mut writes = 0;
    loop {
        let Some(Ok(WatchEvent::Added(seen) | WatchEvent::Modified(seen))) = changes.next().await else {
            panic!("the watch ended")
        };
        writes += 1;
        if seen.metadata.resource_version == pod.metadata.resource_version {
            break;
        }
    }
    assert_eq!(writes, 2);
    cluster.delete("web", 30).await;
    cluster.until_traces(&before).await;
    assert!(!cluster.config.directory.join("pods").join(pod.0.metadata.uid.unwrap()).exists());
}

#[tokio::test]
async fn exit_codes_and_last_words_become_the_pods_end() {
    let cluster = Cluster::start().await;
    cluster.run("bad", shell("echo why > /dev/termination-log; exit 7")).await;
    cluster.run("good", shell("exit 0")).await;
    let bad = cluster.until_phase("bad", "Failed").await;
    let end = status(&bad).state.unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref(), end.message.as_deref()), (7, Some("Error"), Some("why\n")));
    assert!(end.started_at.unwrap().0 <= end.finished_at.unwrap().0);
    let good = cluster.until_phase("good", "Succeeded").await;
    assert_eq!(status(&good).state.unwrap().terminated.unwrap().reason.as_deref(), Some("Completed"));
    assert_eq!(condition(&good, "Ready"), "False");
}

#[tokio::test]
async fn a_killed_node_takes_its_containers_up_again() {
    let mut cluster = Cluster::start().await;
    cluster.run("web", shell("while :; do sleep 0.1; done")).await;
    cluster.run("short", shell("while ! [ -e /tmp/never ]; do sleep 0.1; done & sleep 2; exit 5")).await;
    let pod = cluster.until_phase("web", "Running").await;
    cluster.until("short", "begun", |pod| pod.status.as_ref().is_some_and(|s| s.start_time.is_some())).await;
    let before = pid(&cluster, &pod);
    cluster.kill_node().await;
    cluster.start_node();
    // The end of a container that nobody watched is found by its monitor's file.
    let short = cluster.until_phase("short", "Failed").await;
    assert_eq!(status(&short).state.unwrap().terminated.unwrap().exit_code, 5);
    let after = cluster.until_phase("web", "Running").await;
    assert_eq!(pid(&cluster, &after), before);
    assert_eq!(status(&after).container_id, status(&pod).container_id);
    assert_eq!(status(&after).restart_count, 0);
    assert!(std::path::Path::new("/proc").join(before.trim()).exists());
}

#[tokio::test]
async fn a_node_that_starts_again_keeps_all_of_its_addresses() {
    let mut cluster = Cluster::start().await;
    for pod in ["first", "second"] {
        // Once a pod runs the node has registered itself.
        cluster.run(pod, shell("true")).await;
        cluster.until_phase(pod, "Succeeded").await;
        let node = Api::<Node>::all(cluster.client()).get(&cluster.config.name).await.unwrap();
        let addresses = node.0.status.unwrap().addresses.unwrap();
        let addresses: Vec<_> = addresses.into_iter().map(|one| (one.type_, one.address)).collect();
        let wanted = [("InternalIP", "192.0.2.7"), ("InternalIP", "::1"), ("Hostname", &cluster.config.name)];
        assert_eq!(addresses, wanted.map(|(kind, address)| (kind.to_owned(), address.to_owned())), "{pod}");
        cluster.kill_node().await;
        cluster.start_node();
    }
}

#[tokio::test]
async fn what_has_no_pod_any_more_is_cleaned_up_after_a_restart() {
    let mut cluster = Cluster::start().await;
    let before = cluster.traces();
    cluster.run("web", shell("while :; do sleep 0.1; done")).await;
    cluster.until_phase("web", "Running").await;
    cluster.kill_node().await;
    // Deleted by force while no node is there to see it.
    cluster.delete("web", 0).await;
    cluster.start_node();
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn a_container_that_ignores_the_request_is_killed_after_the_grace_period() {
    let cluster = Cluster::start().await;
    cluster.run("stubborn", shell("trap '' TERM; while :; do sleep 0.1; done")).await;
    let pod = cluster.until_phase("stubborn", "Running").await;
    let before = pid(&cluster, &pod);
    cluster.delete("stubborn", 1).await;
    assert!(!std::path::Path::new("/proc").join(before.trim()).exists());
}

#[tokio::test]
async fn init_containers_and_restarts_follow_the_policy() {
    let cluster = Cluster::start().await;
    let mut spec = shell("cat /shared/made; [ -e /shared/second ] && exit 0; touch /shared/second; exit 1");
    spec["restartPolicy"] = json!("OnFailure");
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    spec["initContainers"] = json!([{
        "name": "first", "image": "host.ferrovirt.io/usr", "command": ["/bin/sh", "-c", "echo from-init > /shared/made"],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }]);
    cluster.run("job", spec).await;
    let pod = cluster.until_phase("job", "Succeeded").await;
    assert_eq!(status(&pod).restart_count, 1);
    assert_eq!(status(&pod).last_state.unwrap().terminated.unwrap().exit_code, 1);
    assert!(cluster.log(&pod, "main").contains("from-init"));
    let init = &pod.status.as_ref().unwrap().init_container_statuses.as_ref().unwrap()[0];
    assert_eq!(init.state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_node_killed_while_it_starts_a_pod_starts_it_once() {
    let mut cluster = Cluster::start().await;
    let before = cluster.traces();
    for moment in [2, 6, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80] {
        let name = format!("killed-at-{moment}");
        let pod = cluster.run(&name, shell("while :; do sleep 0.1; done")).await;
        // Where the kill hits differs from run to run; what must hold afterwards does not.
        tokio::time::sleep(std::time::Duration::from_millis(moment)).await;
        cluster.kill_node().await;
        cluster.start_node();
        let running = cluster.until_phase(&name, "Running").await;
        assert_eq!(status(&running).restart_count, 0);
        let uid = pod.0.metadata.uid.unwrap();
        let monitors = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            line.contains("conmon") && line.contains(&uid)
        });
        assert_eq!(monitors.count(), 1, "killed after {moment} ms");
        if moment % 20 == 0 {
            cluster.kill_node().await;
            cluster.pods().delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
            cluster.start_node();
        } else {
            cluster.delete(&name, 0).await;
        }
    }
    cluster.until_traces(&before).await;
}
