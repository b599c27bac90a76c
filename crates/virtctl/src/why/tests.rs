//! Every failure that is known, and what is said about it: read the golden file as a whole.

use std::fmt::Write;

use serde_json::{Value, json};

use super::judge::judge;
use super::snapshot::{Moving, Named, Snapshot};

const NOW: &str = "2026-05-01T12:00:00Z";

/// A time that many seconds before now.
fn ago(seconds: i64) -> String {
    let now: jiff::Timestamp = NOW.parse().unwrap();
    jiff::Timestamp::from_second(now.as_second() - seconds).unwrap().to_string()
}

fn vm(strategy: &str, status: Value) -> Value {
    let finalizers = ["kubevirt.io/virtualMachineControllerFinalize"];
    let mut vm = json!({
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": ago(3600), "finalizers": finalizers},
        "spec": {"runStrategy": strategy, "template": {"spec": spec()}},
    });
    vm["status"] = status;
    vm
}

fn spec() -> Value {
    json!({
        "terminationGracePeriodSeconds": 30,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "a"}}],
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

fn vmi(phase: &str, conditions: Value) -> Value {
    let finalizers = ["kubevirt.io/foregroundDeleteVirtualMachine"];
    let mut vmi = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": ago(3500), "finalizers": finalizers,
        },
        "spec": spec(),
        "status": {
            "phase": phase, "nodeName": "n1",
            "phaseTransitionTimestamps": [{"phase": phase, "phaseTransitionTimestamp": ago(3400)}],
            "interfaces": [{"name": "default", "ipAddress": "10.0.0.7"}],
        },
    });
    vmi["status"]["conditions"] = conditions;
    vmi
}

fn pod(phase: &str) -> Value {
    json!({
        "metadata": {"name": "virt-launcher-web-x", "creationTimestamp": ago(3490)},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "conditions": [], "containerStatuses": [{"name": "compute", "image": "launcher:1", "state": {"running": {}}}]},
    })
}

fn node(ready: &str, heartbeat: i64) -> Value {
    json!({
        "metadata": {"name": "n1", "annotations": {"kubevirt.io/heartbeat": format!("\"{}\"", ago(heartbeat))}},
        "spec": {},
        "status": {"conditions": [condition("Ready", ready, "KubeletNotReady", "container runtime is down")]},
    })
}

fn warning(kind: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": "Warning", "reason": reason, "message": message, "lastTimestamp": ago(5),
        "involvedObject": {"kind": kind, "name": name},
    })
}

fn empty() -> Snapshot {
    Snapshot {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        now: NOW.parse().unwrap(),
        vm: None,
        vmi: None,
        pods: Vec::new(),
        migrations: Vec::new(),
        moving: Vec::new(),
        settings: None,
        target_node: None,
        node: None,
        budgets: Vec::new(),
        is_node_missing: false,
        claims: Vec::new(),
        data_volumes: Vec::new(),
        events: Vec::new(),
        unseen: Vec::new(),
    }
}

/// A machine that is meant to run and has no guest.
fn off(strategy: &str, status: Value) -> Snapshot {
    Snapshot { vm: Some(vm(strategy, status)), ..empty() }
}

/// A machine whose guest is in that phase on a good node.
fn on(phase: &str, conditions: Value) -> Snapshot {
    Snapshot {
        vm: Some(vm("Always", json!({"printableStatus": if phase == "Running" { "Running" } else { "Starting" }}))),
        vmi: Some(vmi(phase, conditions)),
        pods: vec![pod(if matches!(phase, "Running" | "Scheduled") { "Running" } else { "Pending" })],
        node: Some(node("True", 30)),
        ..empty()
    }
}

fn changed(mut snapshot: Snapshot, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    change(&mut snapshot);
    snapshot
}

/// A guest that waits for a pod with this status.
fn waiting_pod(change: impl FnOnce(&mut Value)) -> Snapshot {
    changed(on("Scheduling", json!([])), |seen| change(&mut seen.pods[0]))
}

fn named(name: &str, object: Option<Value>) -> Vec<Named> {
    vec![Named { name: name.to_owned(), volume: "root".to_owned(), object }]
}

