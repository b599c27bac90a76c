//! Volumes as containers see them, devices, limits, and what happens when something is missing.

use ferrovirt_kubernetes::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use ferrovirt_node::sources::Image;

use crate::harness::{Cluster, shell};

fn waiting(pod: &Pod) -> Option<(String, String)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses[0].state.as_ref()?.waiting.clone()?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

/// A pod with one container that has all of these mounted at `/<name>`.
fn with_volumes(script: &str, volumes: &Value) -> Value {
    let mut spec = shell(script);
    let mounts = volumes.as_array().unwrap().iter();
    let mounts = mounts.map(
        |volume| json!({"name": volume["name"], "mountPath": format!("/mnt/{}", volume["name"].as_str().unwrap())}),
    );
    spec["containers"][0]["volumeMounts"] = mounts.collect();
    spec["volumes"] = volumes.clone();
    spec
}

async fn make<K>(cluster: &Cluster, value: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(cluster.client());
    api.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
}

#[tokio::test]
async fn every_kind_of_volume_has_the_right_content() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    let tree = cluster.path().join("tree");
    std::fs::create_dir_all(tree.join("disk")).unwrap();
    std::fs::write(tree.join("disk/file"), "from-image").unwrap();
    let image = Image { root: tree.clone(), ..Image::default() };
    cluster.images.images.lock().unwrap().push(("example/disk:1".to_owned(), image));
    make::<ConfigMap>(&cluster, json!({"metadata": {"name": "map"}, "data": {"key": "from-map"}})).await;
    make::<Secret>(&cluster, json!({"metadata": {"name": "secret"}, "stringData": {"user": "from-secret"}})).await;
    let script = "cat /mnt/map/key /mnt/secret/user /mnt/all/sub/k /mnt/down/labels /mnt/image/disk/file; \
        touch /mnt/image/x || echo image-read-only; touch /mnt/plain/x && echo plain-writable; \
        stat -c '%g %a' /mnt/plain; grep ' /mnt/memory ' /proc/mounts; touch /usr/x || echo usr-read-only; touch /tmp/x /var/x /run/x && echo private";
    let volumes = json!([
        {"name": "map", "configMap": {"name": "map"}},
        {"name": "secret", "secret": {"secretName": "secret", "defaultMode": 0o400}},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "secret", "items": [{"key": "user", "path": "sub/k"}]}},
            {"serviceAccountToken": {"path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "optional": true}},
        ]}},
        {"name": "down", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"name": "image", "image": {"reference": "example/disk:1", "pullPolicy": "IfNotPresent"}},
        {"name": "plain", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "absent", "secret": {"secretName": "no", "optional": true}},
    ]);
    let mut spec = with_volumes(script, &volumes);
    spec["securityContext"] = json!({"fsGroup": 107});
    cluster.run("reader", spec).await;
    let pod = cluster.until_phase("reader", "Succeeded").await;
    let log = cluster.log(&pod, "main");
    for wanted in [
        "from-mapfrom-secretfrom-secretdefaultfrom-image",
        "image-read-only",
        "plain-writable",
        "107 2777",
        "tmpfs",
        "usr-read-only",
        "private",
    ] {
        assert!(log.contains(wanted), "{wanted} is not in:\n{log}");
    }
    cluster.delete("reader", 0).await;
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn claims_are_directories_or_devices() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    let (directory, file) = (cluster.path().join("claim"), cluster.path().join("disk.raw"));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(&file, vec![b'z'; 1 << 20]).unwrap();
    for (name, path, mode) in [("files", &directory, "Filesystem"), ("block", &file, "Block")] {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
                "storageClassName": "", "hostPath": {"path": path},
            },
        }))
        .unwrap();
        let volumes: Api<PersistentVolume> = Api::all(cluster.client());
        volumes.create(&PostParams::default(), &volume).await.unwrap();
        make::<PersistentVolumeClaim>(
            &cluster,
            json!({
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": "", "volumeName": name,
                    "resources": {"requests": {"storage": "1Mi"}},
                },
            }),
        )
        .await;
    }
    let mut spec = shell(
        "id; head -c 3 /dev/vol; echo; echo made > /files/by-pod; echo new | dd of=/dev/vol conv=notrunc; blockdev --getsize64 /dev/vol; dd if=/dev/loop-control of=/dev/null || echo no-others",
    );
    spec["securityContext"] = json!({"fsGroup": 107, "runAsUser": 107, "runAsGroup": 107});
    spec["volumes"] = json!([
        {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
        {"name": "vol", "persistentVolumeClaim": {"claimName": "block"}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "files", "mountPath": "/files"}]);
    spec["containers"][0]["volumeDevices"] = json!([{"name": "vol", "devicePath": "/dev/vol"}]);
    cluster.run("claims", spec).await;
    let pod = cluster.until_phase("claims", "Succeeded").await;
    let log = cluster.log(&pod, "main");
    for wanted in ["zzz", "1048576", "no-others"] {
        assert!(log.contains(wanted), "{wanted} is not in:\n{log}");
    }
    assert_eq!(std::fs::read_to_string(directory.join("by-pod")).unwrap(), "made\n");
    cluster.delete("claims", 0).await;
    cluster.until_traces(&before).await;
    assert!(std::fs::read(&file).unwrap().starts_with(b"new\nzz"));
}

