//! Bodies made byte by byte, and foreign bytes.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn int(self, number: u64, value: i64) -> Self {
        self.varint(number << 3).varint(value as u64)
    }

    fn bytes(self, number: u64, value: &[u8]) -> Self {
        let mut with_length = self.varint(number << 3 | 2).varint(value.len() as u64);
        with_length.0.extend_from_slice(value);
        with_length
    }

    fn text(self, number: u64, value: &str) -> Self {
        self.bytes(number, value.as_bytes())
    }

    #[expect(clippy::needless_pass_by_value, reason = "values are made at the call")]
    fn message(self, number: u64, value: Message) -> Self {
        self.bytes(number, &value.0)
    }
}

fn m() -> Message {
    Message::default()
}

fn entry(key: &str, value: &[u8]) -> Message {
    m().text(1, key).bytes(2, value)
}

fn body(api_version: &str, kind: &str, object: Message) -> Vec<u8> {
    let envelope = m().message(1, m().text(1, api_version).text(2, kind)).message(2, object).text(3, "").text(4, "");
    [MAGIC, &envelope.0].concat()
}

fn decoded(api_version: &str, kind: &str, object: Message) -> Value {
    decode(&body(api_version, kind, object), None).expect("the body is right").value
}

#[test]
fn config_maps_as_kubectl_creates_them() {
    // kubectl writes every field that is not a pointer, empty or not.
    let metadata = m().text(1, "settings").text(2, "").text(3, "default").text(5, "").int(7, 0).message(8, m());
    let object = m().message(1, metadata).message(2, entry("a", b"1")).message(3, entry("bin", &[0, 255]));
    assert_eq!(
        decoded("v1", "ConfigMap", object),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
            "data": {"a": "1"}, "binaryData": {"bin": "AP8="}})
    );
}

#[test]
fn pointers_keep_what_is_empty_and_values_do_not() {
    let container = m().text(1, "").text(2, "").int(16, 0).message(15, m().int(2, 0)).message(8, m());
    let spec = m().message(2, container).int(4, 0).int(11, 0);
    // securityContext.privileged and terminationGracePeriodSeconds are pointers, the container's name is required.
    assert_eq!(
        decoded("v1", "Pod", m().message(2, spec).message(3, m()))["spec"],
        json!({"containers": [{"name": "", "securityContext": {"privileged": false}}], "terminationGracePeriodSeconds": 0})
    );
}

#[test]
fn embedded_messages_stand_in_their_parents_place() {
    let volume = m().text(1, "v").message(2, m().message(2, m().text(1, "")));
    assert_eq!(
        decoded("v1", "Pod", m().message(2, m().message(1, volume)))["spec"]["volumes"],
        json!([{"name": "v", "emptyDir": {}}])
    );
}

#[test]
fn types_with_a_json_form_of_their_own() {
    let metadata = m().message(8, m().int(1, 1_790_000_000).int(2, 999));
    let spec = m().text(1, "me").int(2, 15).message(4, m().int(1, -1).int(2, 5_000_000));
    assert_eq!(
        decoded("coordination.k8s.io/v1", "Lease", m().message(1, metadata).message(2, spec)),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"creationTimestamp": "2026-09-21T14:13:20Z"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "1969-12-31T23:59:59.005000Z"}})
    );
    let budget = m().message(1, m().int(1, 1).int(2, 0).text(3, "50%")).message(3, m().int(1, 0).int(2, 2));
    assert_eq!(
        decoded("policy/v1", "PodDisruptionBudget", m().message(2, budget))["spec"],
        json!({"minAvailable": "50%", "maxUnavailable": 2})
    );
    let limits = m().message(1, entry("cpu", &m().text(1, "500m").0));
    assert_eq!(decoded("v1", "ResourceQuota", m().message(2, limits))["spec"]["hard"], json!({"cpu": "500m"}));
}

#[test]
fn reviews_wrap_lists_and_revisions_hold_json() {
    let spec = m().text(3, "alice").message(5, entry("scopes", &m().text(1, "a").text(1, "b").0));
    let review = decoded("authorization.k8s.io/v1", "SubjectAccessReview", m().message(2, spec));
    assert_eq!(review["spec"], json!({"user": "alice", "extra": {"scopes": ["a", "b"]}}));
    let revision = m().message(2, m().bytes(1, br#"{"spec":{"x":1}}"#)).int(3, 7);
    assert_eq!(
        decoded("apps/v1", "ControllerRevision", revision),
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": {"x": 1}}, "revision": 7})
    );
    let nested = body("v1", "Namespace", m().message(1, m().text(1, "inner")));
    assert_eq!(
        decoded("apps/v1", "ControllerRevision", m().message(2, m().bytes(1, &nested)))["data"],
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inner"}})
    );
}

#[test]
fn negative_and_packed_numbers() {
    let context = m().int(4, -1).int(4, 5).bytes(4, &m().varint(6).varint(u64::MAX).0);
    assert_eq!(
        decoded("v1", "Pod", m().message(2, m().message(14, context)))["spec"]["securityContext"]["supplementalGroups"],
        json!([-1, 5, 6, -1])
    );
}

#[test]
fn schemas_of_custom_resources() {
    let string = m().text(5, "string");
    let items = m().message(1, string.clone());
    let open = m().int(1, 1);
    let list = m().text(5, "array").message(24, items);
    let schema = m().text(5, "object").message(29, entry("tags", &list.0)).message(30, open);
    let version = m().text(1, "v1").int(2, 1).int(3, 0).message(4, m().message(1, schema));
    let spec = m().text(1, "example.com").message(7, version);
    assert_eq!(
        decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", m().message(2, spec))["spec"]["versions"],
        json!([{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
            "additionalProperties": true}}}])
    );
}