fn machines() -> Vec<(&'static str, Snapshot)> {
    let failure = |message: &str| json!({"conditions": [condition("Failure", "True", "FailedCreate", message)]});
    let deleted = |finalizers: Value| {
        changed(off("Always", json!({})), |seen| {
            let metadata = &mut seen.vm.as_mut().unwrap()["metadata"];
            metadata["deletionTimestamp"] = json!(ago(20));
            metadata["finalizers"] = finalizers;
        })
    };
    let loops = json!({"printableStatus": "CrashLoopBackOff", "startFailure": {"consecutiveFailCount": 3, "retryAfterTimestamp": ago(-75)}});
    vec![
        ("there is none", empty()),
        ("halted", off("Halted", json!({"printableStatus": "Stopped"}))),
        ("manual and not started", off("Manual", json!({"printableStatus": "Stopped"}))),
        ("rerun on failure and shut down", off("RerunOnFailure", json!({"printableStatus": "Stopped"}))),
        ("waits for another cluster", off("WaitAsReceiver", json!({}))),
        (
            "crash loop",
            changed(off("Always", loops), |seen| {
                seen.events =
                    vec![warning("VirtualMachineInstance", "web", "SyncFailed", "disk root: the image is not qcow2")];
            }),
        ),
        ("not supported", off("Always", failure("spec.template.spec.domain.devices.tpm: not supported yet"))),
        ("quota", off("Always", failure("exceeded quota: small"))),
        ("refused for another reason", off("Always", failure("admission webhook \"x\" denied the request"))),
        (
            "recovery by hand",
            off("Always", json!({"conditions": [condition("ManualRecoveryRequired", "True", "", "volumes differ")]})),
        ),
        ("controller away", off("Always", json!({"printableStatus": "Stopped"}))),
        (
            "just created",
            changed(off("Always", json!({})), |seen| {
                seen.vm.as_mut().unwrap()["metadata"]["creationTimestamp"] = json!(ago(2));
            }),
        ),
        ("deletion held by our finalizer", deleted(json!(["kubevirt.io/virtualMachineControllerFinalize"]))),
        ("deletion held by a foreign finalizer", deleted(json!(["backup.example.com/wait"]))),
        (
            "deletion waits for the guest",
            changed(on("Running", json!([])), |seen| {
                seen.vm.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!(ago(20));
                seen.vmi.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!(ago(20));
            }),
        ),
    ]
}

fn disks() -> Vec<(&'static str, Snapshot)> {
    let unbound = |class: Value| json!({"spec": {"storageClassName": class}, "status": {"phase": "Pending"}});
    let data = |status: Value| Some(json!({"status": status}));
    let starting = || off("Always", json!({"printableStatus": "Provisioning"}));
    vec![
        ("claim missing", changed(on("Pending", json!([])), |seen| seen.claims = named("disk", None))),
        (
            "claim lost",
            changed(starting(), |seen| seen.claims = named("disk", Some(json!({"status": {"phase": "Lost"}})))),
        ),
        (
            "claim unbound",
            changed(waiting_pod(|_| ()), |seen| {
                seen.claims = named("disk", Some(unbound(json!("fast"))));
                seen.events = vec![warning("PersistentVolumeClaim", "disk", "ProvisioningFailed", "no space")];
            }),
        ),
        (
            "claim without a class",
            changed(waiting_pod(|_| ()), |seen| seen.claims = named("disk", Some(unbound(Value::Null)))),
        ),
        ("data volume missing", changed(starting(), |seen| seen.data_volumes = named("disk", None))),
        (
            "data volume failed",
            changed(starting(), |seen| seen.data_volumes = named("disk", data(json!({"phase": "Failed"})))),
        ),
        (
            "data volume in error",
            changed(starting(), |seen| {
                let conditions = json!([condition("Running", "False", "Error", "401 Unauthorized")]);
                seen.data_volumes = named("disk", data(json!({"phase": "ImportInProgress", "conditions": conditions})));
            }),
        ),
        (
            "data volume on its way",
            changed(starting(), |seen| {
                seen.data_volumes = named("disk", data(json!({"phase": "ImportInProgress", "progress": "42.0%"})));
            }),
        ),
        (
            "data volume without an importer",
            changed(starting(), |seen| seen.data_volumes = named("disk", data(json!({})))),
        ),
    ]
}

