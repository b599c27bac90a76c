//! One case that breaks each rule of validation, and one that does not: `tests/rules`.

use std::collections::BTreeSet;

use ferrovirt_api::defaults::{Inputs, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::validation::{self, Cause, rules};
use ferrovirt_api::vmi::Architecture;
use ferrovirt_api::{
    KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cases::{expand, guest_cases, merge, patch_guest, sound_guest};

const OTHERS: &str = include_str!("../rules/others.yaml");

fn inputs() -> Inputs {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    Inputs { now, uuid: 0x5d30_7ca9_b3ef_428c_8861_06e7_2d69_f223, architecture: Architecture::Amd64 }
}

/// What is wrong with the sound guest after the patch.
fn judge_guest(patch: &Value) -> Vec<Cause> {
    let mut guest = sound_guest();
    patch_guest(&mut guest, patch);
    let cluster: Configuration = read(patch.get("cluster").unwrap_or(&json!({})));
    let mut guest: VirtualMachineInstance = read(&guest);
    if patch["undefaulted"] != true {
        default_vmi(&mut guest, &cluster, &inputs());
    }
    validation::check_vmi(&guest, &cluster, false)
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn patched<T: DeserializeOwned>(base: &Value, patches: &[&Value]) -> T {
    let mut object = base.clone();
    for patch in patches.iter().filter(|patch| !patch.is_null()) {
        merge(&mut object, patch);
    }
    read(&object)
}

fn machine() -> Value {
    let mut template = sound_guest();
    template["metadata"] = json!({});
    template["spec"]["volumes"][0] = json!({"name": "root", "dataVolume": {"name": "data"}});
    json!({"metadata": {"name": "m", "namespace": "default"}, "spec": {"runStrategy": "Halted", "template": template}})
}

fn running_guest() -> Value {
    json!({"spec": {
        "domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
        "volumes": [{"name": "root", "dataVolume": {"name": "data"}}],
    }})
}

/// What is wrong with an object of another kind after the patch.
fn judge_other(kind: &str, case: &Value, patch: &Value) -> Vec<Cause> {
    let plain = Configuration::default();
    let (old, others) = (&case["old"], &case["others"]);
    let policy = json!({"spec": {"selectors": {}}});
    let migration = json!({"metadata": {"name": "move"}, "spec": {"vmiName": "guest"}});
    let installation = json!({"metadata": {"name": "kubevirt"}, "spec": {}});
    match kind {
        "machine" => validation::check_vm(&patched::<VirtualMachine>(&machine(), &[patch]), &plain, &inputs(), false),
        "machine_update" => {
            validation::check_vm_update(&patched(&machine(), &[old]), &patched(&machine(), &[old, patch]))
        }
        "machine_status" => {
            let guest = others.get("guest").filter(|_| !patch["status"].is_null()).map(read::<VirtualMachineInstance>);
            validation::check_vm_status(&patched(&machine(), &[patch]), guest.as_ref())
        }
        "guest_update" => {
            let (before, after) = (patched(&running_guest(), &[old]), patched(&running_guest(), &[old, patch]));
            validation::check_vmi_update(&before, &after, case["user"] != true)
        }
        "migration" => {
            // The sound case has a guest and no other moves.
            let bad = !patch.is_null();
            let others = if bad { others } else { &Value::Null };
            let guest = (others["guest"].is_object() || others.get("guest").is_none())
                .then(|| patched::<VirtualMachineInstance>(&running_guest(), &[&others["guest"]]));
            let moves: Vec<VirtualMachineInstanceMigration> = others.get("migrations").map(read).unwrap_or_default();
            validation::check_new_migration(&patched(&migration, &[patch]), guest.as_ref(), &moves, false)
        }
        "migration_update" => {
            validation::check_migration_update(&patched(&migration, &[old]), &patched(&migration, &[old, patch]))
        }
        "policy" => validation::check_migration_policy(&patched::<MigrationPolicy>(&policy, &[patch]), &plain),
        "installation" => {
            let others = if patch.is_null() { &Value::Null } else { others };
            let existing: Vec<String> = others.get("installations").map(read).unwrap_or_default();
            validation::check_new_kubevirt(&patched::<KubeVirt>(&installation, &[patch]), &existing)
        }
        "installation_delete" => validation::check_kubevirt_delete(&patched(&installation, &[patch]), 1),
        other => panic!("no kind {other}"),
    }
}

/// Complaints about one case.
fn try_case(case: &Value, judge: impl Fn(&Value) -> Vec<Cause>) -> Vec<String> {
    let rule = case["rule"].as_str().unwrap();
    let mut complaints = Vec::new();
    let bad = judge(&case["bad"]);
    if !bad.iter().any(|cause| cause.rule == rule) {
        complaints.push(format!("{rule}: the bad case passes; found {bad:?}"));
    }
    if let Some(cause) = bad.iter().find(|cause| !cause.message.starts_with(&format!("{} ", cause.field))) {
        complaints.push(format!("{rule}: the message does not name its field: {}", cause.message));
    }
    let also = case["also"] == true;
    let good = judge(&case["good"]);
    if let Some(cause) = good.iter().find(|cause| !also || cause.rule == rule) {
        complaints.push(format!("{rule}: the good case is refused: {}", cause.message));
    }
    complaints
}

fn cases() -> Vec<(String, Value)> {
    let others: Value = serde_saphyr::from_str(OTHERS).unwrap();
    let guests = guest_cases().into_iter().map(|case| ("guest".to_owned(), case));
    let others = others.as_object().unwrap().clone().into_iter();
    let others = others.flat_map(|(kind, cases)| {
        let cases = cases.as_array().unwrap().clone();
        cases.into_iter().map(move |case| (kind.clone(), case))
    });
    let mut all: Vec<(String, Value)> = guests.chain(others).collect();
    all.iter_mut().for_each(|(_, case)| expand(case));
    all
}

#[test]
fn each_rule_refuses_what_breaks_it_and_nothing_else() {
    let complaints: Vec<String> = cases()
        .iter()
        .flat_map(|(kind, case)| match kind.as_str() {
            "guest" => try_case(case, judge_guest),
            kind => try_case(case, |patch| judge_other(kind, case, patch)),
        })
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn each_rule_has_a_case_and_each_case_a_rule() {
    let named: BTreeSet<&str> = rules().iter().map(|rule| rule.name).collect();
    assert_eq!(named.len(), rules().len(), "two rules have one name");
    let all = cases();
    let tried: BTreeSet<&str> = all.iter().map(|(_, case)| case["rule"].as_str().unwrap()).collect();
    let untested: Vec<_> = named.difference(&tried).collect();
    let unknown: Vec<_> = tried.difference(&named).collect();
    assert!(untested.is_empty() && unknown.is_empty(), "without a case: {untested:?}; without a rule: {unknown:?}");
}

#[test]
fn what_is_not_supported_is_refused_with_its_path_and_all_of_it() {
    let causes = judge_guest(&json!({
        "spec": {"resourceClaims": [{"name": "a"}]},
        "domain": {"launchSecurity": {"sev": {}}},
        "devices": {"gpus": [{"name": "a"}], "tpm": {"persistent": true}, "clientPassthrough": {}},
        "disk": {"tag": "a"},
        "metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v2"}},
    }));
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.resourceClaims",
            "spec.domain.launchSecurity",
            "spec.domain.devices.gpus",
            "spec.domain.devices.clientPassthrough",
            "spec.domain.devices.tpm.persistent",
            "spec.domain.devices.disks[0].tag",
            "metadata.annotations.kubevirt.io/pci-topology-version",
        ]
    );
    assert!(causes.iter().all(|cause| cause.message.contains("not supported yet")), "{causes:?}");
}

