//! The CRDs: what they are called and shown as, and that an API server would take them.

use ferrovirt_api::crds::crds;
use serde_json::Value;

fn documents() -> Vec<Value> {
    crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
}

#[test]
fn heads() {
    let mut documents = documents();
    for version in documents.iter_mut().flat_map(|crd| crd["spec"]["versions"].as_array_mut().unwrap()) {
        version.as_object_mut().unwrap().remove("schema");
    }
    insta::assert_yaml_snapshot!(documents);
}

/// Calls `check` with every node of a schema and its path.
fn walk(schema: &Value, path: &str, check: &mut impl FnMut(&Value, &str)) {
    check(schema, path);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{name}"), check);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(child) = schema.get(key) {
            walk(child, &format!("{path}{mark}"), check);
        }
    }
}

fn walk_all(mut check: impl FnMut(&Value, &str)) {
    for crd in documents() {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let path = format!("{}/{}", crd["spec"]["names"]["kind"], version["name"]).replace('"', "");
            walk(&version["schema"]["openAPIV3Schema"], &path, &mut check);
        }
    }
}

#[test]
fn schemas_are_structural() {
    let untyped = |node: &Value| node["x-kubernetes-int-or-string"] == true;
    walk_all(|node, path| {
        assert!(node["type"].is_string() || untyped(node), "{path} has no type");
        assert!(node.get("$ref").is_none() && node.get("oneOf").is_none(), "{path}");
        assert!(node.get("anyOf").is_none() || untyped(node), "{path}");
        assert_eq!(node["type"] == "array", node.get("items").is_some(), "{path}");
        assert!(node.get("properties").is_none() || node.get("additionalProperties").is_none(), "{path}");
        let names = node["properties"].as_object();
        for required in node["required"].as_array().into_iter().flatten() {
            assert!(names.unwrap().contains_key(required.as_str().unwrap()), "{path} requires {required}");
        }
        for word in node["enum"].as_array().into_iter().flatten() {
            assert!(word.is_string(), "{path} allows {word}");
        }
    });
}

fn collect(select: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    walk_all(|node, path| {
        if let Some(what) = select(node).filter(|_| !path.contains("v1alpha3")) {
            found.push(format!("{path}: {what}"));
        }
    });
    found
}

#[test]
fn only_chosen_defaults_become_part_of_objects() {
    let defaults = collect(|node| node.get("default").map(Value::to_string).filter(|default| default != "\"\""));
    assert_eq!(
        defaults,
        [
            "VirtualMachine/v1.spec.template.spec.volumes[].containerPath.readOnly: true",
            "VirtualMachine/v1.status.printableStatus: \"Stopped\"",
            "VirtualMachineInstance/v1.spec.volumes[].containerPath.readOnly: true",
            "KubeVirt/v1.spec.configuration.confidentialCompute.tdx.attestation.enforced: false",
            "KubeVirt/v1.spec.configuration.confidentialCompute.tdx.attestation.qgsSocketPath: \"/var/run/tdx-qgs/qgs.socket\"",
        ]
    );
}

#[test]
fn metadata_of_templates_keeps_what_it_does_not_know() {
    let open = collect(|node| {
        let open = node["x-kubernetes-preserve-unknown-fields"] == true && node.get("properties").is_some();
        open.then(|| node["nullable"].to_string())
    });
    assert_eq!(
        open,
        [
            "VirtualMachine/v1.spec.dataVolumeTemplates[].metadata: true",
            "VirtualMachine/v1.spec.template.metadata: true",
        ]
    );
}

#[test]
fn lists_that_merge_by_key_say_so() {
    let keyed = |node: &Value| {
        (node["x-kubernetes-list-type"] == "map").then(|| node["x-kubernetes-list-map-keys"].to_string())
    };
    assert_eq!(
        collect(keyed),
        [
            "VirtualMachine/v1.spec.template.spec.resourceClaims: [\"name\"]",
            "VirtualMachine/v1.spec.template.spec.topologySpreadConstraints: [\"topologyKey\",\"whenUnsatisfiable\"]",
            "VirtualMachine/v1.spec.template.spec.utilityVolumes: [\"name\"]",
            "VirtualMachineInstance/v1.spec.resourceClaims: [\"name\"]",
            "VirtualMachineInstance/v1.spec.topologySpreadConstraints: [\"topologyKey\",\"whenUnsatisfiable\"]",
            "VirtualMachineInstance/v1.spec.utilityVolumes: [\"name\"]",
            "KubeVirt/v1.spec.configuration.supportContainerResources: [\"type\"]",
        ]
    );
}

#[test]
fn every_field_of_ours_is_described() {
    let silent = collect(|node| {
        let undescribed = |child: &Value| child.get("description").is_none();
        let names = node["properties"]
            .as_object()?
            .iter()
            .filter(|(_, child)| undescribed(child))
            .map(|(name, _)| name.as_str());
        let names: Vec<_> = names.filter(|name| !["metadata", "spec", "status"].contains(name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    });
    // The metadata of templates is what Kubernetes says everywhere.
    let silent: Vec<_> = silent.into_iter().filter(|line| !line.contains(".metadata")).collect();
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn crds_stay_small() {
    for crd in documents() {
        let bytes = crd.to_string().len();
        assert!(bytes < 200_000, "{} has {bytes} bytes", crd["metadata"]["name"]);
    }
}