fn pods() -> Vec<(&'static str, Snapshot)> {
    let unplaced = |message: &'static str| {
        waiting_pod(move |pod| {
            pod["spec"] = json!({});
            pod["status"] = json!({"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable", message)]});
        })
    };
    let container = |reason: &'static str, message: &'static str| {
        waiting_pod(move |pod| {
            pod["status"]["containerStatuses"] = json!([{"name": "volume-root", "image": "r.example/os:1", "state": {"waiting": {"reason": reason, "message": message}}}]);
        })
    };
    let event = |reason: &'static str, message: &'static str| {
        changed(waiting_pod(|pod| pod["status"]["containerStatuses"] = json!([])), |seen| {
            seen.events = vec![warning("Pod", "virt-launcher-web-x", reason, message)];
        })
    };
    let unsynchronized = |reason: &str, message: &str| {
        changed(on("Pending", json!([condition("Synchronized", "False", reason, message)])), |seen| seen.pods.clear())
    };
    vec![
        ("no memory", unplaced("0/3 nodes are available: 3 Insufficient memory.")),
        ("no matching node", unplaced("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")),
        ("tainted", unplaced("0/1 nodes are available: 1 node(s) had untolerated taint {gpu: }.")),
        (
            "no scheduler",
            waiting_pod(|pod| {
                pod["spec"] = json!({});
                pod["status"] = json!({"phase": "Pending"});
            }),
        ),
        ("image cannot be pulled", container("ErrImagePull", "401 Unauthorized")),
        (
            "image pull back-off",
            container("ImagePullBackOff", "volume \"root\": failed to pull image \"r.example/os:1\": no route to host"),
        ),
        ("secret missing", container("CreateContainerConfigError", "secret \"cloud\" not found")),
        ("volume cannot be mounted", event("FailedMount", "Unable to attach or mount volumes: root")),
        ("no sandbox", event("FailedCreatePodSandBox", "plugin type=\"bridge\" failed")),
        (
            "pod evicted",
            waiting_pod(|pod| {
                pod["status"] =
                    json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
            }),
        ),
        (
            "pod ended",
            waiting_pod(|pod| {
                pod["status"]["phase"] = json!("Failed");
                pod["status"]["containerStatuses"] =
                    json!([{"name": "compute", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]);
            }),
        ),
        ("pod not made", changed(on("Pending", json!([])), |seen| seen.pods.clear())),
        ("pod refused: not supported", unsynchronized("FailedCreate", "hostDevices: not supported yet")),
        ("pod refused: quota", unsynchronized("FailedCreate", "pods \"x\" is forbidden: exceeded quota: small")),
        ("pod refused: claim", unsynchronized("FailedPvcNotFound", "PVC shop/disk does not exist")),
        ("processors not guaranteed", unsynchronized("FailedGuaranteeResources", "the pod's QoS class is Burstable")),
        ("pod starts", waiting_pod(|_| ())),
    ]
}

