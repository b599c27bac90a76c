//! What changes of users come to, object by object.

use ferrovirt_install::{Images, Parameters, components};

use super::*;

fn asking(spec: &Value) -> KubeVirt {
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "k"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

fn installed(kubevirt: &KubeVirt) -> Customized {
    let parameters = Parameters::new("kubevirt", Images::of("registry.example", "v1"));
    let known = Flags::from([
        (names::CONTROLLER, ["name".to_owned(), "health".to_owned()].into()),
        (names::HANDLER, ["max-devices".to_owned(), "kubelet".to_owned()].into()),
    ]);
    customized(components(&parameters), kubevirt, &known)
}

fn patch(kind: &str, name: &str, how: &str, patch: &Value) -> Value {
    json!({"resourceType": kind, "resourceName": name, "type": how, "patch": patch.to_string()})
}

fn patches(patches: &[Value]) -> KubeVirt {
    asking(&json!({"customizeComponents": {"patches": patches}}))
}

fn flags(flags: &Value) -> KubeVirt {
    asking(&json!({"customizeComponents": {"flags": flags}}))
}

fn find<'a>(customized: &'a Customized, kind: &str, name: &str) -> &'a Wanted {
    let is = |it: &&Wanted| it.object["kind"] == kind && it.object["metadata"]["name"] == name;
    customized.objects.iter().find(is).unwrap()
}

/// The reason why something is left as it is.
fn unfit(kubevirt: &KubeVirt, kind: &str, name: &str) -> String {
    find(&installed(kubevirt), kind, name).unfit.clone().unwrap()
}

#[test]
fn each_kind_of_patch_changes_its_object_and_no_other() {
    let limits = json!({"limits": {"memory": "1Gi"}});
    let kubevirt = patches(&[
        patch(
            "Deployment",
            "virt-api",
            "strategic",
            &json!({"spec": {"template": {"spec": {"containers": [{"name": "virt-api", "resources": limits}]}}}}),
        ),
        patch(
            "daemonset",
            "virt-handler",
            "json",
            &json!([{"op": "add", "path": "/spec/minReadySeconds", "value": 7}]),
        ),
        patch("Deployment", "*", "merge", &json!({"metadata": {"annotations": {"team": "a"}}})),
    ]);
    let (plain, customized) = (installed(&asking(&json!({}))), installed(&kubevirt));
    assert!(customized.objects.iter().all(|it| it.unfit.is_none()) && customized.unused.is_empty());
    let api = &find(&customized, "Deployment", names::API).object;
    let container = &api["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "32Mi"}})
    );
    assert_eq!(api["metadata"]["annotations"]["team"], "a");
    let controller = &find(&customized, "Deployment", names::CONTROLLER).object;
    assert_eq!(controller["metadata"]["annotations"]["team"], "a");
    assert_eq!(find(&customized, "DaemonSet", names::HANDLER).object["spec"]["minReadySeconds"], 7);
    let changed = plain.objects.iter().zip(&customized.objects).filter(|(before, after)| before != after).count();
    assert_eq!(changed, 3);
}

#[test]
fn what_cannot_be_changed_is_left_and_says_why() {
    let handler = |how: &str, with: &Value| patches(&[patch("DaemonSet", "virt-handler", how, with)]);
    for (kubevirt, why) in [
        (handler("json", &json!([{"op": "remove", "path": "/spec/nothing"}])), "spec.customizeComponents.patches[0]: "),
        (handler("merge", &json!({"metadata": {"name": "other"}})), "kind and name of an object cannot be changed"),
        (handler("merge", &json!({"metadata": null})), "kind and name of an object cannot be changed"),
        (handler("merge", &json!({"metadata": {"labels": "none"}})), "labels and annotations have to stay maps"),
        (handler("merge", &json!("text")), ""),
        (handler("strategic", &json!({"spec": {"template": {"spec": {"containers": [{"$patch": "x"}]}}}})), ""),
    ] {
        let said = unfit(&kubevirt, "DaemonSet", names::HANDLER);
        assert!(said.starts_with("DaemonSet virt-handler is left as it is: ") && said.contains(why), "{said}");
        let others = installed(&kubevirt).objects.into_iter().filter(|it| it.unfit.is_none()).count();
        assert_eq!(others, installed(&asking(&json!({}))).objects.len() - 1);
    }
}

/// An object without it would be made again and again.
#[test]
fn the_operators_mark_stays() {
    let kubevirt = patches(&[patch("Deployment", "virt-api", "merge", &json!({"metadata": {"labels": null}}))]);
    let customized = installed(&kubevirt);
    let labels = &find(&customized, "Deployment", names::API).object["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], names::OPERATOR);
}

#[test]
fn patches_for_what_is_not_here_are_told() {
    let kubevirt = patches(&[patch("Deployment", "virt-exportproxy", "merge", &json!({}))]);
    let told = installed(&kubevirt).unused;
    assert_eq!(told, ["spec.customizeComponents.patches[0]: there is no Deployment virt-exportproxy"]);
}

#[test]
fn flags_come_after_the_operators_own() {
    let kubevirt = flags(&json!({"handler": {"max-devices": "50", "kubelet": ""}, "controller": {"v": "6"}}));
    let customized = installed(&kubevirt);
    let container = |kind: &str, name: &str| {
        find(&customized, kind, name).object["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let handler = container("DaemonSet", names::HANDLER);
    assert_eq!(handler["command"], json!(["/usr/bin/ferrovirt", "handler", "--kubelet", "--max-devices=50"]));
    let controller = container("Deployment", names::CONTROLLER);
    let variables = controller["env"].as_array().unwrap();
    assert_eq!(variables.last().unwrap(), &json!({"name": "RUST_LOG", "value": "info,ferrovirt=trace"}));
}

#[test]
fn wrong_flags_say_which_there_are() {
    let said = unfit(&flags(&json!({"handler": {"hostname-override": "a"}})), "DaemonSet", names::HANDLER);
    assert!(
        said.ends_with(
            "spec.customizeComponents.flags.handler.hostname-override: virt-handler has no such flag; it has v, kubelet, max-devices"
        ),
        "{said}"
    );
    let said = unfit(&flags(&json!({"controller": {"name": "a"}})), "Deployment", names::CONTROLLER);
    assert!(said.contains("flags.controller.name: the operator sets this one itself"), "{said}");
    let said = unfit(&flags(&json!({"controller": {"v": "loud"}})), "Deployment", names::CONTROLLER);
    assert!(said.contains("flags.controller.v: loud is no number"), "{said}");
}

#[test]
fn the_configurations_verbosity_counts_where_no_flag_says_otherwise() {
    let log = |flags: &Value| {
        let verbosity = json!({"developerConfiguration": {"logVerbosity": {"virtAPI": 4, "virtController": 2}}});
        let kubevirt = asking(&json!({"configuration": verbosity, "customizeComponents": {"flags": flags}}));
        let customized = installed(&kubevirt);
        [names::API, names::CONTROLLER].map(|name| {
            let container = &find(&customized, "Deployment", name).object["spec"]["template"]["spec"]["containers"][0];
            let variables = container["env"].as_array().unwrap();
            variables.iter().find(|it| it["name"] == "RUST_LOG").map(|it| it["value"].clone())
        })
    };
    assert_eq!(log(&json!({})), [Some("info,ferrovirt=debug".into()), None]);
    assert_eq!(log(&json!({"api": {"v": "2"}})), [None, None]);
}
