//! `virtctl migrate --watch` and `migrate-cancel` on objects of a real API server; the controllers' part is written by hand.

use std::time::Duration;

use ferrovirt_apiserver::internal::Place;
use serde_json::{Value, json};

use crate::fixture::Cluster;

const MIGRATIONS: &str = "virtualmachineinstancemigrations";

async fn machine(cluster: &Cluster) {
    let template = json!({"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}});
    let vm = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": template},
    });
    cluster.create("kubevirt.io", "virtualmachines", vm).await;
    cluster.guest("web", "Running", &["LiveMigratable"]).await;
}

/// The only migration there is.
async fn migration(cluster: &Cluster) -> Value {
    loop {
        let all = cluster.server.internal("kubevirt.io", "v1", MIGRATIONS, "test").unwrap().list(Some("default"));
        match all.into_iter().next() {
            Some(found) => return found,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn set(cluster: &Cluster, resource: &str, name: &str, field: &str, value: Value) {
    let objects = cluster.server.internal("kubevirt.io", "v1", resource, "test").unwrap();
    let change = |object: &mut Value| object["status"][field] = value.clone();
    // Only guests keep their status in the object itself.
    let part = if resource == MIGRATIONS { "status" } else { "" };
    objects.change(&Place::new("default", name), part, change).await.unwrap();
}

/// Asks for a move, lets it be shown half way, and ends it with a phase and a record.
async fn moved(end: &str, record: Value) -> (i32, String, String) {
    let cluster = Cluster::start().await;
    machine(&cluster).await;
    let child = cluster.command(&["migrate", "web", "--watch"]).spawn().unwrap();
    let migration = migration(&cluster).await;
    let (name, uid) = (migration["metadata"]["name"].as_str().unwrap(), &migration["metadata"]["uid"]);
    set(&cluster, MIGRATIONS, name, "phase", json!("Running")).await;
    let progress = json!({"percent": 40, "sentBytes": 41_943_040, "totalBytes": 104_857_600});
    let state = json!({"migrationUid": uid, "targetNode": "node2", "progress": progress});
    set(&cluster, "virtualmachineinstances", "web", "migrationState", state).await;
    // Nothing is shown for what takes less than a second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    set(&cluster, MIGRATIONS, name, "migrationState", record).await;
    set(&cluster, MIGRATIONS, name, "phase", json!(end)).await;
    let done = child.wait_with_output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[tokio::test]
async fn a_move_is_shown_until_it_has_ended() {
    let record = json!({
        "targetNode": "node2", "completed": true, "startTimestamp": "2026-05-01T12:00:00Z",
        "endTimestamp": "2026-05-01T12:00:03Z", "progress": {"percent": 100, "downtimeMs": 70},
    });
    let (code, out, err) = moved("Succeeded", record).await;
    assert_eq!(code, 0, "{err}");
    let told = "VM web was scheduled to migrate\nVM web moved to node2 in 3s; the guest stood still for 70 ms\n";
    assert_eq!(out, told);
    assert!(err.contains("web: Running to node2: 40%, 40 MiB sent of 100 MiB\n"), "{err}");
}

#[tokio::test]
async fn a_move_that_fails_ends_with_its_reason() {
    let record = json!({"failed": true, "failureReason": "the connection to the target was lost"});
    let (code, _, err) = moved("Failed", record).await;
    assert_eq!(code, 1);
    assert!(err.contains("failed: the connection to the target was lost"), "{err}");
}

#[tokio::test]
async fn a_move_is_cancelled_by_deleting_it() {
    let cluster = Cluster::start().await;
    machine(&cluster).await;
    let (code, _, err) = cluster.run(&["migrate-cancel", "web"]).await;
    assert_eq!((code, err.lines().next().unwrap()), (1, "Found no migration to cancel for web"));
    assert_eq!(cluster.run(&["migrate", "web"]).await.0, 0);
    let (code, out, err) = cluster.run(&["migrate-cancel", "web"]).await;
    assert_eq!((code, out.as_str()), (0, "VM web was scheduled to migrate-cancel\n"), "{err}");
    assert!(migration(&cluster).await["metadata"]["deletionTimestamp"].is_string());
}