fn guests() -> Vec<(&'static str, Snapshot)> {
    let told = |message: &str| {
        on("Scheduled", json!([condition("Synchronized", "False", "Synchronizing with the Domain failed.", message)]))
    };
    let failed = |message: &str| on("Failed", json!([condition("Synchronized", "False", "", message)]));
    let ready = || condition("Ready", "True", "", "");
    let with_probe = |probe: Value, conditions: Value| {
        changed(on("Running", conditions), |seen| seen.vmi.as_mut().unwrap()["spec"]["readinessProbe"] = probe)
    };
    let leaving = |seconds: i64, phase: &str| {
        changed(on(phase, json!([])), |seen| {
            seen.vmi.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!(ago(seconds));
        })
    };
    vec![
        ("node not ready", changed(on("Running", json!([ready()])), |seen| seen.node = Some(node("False", 30)))),
        ("node dead", changed(on("Running", json!([ready()])), |seen| seen.node = Some(node("Unknown", 900)))),
        (
            "node gone",
            changed(on("Running", json!([ready()])), |seen| (seen.node, seen.is_node_missing) = (None, true)),
        ),
        ("virt-handler silent", changed(on("Scheduled", json!([])), |seen| seen.node = Some(node("True", 400)))),
        ("broken image", told("disk root: the image is not qcow2")),
        ("node does not support", told("CPU mode host-passthrough is not supported by hypervisor")),
        ("start fails", told("libvirt: internal error")),
        ("handed over", on("Scheduled", json!([]))),
        ("paused", on("Running", json!([condition("Paused", "True", "PausedByUser", "VMI was paused by user")]))),
        (
            "paused by an error",
            on("Running", json!([condition("Paused", "True", "PausedIOError", "low-level IO error detected")])),
        ),
        ("paused by a migration", on("Running", json!([condition("Paused", "True", "PausedByMigrationMonitor", "")]))),
        ("out of sync", on("Running", json!([condition("Synchronized", "False", "", "cannot plug a processor")]))),
        ("agent missing", with_probe(json!({"guestAgentPing": {}}), json!([condition("Ready", "False", "", "")]))),
        (
            "probe fails",
            changed(
                with_probe(
                    json!({"tcpSocket": {"port": 80}}),
                    json!([condition("Ready", "False", "ContainersNotReady", "")]),
                ),
                |seen| {
                    seen.events = vec![warning(
                        "Pod",
                        "virt-launcher-web-x",
                        "Unhealthy",
                        "dial tcp 10.0.0.7:80: connection refused",
                    )];
                },
            ),
        ),
        (
            "no address",
            changed(on("Running", json!([ready()])), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["interfaces"] = json!([]);
            }),
        ),
        ("panicked", failed("the guest panicked")),
        (
            "failed and tried again",
            changed(failed("disk root: no such file"), |seen| {
                seen.vm = Some(vm(
                    "Always",
                    json!({"printableStatus": "CrashLoopBackOff", "startFailure": {"consecutiveFailCount": 1, "retryAfterTimestamp": ago(-12)}}),
                ));
            }),
        ),
        (
            "pod vanished",
            changed(on("Failed", json!([])), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["reason"] = json!("PodNotExists");
            }),
        ),
        ("shut itself down", on("Succeeded", json!([]))),
        ("stopping", leaving(10, "Running")),
        ("stopping for too long", leaving(100, "Running")),
        ("ended, pod stays", leaving(10, "Succeeded")),
        ("ended, finalizers stay", changed(leaving(10, "Failed"), |seen| seen.pods.clear())),
        ("healthy", on("Running", json!([ready(), condition("AgentConnected", "True", "", "")]))),
        (
            "healthy with notes",
            changed(on("Running", json!([ready(), condition("SoftwareEmulation", "True", "", "")])), |seen| {
                seen.vm.as_mut().unwrap()["status"]["conditions"] =
                    json!([condition("RestartRequired", "True", "", "memory was changed")]);
                seen.node.as_mut().unwrap()["spec"]["unschedulable"] = json!(true);
                seen.unseen.push("you may not read events: trouble there is not seen".to_owned());
            }),
        ),
        ("guest without a machine", changed(on("Running", json!([ready()])), |seen| seen.vm = None)),
    ]
}

/// A migration in that phase for so many seconds.
fn migration(phase: &str, seconds: i64) -> Value {
    json!({
        "metadata": {"name": "move-1", "namespace": "shop", "uid": "m1", "creationTimestamp": ago(seconds + 3)},
        "spec": {"vmiName": "web"},
        "status": {"phase": phase, "phaseTransitionTimestamps": [{"phase": phase, "phaseTransitionTimestamp": ago(seconds)}]},
    })
}

/// A good guest with a migration in that phase, and what its object says about the move.
fn moves_in(phase: &str, seconds: i64, state: Value) -> Snapshot {
    let conditions = json!([condition("Ready", "True", "", ""), condition("LiveMigratable", "True", "", "")]);
    changed(on("Running", conditions), |seen| {
        seen.migrations = vec![migration(phase, seconds)];
        let mut target = node("True", 30);
        target["metadata"]["name"] = json!("n2");
        seen.target_node = Some(target);
        if state.is_object() {
            let record = &mut seen.vmi.as_mut().unwrap()["status"]["migrationState"];
            *record = state;
            record["migrationUid"] = json!("m1");
            record["sourceNode"] = json!("n1");
            record["targetNode"] = json!("n2");
        }
    })
}

