//! How the server is made known to a cluster: its webhooks and its API, as objects to apply.

use ferrovirt_api::names::{groups, labels};
use serde_json::{Value, json};

use super::webhooks::{HOOKS, Hook, Step, Subject, WITH_STATUS};
use crate::admission::review::Kind;
use crate::subresources::VERSIONS;

/// Seconds that the API server waits for a webhook.
const TIMEOUT: u8 = 10;

/// Where the server is, as the cluster sees it.
#[derive(Debug, Clone)]
pub struct Service {
    /// Namespace of the `Service`.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// The authorities of the server's certificate, as PEM in base64.
    pub ca_bundle: String,
}

impl Service {
    /// `ValidatingWebhookConfiguration`, `MutatingWebhookConfiguration` and one `APIService` for each version.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let configuration = |kind: &str, name: &str, step: Step| {
            let hooks: Vec<Value> = HOOKS.iter().filter(|hook| hook.step == step).map(|hook| self.hook(hook)).collect();
            let metadata = json!({"name": name, "labels": {labels::APP: "virt-api"}});
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "webhooks": hooks})
        };
        let mut objects = vec![
            configuration("MutatingWebhookConfiguration", "virt-api-mutator", Step::Mutate),
            configuration("ValidatingWebhookConfiguration", "virt-api-validator", Step::Validate),
        ];
        objects.extend(VERSIONS.map(|version| self.api_service(version)));
        objects
    }

    fn hook(&self, hook: &Hook) -> Value {
        let rule = |group: &str, versions: Value, resources: Vec<String>| json!({"apiGroups": [group], "apiVersions": versions, "operations": hook.operations, "resources": resources});
        let rules = match hook.subject {
            Subject::Of(kind) => vec![rule(kind.group(), json!(["*"]), vec![plural(kind).to_owned()])],
            Subject::Statuses => {
                let statuses = WITH_STATUS.map(|kind| format!("{}/status", plural(kind)));
                vec![rule(groups::KUBEVIRT, json!(["*"]), statuses.to_vec())]
            }
            Subject::Eviction => vec![rule("", json!(["v1"]), vec!["pods/eviction".to_owned()])],
        };
        let service = json!({"namespace": self.namespace, "name": self.name, "port": self.port, "path": hook.path});
        let mut out = json!({
            "name": format!("{}.{}", hook.name, groups::KUBEVIRT),
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": TIMEOUT,
            "clientConfig": {"service": service, "caBundle": self.ca_bundle},
            "rules": rules,
        });
        if hook.subject == Subject::Of(Kind::Installation) {
            // Whatever happens to virt-api, the installation can be repaired and removed.
            out["failurePolicy"] = "Ignore".into();
        }
        if hook.subject == Subject::Eviction {
            // Guests are marked, but not in a dry run.
            out["sideEffects"] = "NoneOnDryRun".into();
            // Whatever happens to virt-api, other pods can be evicted.
            let expression =
                "object.metadata.name.startsWith(\"virt-launcher\") || object.metadata.name.startsWith(\"hp-volume-\")";
            out["matchConditions"] = json!([{"name": "guests-only", "expression": expression}]);
        }
        out
    }

    fn api_service(&self, version: &str) -> Value {
        let service = json!({"namespace": self.namespace, "name": self.name, "port": self.port});
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {
                "name": format!("{version}.{}", groups::SUBRESOURCES), "labels": {labels::APP: "virt-api-aggregator"},
            },
            "spec": {
                "group": groups::SUBRESOURCES, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": service, "caBundle": self.ca_bundle,
            },
        })
    }
}

fn plural(kind: Kind) -> &'static str {
    Kind::ALL.iter().find(|(known, ..)| *known == kind).map_or("", |(_, _, plural, _)| plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_about_webhooks_and_the_api() {
        let service = Service {
            namespace: "kubevirt".to_owned(),
            name: "virt-api".to_owned(),
            port: 443,
            ca_bundle: "Q0E=".to_owned(),
        };
        insta::assert_json_snapshot!(service.objects());
    }
}
