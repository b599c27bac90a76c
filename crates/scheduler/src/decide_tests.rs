//! One test for each reason, in the words that kube-scheduler uses.

use std::sync::Arc;

use ferrovirt_kubernetes::{Node, Pod};
use serde_json::{Value, json};

use super::*;

fn node(name: &str, change: impl FnOnce(&mut Value)) -> Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "z1"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10", "devices.kubevirt.io/tun": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    change(&mut node);
    serde_json::from_value(node).unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn cluster(nodes: &[Node], pods: &[Pod]) -> Cluster {
    let mut cluster = Cluster::default();
    for node in nodes {
        cluster.set_node(node);
    }
    for pod in pods {
        cluster.set_pod(pod);
    }
    cluster
}

/// The node, or the part of the message that explains.
fn place(pod: &Pod, cluster: &Cluster, claims: &[ClaimView]) -> String {
    match decide(&PodInfo::of(pod), cluster, claims) {
        Verdict::Bind(node) => node,
        Verdict::Prepare { node, claims } => format!("{node} after {claims:?}"),
        Verdict::Unschedulable(why) => why.to_string(),
    }
}

const HOPELESS: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
const CROWDED: &str = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";

fn requests(pod: &mut Value, name: &str, amount: &str) {
    pod["spec"]["containers"][0]["resources"]["requests"][name] = json!(amount);
}

#[test]
fn a_pod_goes_to_a_node_that_fits() {
    let cluster = cluster(&[node("n", |_| {})], &[]);
    assert_eq!(place(&pod("p", |_| {}), &cluster, &[]), "n");
    assert_eq!(place(&pod("p", |_| {}), &Cluster::default(), &[]), "no nodes available to schedule pods");
}

