//! Which resources are served, as data. Handlers ask here and never know a kind by name.
//!
//! Built-in kinds are rows of [`builtin`]; custom kinds are made from CRDs by [`custom`]. Both become a [`Resource`],
//! and a request is served from nothing else. Readers take a snapshot, so a CRD that changes never tears a request.

pub mod builtin;
pub mod custom;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ferrovirt_machinery::names::NameRule;
use ferrovirt_machinery::schema::Schema;
use parking_lot::RwLock;

use crate::status::Subject;
use crate::strategy::Strategy;

/// One served resource of one version.
#[derive(Clone)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Arc<str>,
    /// Served version.
    pub version: Arc<str>,
    /// Plural name in URLs.
    pub plural: Arc<str>,
    /// Singular name.
    pub singular: String,
    /// Kind of one object.
    pub kind: Arc<str>,
    /// Kind of a list.
    pub list_kind: String,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Names that kubectl accepts too.
    pub short_names: Vec<String>,
    /// Groups such as `all`.
    pub categories: Vec<String>,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// What can be done below it.
    pub subresources: Vec<Subresource>,
    /// Where its objects are in the store: `group/plural`, shared by all versions of a kind.
    pub storage: Arc<str>,
    /// The `apiVersion` that stored objects have.
    pub storage_api_version: Arc<str>,
    /// How writes behave.
    pub rules: Rules,
    /// What the kind does beyond the rules.
    pub strategy: &'static dyn Strategy,
    /// Present when the kind comes from a CRD.
    pub custom: Option<Arc<custom::Custom>>,
}

/// A subresource in discovery and routing.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// `status`, `scale`, …
    pub name: String,
    /// Kind of its body, with group and version when they are not the resource's own.
    pub kind: String,
    /// `(group, version)` of that kind.
    pub group_version: Option<(String, String)>,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

/// How writes of a kind behave.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// What names look like.
    pub names: NameRule,
    /// When `metadata.generation` moves.
    pub generation: Generation,
    /// PUT to a name that does not exist creates it.
    pub create_on_update: bool,
    /// PUT without a resource version overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Spec writes keep the stored status.
    pub has_status: bool,
}

/// When `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    None,
    /// Whenever `spec` changes.
    Spec,
    /// Whenever `spec` or an annotation changes.
    SpecAndAnnotations,
    /// Whenever anything but metadata (and status, where that is a subresource) changes.
    Content,
}

impl Resource {
    /// `group/version`, or `version` for core.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    /// For error messages.
    pub fn subject(&self) -> Subject<'_> {
        Subject { group: &self.group, resource: &self.plural }
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// The schema of one object; built-in schemas are made on first use and shared.
    pub fn schema(&self) -> Option<Arc<Schema>> {
        match &self.custom {
            Some(custom) => Some(custom.schema.clone()),
            None => ferrovirt_machinery::builtin::schema(&self.group, &self.version, &self.kind),
        }
    }

    /// The schema with `metadata` typed, as ownership of fields needs it.
    pub fn typed_schema(&self) -> Option<Arc<Schema>> {
        match &self.custom {
            Some(custom) => Some(custom.typed_schema.clone()),
            None => self.schema(),
        }
    }

    /// The key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> crate::store::Key {
        crate::store::Key {
            resource: self.storage.clone(),
            namespace: if self.namespaced { namespace.into() } else { "".into() },
            name: name.into(),
        }
    }
}

/// `group/version`, or `version` for core.
pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an `apiVersion`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// One consistent set of served resources.
#[derive(Default, Clone)]
pub struct Snapshot {
    /// By `group/version/plural`.
    by_path: HashMap<String, Arc<Resource>>,
    /// `group` → versions in order of preference.
    groups: BTreeMap<String, Vec<String>>,
    /// Goes up with every change, for discovery hashes.
    pub epoch: u64,
}

