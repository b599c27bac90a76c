//! Requests about virtual machines become changes of objects.

use ferrovirt_apiserver::internal::Place;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Cluster, GUESTS, MACHINES, admin};

const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

impl Cluster {
    async fn put(&self, machine: &str, wanted: &str, body: &Value) -> (u16, Value) {
        self.ask(admin(), Method::PUT, &format!("{BASE}/virtualmachines/{machine}/{wanted}"), body).await
    }

    async fn stored(&self, path: &str) -> Value {
        let (code, value) = self.ask(admin(), Method::GET, path, &Value::Null).await;
        assert_eq!(code, 200, "{value}");
        value
    }

    /// Writes into the status of a machine, as its controller does.
    async fn status(&self, machine: &str, change: impl Fn(&mut Value) + Send + Sync) {
        let machines = self.server.internal("kubevirt.io", "v1", "virtualmachines", "test").unwrap();
        machines.change(&Place::new("default", machine), "status", |vm| change(&mut vm["status"])).await.unwrap();
    }
}

fn machine_path(name: &str) -> String {
    format!("{MACHINES}/{name}")
}

#[tokio::test]
async fn a_halted_machine_is_started_and_stopped_by_its_strategy() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Halted").await;
    assert_eq!(cluster.put("a", "start", &json!({"dryRun": ["All"]})).await, (202, json!("")));
    assert_eq!(cluster.stored(&machine_path("a")).await["spec"]["runStrategy"], "Halted", "a dry run changes nothing");
    assert_eq!(cluster.put("a", "start", &Value::Null).await, (202, json!("")));
    assert_eq!(cluster.stored(&machine_path("a")).await["spec"]["runStrategy"], "Always");
    let (code, status) = cluster.put("a", "start", &Value::Null).await;
    let why = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"a\": Always does not support manual start requests";
    assert_eq!((code, status["message"].as_str(), status["reason"].as_str()), (409, Some(why), Some("Conflict")));
    assert_eq!(cluster.put("a", "stop", &json!({})).await.0, 202);
    assert_eq!(cluster.stored(&machine_path("a")).await["spec"]["runStrategy"], "Halted");
}

#[tokio::test]
async fn a_manual_machine_gets_requests() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Manual").await;
    let requests = async || cluster.stored(&machine_path("a")).await["status"]["stateChangeRequests"].clone();
    assert_eq!(cluster.put("a", "start", &json!({"paused": true})).await.0, 202);
    assert_eq!(requests().await, json!([{"action": "Start", "data": {"paused": "true"}}]));
    assert_eq!(cluster.put("a", "start", &Value::Null).await.0, 409, "one waits");
    let vmi = cluster.guest("a", "Running", &[]).await;
    assert_eq!(cluster.put("a", "stop", &json!({"gracePeriod": 3})).await.0, 202);
    assert_eq!(requests().await, json!([{"action": "Stop", "uid": vmi["metadata"]["uid"]}]));
    let guest = cluster.stored(&format!("{GUESTS}/a")).await;
    assert_eq!(guest["spec"]["terminationGracePeriodSeconds"], 3);
}

#[tokio::test]
async fn a_restart_stops_this_guest_and_starts_another() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Always").await;
    assert_eq!(cluster.put("a", "restart", &Value::Null).await.0, 409);
    let vmi = cluster.guest("a", "Running", &[]).await;
    assert_eq!(cluster.put("a", "restart", &json!({"gracePeriodSeconds": 7})).await.0, 400);
    assert_eq!(cluster.put("a", "restart", &json!({"gracePeriodSeconds": 0})).await.0, 202);
    let requests = cluster.stored(&machine_path("a")).await["status"]["stateChangeRequests"].clone();
    assert_eq!(requests, json!([{"action": "Stop", "uid": vmi["metadata"]["uid"]}, {"action": "Start"}]));
    assert_eq!(cluster.stored(&format!("{GUESTS}/a")).await["spec"]["terminationGracePeriodSeconds"], 1);
}

