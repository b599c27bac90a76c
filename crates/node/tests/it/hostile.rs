//! What a pod's author tries against the node.

use std::path::{Path, PathBuf};

use ferrovirt_kubernetes::Pod;
use ferrovirt_node::sources::Image;
use k8s_openapi::api::core::v1::ContainerStatus;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::harness::{Cluster, shell};

const MIB: u64 = 1024 * 1024;

/// Places of the machine that a test expects nothing at, removed if it finds something.
struct Untouched(Vec<PathBuf>);

impl Untouched {
    fn check(&self) {
        let found: Vec<_> = self.0.iter().filter(|path| path.symlink_metadata().is_ok()).collect();
        assert!(found.is_empty(), "made on the machine: {found:?}");
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_dir(path).or_else(|_| std::fs::remove_file(path));
        }
    }
}

/// Why the only container waits, once the runtime or the node has refused it.
async fn refusal(cluster: &Cluster, pod: &str) -> String {
    let waiting = |pod: &Pod| {
        let waiting = status(pod)?.state?.waiting?;
        waiting.message.filter(|_| waiting.reason.as_deref() != Some("ContainerCreating"))
    };
    waiting(&cluster.until(pod, "refused", |pod| waiting(pod).is_some()).await).unwrap()
}

fn status(pod: &Pod) -> Option<ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned()
}

/// The most memory that this process, in which the node runs, ever had.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many processes of the machine have this argument.
fn with_argument(argument: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes())).count()
}

#[tokio::test]
async fn last_words_of_gigabytes_are_not_read_whole() {
    let cluster = Cluster::start().await;
    let before = peak();
    let script = "truncate -s 4G /dev/termination-log; printf why >> /dev/termination-log; exit 1";
    cluster.run("wordy", shell(script)).await;
    let pod = cluster.until_phase("wordy", "Failed").await;
    let message = status(&pod).unwrap().state.unwrap().terminated.unwrap().message.unwrap();
    assert!(message.len() == 4096 && message.ends_with("why"), "{} bytes", message.len());
    // Other tests run in this process at the same time.
    assert!(peak() - before < 1024 * MIB, "{} MiB more", (peak() - before) / MIB);
}

#[tokio::test]
async fn a_probes_program_is_heard_in_part_and_ends_with_its_time() {
    let cluster = Cluster::start().await;
    let before = peak();
    // No other process of the machine has this argument.
    let mark = format!("86400.{}", std::process::id());
    let script = format!("echo >> /run/shared/count; head -c 1500000000 /dev/zero; sleep {mark}");
    let mut spec = shell("while :; do sleep 0.1; done");
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "timeoutSeconds": 3});
    spec["containers"][0]["volumeMounts"] = json!([{"name": "shared", "mountPath": "/run/shared"}]);
    spec["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    cluster.run("loud", spec).await;
    let pod = cluster.until_phase("loud", "Running").await;
    let shared = cluster.config.directory.join("pods").join(pod.metadata.uid.clone().unwrap());
    let count = shared.join("volumes/kubernetes.io~empty-dir/shared/count");
    for _ in 0..600 {
        if std::fs::metadata(&count).is_ok_and(|file| file.len() >= 4) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(std::fs::metadata(&count).unwrap().len() >= 4, "it was probed four times");
    assert!(with_argument(&mark) <= 2, "{} programs of earlier probes are still there", with_argument(&mark));
    assert!(peak() - before < 1024 * MIB, "{} MiB more", (peak() - before) / MIB);
    cluster.delete("loud", 0).await;
    assert_eq!(with_argument(&mark), 0);
}

#[tokio::test]
async fn a_container_has_no_way_to_the_machine() {
    let cluster = Cluster::start().await;
    // Whatever else it asks for that is not refused.
    let script = "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t' | tr '\\n' ' '; \
        mount -t tmpfs none /tmp 2>/dev/null && echo mounted; unshare -U true 2>/dev/null && echo unshared; \
        wc -c < /proc/slabinfo | grep -v '^0$'; \
        while :; do sleep 0.1; done";
    let mut spec = shell(script);
    spec["containers"][0]["securityContext"] = json!({
        "allowPrivilegeEscalation": true, "procMount": "Unmasked", "seccompProfile": {"type": "Unconfined"},
    });
    // A probe's program is held by the same.
    let probe = "grep -q '^NoNewPrivs:.1$' /proc/self/status && grep -q '^Seccomp:.2$' /proc/self/status";
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["sh", "-c", probe]}, "periodSeconds": 1});
    cluster.run("held", spec).await;
    let ready = |pod: &Pod| status(pod).is_some_and(|status| status.ready);
    let pod = cluster.until("held", "ready", ready).await;
    let said = cluster.log(&pod, "main");
    assert_eq!(said.trim(), "CapEff:00000000880405fb NoNewPrivs:1 Seccomp:2", "{said}");
    cluster.delete("held", 0).await;
}

