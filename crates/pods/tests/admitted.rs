//! Admitted means startable: whatever validation lets through becomes a pod, and a domain that libvirt's schema accepts.
//!
//! Guests come from the cases of the rules (`crates/api/tests/rules`), a few of them at once, good ones mostly, and from values that the
//! CRD's schema allows in random places. `ADMITTED_SEED` starts elsewhere than at 0.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../api/tests/it/cases.rs"]
mod cases;
#[path = "../../api/tests/it/generate.rs"]
mod generate;
mod startable;

use std::collections::BTreeMap;
use std::process::Command;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::crds::crds;
use ferrovirt_api::defaults::{Inputs, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::validation::{beyond_machines, check_vmi};
use ferrovirt_api::vmi::Architecture;
use serde_json::{Value, json};

use cases::{guest_cases, merge, patch_guest, sound_guest};
use generate::Generator;
use startable::start;

const GUESTS: u64 = 1500;
/// Fewer would mean that the generator makes nothing worth looking at.
const LEAST_ADMITTED_PERCENT: u64 = 35;
const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

/// A guest and the cluster that it is for.
struct Written {
    guest: Value,
    cluster: Value,
}

fn write(seed: u64, cases: &[Value], schema: &Value) -> Written {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut generator = Generator::new(bytes);
    let mut written = Written { guest: sound_guest(), cluster: json!({}) };
    for _ in 0..generator.pick(&(0..7_usize)) {
        let case = &cases[generator.pick(&(0..cases.len()))];
        let patch = &case[if generator.chance(96) { "good" } else { "bad" }];
        patch_guest(&mut written.guest, patch);
        merge(&mut written.cluster, patch.get("cluster").unwrap_or(&json!({})));
    }
    for _ in 0..generator.pick(&(0..3_usize)) {
        change(&mut generator, schema, &mut written.guest["spec"]);
    }
    written
}

/// Puts something that the schema allows somewhere into a value.
fn change(generator: &mut Generator, schema: &Value, value: &mut Value) {
    if let (Some(items), Value::Array(elements)) = (schema.get("items"), &mut *value) {
        let index = generator.pick(&(0..=elements.len()));
        match elements.get_mut(index) {
            Some(element) => change(generator, items, element),
            None => elements.push(generator.value(items, 20)),
        }
        return;
    }
    let (Some(fields), true) = (schema["properties"].as_object(), value.is_object()) else {
        *value = generator.value(schema, 20);
        return;
    };
    let (name, child) = fields.iter().nth(generator.pick(&(0..fields.len()))).unwrap();
    if value.get(name).is_some() && generator.chance(80) {
        change(generator, child, &mut value[name]);
    } else {
        value[name] = generator.value(child, 20);
    }
}

/// The guest as the API server would store it, when it is let in.
fn admitted(written: &Written) -> Option<(VirtualMachineInstance, Configuration)> {
    let mut guest: VirtualMachineInstance = serde_json::from_value(written.guest.clone()).ok()?;
    let cluster: Configuration = serde_json::from_value(written.cluster.clone()).unwrap();
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    default_vmi(&mut guest, &cluster, &Inputs { now, uuid: 7, architecture: Architecture::Amd64 });
    guest.metadata.uid = Some("5c7a1f0e-3b1d-4c57-9d57-7a0c2f6f4d11".to_owned());
    guest.status.as_mut().unwrap().vsock_cid = Some(3);
    // What no machine has is let in for KubeVirt's sake; it starts nowhere, and says so at once.
    let exists = beyond_machines(&guest, &cluster).is_empty();
    (exists && check_vmi(&guest, &cluster, false).is_empty()).then_some((guest, cluster))
}

/// What libvirt's schema says about the documents, all in one go.
fn validate(documents: &BTreeMap<u64, String>) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    for (seed, xml) in documents {
        std::fs::write(directory.path().join(format!("{seed}.xml")), xml).unwrap();
    }
    let files = documents.keys().map(|seed| directory.path().join(format!("{seed}.xml")));
    let output = Command::new("xmllint").args(["--noout", "--relaxng", SCHEMA]).args(files).output();
    let output = output.expect("xmllint is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let invalid = |(seed, xml): (&u64, &String)| {
        let file = directory.path().join(format!("{seed}.xml"));
        let passes = said.contains(&format!("{} validates", file.display()));
        (!passes).then(|| format!("seed {seed}: not a domain\n{xml}"))
    };
    let wrong: Vec<String> = documents.iter().filter_map(invalid).collect();
    assert_eq!(output.status.success(), wrong.is_empty(), "{said}");
    wrong
}

/// How many admitted guests say something about each of these.
const PARTS: [&str; 8] = [
    "/spec/domain/devices/disks",
    "/spec/domain/devices/interfaces",
    "/spec/volumes",
    "/spec/domain/cpu",
    "/spec/domain/memory",
    "/spec/domain/firmware",
    "/spec/domain/features",
    "/spec/domain/clock",
];

#[test]
fn admitted_means_startable() {
    let cases = guest_cases();
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == "VirtualMachineInstance").unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let schema = serde_json::to_value(schema).unwrap()["properties"]["spec"].clone();
    let first = std::env::var("ADMITTED_SEED").map_or(0, |seed| seed.parse().unwrap());
    let (mut let_in, mut parts, mut failures, mut documents) = (0, [0_u64; PARTS.len()], Vec::new(), BTreeMap::new());
    for seed in first..first + GUESTS {
        let written = write(seed, &cases, &schema);
        let Some((guest, cluster)) = admitted(&written) else { continue };
        let_in += 1;
        for (count, part) in parts.iter_mut().zip(PARTS) {
            *count += u64::from(written.guest.pointer(part).is_some());
        }
        match start(&guest, cluster) {
            Ok(xml) => documents.extend(xml.map(|xml| (seed, xml))),
            Err(problem) => failures.push(format!("seed {seed}: {problem}\n{}", written.guest["spec"])),
        }
    }
    failures.extend(validate(&documents));
    assert!(failures.is_empty(), "{} of {let_in} fail:\n{}", failures.len(), failures.join("\n"));
    let percent = let_in * 100 / GUESTS;
    assert!(percent >= LEAST_ADMITTED_PERCENT, "only {percent} % are admitted");
    let documents = documents.len() as u64;
    assert!(documents * 100 >= let_in * 80, "only {documents} of {let_in} are for this machine's libvirt");
    assert!(parts.iter().all(|count| *count * 50 >= let_in), "some parts are rare: {parts:?} of {let_in}");
}