fn target_pod(seen: &mut Snapshot, status: &Value) {
    let labels = json!({"kubevirt.io/migrationJobUID": "m1"});
    let pod = json!({
        "metadata": {"name": "virt-launcher-web-y", "creationTimestamp": ago(40), "labels": labels},
        "spec": {}, "status": status,
    });
    seen.pods.insert(0, pod);
}

fn moving(count: usize, node: &str) -> Vec<Moving> {
    let one = |i| Moving { uid: format!("o{i}"), guest: format!("shop/db-{i}"), node: node.to_owned() };
    (0..count).map(one).collect()
}

fn failed_move(reason: &str) -> Value {
    let mut failed = migration("Failed", 100);
    failed["metadata"]["name"] = json!("move-0");
    failed["status"]["migrationState"] = json!({"failed": true, "failureReason": reason, "endTimestamp": ago(100)});
    failed
}

fn moves() -> Vec<(&'static str, Snapshot)> {
    [waiting_moves(), moves_on_their_way(), evacuations()].concat()
}

/// The record of an earlier move that failed without the source's word.
fn unsettled() -> Value {
    let reason = "node n2, which the guest moved to, was taken out of service";
    json!({
        "migrationUid": "m0", "sourceNode": "n1", "targetNode": "n2", "failed": true, "failureReason": reason,
        "endTimestamp": ago(100),
    })
}

fn waiting_moves() -> Vec<(&'static str, Snapshot)> {
    let pending = || moves_in("Pending", 30, Value::Null);
    vec![
        ("move waits for a slot of the cluster", changed(pending(), |seen| seen.moving = moving(5, "n9"))),
        (
            "move waits for a slot of its node",
            changed(pending(), |seen| {
                seen.moving = moving(1, "n1");
                seen.settings = Some(json!({"parallelOutboundMigrationsPerNode": 1}));
            }),
        ),
        (
            "move waits after failures",
            changed(pending(), |seen| {
                seen.migrations.push(failed_move("the connection to the target was lost"));
                let words = "backing off for 40 s after 2 failures";
                seen.events = vec![warning("VirtualMachineInstance", "web", "MigrationBackoff", words)];
            }),
        ),
        (
            "move waits for another",
            changed(pending(), |seen| {
                let mut older = migration("Running", 100);
                older["metadata"]["name"] = json!("move-0");
                seen.migrations.push(older);
            }),
        ),
        (
            "move refused by a quota",
            changed(pending(), |seen| {
                let told = condition("migrationRejectedByResourceQuota", "True", "", "exceeded quota: small");
                seen.migrations[0]["status"]["conditions"] = json!([told]);
            }),
        ),
        (
            "move of a guest that its node has not judged",
            changed(pending(), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["conditions"] = json!([condition("Ready", "True", "", "")]);
            }),
        ),
        (
            "move after one that has not ended",
            changed(pending(), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["migrationState"] =
                    json!({"migrationUid": "m0", "sourceNode": "n1"});
            }),
        ),
        (
            "move after one whose source is not settled",
            changed(pending(), |seen| seen.vmi.as_mut().unwrap()["status"]["migrationState"] = unsettled()),
        ),
        (
            "move handed off after one whose source is not settled",
            changed(moves_in("Scheduled", 40, Value::Null), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["migrationState"] = unsettled();
            }),
        ),
        ("move not begun", pending()),
        ("healthy, its move just asked for", moves_in("Pending", 2, Value::Null)),
        (
            "target pod unschedulable",
            changed(moves_in("Scheduling", 40, Value::Null), |seen| {
                let words =
                    "0/2 nodes are available: 1 Insufficient memory, 1 node(s) didn't match pod anti-affinity rules.";
                let told = condition("PodScheduled", "False", "Unschedulable", words);
                target_pod(seen, &json!({"phase": "Pending", "conditions": [told]}));
            }),
        ),
        (
            "target pod cannot fetch an image",
            changed(moves_in("Scheduling", 40, Value::Null), |seen| {
                let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "no route to host"}});
                target_pod(
                    seen,
                    &json!({"phase": "Pending", "containerStatuses": [{"name": "compute", "image": "l:1", "state": waiting}]}),
                );
                seen.pods[0]["spec"]["nodeName"] = json!("n2");
            }),
        ),
        ("target pod missing", moves_in("Scheduling", 40, Value::Null)),
        ("move not handed off", moves_in("Scheduled", 40, Value::Null)),
    ]
}