#[test]
fn what_is_not_supported_is_said_once_whatever_gate_it_has() {
    let one = |causes: Vec<Cause>| {
        let [cause] = causes.as_slice() else { panic!("{causes:?}") };
        assert!(cause.message.contains("not supported yet"), "{}", cause.message);
        cause.field.clone()
    };
    let sidecars = json!({"metadata": {"annotations": {"hooks.kubevirt.io/hookSidecars": "[]"}}});
    assert_eq!(one(judge_guest(&sidecars)), "metadata.annotations.hooks.kubevirt.io/hookSidecars");
    let locked = json!({"domain": {"memory": {"reservedOverhead": {"memLock": "Required"}}}});
    assert_eq!(one(judge_guest(&locked)), "spec.domain.memory.reservedOverhead.memLock");
    let waiting = json!({"spec": {"runStrategy": "WaitAsReceiver"}});
    assert_eq!(one(judge_other("machine", &json!({}), &waiting)), "spec.runStrategy");
    let received = json!({"spec": {"receive": {"migrationID": "a"}}});
    let case = json!({"others": {"guest": {}}});
    assert_eq!(one(judge_other("migration", &case, &received)), "spec.receive");
}

#[test]
fn a_template_is_judged_as_the_guest_that_it_makes() {
    let patch = json!({"spec": {"template": {
        "metadata": {"labels": {"kubevirt.io/created-by": "me"}},
        "spec": {"hostname": "UPPER", "domain": {"memory": null}},
    }}});
    let causes = judge_other("machine", &json!({}), &patch);
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        ["spec.template.metadata.labels.kubevirt.io/created-by", "spec.template.spec.hostname",],
        "a machine may be made before anybody knows how large its guests are"
    );
}