/// One node, one pod: what is changed about them, and what is said.
#[test]
fn every_reason_is_named() {
    type Change = fn(&mut Value);
    let cases: &[(Change, Change, String)] = &[
        (
            |node| node["spec"]["unschedulable"] = json!(true),
            |_| {},
            format!("1 node(s) were unschedulable. {HOPELESS}"),
        ),
        (
            |node| node["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]),
            |_| {},
            format!("1 node(s) had untolerated taint {{k: v}}. {HOPELESS}"),
        ),
        (
            |node| node["status"]["conditions"][0]["status"] = json!("False"),
            |_| {},
            format!("1 node(s) had untolerated taint {{node.kubernetes.io/not-ready: }}. {HOPELESS}"),
        ),
        (
            |node| node["status"]["conditions"][0]["status"] = json!("Unknown"),
            |_| {},
            format!("1 node(s) had untolerated taint {{node.kubernetes.io/unreachable: }}. {HOPELESS}"),
        ),
        (
            |_| {},
            |pod| pod["spec"]["nodeSelector"] = json!({"zone": "z2"}),
            format!("1 node(s) didn't match Pod's node affinity/selector. {HOPELESS}"),
        ),
        (
            |_| {},
            |pod| {
                let term = json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z1"]}]});
                pod["spec"]["affinity"] = json!({"nodeAffinity":
                    {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
            },
            format!("1 node(s) didn't match Pod's node affinity/selector. {HOPELESS}"),
        ),
        (|_| {}, |pod| requests(pod, "memory", "8Gi"), format!("1 Insufficient memory. {HOPELESS}")),
        (
            |_| {},
            |pod| {
                requests(pod, "memory", "8Gi");
                requests(pod, "cpu", "3");
            },
            format!("1 Insufficient cpu, 1 Insufficient memory. {HOPELESS}"),
        ),
        (
            |_| {},
            |pod| requests(pod, "devices.kubevirt.io/kvm", "1"),
            format!("1 Insufficient devices.kubevirt.io/kvm. {HOPELESS}"),
        ),
        (|node| node["status"]["allocatable"]["pods"] = json!("0"), |_| {}, format!("1 Too many pods. {CROWDED}")),
    ];
    for (change_node, change_pod, expected) in cases {
        let cluster = cluster(&[node("n", change_node)], &[]);
        let said = place(&pod("p", change_pod), &cluster, &[]);
        assert_eq!(said, format!("0/1 nodes are available: {expected}"));
    }
}

#[test]
fn what_others_use_is_not_there() {
    let other = pod("other", |pod| {
        pod["spec"]["nodeName"] = json!("n");
        requests(pod, "devices.kubevirt.io/tun", "1");
        requests(pod, "memory", "3Gi");
    });
    let cluster = cluster(&[node("n", |_| {})], &[other]);
    let said = place(&pod("p", |pod| requests(pod, "memory", "2Gi")), &cluster, &[]);
    assert_eq!(said, format!("0/1 nodes are available: 1 Insufficient memory. {CROWDED}"));
    let said = place(&pod("p", |pod| requests(pod, "devices.kubevirt.io/tun", "1")), &cluster, &[]);
    assert_eq!(said, format!("0/1 nodes are available: 1 Insufficient devices.kubevirt.io/tun. {CROWDED}"));
    assert_eq!(place(&pod("p", |pod| requests(pod, "memory", "1Gi")), &cluster, &[]), "n");
}

#[test]
fn reasons_of_several_nodes_are_counted() {
    let nodes = [
        node("a", |node| node["spec"]["unschedulable"] = json!(true)),
        node("b", |node| node["status"]["allocatable"]["pods"] = json!("0")),
        node("c", |node| node["spec"]["unschedulable"] = json!(true)),
    ];
    assert_eq!(
        place(&pod("p", |_| {}), &cluster(&nodes, &[]), &[]),
        "0/3 nodes are available: 1 Too many pods, 2 node(s) were unschedulable. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    );
}

#[test]
fn tolerations_open_nodes() {
    let nodes = [node("n", |node| {
        node["spec"]["unschedulable"] = json!(true);
        node["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
    })];
    let tolerant = pod("p", |pod| {
        pod["spec"]["tolerations"] = json!([
            {"key": "k", "operator": "Equal", "value": "v"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
        ]);
    });
    assert_eq!(place(&tolerant, &cluster(&nodes, &[]), &[]), "n");
}

#[test]
fn init_containers_count_as_they_run() {
    let both = pod("p", |pod| {
        pod["spec"]["overhead"] = json!({"memory": "1Mi"});
        pod["spec"]["initContainers"] = json!([
            {"name": "lasting", "restartPolicy": "Always", "resources": {"requests": {"memory": "100Mi"}}},
            {"name": "large", "resources": {"requests": {"memory": "500Mi", "cpu": "1"}}},
        ]);
    });
    let info = PodInfo::of(&both);
    assert_eq!(info.requests.get("memory"), 601 << 20, "the large one runs beside the lasting one");
    assert_eq!(info.requests.get("cpu"), 1000);
}

fn affinity(kind: &str, key: &str, app: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

#[test]
fn pods_keep_together_and_apart() {
    let nodes = [node("a", |_| {}), node("b", |node| node["metadata"]["labels"]["zone"] = json!("z2"))];
    let web = pod("web", |pod| pod["spec"]["nodeName"] = json!("b"));
    let loner = pod("loner", |pod| {
        pod["spec"]["nodeName"] = json!("a");
        pod["spec"]["affinity"] = affinity("podAntiAffinity", "zone", "noisy");
    });
    let all = cluster(&nodes, &[web, loner]);
    let with = |kind: &str, key: &str, app: &str| {
        place(&pod("p", |pod| pod["spec"]["affinity"] = affinity(kind, key, app)), &all, &[])
    };
    assert_eq!(with("podAffinity", "zone", "web"), "b");
    assert_eq!(with("podAntiAffinity", "kubernetes.io/hostname", "web"), "a");
    assert!(with("podAffinity", "zone", "nobody").contains("2 node(s) didn't match pod affinity rules."));
    assert_eq!(with("podAffinity", "zone", "p"), "a", "the first of a group goes anywhere");
    assert_eq!(place(&pod("noisy", |_| {}), &all, &[]), "b", "the loner is respected");
    let only_a = cluster(
        &nodes[..1],
        &[pod("loner", |pod| {
            pod["spec"]["nodeName"] = json!("a");
            pod["spec"]["affinity"] = affinity("podAntiAffinity", "zone", "noisy");
        })],
    );
    let said = place(&pod("noisy", |_| {}), &only_a, &[]);
    assert_eq!(
        said,
        format!("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. {CROWDED}")
    );
    let said =
        place(&pod("p", |pod| pod["spec"]["affinity"] = affinity("podAntiAffinity", "zone", "loner")), &only_a, &[]);
    assert_eq!(said, format!("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. {CROWDED}"));
}

#[test]
fn affinity_looks_into_other_namespaces_when_told() {
    let far = pod("web", |pod| {
        pod["metadata"]["namespace"] = json!("far");
        pod["spec"]["nodeName"] = json!("n");
    });
    let mut cluster = cluster(&[node("n", |_| {})], &[far]);
    cluster.set_namespace("far", Some(&BTreeMap::from([("team".to_owned(), "x".to_owned())])));
    let term = |change: fn(&mut Value)| {
        let mut affinity = affinity("podAffinity", "zone", "web");
        change(&mut affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]);
        place(&pod("p", |pod| pod["spec"]["affinity"] = affinity), &cluster, &[])
    };
    assert!(term(|_| {}).contains("didn't match pod affinity rules"));
    assert_eq!(term(|term| term["namespaces"] = json!(["far"])), "n");
    assert_eq!(term(|term| term["namespaceSelector"] = json!({})), "n");
    assert_eq!(term(|term| term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}})), "n");
    assert!(term(|term| term["namespaceSelector"] = json!({"matchLabels": {"team": "y"}})).contains("didn't match"));
}

#[test]
fn preferences_and_room_decide_among_good_nodes() {
    let nodes =
        [node("a", |_| {}), node("b", |_| {}), node("c", |node| node["metadata"]["labels"]["fast"] = json!("yes"))];
    let busy = pod("busy", |pod| {
        pod["spec"]["nodeName"] = json!("a");
        requests(pod, "memory", "2Gi");
    });
    let all = cluster(&nodes, std::slice::from_ref(&busy));
    assert_eq!(place(&pod("p", |_| {}), &all, &[]), "b", "the least used, then the first by name");
    let preference = json!({"matchExpressions": [{"key": "fast", "operator": "Exists"}]});
    let picky = pod("p", |pod| {
        pod["spec"]["affinity"] = json!({"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": preference}]}});
    });
    assert_eq!(place(&picky, &all, &[]), "c");
    let near_busy = pod("p", |pod| {
        let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "busy"}}});
        pod["spec"]["affinity"] = json!({"podAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": term}]}});
    });
    assert_eq!(place(&near_busy, &all, &[]), "a");
    let tainted = [
        node("a", |node| node["spec"]["taints"] = json!([{"key": "k", "effect": "PreferNoSchedule"}])),
        node("b", |node| node["status"]["allocatable"]["memory"] = json!("1Gi")),
    ];
    assert_eq!(place(&pod("p", |_| {}), &cluster(&tainted, &[]), &[]), "b");
}

