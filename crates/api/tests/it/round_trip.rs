//! Whatever a CRD's schema allows can be read by the types, and nothing is lost when it is written back.

use std::sync::LazyLock;

use ferrovirt_api::crds::crds;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::generate::Generator;
use crate::same::difference;
use crate::samples::through_its_type;

/// Kind, API version and schema of every kind.
static KINDS: LazyLock<Vec<(String, String, Value)>> = LazyLock::new(|| {
    let kinds = crds().into_iter().map(|crd| {
        let version = &crd.spec.versions[0];
        let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let schema = serde_json::to_value(schema).unwrap();
        (crd.spec.names.kind.clone(), format!("{}/{}", crd.spec.group, version.name), schema)
    });
    kinds.collect()
});

fn object(seed: [u8; 32], kind: usize, percent: u32) -> Value {
    let (kind, api_version, schema) = &KINDS[kind];
    let mut generator = Generator::new(seed);
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "generated" } });
    for part in ["spec", "status"] {
        object[part] = generator.value(&schema["properties"][part], percent);
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn objects_survive_a_round_trip(seed in any::<[u8; 32]>(), kind in 0..5_usize, percent in 5..60_u32) {
        let sent = object(seed, kind, percent);
        let received = through_its_type(&sent);
        let received = received.map_err(|error| TestCaseError::fail(format!("the schema allows it, but {error}")))?;
        prop_assert_eq!(difference(&sent, &received), None);
    }
}

#[test]
fn every_field_survives_at_once() {
    for kind in 0..KINDS.len() {
        let sent = object([7; 32], kind, 100);
        let received = through_its_type(&sent).unwrap();
        assert_eq!(difference(&sent, &received), None, "{}", KINDS[kind].0);
    }
}
