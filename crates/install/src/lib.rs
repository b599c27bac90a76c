//! Every object of an installation on Kubernetes, as a function of a few parameters.
//!
//! ```text
//!   Parameters ──► operator::objects    what a user applies: namespace, operator, its rights
//!             └──► components           what the operator makes of the KubeVirt object
//! ```
//!
//! Nothing here asks a cluster or a clock. What virt-api says about its webhooks, its API and the users' roles is taken from its own
//! tables; [`rules`] has what each component may do, for Kubernetes and for the local cluster alike.

mod access;
pub mod names;
pub mod operator;
mod parameters;
mod pod;
mod policy;
pub mod rules;
mod workloads;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_api::names::{finalizers, labels};
use ferrovirt_virt_api::server::Service;
use serde_json::{Value, json};

pub use parameters::{Images, Parameters, Placement};
pub use workloads::{api, controller, handler};

/// Everything that the operator makes but certificates, in no particular order.
#[must_use]
pub fn components(parameters: &Parameters) -> Vec<Value> {
    let mut objects = definitions();
    objects.extend(access::objects(parameters));
    objects.extend(policy::node_restriction(parameters));
    objects.extend(registrations(parameters));
    objects.push(workloads::api_service(parameters));
    objects.extend([api(parameters), controller(parameters), handler(parameters)]);
    objects.extend(workloads::disruption_budgets(parameters));
    objects.iter_mut().for_each(manage);
    objects
}

/// Our kinds but `KubeVirt`, which is there before the operator is. Each is held until the operator has seen that its objects are
/// gone: the components that end guests must not lose the kind that they read.
fn definitions() -> Vec<Value> {
    let own = ferrovirt_api::crds::crds().into_iter().filter_map(|crd| serde_json::to_value(crd).ok());
    let others = own.filter(|crd| crd["spec"]["names"]["plural"] != names::INSTALLATIONS);
    others
        .map(|mut crd| {
            crd["metadata"]["finalizers"] = json!([finalizers::CRD]);
            crd
        })
        .collect()
}

/// Webhooks and the aggregated API.
fn registrations(parameters: &Parameters) -> Vec<Value> {
    let service = Service {
        namespace: parameters.namespace.clone(),
        name: names::API.to_owned(),
        port: names::API_SERVICE_PORT,
        ca_bundle: STANDARD.encode(&parameters.ca_bundle),
    };
    service.objects()
}

/// The certificates of the authorities, for everybody who has to recognise a component.
#[must_use]
pub fn ca_bundle(parameters: &Parameters) -> Value {
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": parameters.namespace, "name": names::CA},
        "data": {names::CA_BUNDLE_KEY: parameters.ca_bundle},
    });
    manage(&mut map);
    map
}

/// Marks an object as the operator's.
pub fn manage(object: &mut Value) {
    let own = &mut object["metadata"]["labels"];
    own[labels::MANAGED_BY] = names::OPERATOR.into();
    own[labels::APP_COMPONENT] = names::PRODUCT.into();
    if own[labels::APP].is_null() {
        own[labels::APP] = "".into();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn parameters() -> Parameters {
        let mut parameters = Parameters::new("kubevirt", Images::of("registry.example/ferrovirt", "v1.2.3"));
        parameters.ca_bundle = "CA".to_owned();
        parameters
    }

    /// Schemas are the types' business and would fill the golden file.
    fn without_schemas(objects: Vec<Value>) -> Vec<Value> {
        let strip = |mut object: Value| {
            for version in object["spec"]["versions"].as_array_mut().into_iter().flatten() {
                version["schema"] = "…".into();
            }
            object
        };
        objects.into_iter().map(strip).collect()
    }

    #[test]
    fn what_the_operator_makes() {
        insta::assert_yaml_snapshot!(without_schemas(components(&parameters())));
    }

    #[test]
    fn what_users_apply() {
        insta::assert_yaml_snapshot!(without_schemas(operator::objects(&parameters())));
    }

    #[test]
    fn another_namespace_is_used_throughout() {
        let elsewhere = Parameters { namespace: "machines".to_owned(), ..parameters() };
        let named = |object: &Value| object["metadata"]["namespace"].as_str().map(str::to_owned);
        let spaces: BTreeSet<String> = components(&elsewhere).iter().filter_map(named).collect();
        assert_eq!(spaces, ["kube-system".to_owned(), "machines".to_owned()].into());
        for object in components(&elsewhere).iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
            let text = object.to_string();
            assert!(!text.contains("\"kubevirt\"") || text.contains("component\":\"kubevirt\""), "{text}");
            assert!(!text.contains("serviceaccount:kubevirt:"), "{text}");
        }
    }

    #[test]
    fn every_object_is_one_of_a_kind_and_the_operators() {
        let objects = components(&parameters());
        let place = |object: &Value| {
            let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            (object["kind"].to_string(), part("namespace"), part("name"))
        };
        let places: BTreeSet<_> = objects.iter().map(place).collect();
        assert_eq!(places.len(), objects.len());
        assert!(objects.iter().all(|object| object["metadata"]["labels"][labels::MANAGED_BY] == "virt-operator"));
    }

    #[test]
    fn placement_and_replicas_are_taken_over() {
        let mut parameters = parameters();
        parameters.api_replicas = 5;
        parameters.workloads.node_selector = Some(json!({"disk": "ssd"}));
        parameters.infra.tolerations = Some(json!([{"key": "infra", "operator": "Exists"}]));
        let api = api(&parameters);
        assert_eq!(api["spec"]["replicas"], 5);
        assert_eq!(api["spec"]["template"]["spec"]["tolerations"][0]["key"], "infra");
        let selector = &handler(&parameters)["spec"]["template"]["spec"]["nodeSelector"];
        assert_eq!(selector, &json!({"disk": "ssd", "kubernetes.io/os": "linux"}));
    }

    /// Nobody can grant what they do not have, so the operator has what it grants.
    #[test]
    fn the_operator_may_all_that_it_grants() {
        let held = rules::operator_cluster();
        let holds = |group: &str, resource: &str, verb: &str| {
            let has = |rule: &Value, field: &str, word: &str| {
                rule[field].as_array().into_iter().flatten().any(|it| it == word || it == "*")
            };
            held.iter().any(|rule| {
                rule["resourceNames"].is_null()
                    && has(rule, "apiGroups", group)
                    && has(rule, "resources", resource)
                    && has(rule, "verbs", verb)
            })
        };
        let words = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        for role in components(&parameters()).iter().filter(|object| object["kind"] == "ClusterRole") {
            for rule in role["rules"].as_array().unwrap() {
                for group in words(&rule["apiGroups"]) {
                    for resource in words(&rule["resources"]) {
                        for verb in words(&rule["verbs"]) {
                            assert!(
                                holds(&group, &resource, &verb),
                                "{}: {group} {resource} {verb}",
                                role["metadata"]["name"]
                            );
                        }
                    }
                }
            }
        }
    }
}