fn moves_on_their_way() -> Vec<(&'static str, Snapshot)> {
    let copying = |seconds: i64, progress: Value, configuration: Value| {
        let state = json!({
            "targetNodeAddress": "172.20.0.3", "startTimestamp": ago(seconds), "progress": progress,
            "migrationConfiguration": configuration,
        });
        moves_in("Running", seconds, state)
    };
    let doubt = "in doubt: n1 has told n2 to run the guest, and has no answer (the connection to the target was lost)";
    let note = "memory changes faster (180 MiB/s) than it is sent (90 MiB/s)";
    vec![
        ("target does not get ready", moves_in("PreparingTarget", 90, json!({}))),
        (
            "target's node is dead",
            changed(moves_in("PreparingTarget", 5, json!({})), |seen| {
                seen.target_node.as_mut().unwrap()["status"]["conditions"][0]["status"] = json!("Unknown");
            }),
        ),
        (
            "target's handler is silent",
            changed(moves_in("Running", 30, json!({"startTimestamp": ago(30)})), |seen| {
                let mut silent = node("True", 500);
                silent["metadata"]["name"] = json!("n2");
                seen.target_node = Some(silent);
            }),
        ),
        ("source does not start", moves_in("TargetReady", 40, json!({"targetNodeAddress": "172.20.0.3"}))),
        ("healthy, moving", copying(5, json!({"percent": 40, "totalBytes": 1 << 28}), json!({}))),
        (
            "move does not converge",
            copying(50, json!({"percent": 70, "message": note, "totalBytes": 1 << 28}), json!({})),
        ),
        (
            "move does not converge with all allowed",
            copying(
                50,
                json!({"percent": 70, "message": note, "totalBytes": 1 << 28}),
                json!({"allowAutoConverge": true, "allowPostCopy": true, "allowWorkloadDisruption": true}),
            ),
        ),
        (
            "move is too slow by its limit",
            copying(
                50,
                json!({"percent": 70, "message": note, "totalBytes": 1 << 28}),
                json!({"bandwidthPerMigration": "10Mi", "allowAutoConverge": true}),
            ),
        ),
        ("move in doubt", copying(5, json!({"percent": 100, "message": doubt, "totalBytes": 1 << 28}), json!({}))),
        (
            "move in doubt, and the target's node is dead",
            changed(copying(5, json!({"percent": 100, "message": doubt}), json!({})), |seen| {
                seen.target_node.as_mut().unwrap()["status"]["conditions"][0]["status"] = json!("Unknown");
            }),
        ),
        (
            "move in doubt that is to stop",
            changed(copying(90, json!({"percent": 100, "message": doubt, "totalBytes": 1 << 28}), json!({})), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["migrationState"]["abortRequested"] = json!(true);
            }),
        ),
        ("move overdue", copying(600, json!({"percent": 100, "totalBytes": 1 << 28}), json!({}))),
        (
            "healthy, moving for as long as it takes",
            copying(9000, json!({"percent": 90}), json!({"completionTimeoutPerGiB": 0})),
        ),
        (
            "healthy, moving by post-copy",
            changed(copying(600, json!({"percent": 90}), json!({})), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["migrationState"]["mode"] = json!("PostCopy");
            }),
        ),
        (
            "source's handler is silent while it moves",
            changed(copying(400, json!({"percent": 40}), json!({})), |seen| seen.node = Some(node("True", 390))),
        ),
        (
            "move that is prepared does not stop",
            changed(moves_in("PreparingTarget", 90, json!({"abortRequested": true})), |seen| {
                seen.migrations[0]["metadata"]["deletionTimestamp"] = json!(ago(70));
            }),
        ),
        (
            "move does not stop",
            changed(copying(90, json!({"percent": 40, "totalBytes": 1 << 28}), json!({})), |seen| {
                seen.vmi.as_mut().unwrap()["status"]["migrationState"]["abortRequested"] = json!(true);
            }),
        ),
        (
            "healthy, its last move failed",
            changed(on("Running", json!([condition("Ready", "True", "", "")])), |seen| {
                seen.migrations = vec![failed_move("it did not end within 38 s")];
            }),
        ),
        (
            "healthy, cannot be moved",
            on(
                "Running",
                json!([
                    condition("Ready", "True", "", ""),
                    condition(
                        "LiveMigratable",
                        "False",
                        "DisksNotLiveMigratable",
                        "volume data: the claim disk is not ReadWriteMany"
                    ),
                ]),
            ),
        ),
        (
            "a pod vanished, and nobody knows whether its guest runs",
            changed(
                on(
                    "Running",
                    json!([
                        condition("Ready", "False", "PodNotExists", "the launcher pod does not exist"),
                        condition("PodUnaccounted", "True", "PodNotExists", "the object is gone of pod u1 on node n1"),
                    ]),
                ),
                |seen| seen.pods.clear(),
            ),
        ),
        (
            "node out of service",
            changed(on("Running", json!([condition("Ready", "True", "", "")])), |seen| {
                seen.node.as_mut().unwrap()["spec"]["taints"] = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
            }),
        ),
    ]
}