#[tokio::test]
async fn what_a_container_must_not_have_is_refused() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    for capability in ["SYS_ADMIN", "DAC_READ_SEARCH", "ALL"] {
        for kind in ["containers", "initContainers"] {
            let mut spec = shell("true");
            spec[kind] = json!([spec["containers"][0].clone()]);
            spec[kind][0]["name"] = json!("bad");
            spec[kind][0]["securityContext"] = json!({"capabilities": {"add": [capability]}});
            cluster.run("bad", spec).await;
            let pod = cluster.until_phase("bad", "Failed").await;
            let status = pod.status.clone().unwrap();
            assert_eq!(status.reason.as_deref(), Some("NodeRejected"));
            assert!(status.message.unwrap().contains(capability));
            cluster.delete("bad", 0).await;
        }
    }
    let mut spec = shell("true");
    spec["securityContext"] = json!({"sysctls": [{"name": "net.ipv4.conf.all.forwarding", "value": "1"}]});
    cluster.run("bad", spec).await;
    let pod = cluster.until_phase("bad", "Failed").await;
    assert!(pod.status.clone().unwrap().message.unwrap().contains("net.ipv4.conf.all.forwarding"));
    cluster.delete("bad", 0).await;
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn a_probe_does_not_reach_the_machines_loopback() {
    let cluster = Cluster::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // The same port inside of the pod.
    let script = format!("while :; do busybox nc -l -p {port} -e true; done");
    let mut spec = shell(&script);
    spec["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1, "failureThreshold": 1});
    cluster.run("asking", spec).await;
    let ready = |pod: &Pod| status(pod).is_some_and(|status| status.ready);
    cluster.until("asking", "ready", ready).await;
    cluster.delete("asking", 0).await;
    // Nobody came here: if somebody had, it would be waiting.
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_probe_asks_the_pod_wherever_its_status_says_it_is() {
    let mut cluster = Cluster::start().await;
    let listen = |address: &str| {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    // Pods have this address in these tests.
    let pods = listen("127.0.0.1:0");
    let port = pods.local_addr().unwrap().port();
    let others = listen(&format!("127.0.0.2:{port}"));
    let mut spec = shell("while :; do sleep 0.1; done");
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": port}, "periodSeconds": 1});
    cluster.run("moved", spec).await;
    let ready = |pod: &Pod| status(pod).is_some_and(|status| status.ready);
    cluster.until("moved", "ready", ready).await;
    cluster.kill_node().await;
    while pods.accept().is_ok() {}
    let lie = json!({"status": {"podIP": "127.0.0.2", "podIPs": [{"ip": "127.0.0.2"}]}});
    cluster.pods().patch_status("moved", &PatchParams::default(), &Patch::Merge(lie)).await.unwrap();
    cluster.start_node();
    let asked = async {
        while pods.accept().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), asked).await.expect("the pod is probed");
    assert_eq!(others.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    cluster.delete("moved", 0).await;
}

#[tokio::test]
async fn an_images_users_are_not_looked_up_on_the_machine() {
    let cluster = Cluster::start().await;
    let tree = cluster.path().join("tree");
    for directory in ["bin", "etc"] {
        std::fs::create_dir_all(tree.join(directory)).unwrap();
    }
    std::fs::copy("/bin/busybox", tree.join("bin/busybox")).unwrap();
    let outside = cluster.path().join("outside");
    std::fs::write(&outside, "evil:x:4242:4242::/:/bin/sh\n").unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("etc/passwd")).unwrap();
    let image = Image {
        root: tree,
        entrypoint: vec!["/bin/busybox".into(), "id".into()],
        user: "evil".into(),
        ..Image::default()
    };
    cluster.images.images.lock().unwrap().push(("example/evil:1".to_owned(), image));
    let mut spec = shell("");
    spec["containers"] = json!([{"name": "main", "image": "example/evil:1"}]);
    cluster.run("evil", spec).await;
    let waits =
        |pod: &Pod| status(pod).and_then(|status| status.state?.waiting?.message).is_some_and(|m| m.contains("evil"));
    cluster.until("evil", "refused: nobody knows its user", waits).await;
    cluster.delete("evil", 0).await;
}

#[tokio::test]
async fn mount_points_below_the_machines_directories_stay_in_the_container() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    // No other run on the machine has this name.
    let mark = format!("fvtest-{}", std::process::id());
    let tree = cluster.config.directory.join("host-tree");
    let on_machine = ["/usr/local/share", "/usr/local/bin", "/usr/local"].map(|path| Path::new(path).join(&mark));
    let in_tree = ["etc", "", "opt/ferrovirt/bin"].map(|path| tree.join(path).join(&mark));
    let beside = cluster.config.binaries.join(&mark);
    let untouched = Untouched([on_machine.as_slice(), &in_tree, &[beside]].concat());
    let mut spec = shell(&format!(
        "pwd; echo words > /usr/local/bin/{mark}; ls -d /usr/local/share/{mark} /etc/{mark} /{mark} /opt/ferrovirt/bin/{mark}; \
         touch /usr/local/file /etc/file /file || echo read-only"
    ));
    let mount = |path: &str| json!({"name": "v", "mountPath": format!("{path}/{mark}")});
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    spec["containers"][0]["workingDir"] = json!(format!("/usr/local/{mark}"));
    spec["containers"][0]["terminationMessagePath"] = json!(format!("/usr/local/bin/{mark}"));
    spec["containers"][0]["volumeMounts"] = ["/usr/local/share", "/etc", "", "/opt/ferrovirt/bin"].map(mount).into();
    cluster.run("maker", spec).await;
    let pod = cluster.until_phase("maker", "Succeeded").await;
    let log = cluster.log(&pod, "main");
    for wanted in ["/usr/local/share/", "/etc/", "/opt/ferrovirt/bin/", "/usr/local/", "/"] {
        assert!(log.lines().any(|line| line == format!("{wanted}{mark}")), "{wanted} is not in:\n{log}");
    }
    assert!(log.contains("read-only"), "{log}");
    assert_eq!(status(&pod).unwrap().state.unwrap().terminated.unwrap().message.as_deref(), Some("words\n"));
    untouched.check();
    // Nor does another container see any of it.
    cluster
        .run("other", shell(&format!("ls -d /usr/local/*/{mark} /etc/{mark} /{mark} /opt/ferrovirt/bin/{mark}")))
        .await;
    let other = cluster.until_phase("other", "Failed").await;
    assert_eq!(cluster.log(&other, "main").matches("No such file").count(), 4, "{}", cluster.log(&other, "main"));
    for pod in ["maker", "other"] {
        cluster.delete(pod, 0).await;
    }
    untouched.check();
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn containers_see_our_programs_and_nothing_that_is_beside_them() {
    let cluster = Cluster::start().await;
    let binaries = &cluster.config.binaries;
    std::fs::copy("/bin/busybox", binaries.join("virt-launcher")).unwrap();
    std::fs::create_dir(binaries.join(".ssh")).unwrap();
    std::fs::write(binaries.join(".ssh/id_rsa"), "secret").unwrap();
    cluster
        .run("curious", shell("ls -A /opt/ferrovirt/bin; virt-launcher echo runs; cat /opt/ferrovirt/bin/.ssh/id_rsa"))
        .await;
    let pod = cluster.until_phase("curious", "Failed").await;
    let log = cluster.log(&pod, "main");
    assert!(log.starts_with("virt-launcher\n") && !log.contains("secret"), "{log}");
    cluster.delete("curious", 0).await;
}

#[tokio::test]
async fn an_images_links_lead_no_mount_point_out_of_its_container() {
    let cluster = Cluster::start().await;
    let (tree, outside) = (cluster.path().join("tree"), cluster.path().join("outside"));
    std::fs::create_dir_all(tree.join("bin")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::copy("/bin/busybox", tree.join("bin/busybox")).unwrap();
    let up = Path::new("../../../../../../../..").join(outside.strip_prefix("/").unwrap());
    let root = Path::new("/proc/self/root").join(outside.strip_prefix("/").unwrap());
    let first = Path::new("/proc/1/root").join(outside.strip_prefix("/").unwrap());
    let links: [(&str, &Path); 5] =
        [("absolute", &outside), ("up", &up), ("root", &root), ("first", &first), ("cwd", Path::new("/proc/self/cwd"))];
    for (name, target) in links {
        std::os::unix::fs::symlink(target, tree.join(name)).unwrap();
    }
    let image =
        Image { root: tree.clone(), entrypoint: vec!["/bin/busybox".into(), "true".into()], ..Image::default() };
    cluster.images.images.lock().unwrap().push(("example/links:1".to_owned(), image));
    for (name, _) in links {
        let mut spec = shell("");
        spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        spec["containers"] = json!([{
            "name": "main", "image": "example/links:1", "workingDir": format!("/{name}/directory"),
            "terminationMessagePath": format!("/{name}/words"),
            "volumeMounts": [{"name": "v", "mountPath": format!("/{name}/volume")}],
        }]);
        cluster.run(name, spec).await;
        let ended = |pod: &Pod| {
            status(pod).is_some_and(|status| {
                let state = status.state.unwrap_or_default();
                state.terminated.is_some()
                    || state.waiting.is_some_and(|w| w.reason.as_deref() == Some("CreateContainerError"))
            })
        };
        cluster.until(name, "run or refused", ended).await;
        cluster.delete(name, 0).await;
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 1 + links.len());
}

#[tokio::test]
async fn nothing_is_made_in_the_tree_of_an_image_that_others_use() {
    let cluster = Cluster::start().await;
    let before = cluster.traces();
    let tree = cluster.path().join("tree");
    std::fs::create_dir_all(tree.join("disk")).unwrap();
    std::os::unix::fs::symlink("/mnt/image", tree.join("again")).unwrap();
    let image = Image { root: tree.clone(), ..Image::default() };
    cluster.images.images.lock().unwrap().push(("example/disk:1".to_owned(), image));
    let inside = |path: &str| json!([{"name": "image", "mountPath": "/mnt/image"}, {"name": "v", "mountPath": path}]);
    let cases = [
        ("nested", inside("/mnt/image/made")),
        ("linked", inside("/mnt/image/again/made")),
        ("part", json!([{"name": "image", "mountPath": "/mnt/part", "subPath": "made"}])),
    ];
    for (name, mounts) in cases {
        let mut spec = shell("true");
        spec["volumes"] =
            json!([{"name": "image", "image": {"reference": "example/disk:1"}}, {"name": "v", "emptyDir": {}}]);
        spec["containers"][0]["volumeMounts"] = mounts;
        cluster.run(name, spec).await;
        let refusal = refusal(&cluster, name).await;
        assert!(refusal.contains("Read-only file system"), "{name}: {refusal}");
        cluster.delete(name, 0).await;
    }
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 2);
    cluster.until_traces(&before).await;
}

#[tokio::test]
async fn a_token_stays_in_its_volume() {
    let cluster = Cluster::start().await;
    let victim = cluster.path().join("victim");
    std::fs::write(&victim, "content").unwrap();
    let path = format!("../../../../../../../../../../..{}", victim.display());
    let mut spec = shell("true");
    spec["volumes"] = json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": path}}], "defaultMode": 0o777}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/mnt/token"}]);
    cluster.run("token", spec).await;
    let told = |pod: &Pod| status(pod).and_then(|s| s.state?.waiting?.message).is_some_and(|m| m.contains("leads out"));
    cluster.until("token", "refused", told).await;
    cluster.delete("token", 0).await;
    assert_eq!(std::fs::read(&victim).unwrap(), b"content");
}
