//! Tests of the binder's decisions.

use serde_json::json;

use super::*;

fn claim(size: &str) -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "claim-1", "resourceVersion": "7"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": "fast"},
    })
}

fn volume(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": "fast"},
        "status": {"phase": "Available"},
    })
}

fn judge<'a>(claim: &'a Value, volumes: &'a [Value], class: Option<&'a Value>) -> ClaimVerdict<'a> {
    judge_claim(claim, &Around { volumes, class, has_consumer: false })
}

fn chosen(claim: &Value, volumes: &[Value]) -> Option<String> {
    match judge(claim, volumes, None) {
        ClaimVerdict::Bind(volume) => Some(volume["metadata"]["name"].as_str().unwrap().to_owned()),
        _ => None,
    }
}

fn reason(verdict: ClaimVerdict<'_>) -> &'static str {
    match verdict {
        ClaimVerdict::Wait(Some(note)) | ClaimVerdict::Lost(note) => note.reason,
        other => panic!("no note in {other:?}"),
    }
}

#[test]
fn the_smallest_volume_that_fits_is_taken() {
    let volumes = [volume("big", "10Gi"), volume("small", "512Mi"), volume("right", "2Gi"), volume("same", "1024Mi")];
    assert_eq!(chosen(&claim("1Gi"), &volumes).as_deref(), Some("same"));
    assert_eq!(chosen(&claim("1100Mi"), &volumes).as_deref(), Some("right"));
    assert_eq!(chosen(&claim("11Gi"), &volumes), None);
}

#[test]
fn exact_access_modes_come_before_less_space() {
    let mut shared = volume("shared", "1Gi");
    shared["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
    let volumes = [shared, volume("exact", "5Gi")];
    assert_eq!(chosen(&claim("1Gi"), &volumes).as_deref(), Some("exact"));
    let mut many = claim("1Gi");
    many["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert_eq!(chosen(&many, &volumes).as_deref(), Some("shared"));
}

#[test]
fn a_volume_must_agree_in_every_respect() {
    for (pointer, value) in [
        ("/spec/storageClassName", json!("slow")),
        ("/spec/volumeMode", json!("Block")),
        ("/status/phase", json!("Released")),
        ("/spec/claimRef", json!({"name": "other", "namespace": "ns"})),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        let mut other = volume("v", "1Gi");
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(chosen(&claim("1Gi"), &[other]), None, "{pointer}");
    }
    let mut picky = claim("1Gi");
    picky["spec"]["selector"] = json!({"matchLabels": {"disk": "ssd"}});
    assert_eq!(chosen(&picky, &[volume("v", "1Gi")]), None);
    let mut ssd = volume("ssd", "1Gi");
    ssd["metadata"]["labels"] = json!({"disk": "ssd"});
    assert_eq!(chosen(&picky, &[volume("v", "1Gi"), ssd]).as_deref(), Some("ssd"));
}

#[test]
fn a_reserved_volume_wins_and_a_named_one_is_insisted_on() {
    let mut reserved = volume("reserved", "9Gi");
    reserved["spec"]["claimRef"] = json!({"name": "c", "namespace": "ns"});
    let volumes = [volume("small", "1Gi"), reserved];
    assert_eq!(chosen(&claim("1Gi"), &volumes).as_deref(), Some("reserved"));
    let mut naming = claim("2Gi");
    naming["spec"]["volumeName"] = "small".into();
    assert_eq!(reason(judge(&naming, &volumes, None)), "VolumeMismatch");
    naming["spec"]["volumeName"] = "absent".into();
    assert_eq!(judge(&naming, &volumes, None), ClaimVerdict::Wait(None));
    let mut taken = volume("small", "5Gi");
    taken["spec"]["claimRef"] = json!({"name": "other", "namespace": "ns", "uid": "x"});
    naming["spec"]["volumeName"] = "small".into();
    assert_eq!(reason(judge(&naming, &[taken], None)), "FailedBinding");
}

#[test]
fn a_claim_without_a_volume_says_why_it_waits() {
    let class = |mode: &str, provisioner: &str| json!({"volumeBindingMode": mode, "provisioner": provisioner});
    let waiting = claim("1Gi");
    assert_eq!(reason(judge(&waiting, &[], None)), "ProvisioningFailed");
    let mut without = claim("1Gi");
    without["spec"].as_object_mut().unwrap().remove("storageClassName");
    assert_eq!(reason(judge(&without, &[], None)), "FailedBinding");
    let immediate = class("Immediate", "local.example");
    assert_eq!(judge(&waiting, &[], Some(&immediate)), ClaimVerdict::Provision { provisioner: "local.example" });
    let by_hand = class("Immediate", "kubernetes.io/no-provisioner");
    assert_eq!(reason(judge(&waiting, &[], Some(&by_hand))), "ProvisioningFailed");
}

#[test]
fn first_consumer_means_a_pod_or_a_chosen_node() {
    let class = json!({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "local.example"});
    let volumes = [volume("v", "1Gi")];
    let mut waiting = claim("1Gi");
    assert_eq!(reason(judge(&waiting, &volumes, Some(&class))), "WaitForFirstConsumer");
    let around = Around { volumes: &volumes, class: Some(&class), has_consumer: true };
    assert_eq!(judge_claim(&waiting, &around), ClaimVerdict::Bind(&volumes[0]));
    waiting["metadata"]["annotations"] = json!({SELECTED_NODE: "node"});
    assert_eq!(judge(&waiting, &volumes, Some(&class)), ClaimVerdict::Bind(&volumes[0]));
}

#[test]
fn both_sides_know_each_other_after_binding() {
    let (mut bound, mut taken) = (claim("1Gi"), volume("v", "2Gi"));
    take_volume(&mut taken, &bound);
    assert_eq!(taken["spec"]["claimRef"]["uid"], "claim-1");
    assert_eq!(taken["spec"]["claimRef"]["resourceVersion"], "7");
    assert_eq!(taken["metadata"]["annotations"][BOUND_BY_CONTROLLER], "yes");
    assert_eq!(judge_volume(&taken, Some(&bound)), VolumeVerdict::AskClaim);
    take_claim(&mut bound, &taken);
    show_bound(&mut bound, &taken);
    assert_eq!(bound["spec"]["volumeName"], "v");
    assert_eq!(bound["metadata"]["annotations"], json!({BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}));
    let shown = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}});
    assert_eq!(bound["status"], shown);
    assert_eq!(judge_volume(&taken, Some(&bound)), VolumeVerdict::Bound);
    assert_eq!(judge(&bound, std::slice::from_ref(&taken), None), ClaimVerdict::Bind(&taken));
    // The claim is made again under its old name: this is another claim.
    let mut again = claim("1Gi");
    again["metadata"]["uid"] = "claim-2".into();
    assert_eq!(judge_volume(&taken, Some(&again)), VolumeVerdict::Released);
    assert_eq!(judge_volume(&taken, None), VolumeVerdict::Released);
}