impl Snapshot {
    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&format!("{group}/{version}/{plural}"))
    }

    /// The resource of a kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .values()
            .find(|resource| &*resource.group == group && &*resource.version == version && &*resource.kind == kind)
    }

    /// Groups with their versions, best first. Core is the empty name.
    pub fn groups(&self) -> &BTreeMap<String, Vec<String>> {
        &self.groups
    }

    /// The resources of one group and version, by name.
    pub fn of_group_version(&self, group: &str, version: &str) -> Vec<&Arc<Resource>> {
        let mut out: Vec<_> = self
            .by_path
            .values()
            .filter(|resource| &*resource.group == group && &*resource.version == version)
            .collect();
        out.sort_by(|a, b| a.plural.cmp(&b.plural));
        out
    }

    /// Every resource once, in its best version.
    pub fn preferred(&self) -> Vec<&Arc<Resource>> {
        let mut best: BTreeMap<&str, &Arc<Resource>> = BTreeMap::new();
        for (group, versions) in &self.groups {
            for version in versions {
                for resource in self.of_group_version(group, version) {
                    best.entry(&resource.storage).or_insert(resource);
                }
            }
        }
        best.into_values().collect()
    }

    /// Plural, singular and short names, and kinds, that a group has without those of one CRD.
    pub fn taken_names(&self, group: &str, except_crd: &str) -> (HashSet<String>, HashSet<String>) {
        let (mut names, mut kinds) = (HashSet::new(), HashSet::new());
        for resource in self.by_path.values().filter(|resource| &*resource.group == group) {
            if resource.custom.as_ref().is_some_and(|custom| custom.crd_name == except_crd) {
                continue;
            }
            names.extend([resource.plural.to_string(), resource.singular.clone()]);
            names.extend(resource.short_names.iter().cloned());
            kinds.extend([resource.kind.to_string(), resource.list_kind.clone()]);
        }
        (names, kinds)
    }

    /// The CRD is served as of this generation.
    pub fn custom_is_current(&self, crd: &str, generation: i64, terminating: bool) -> bool {
        self.by_path.values().any(|resource| {
            resource.custom.as_ref().is_some_and(|custom| {
                custom.crd_name == crd && custom.generation == generation && custom.terminating == terminating
            })
        })
    }

    fn insert(&mut self, resource: Arc<Resource>) {
        let versions = self.groups.entry(resource.group.to_string()).or_default();
        if !versions.iter().any(|version| **version == *resource.version) {
            versions.push(resource.version.to_string());
            versions.sort_by(|a, b| compare_versions(b, a));
        }
        let path = format!("{}/{}/{}", resource.group, resource.version, resource.plural);
        self.by_path.insert(path, resource);
    }

    fn remove_custom(&mut self, crd: &str) {
        self.by_path.retain(|_, resource| resource.custom.as_ref().is_none_or(|custom| custom.crd_name != crd));
        let by_path = &self.by_path;
        self.groups.retain(|group, versions| {
            versions.retain(|version| {
                by_path.values().any(|resource| *resource.group == **group && *resource.version == **version)
            });
            !versions.is_empty()
        });
    }
}

/// Orders versions as Kubernetes does: GA over beta over alpha, then by number; anything else after them by name.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    fn rank(version: &str) -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        match &rest[end..] {
            "" => Some((2, major, 0)),
            other if other.starts_with("beta") => Some((1, major, other[4..].parse().ok()?)),
            other if other.starts_with("alpha") => Some((0, major, other[5..].parse().ok()?)),
            _ => None,
        }
    }
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// The served resources, changed as CRDs come and go.
pub struct Registry {
    current: RwLock<Arc<Snapshot>>,
    /// The epoch of `current`, for those who wait for a change.
    epoch: tokio::sync::watch::Sender<u64>,
}

impl Default for Registry {
    fn default() -> Self {
        let mut snapshot = Snapshot::default();
        for resource in builtin::resources() {
            snapshot.insert(Arc::new(resource));
        }
        Self { current: RwLock::new(Arc::new(snapshot)), epoch: tokio::sync::watch::Sender::new(0) }
    }
}

impl Registry {
    /// What is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().clone()
    }

    /// Waits until what is served fulfils a condition.
    pub async fn until(&self, condition: impl Fn(&Snapshot) -> bool) {
        // Never an error: the sender is here.
        let _ = self.epoch.subscribe().wait_for(|_| condition(&self.current.read())).await;
    }

    /// Replaces everything that one CRD serves.
    pub fn set_custom(&self, crd_name: &str, resources: Vec<Resource>) {
        self.change(|snapshot| {
            snapshot.remove_custom(crd_name);
            for resource in resources {
                snapshot.insert(Arc::new(resource));
            }
        });
    }

    /// Stops serving what one CRD described.
    pub fn remove_custom(&self, crd_name: &str) {
        self.change(|snapshot| snapshot.remove_custom(crd_name));
    }

    fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut current = self.current.write();
        let mut next = (**current).clone();
        change(&mut next);
        next.epoch += 1;
        let epoch = next.epoch;
        *current = Arc::new(next);
        drop(current);
        self.epoch.send_replace(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_kubernetes_does() {
        let mut versions = ["v1alpha3", "v10", "v2", "foo1", "v1beta1", "v11alpha2", "v3beta1", "v1"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v3beta1", "v1beta1", "v11alpha2", "v1alpha3", "foo1"]);
    }

    #[test]
    fn builtin_rows_are_found_by_path_and_kind() {
        let snapshot = Registry::default().snapshot();
        assert_eq!(&*snapshot.find("", "v1", "pods").unwrap().kind, "Pod");
        assert_eq!(&*snapshot.by_kind("apps", "v1", "Deployment").unwrap().plural, "deployments");
    }
}
