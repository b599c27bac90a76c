//! What a cluster serves: two requests where the server can say it all at once, one for each group otherwise.

use anyhow::bail;
use http::Method;
use serde_json::Value;

use crate::session::{Refused, Session};

/// All groups at once, or their names.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// A kind that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    singular: String,
    short: Vec<String>,
    categories: Vec<String>,
}

impl Resource {
    /// `kubevirt.io/v1`
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `virtualmachine.kubevirt.io`
    pub(super) fn typed(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) }
    }

    /// The path of its objects: of one namespace, or of all.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = namespace.filter(|_| self.namespaced).map(|name| format!("/namespaces/{name}"));
        format!("{root}/{}{}/{}", self.api_version(), namespace.unwrap_or_default(), self.plural)
    }

    fn is_called(&self, word: &str) -> bool {
        self.plural == word
            || self.singular == word
            || self.kind.to_lowercase() == word
            || self.short.iter().any(|short| short == word)
    }
}

/// The kinds of a cluster, each in its preferred version, the core's first.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    resources: Vec<Resource>,
}

impl Discovery {
    /// Asks the cluster.
    pub(super) async fn read(session: &Session) -> Result<Self, Refused> {
        let mut known = Self::default();
        for root in ["/api", "/apis"] {
            let told = session.ask(Method::GET, root, None, ACCEPT).await?;
            match told["kind"].as_str() {
                Some("APIGroupDiscoveryList") => known.take_aggregated(&told),
                Some("APIVersions") => {
                    let list = session.get("/api/v1").await?;
                    known.take_list("", "v1", &list);
                }
                _ => known.take_groups(session, &told).await?,
            }
        }
        Ok(known)
    }

    fn take_aggregated(&mut self, told: &Value) {
        for group in told["items"].as_array().into_iter().flatten() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            let mut seen = Vec::new();
            // The preferred version is the first; others add what it lacks.
            for version in group["versions"].as_array().into_iter().flatten() {
                for entry in version["resources"].as_array().into_iter().flatten() {
                    let Some(plural) = entry["resource"].as_str().filter(|plural| !seen.contains(plural)) else {
                        continue;
                    };
                    seen.push(plural);
                    self.resources.push(Resource {
                        group: name.to_owned(),
                        version: text(&version["version"]),
                        plural: plural.to_owned(),
                        kind: text(&entry["responseKind"]["kind"]),
                        namespaced: entry["scope"] == "Namespaced",
                        singular: text(&entry["singularResource"]),
                        short: texts(&entry["shortNames"]),
                        categories: texts(&entry["categories"]),
                    });
                }
            }
        }
    }

    async fn take_groups(&mut self, session: &Session, told: &Value) -> Result<(), Refused> {
        for group in told["groups"].as_array().into_iter().flatten() {
            let preferred = text(&group["preferredVersion"]["groupVersion"]);
            let Some((name, version)) = preferred.split_once('/') else { continue };
            // An extension server that is away does not hide the other groups.
            if let Ok(list) = session.get(&format!("/apis/{preferred}")).await {
                self.take_list(name, version, &list);
            }
        }
        Ok(())
    }

    fn take_list(&mut self, group: &str, version: &str, list: &Value) {
        for entry in list["resources"].as_array().into_iter().flatten() {
            let plural = text(&entry["name"]);
            if plural.contains('/') {
                continue;
            }
            self.resources.push(Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural,
                kind: text(&entry["kind"]),
                namespaced: entry["namespaced"] == true,
                singular: text(&entry["singularName"]),
                short: texts(&entry["shortNames"]),
                categories: texts(&entry["categories"]),
            });
        }
    }

    /// The kind of a word: `vm`, `virtualmachines`, `VirtualMachine`, `virtualmachines.kubevirt.io`; or those of a category, `all`.
    pub(super) fn find(&self, word: &str) -> anyhow::Result<Vec<Resource>> {
        let lower = word.to_lowercase();
        if let Some(found) = self.resources.iter().find(|resource| resource.is_called(&lower)) {
            return Ok(vec![found.clone()]);
        }
        if let Some((name, rest)) = lower.split_once('.') {
            let of_group = |resource: &&Resource| {
                resource.is_called(name)
                    && (resource.group == rest || format!("{}.{}", resource.version, resource.group) == rest)
            };
            if let Some(found) = self.resources.iter().find(of_group) {
                return Ok(vec![found.clone()]);
            }
        }
        let members: Vec<Resource> =
            self.resources.iter().filter(|resource| resource.categories.contains(&lower)).cloned().collect();
        if members.is_empty() {
            bail!(
                "the server doesn't have a resource type \"{word}\": kubevirt's are vm, vmi, vmim, kubevirt; Kubernetes' are pod, pvc, node, event, …"
            );
        }
        Ok(members)
    }

    /// The kind that an object says it is.
    pub(super) fn of(&self, api_version: &str, kind: &str) -> anyhow::Result<Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let matches = |resource: &&Resource| resource.group == group && resource.kind == kind;
        let Some(found) = self.resources.iter().find(matches) else {
            bail!(
                "the server serves no {kind} of {api_version}: is the API version right, and is what defines it installed?"
            );
        };
        Ok(Resource { version: version.to_owned(), ..found.clone() })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A small cluster.
    pub(in super::super) fn known() -> Discovery {
        let entry = |plural: &str, kind: &str, scope: &str, short: &[&str], categories: &[&str]| {
            json!({
                "resource": plural, "responseKind": {"kind": kind}, "scope": scope, "singularResource": kind.to_lowercase(),
                "shortNames": short, "categories": categories,
            })
        };
        let mut known = Discovery::default();
        known.take_aggregated(&json!({"items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                entry("pods", "Pod", "Namespaced", &["po"], &["all"]),
                entry("nodes", "Node", "Cluster", &["no"], &[]),
            ]}]},
            {"metadata": {"name": "kubevirt.io"}, "versions": [
                {"version": "v1", "resources": [entry("virtualmachines", "VirtualMachine", "Namespaced", &["vm", "vms"], &["all"])]},
                {"version": "v1alpha3", "resources": [entry("virtualmachines", "VirtualMachine", "Namespaced", &[], &[])]},
            ]},
        ]}));
        known
    }

    #[test]
    fn kinds_have_many_names() {
        let known = known();
        for word in [
            "vm",
            "VMs",
            "virtualmachine",
            "virtualmachines",
            "VirtualMachine",
            "vm.kubevirt.io",
            "virtualmachines.v1.kubevirt.io",
        ] {
            let found = known.find(word).unwrap();
            assert_eq!((found.len(), found[0].version.as_str()), (1, "v1"), "{word}");
        }
        assert_eq!(known.find("all").unwrap().len(), 2);
        assert!(known.find("vm.example.com").is_err());
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let known = known();
        let path = |word: &str, namespace| known.find(word).unwrap()[0].path(namespace);
        assert_eq!(path("vm", Some("a")), "/apis/kubevirt.io/v1/namespaces/a/virtualmachines");
        assert_eq!(path("vm", None), "/apis/kubevirt.io/v1/virtualmachines");
        assert_eq!(path("no", Some("a")), "/api/v1/nodes");
        assert_eq!(known.of("kubevirt.io/v1alpha3", "VirtualMachine").unwrap().version, "v1alpha3");
        assert!(known.of("v1", "VirtualMachine").is_err());
    }
}