#[test]
fn what_no_machine_has_is_let_in_with_a_word() {
    let plain = Configuration::default();
    let advice = |domain: &Value| {
        let mut guest = sound_guest();
        merge(&mut guest["spec"]["domain"], domain);
        let mut guest: VirtualMachineInstance = read(&guest);
        default_vmi(&mut guest, &plain, &inputs());
        assert!(validation::check_vmi(&guest, &plain, false).is_empty(), "{domain}");
        assert_eq!(validation::beyond_machines(&guest, &plain), validation::vmi_warnings(&guest, &plain));
        validation::vmi_warnings(&guest, &plain)
    };
    let memory =
        "spec.domain.memory.guest is 1Ei, and no processor can address more than 4Pi: no node can run the guest";
    assert_eq!(advice(&json!({"memory": {"guest": "1Ei"}})), [memory]);
    let cpus = "spec.domain.cpu has 1000000 virtual CPUs, and no machine has more than 4096: no node can run the guest";
    assert_eq!(advice(&json!({"cpu": {"cores": 1_000_000}})), [cpus]);
    assert_eq!(advice(&json!({"cpu": null, "resources": {"requests": {"cpu": "1000000"}}})), [cpus]);
    assert!(advice(&json!({"memory": {"guest": "4Pi"}, "cpu": {"cores": 4096}})).is_empty());
}

#[test]
fn a_machine_may_come_before_its_size() {
    let plain = Configuration::default();
    let mut sizeless = machine();
    sizeless["spec"]["template"] = json!({});
    let vm: VirtualMachine = read(&sizeless);
    assert!(validation::check_vm(&vm, &plain, &inputs(), false).is_empty());
    let warnings = validation::vm_warnings(&vm, &plain, &inputs());
    assert!(warnings[0].starts_with("spec.template.spec.domain.memory.guest is missing"), "{warnings:?}");
}

#[test]
fn the_summary_shows_ten_causes_and_counts_the_rest() {
    let options: Vec<Value> = (0..12).map(|_| json!({"port": 0})).collect();
    let causes = judge_guest(&json!({"card": {"ports": options}}));
    let summary = validation::summary(&causes);
    assert!(summary.ends_with(&format!(", and {} more", causes.len() - 10)), "{summary}");
}

#[test]
fn advice() {
    let mut vm: VirtualMachine = patched(&machine(), &[&json!({"spec": {"runStrategy": null, "running": true}})]);
    let plain = Configuration::default();
    assert_eq!(
        validation::vm_warnings(&vm, &plain, &inputs()),
        ["spec.running is deprecated, please use spec.runStrategy instead."]
    );
    vm.spec.running = None;
    assert!(validation::vm_warnings(&vm, &plain, &inputs()).is_empty());
    let gates = json!({"spec": {"configuration": {"developerConfiguration": {"featureGates": ["HotplugVolumes", "Passt", "VSOCK"]}}}});
    let warnings = validation::kubevirt_warnings(&read(&gates));
    assert_eq!(
        warnings,
        [
            "feature gate HotplugVolumes is deprecated and will be removed",
            "feature gate Passt is discontinued and has no effect",
        ]
    );
    let annotated = json!({"metadata": {"annotations": {"kubevirt.io/keep-launcher-alive-after-failure": "true"}}});
    let guest: VirtualMachineInstance = patched(&sound_guest(), &[&annotated]);
    assert!(validation::vmi_warnings(&guest, &plain)[0].contains("not supported yet"));
}