#[test]
fn a_reservation_of_a_user_is_completed_without_a_claim_to_fame() {
    let mut reserved = volume("v", "1Gi");
    reserved["spec"]["claimRef"] = json!({"name": "c", "namespace": "ns"});
    assert_eq!(judge_volume(&reserved, None), VolumeVerdict::Available);
    take_volume(&mut reserved, &claim("1Gi"));
    assert!(reserved["metadata"]["annotations"].is_null());
    assert_eq!(reserved["spec"]["claimRef"]["uid"], "claim-1");
    let_go(&mut reserved);
    assert_eq!(reserved["spec"]["claimRef"]["name"], "c");
    assert!(reserved["spec"]["claimRef"]["uid"].is_null());
}

#[test]
fn a_volume_whose_claim_went_elsewhere_is_free_again() {
    let mut taken = volume("v", "1Gi");
    let mut elsewhere = claim("1Gi");
    take_volume(&mut taken, &elsewhere);
    elsewhere["spec"]["volumeName"] = "w".into();
    assert_eq!(judge_volume(&taken, Some(&elsewhere)), VolumeVerdict::Unbind);
    let_go(&mut taken);
    assert_eq!(judge_volume(&taken, Some(&elsewhere)), VolumeVerdict::Available);
    assert!(taken["metadata"]["annotations"].get(BOUND_BY_CONTROLLER).is_none());
}

#[test]
fn a_lost_volume_is_told() {
    let mut bound = claim("1Gi");
    take_claim(&mut bound, &volume("v", "1Gi"));
    assert_eq!(reason(judge(&bound, &[], None)), "ClaimLost");
    let mut stolen = volume("v", "1Gi");
    stolen["spec"]["claimRef"] = json!({"name": "other", "namespace": "ns", "uid": "x"});
    assert_eq!(reason(judge(&bound, &[stolen], None)), "ClaimMisbound");
}

#[test]
fn pods_use_claims_directly_and_through_ephemeral_volumes() {
    let mut pod = json!({
        "metadata": {"name": "p"},
        "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "b", "ephemeral": {}},
            {"name": "d", "emptyDir": {}},
        ]},
    });
    assert_eq!(claims_of(&pod), ["c", "p-b"]);
    assert!(consumes(&pod, "c") && !holds(&pod, "c"));
    pod["spec"]["nodeName"] = "n".into();
    pod["status"]["phase"] = "Succeeded".into();
    assert!(!consumes(&pod, "c") && holds(&pod, "c"));
}
