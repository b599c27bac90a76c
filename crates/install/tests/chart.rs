//! The Helm chart says the same as `ferrovirt manifests`.
//!
//! `FERROVIRT_WRITE_CHART=1 cargo test -p ferrovirt-install --test chart` writes the generated files of the chart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use ferrovirt_api::names::labels;
use ferrovirt_install::{Images, Parameters, names, operator};
use serde_json::Value;

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/ferrovirt")
}

/// The same objects with Helm's words in place of the parameters. Helm makes the namespace, and the kind is apart.
fn template() -> String {
    let images = Images::of("{{ .Values.registry }}", "{{ .Values.tag | default .Chart.AppVersion }}");
    let mut parameters = Parameters::new("{{ .Release.Namespace }}", images);
    parameters.pull_policy = "{{ .Values.imagePullPolicy }}".to_owned();
    let apart = ["Namespace", "CustomResourceDefinition"];
    let objects = operator::objects(&parameters).into_iter();
    let objects = objects.filter(|object| !apart.contains(&object["kind"].as_str().unwrap())).map(left_alone_by_helm);
    let text: String = objects.map(|object| format!("---\n{}", serde_saphyr::to_string(&object).unwrap())).collect();
    format!("# Generated: see crates/install/tests/chart.rs.\n{text}")
}

/// Helm writes its own name over the label by which the operator finds its objects, except into those of hooks. This one makes the object
/// before there is an operator, and does not make it again with an update: the operator removes it when it has read it.
fn left_alone_by_helm(mut object: Value) -> Value {
    if object["metadata"]["labels"][labels::MANAGED_BY] == names::OPERATOR {
        object["metadata"]["annotations"]["helm.sh/hook"] = "pre-install".into();
    }
    object
}

/// The kind without its descriptions, which are most of it.
fn kind() -> String {
    let mut kind = operator::definition();
    for version in kind["spec"]["versions"].as_array_mut().unwrap() {
        strip(&mut version["schema"]["openAPIV3Schema"]);
    }
    format!("{kind}\n")
}

/// Removes descriptions of schemas; a property may have that name too.
fn strip(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    fields.remove("description");
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(strip),
            ("items" | "additionalProperties", schema) => strip(schema),
            _ => {}
        }
    }
}

#[test]
fn the_chart_is_up_to_date() {
    for (file, wanted) in [("templates/operator.yaml", template()), ("crds/kubevirts.json", kind())] {
        let path = chart().join(file);
        if std::env::var_os("FERROVIRT_WRITE_CHART").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(present == wanted, "{file} is out of date: set FERROVIRT_WRITE_CHART=1 and run this test again");
    }
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let text = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let version = format!("appVersion: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "Chart.yaml has to say {version}");
}
