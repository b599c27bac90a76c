//! The judgement itself, without a server: who may write what, and what depends on other objects.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ferrovirt_api::defaults::Inputs;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::vmi::Architecture;
use ferrovirt_virt_api::HANDLER_GROUP;
use ferrovirt_virt_api::admission::review::{
    Admission, Facts, Kind, Needs, Operation, Others, Refusal, Request, User, mutate, needs, review,
};
use serde_json::{Value, json};

const HANDLER: &str = "system:serviceaccount:kubevirt:virt-handler";
const CONTROLLER: &str = "system:serviceaccount:kubevirt:virt-controller";
static CLUSTER: LazyLock<Configuration> = LazyLock::new(Configuration::default);
static NO_EXTRA: BTreeMap<String, Vec<String>> = BTreeMap::new();

fn user(name: &str) -> User<'_> {
    User { name, groups: &[], extra: &NO_EXTRA, installation: "kubevirt" }
}

fn facts(others: Others) -> Facts<'static> {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    let inputs = Inputs { now, uuid: 7 << 64 | 9, architecture: Architecture::Amd64 };
    Facts { cluster: &CLUSTER, inputs, others }
}

fn request<'a>(kind: Kind, operation: Operation, new: &'a Value, old: &'a Value, user: User<'a>) -> Request<'a> {
    Request { kind, subresource: "", operation, namespace: "default", name: "a", object: new, old_object: old, user }
}

fn judge(kind: Kind, operation: Operation, new: &Value, old: &Value, by: User<'_>) -> Result<Admission, Refusal> {
    review(&request(kind, operation, new, old, by), &facts(Others::default()))
}

fn guest(node: &str, target: Option<&str>) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        "status": {"nodeName": node, "migrationState": target.map(|target| json!({"targetNode": target}))},
    })
}

fn machine() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}},
    })
}

fn with(mut object: Value, pointer: &str, field: &str, value: Value) -> Value {
    object.pointer_mut(pointer).unwrap()[field] = value;
    object
}

#[test]
fn a_handler_writes_about_guests_of_its_node_and_those_that_come_to_it() {
    let groups = [format!("{HANDLER_GROUP}node1")];
    let by_group = User { groups: &groups, ..user(HANDLER) };
    let extra = BTreeMap::from([("authentication.kubernetes.io/node-name".to_owned(), vec!["node1".to_owned()])]);
    let by_token = User { extra: &extra, ..user(HANDLER) };
    for by in [by_group, by_token] {
        let write = |old: &Value| {
            let new = with(old.clone(), "/status", "phase", json!("Running"));
            judge(Kind::Guest, Operation::Update, &new, old, by)
        };
        assert!(write(&guest("node1", None)).is_ok());
        let coming = guest("node2", Some("node1"));
        let address = with(coming.clone(), "/status/migrationState", "targetNodeAddress", json!("10.0.0.2"));
        assert!(judge(Kind::Guest, Operation::Update, &address, &coming, by).is_ok());
        assert_eq!(write(&coming).unwrap_err().code, 403, "only its move is this node's business");
        let refusal = write(&guest("node2", None)).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (403, "Forbidden"), "{}", refusal.message);
        let old = guest("node1", None);
        let chosen = with(old.clone(), "/status", "migrationState", json!({"targetNode": "node2"}));
        assert_eq!(judge(Kind::Guest, Operation::Update, &chosen, &old, by).unwrap_err().code, 403);
    }
    let nameless = judge(Kind::Guest, Operation::Update, &guest("node1", None), &guest("node1", None), user(HANDLER));
    assert_eq!(nameless.unwrap_err().code, 403, "an identity without a node is no handler's");
}

#[test]
fn an_account_that_is_no_component_is_a_user() {
    let old = guest("node1", None);
    let new = with(old.clone(), "/status", "nodeName", json!("node2"));
    let robot = user("system:serviceaccount:kubevirt:robot");
    let kept = mutate(&request(Kind::Guest, Operation::Update, &new, &old, robot), &facts(Others::default())).unwrap();
    assert_eq!(kept.unwrap()["status"], old["status"]);
    let by_us = request(Kind::Guest, Operation::Update, &new, &old, user(CONTROLLER));
    assert_eq!(mutate(&by_us, &facts(Others::default())).unwrap(), None);
    let elsewhere = User { installation: "virtual", ..user(CONTROLLER) };
    let namesake = request(Kind::Guest, Operation::Update, &new, &old, elsewhere);
    let kept = mutate(&namesake, &facts(Others::default())).unwrap();
    assert_eq!(kept.unwrap()["status"], old["status"], "an account of another namespace than the installation's");
    let by_us = User { name: "system:serviceaccount:virtual:kubevirt-controller", ..elsewhere };
    let by_us = request(Kind::Guest, Operation::Update, &new, &old, by_us);
    assert_eq!(mutate(&by_us, &facts(Others::default())).unwrap(), None);
}