#[tokio::test]
async fn a_pod_waits_for_what_is_missing_and_says_for_what() {
    let cluster = Cluster::start().await;
    cluster
        .run("early", with_volumes("cat /mnt/late/key", &json!([{"name": "late", "secret": {"secretName": "late"}}])))
        .await;
    let pod =
        cluster.until("early", "waiting", |pod| waiting(pod).is_some_and(|(_, message)| !message.is_empty())).await;
    let (reason, message) = waiting(&pod).unwrap();
    assert_eq!(reason, "ContainerCreating");
    assert!(message.contains("secret \"late\" not found"), "{message}");
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let events = events.list(&ListParams::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("FailedMount")));
    make::<Secret>(&cluster, json!({"metadata": {"name": "late"}, "stringData": {"key": "at-last"}})).await;
    let pod = cluster.until_phase("early", "Succeeded").await;
    assert!(cluster.log(&pod, "main").contains("at-last"));
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let cluster = Cluster::start().await;
    let mut spec = shell("true");
    spec["containers"][0]["image"] = json!("example/none:1");
    cluster.run("image", spec).await;
    let image = cluster
        .until("image", "waiting", |pod| waiting(pod).is_some_and(|(reason, _)| reason != "ContainerCreating"))
        .await;
    let (reason, message) = waiting(&image).unwrap();
    assert!(["ErrImagePull", "ImagePullBackOff"].contains(&reason.as_str()), "{reason}");
    assert_eq!(message, "no image example/none:1");
    let mut spec = shell("true");
    spec["containers"][0]["command"] = json!(["/no/such/program"]);
    cluster.run("program", spec).await;
    let program = cluster
        .until("program", "waiting", |pod| waiting(pod).is_some_and(|(reason, _)| reason != "ContainerCreating"))
        .await;
    let (reason, message) = waiting(&program).unwrap();
    assert_eq!(reason, "CreateContainerError");
    assert!(message.contains("/no/such/program"), "{message}");
    let mut spec = shell("true");
    spec["hostNetwork"] = json!(true);
    cluster.run("host", spec).await;
    let host = cluster.until_phase("host", "Failed").await;
    assert_eq!(host.0.status.unwrap().message.as_deref(), Some("this node runs no pods with hostNetwork"));
    let before = cluster.traces();
    cluster.delete("image", 0).await;
    cluster.delete("program", 0).await;
    cluster.delete("host", 0).await;
    assert_ne!(before, cluster.traces());
}

#[tokio::test]
async fn limits_devices_and_rights_hold_inside() {
    let cluster = Cluster::start().await;
    let mut spec = shell(
        "grep -E 'CapEff|CapBnd|NoNewPrivs|Groups' /proc/self/status; stat -c '%t %T %u %a' /dev/net/tun; ls -l /dev; \
         cat /proc/self/cgroup; hostname; cat /etc/hosts; x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo survived",
    );
    spec["hostname"] = json!("inner");
    spec["securityContext"] = json!({"fsGroup": 1234, "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true});
    spec["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    spec["containers"][0]["resources"] =
        json!({"limits": {"memory": "32Mi", "cpu": "1", "devices.kubevirt.io/tun": "1"}});
    cluster.run("limited", spec).await;
    let pod = cluster.until_phase("limited", "Failed").await;
    let log = cluster.log(&pod, "main");
    for wanted in
        ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "a c8 107 660", "inner", "1234"]
    {
        assert!(log.contains(wanted), "{wanted} is not in:\n{log}");
    }
    assert!(!log.contains("survived"));
    assert!(log.contains(&format!("/ferrovirt/{}/pod", cluster.config.name)), "{log}");
    let end = pod.0.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("OOMKilled")));
}