#[tokio::test]
async fn a_migration_is_an_object() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Always").await;
    assert_eq!(cluster.put("a", "migrate", &Value::Null).await.0, 404, "there is no guest");
    cluster.guest("a", "Running", &["LiveMigratable"]).await;
    let wanted = json!({"addedNodeSelector": {"zone": "a"}, "dryRun": ["All"]});
    assert_eq!(cluster.put("a", "migrate", &wanted).await.0, 202);
    let migrations = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
    assert_eq!(cluster.stored(migrations).await["items"], json!([]));
    assert_eq!(cluster.put("a", "migrate", &json!({"addedNodeSelector": {"zone": "a"}})).await.0, 202);
    let list = cluster.stored(migrations).await;
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("kubevirt-migrate-vm-"), "{name}");
    assert_eq!(list["items"][0]["spec"], json!({"vmiName": "a", "addedNodeSelector": {"zone": "a"}}));
}

#[tokio::test]
async fn nonsense_is_answered_in_kind() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Manual").await;
    for (machine, wanted, body, code) in [
        ("nobody", "start", Value::Null, 404),
        ("nobody", "addvolume", Value::Null, 404),
        ("a", "start", json!({"pause": true}), 400),
        ("a", "start", json!({"dryRun": ["Some"]}), 400),
        ("a", "addvolume", json!({"name": "d"}), 400),
        ("a", "memorydump", json!({"claimName": "d"}), 400),
        ("a", "fly", Value::Null, 404),
    ] {
        let (answered, status) = cluster.put(machine, wanted, &body).await;
        assert_eq!((answered, status["code"].as_u64()), (code, Some(code.into())), "{machine} {wanted}: {status}");
    }
    let (_, status) = cluster.put("a", "addvolume", &json!({"name": "d"})).await;
    assert!(status["message"].as_str().unwrap().starts_with("addvolume is not supported yet: "), "{status}");
}

#[tokio::test]
async fn a_machine_can_be_expanded() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Manual").await;
    let stored = cluster.stored(&machine_path("a")).await;
    assert_eq!(cluster.stored(&format!("{BASE}/virtualmachines/a/expand-spec")).await, stored);
    let path = format!("{BASE}/expand-vm-spec");
    assert_eq!(cluster.ask(admin(), Method::PUT, &path, &stored).await, (200, stored.clone()));
    let mut elsewhere = stored;
    elsewhere["metadata"]["namespace"] = "other".into();
    let (code, status) = cluster.ask(admin(), Method::PUT, &path, &elsewhere).await;
    assert_eq!((code, status["message"].as_str()), (400, Some("VM namespace must be empty or default")));
}

#[tokio::test]
async fn ports_of_a_machine_need_its_own_guest() {
    let cluster = Cluster::start().await;
    cluster.machine("a", "Manual").await;
    let ask = async || {
        let path = format!("{BASE}/virtualmachines/a/portforward/22");
        let (code, status) = cluster.ask(admin(), Method::GET, &path, &Value::Null).await;
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, why) = ask().await;
    assert_eq!(code, 409);
    assert!(why.ends_with("VMI is not started"), "{why}");
    cluster.guest("a", "Running", &[]).await;
    cluster.status("a", |status| status["created"] = true.into()).await;
    assert_eq!(ask().await.0, 500, "somebody else's guest");
}

#[tokio::test]
async fn a_mark_to_leave_is_taken_back() {
    let cluster = Cluster::start().await;
    cluster.guest("a", "Running", &[]).await;
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let mark = |vmi: &mut Value| vmi["status"]["evacuationNodeName"] = "node1".into();
    guests.change(&Place::new("default", "a"), "", mark).await.unwrap();
    let path = format!("{BASE}/virtualmachineinstances/a/evacuate/cancel");
    let cancel = async |body: Value| cluster.ask(admin(), Method::PUT, &path, &body).await.0;
    assert_eq!(cancel(json!({"evacuationNodeName": "node2"})).await, 409);
    assert_eq!(cancel(json!({"dryRun": ["All"]})).await, 200);
    let marked = async || cluster.stored(&format!("{GUESTS}/a")).await["status"]["evacuationNodeName"].clone();
    assert_eq!(marked().await, "node1");
    assert_eq!(cancel(json!({"evacuationNodeName": "node1"})).await, 200);
    assert_eq!(marked().await, Value::Null);
    assert_eq!(cancel(Value::Null).await, 200, "there is nothing to take back");
}