#[test]
fn a_machine_gets_an_identity_once() {
    let made = judge(Kind::Machine, Operation::Create, &machine(), &Value::Null, user("jane")).unwrap().object.unwrap();
    let template = &made["spec"]["template"];
    let firmware = &template["spec"]["domain"]["firmware"];
    assert!(firmware["uuid"].is_string() && firmware["serial"].is_string() && firmware["uuid"] != firmware["serial"]);
    assert_eq!(template["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(template["metadata"]["annotations"]["kubevirt.io/pci-topology-version"], "v3");
    let changed = with(machine(), "/spec", "runStrategy", json!("Always"));
    let updated = judge(Kind::Machine, Operation::Update, &changed, &machine(), user("jane")).unwrap().object.unwrap();
    assert_eq!(
        updated["spec"]["template"]["spec"]["domain"].get("firmware"),
        None,
        "an older machine gets no identity"
    );
}

#[test]
fn a_machine_that_no_rule_would_let_in_can_still_be_tidied_up() {
    let wrong = with(machine(), "/spec", "instancetype", json!({"name": "u1.small"}));
    let refusal = judge(Kind::Machine, Operation::Create, &wrong, &Value::Null, user("jane")).unwrap_err();
    assert_eq!(refusal.causes[0].field, "spec.instancetype");
    assert!(refusal.message.contains("not supported yet"), "{}", refusal.message);
    let freed = with(wrong.clone(), "/metadata", "finalizers", json!([]));
    assert_eq!(judge(Kind::Machine, Operation::Update, &freed, &wrong, user("jane")).unwrap(), Admission::default());
    let mut deleting = with(wrong.clone(), "/metadata", "deletionTimestamp", json!("2026-01-02T03:04:05Z"));
    deleting["spec"]["runStrategy"] = json!("Always");
    assert_eq!(judge(Kind::Machine, Operation::Update, &deleting, &wrong, user("jane")).unwrap(), Admission::default());
}

#[test]
fn running_is_warned_about() {
    let mut old_fashioned = with(machine(), "/spec", "running", json!(true));
    old_fashioned["spec"].as_object_mut().unwrap().remove("runStrategy");
    let admission = judge(Kind::Machine, Operation::Create, &old_fashioned, &Value::Null, user("jane")).unwrap();
    assert_eq!(admission.warnings, ["spec.running is deprecated, please use spec.runStrategy instead."]);
}

#[test]
fn a_move_needs_its_guest_and_has_its_label() {
    let migration = json!({"metadata": {"name": "a"}, "spec": {"vmiName": "guest"}});
    let by = user("jane");
    let asked = request(Kind::Migration, Operation::Create, &migration, &Value::Null, by);
    assert_eq!(needs(&asked), Needs::Guest { namespace: "default", name: "guest" });
    assert_eq!(review(&asked, &facts(Others::default())).unwrap_err().causes[0].field, "spec.vmiName");
    let found = Others { guest: Some(serde_json::from_value(guest("node1", None)).unwrap()), ..Others::default() };
    let made = review(&asked, &facts(found)).unwrap().object.unwrap();
    assert_eq!(made["metadata"]["labels"]["kubevirt.io/vmi-name"], "guest");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubevirt.io/migrationJobFinalize"]));
}

#[test]
fn there_is_one_installation_and_it_stays_while_it_must() {
    let blocks = json!({"metadata": {"name": "a"}, "spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"}});
    let create = request(Kind::Installation, Operation::Create, &blocks, &Value::Null, user("jane"));
    assert_eq!(needs(&create), Needs::Installations);
    let second = Others { installations: vec!["kubevirt/kubevirt".to_owned()], ..Others::default() };
    let refusal = review(&create, &facts(second)).unwrap_err();
    assert_eq!(refusal.status(&create)["details"]["causes"][0]["reason"], "FieldValueDuplicate");
    assert!(review(&create, &facts(Others::default())).is_ok());
    let delete = request(Kind::Installation, Operation::Delete, &Value::Null, &blocks, user("jane"));
    assert_eq!(needs(&delete), Needs::Workloads);
    assert!(review(&delete, &facts(Others { workloads: 1, ..Others::default() })).is_err());
    assert!(review(&delete, &facts(Others::default())).is_ok());
}

#[test]
fn requests_for_volumes_have_to_make_sense() {
    let old = with(machine(), "", "status", json!({}));
    let new = with(machine(), "", "status", json!({"volumeRequests": [{}]}));
    let status =
        Request { subresource: "status", ..request(Kind::Machine, Operation::Update, &new, &old, user(CONTROLLER)) };
    assert_eq!(needs(&status), Needs::Guest { namespace: "default", name: "a" });
    let refusal = review(&status, &facts(Others::default())).unwrap_err();
    assert_eq!(refusal.causes[0].field, "status.volumeRequests[0]");
}

#[test]
fn hyper_v_on_a_cluster_that_emulates_is_warned_about() {
    let cluster: Configuration =
        serde_json::from_value(json!({"developerConfiguration": {"useEmulation": true}})).unwrap();
    let features = json!({"hypervPassthrough": {}});
    let new = with(machine(), "/spec/template/spec/domain", "features", features);
    let asked = request(Kind::Machine, Operation::Create, &new, &Value::Null, user("jane"));
    assert_eq!(needs(&asked), Needs::Nodes);
    let facts = Facts { cluster: &cluster, ..facts(Others::default()) };
    let warnings = review(&asked, &facts).unwrap().warnings;
    assert!(warnings[0].starts_with("spec.template.spec.domain.features.hypervPassthrough needs KVM"), "{warnings:?}");
}