fn claim(name: &str, phase: &str, class: Option<&str>, volume: Option<Value>) -> ClaimView {
    let claim = json!({"metadata": {"name": name}, "spec": {"volumeName": "v"}, "status": {"phase": phase}});
    let class = class.map(|mode| json!({"metadata": {"name": "c"}, "provisioner": "p", "volumeBindingMode": mode}));
    ClaimView {
        name: name.to_owned(),
        claim: Some(Arc::new(serde_json::from_value(claim).unwrap())),
        volume: volume.map(|volume| Arc::new(serde_json::from_value(volume).unwrap())),
        class: class.map(|class| Arc::new(serde_json::from_value(class).unwrap())),
    }
}

#[test]
fn claims_have_a_say() {
    let all = cluster(&[node("n", |_| {})], &[]);
    let pod = pod("p", |_| {});
    let said = |claim: ClaimView| place(&pod, &all, &[claim]);
    let missing = ClaimView { name: "x".into(), claim: None, volume: None, class: None };
    assert_eq!(said(missing), format!("0/1 nodes are available: persistentvolumeclaim \"x\" not found. {HOPELESS}"));
    let unbound = format!("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. {HOPELESS}");
    assert_eq!(said(claim("x", "Pending", Some("Immediate"), None)), unbound);
    assert_eq!(said(claim("x", "Pending", None, None)), unbound);
    assert_eq!(said(claim("x", "Pending", Some("WaitForFirstConsumer"), None)), "n after [\"x\"]");
    assert!(said(claim("x", "Lost", None, None)).contains("bound to non-existent persistentvolume \"v\""));
    assert!(said(claim("x", "Bound", None, None)).contains("bound to non-existent pv(s)"));
    let volume = |host: &str| {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]});
        json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
    };
    assert_eq!(said(claim("x", "Bound", None, Some(volume("n")))), "n");
    assert!(
        said(claim("x", "Bound", None, Some(volume("m"))))
            .contains("1 node(s) didn't match PersistentVolume's node affinity")
    );
    assert_eq!(said(claim("x", "Bound", None, Some(json!({"metadata": {"name": "v"}})))), "n");
}

#[test]
fn a_claim_that_knows_its_node_keeps_it() {
    let all = cluster(&[node("a", |_| {}), node("b", |_| {})], &[]);
    let mut view = claim("x", "Pending", Some("WaitForFirstConsumer"), None);
    let mut told = view.claim.as_deref().unwrap().clone();
    told.metadata.annotations =
        Some(BTreeMap::from([("volume.kubernetes.io/selected-node".to_owned(), "b".to_owned())]));
    view.claim = Some(Arc::new(told));
    let verdict = decide(&PodInfo::of(&pod("p", |_| {})), &all, std::slice::from_ref(&view));
    assert_eq!(verdict, Verdict::Prepare { node: "b".to_owned(), claims: vec![] });
}
