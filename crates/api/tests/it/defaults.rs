//! Whatever a user writes, defaulting it twice is the same as defaulting it once, and loses nothing that was said.

use std::sync::LazyLock;

use ferrovirt_api::crds::crds;
use ferrovirt_api::defaults::{Inputs, default_migration, default_vm, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::vmi::Architecture;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::Generator;

/// The schema of a kind's `spec`.
fn spec_schema(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    serde_json::to_value(schema).unwrap()["properties"]["spec"].clone()
}

static GUEST: LazyLock<Value> = LazyLock::new(|| spec_schema("VirtualMachineInstance"));
static CLUSTER: LazyLock<Value> = LazyLock::new(|| spec_schema("KubeVirt")["properties"]["configuration"].clone());

fn inputs(uuid: u128) -> Inputs {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    Inputs { now, uuid, architecture: Architecture::Amd64 }
}

/// Whether `after` has everything that `before` has; lists may only grow at the end. Zeros and empty words count
/// as unset.
fn kept(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.iter().all(|(key, value)| after.get(key).is_some_and(|found| kept(value, found)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() <= after.len() && before.iter().zip(after).all(|(before, after)| kept(before, after))
        }
        (Value::Number(number), _) if number.as_i64() == Some(0) => true,
        (Value::String(text), _) if text.is_empty() => true,
        _ => before == after,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn once_is_enough(seed in any::<[u8; 32]>(), percent in 5..60_u32, uuid in any::<[u128; 2]>()) {
        let mut generator = Generator::new(seed);
        let spec = generator.value(&GUEST, percent);
        let cluster: Configuration = serde_json::from_value(generator.value(&CLUSTER, percent)).unwrap();
        let mut once: VirtualMachineInstance = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let written = serde_json::to_value(&once.spec).unwrap();
        default_vmi(&mut once, &cluster, &inputs(uuid[0]));
        let mut twice = once.clone();
        // Randomness comes anew with each call, and must find nothing left to decide.
        default_vmi(&mut twice, &cluster, &inputs(uuid[1]));
        prop_assert_eq!(&once, &twice);
        let defaulted = serde_json::to_value(&once.spec).unwrap();
        // The one feature that another brings by force.
        let forced = once.spec.domain.cpu.as_ref().unwrap().features.iter().any(|feature| feature.name == "vmx");
        prop_assert!(forced || kept(&written, &defaulted), "{written}\n{defaulted}");
    }

    #[test]
    fn once_is_enough_for_machines_and_moves(seed in any::<[u8; 32]>(), percent in 5..60_u32, uuid in any::<[u128; 2]>(), is_new: bool) {
        let mut generator = Generator::new(seed);
        let spec = generator.value(&GUEST, percent);
        let cluster: Configuration = serde_json::from_value(generator.value(&CLUSTER, percent)).unwrap();
        let mut once: VirtualMachine = serde_json::from_value(json!({"spec": {"template": {"spec": spec}}})).unwrap();
        let written = serde_json::to_value(&once.spec).unwrap();
        default_vm(&mut once, &cluster, &inputs(uuid[0]), is_new);
        let mut twice = once.clone();
        default_vm(&mut twice, &cluster, &inputs(uuid[1]), is_new);
        prop_assert_eq!(&once, &twice);
        prop_assert!(kept(&written, &serde_json::to_value(&once.spec).unwrap()));

        let mut moved: VirtualMachineInstanceMigration = serde_json::from_value(json!({"spec": {"vmiName": "a"}})).unwrap();
        default_migration(&mut moved);
        let again = { let mut again = moved.clone(); default_migration(&mut again); again };
        prop_assert_eq!(moved, again);
    }
}