fn evacuations() -> Vec<(&'static str, Snapshot)> {
    let leaving = |conditions: Value| {
        changed(on("Running", conditions), |seen| {
            seen.vmi.as_mut().unwrap()["status"]["evacuationNodeName"] = json!("n1");
        })
    };
    let ready = || condition("Ready", "True", "", "");
    let fixed = condition("LiveMigratable", "False", "HostDeviceNotLiveMigratable", "it has a host device");
    vec![
        ("evacuation of a guest that cannot be moved", leaving(json!([ready(), fixed]))),
        (
            "evacuation by somebody else",
            changed(leaving(json!([ready()])), |seen| {
                seen.vmi.as_mut().unwrap()["spec"]["evictionStrategy"] = json!("External");
            }),
        ),
        (
            "evacuation whose moves fail",
            changed(leaving(json!([ready()])), |seen| {
                seen.migrations = vec![failed_move("no node can take it within 300 s")];
            }),
        ),
        ("evacuation not begun", leaving(json!([ready()]))),
        (
            "healthy, guarded by a budget on a node that is emptied",
            changed(on("Running", json!([ready()])), |seen| {
                seen.node.as_mut().unwrap()["spec"]["unschedulable"] = json!(true);
                seen.pods[0]["metadata"]["labels"] = json!({"app": "web"});
                seen.budgets = vec![json!({
                    "metadata": {"name": "always-one"},
                    "spec": {"selector": {"matchLabels": {"app": "web"}}},
                    "status": {"disruptionsAllowed": 0},
                })];
            }),
        ),
    ]
}

#[test]
fn every_failure_has_words_and_a_way_out() {
    let mut golden = String::new();
    for (scenario, seen) in [machines(), disks(), pods(), guests(), moves()].concat() {
        let verdict = judge(&seen);
        assert_eq!(
            verdict.is_healthy(),
            scenario.starts_with("healthy") || scenario == "guest without a machine",
            "{scenario}"
        );
        if let Some(blocker) = &verdict.blocker {
            assert!(!blocker.fix.is_empty() && !blocker.what.is_empty(), "{scenario}");
        }
        write!(golden, "# {scenario}\n{verdict}\n").unwrap();
    }
    insta::assert_snapshot!("failures", golden);
}

#[test]
fn a_verdict_is_an_object_for_programs() {
    let verdict = judge(&off("Halted", json!({"printableStatus": "Stopped"}))).to_json();
    insta::assert_json_snapshot!(verdict);
}

/// Whatever objects look like, there is an answer.
#[test]
fn strange_objects_are_judged_too() {
    for strange in [json!(null), json!([]), json!({"metadata": 1, "status": {"conditions": {}, "phase": 7}})] {
        let seen = Snapshot {
            vm: Some(strange.clone()),
            vmi: Some(strange.clone()),
            pods: vec![strange.clone()],
            migrations: vec![strange.clone()],
            target_node: Some(strange.clone()),
            settings: Some(strange.clone()),
            budgets: vec![strange.clone()],
            node: Some(strange.clone()),
            events: vec![strange.clone()],
            claims: named("a", Some(strange.clone())),
            data_volumes: named("a", Some(strange)),
            ..empty()
        };
        let _ = judge(&seen).to_string();
        let _ = judge(&Snapshot { vmi: None, ..seen }).to_string();
    }
}