#[tokio::test]
async fn a_general_image_gets_a_writable_layer_of_its_own() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    let tree = cluster.path().join("tree");
    for directory in ["bin", "etc", "work"] {
        std::fs::create_dir_all(tree.join(directory)).unwrap();
    }
    std::fs::copy("/bin/busybox", tree.join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", tree.join("bin/sh")).unwrap();
    std::fs::write(tree.join("etc/passwd"), "app:x:77:78::/:/bin/sh\n").unwrap();
    let image = Image {
        root: tree.clone(),
        entrypoint: vec!["/bin/sh".into(), "-c".into()],
        command: vec!["busybox id; pwd; echo $FROM; echo x > /tmp-file || echo not-root; busybox ls /".into()],
        environment: vec!["FROM=image".into(), "PATH=/bin".into()],
        user: "app".into(),
        working_directory: "/work".into(),
        ..Image::default()
    };
    cluster.images.images.lock().unwrap().push(("example/app:1".to_owned(), image));
    let mut spec = shell("");
    spec["containers"] = json!([{"name": "main", "image": "example/app:1"}]);
    cluster.run("app", spec).await;
    let pod = cluster.until_phase("app", "Succeeded").await;
    let log = cluster.log(&pod, "main");
    for wanted in ["uid=77(app) gid=78", "/work", "image", "not-root"] {
        assert!(log.contains(wanted), "{wanted} is not in:\n{log}");
    }
    // Mount points of the container are in its own layer, not in the image.
    assert!(!tree.join("proc").exists());
    cluster.delete("app", 0).await;
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn probes_decide_about_readiness_and_life() {
    let cluster = Cluster::start().await;
    let mut spec = shell("while :; do sleep 0.1; done");
    spec["restartPolicy"] = json!("Always");
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["cat", "/run/shared/ready"]}, "periodSeconds": 1});
    spec["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["sh", "-c", "! cat /run/shared/sick"]}, "periodSeconds": 1, "failureThreshold": 1});
    spec["containers"][0]["volumeMounts"] = json!([{"name": "shared", "mountPath": "/run/shared"}]);
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    cluster.run("probed", spec).await;
    let pod = cluster.until_phase("probed", "Running").await;
    let ready = |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].ready;
    assert!(!ready(&pod));
    let uid = pod.metadata.uid.clone().unwrap();
    let shared = cluster.config.directory.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir/shared");
    std::fs::write(shared.join("ready"), "").unwrap();
    cluster.until("probed", "ready", ready).await;
    std::fs::remove_file(shared.join("ready")).unwrap();
    cluster.until("probed", "not ready", |pod| !ready(pod)).await;
    std::fs::write(shared.join("sick"), "").unwrap();
    let restarts = |pod: &Pod| pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count;
    cluster.until("probed", "restarted", |pod| restarts(pod) > 0).await;
    cluster.delete("probed", 0).await;
}

#[tokio::test]
async fn others_may_write_to_the_pod_without_the_node_fighting_them() {
    let cluster = Cluster::start().await;
    let mut spec = shell("while :; do sleep 0.1; done");
    spec["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
    cluster.run("gated", spec).await;
    let condition = |pod: &Pod, kind: &str| {
        let conditions = pod.status.as_ref().unwrap().conditions.clone().unwrap_or_default();
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.clone())
    };
    let pod = cluster.until_phase("gated", "Running").await;
    assert_eq!(condition(&pod, "Ready").as_deref(), Some("False"));
    let patch = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    cluster.pods().patch_status("gated", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let pod = cluster.until("gated", "ready", |pod| condition(pod, "Ready").as_deref() == Some("True")).await;
    assert_eq!(condition(&pod, "example.com/gate").as_deref(), Some("True"));
}
