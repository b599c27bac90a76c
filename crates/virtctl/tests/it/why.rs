//! `virtctl why` on objects of a real API server.

use serde_json::{Value, json};

use crate::fixture::Cluster;

#[tokio::test]
async fn a_missing_claim_and_a_healthy_guest() {
    let cluster = Cluster::start().await;
    let (code, out, err) = cluster.run(&["why", "web"]).await;
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.starts_with("VM default/web: there is no virtual machine of this name"), "{out}");

    let guest = json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create("kubevirt.io", "virtualmachineinstances", guest).await;
    let (code, out, err) = cluster.run(&["why", "vmi/db", "-o", "json"]).await;
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    let verdict: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(verdict["blocker"]["reason"], "ClaimMissing");
    assert_eq!(verdict["blocker"]["object"], "PersistentVolumeClaim default/data");

    cluster.guest("web", "Running", &["Ready"]).await;
    let node = json!({"metadata": {"name": "node1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.create("", "nodes", node).await;
    let (code, out, _) = cluster.run(&["why", "vmi/web/default"]).await;
    assert_eq!((code, out.lines().next().unwrap()), (0, "VMI default/web is healthy."), "{out}");
}