#[test]
fn the_request_says_what_the_body_leaves_out() {
    let envelope = [MAGIC, &m().message(2, m().message(1, m().text(1, "a"))).0].concat();
    let namespace = decode(&envelope, Some(("v1", "Namespace"))).expect("the default names the kind");
    assert_eq!(namespace.value, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}));
    assert_eq!(
        decode(&envelope, None).expect_err("no kind").to_string(),
        "Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:\"\", Kind:\"\"}'"
    );
    let options = decoded("policy/v1", "DeleteOptions", m().int(1, 0).text(4, "Background"));
    assert_eq!(
        options,
        json!({"apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background"})
    );
}

#[test]
fn refuses_what_is_not_a_body() {
    let refusal = |body: &[u8]| decode(body, None).expect_err("wrong").to_string();
    assert_eq!(refusal(b""), "empty data");
    assert_eq!(
        refusal(b"{}"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(refusal(MAGIC), "empty body");
    assert_eq!(refusal(&[MAGIC, &[0x12, 9]].concat()), "unexpected EOF");
    assert_eq!(
        refusal(&body("kubevirt.io/v1", "VirtualMachine", m())),
        "no kind \"VirtualMachine\" is registered for version \"kubevirt.io/v1\" in scheme \"pkg/runtime/scheme.go:111\""
    );
    assert_eq!(refusal(&body("v1", "Pod", m().int(1, 1))), "proto: wrong wireType for field");
}

#[test]
fn refuses_endless_nesting() {
    let mut schema = m();
    for _ in 0..200 {
        schema = m().message(28, schema);
    }
    let version = m().message(4, m().message(1, schema));
    let body = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", m().message(2, m().message(7, version)));
    assert_eq!(decode(&body, None), Err(ProtobufError::TooDeep));
    let mut object = body;
    for _ in 0..200 {
        object = self::body("apps/v1", "ControllerRevision", m().message(2, m().bytes(1, &object)));
    }
    assert_eq!(decode(&object, None), Err(ProtobufError::TooDeep));
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, None);
        for (api_version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&body(api_version, kind, Message(bytes.clone())), None);
        }
    }

    #[test]
    fn damaged_bodies_never_panic(at in 0usize..60, byte in any::<u8>()) {
        let metadata = m().text(1, "settings").text(3, "default").message(11, entry("a", b"b")).message(8, m().int(1, 1));
        let mut bytes = body("v1", "ConfigMap", m().message(1, metadata).message(2, entry("a", b"1")));
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode(&bytes, None);
        let _ = decode(&bytes[..at], None);
    }
}

/// Where two values differ. What JSON writes although it is empty, and what is not written, are the same object.
fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                let value = |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                compare(&format!("{path}.{name}"), &value(ours), &value(theirs), differences);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(&format!("{path}[{index}]"), ours, theirs, differences);
            }
        }
        (Value::Null, theirs) if *theirs == json!({}) || *theirs == json!("0") => {}
        (ours, theirs) if ours == theirs => {}
        (ours, theirs) => differences.push(format!("{path}: {ours}, not {theirs}")),
    }
}

/// Kubernetes' API module carries a full object of every kind in both forms. Named by `KUBERNETES_API_TESTDATA`
/// (`…/k8s.io/api@v0.36.1/testdata/HEAD`), they must decode to each other.
#[test]
#[ignore = "needs the test data of Kubernetes' API module"]
fn every_kind_of_kubernetes_decodes_to_its_json() {
    let directory = std::env::var("KUBERNETES_API_TESTDATA").expect("KUBERNETES_API_TESTDATA names the directory");
    let mut compared = 0;
    for file in std::fs::read_dir(directory).expect("the directory is there") {
        let path = file.expect("it can be read").path();
        if path.extension().is_none_or(|extension| extension != "pb") {
            continue;
        }
        let json = std::fs::read(path.with_extension("json")).expect("each has its JSON");
        let expected: Value = serde_json::from_slice(&json).expect("it is JSON");
        let text = |field: &str| expected[field].as_str().unwrap_or_default();
        if !supports(text("apiVersion"), text("kind")) {
            continue;
        }
        let body = decode(&std::fs::read(&path).expect("it can be read"), None);
        let body = body.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut differences = Vec::new();
        compare("", &body.value, &expected, &mut differences);
        assert!(differences.is_empty(), "{}: {differences:#?}", path.display());
        compared += 1;
    }
    assert!(compared > 50, "{compared} kinds");
}
