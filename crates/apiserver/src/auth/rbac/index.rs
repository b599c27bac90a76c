//! Roles and bindings, indexed by who they are for, so that a decision looks only at the user's own bindings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::quote::quoted;
use super::super::user::{UserInfo, service_account_user_name};
use super::attributes::{Attributes, Decision};
use super::rule::PolicyRule;

/// The four kinds of `rbac.authorization.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RbacKind {
    /// Rules within a namespace.
    Role,
    /// Rules for the cluster, or for any namespace that binds them.
    ClusterRole,
    /// Gives a role to subjects in one namespace.
    RoleBinding,
    /// Gives a cluster role to subjects everywhere.
    ClusterRoleBinding,
}

impl RbacKind {
    /// From `kind`.
    pub fn from_kind(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(Self::Role),
            "ClusterRole" => Some(Self::ClusterRole),
            "RoleBinding" => Some(Self::RoleBinding),
            "ClusterRoleBinding" => Some(Self::ClusterRoleBinding),
            _ => None,
        }
    }

    /// From the plural resource name.
    pub fn from_resource(resource: &str) -> Option<Self> {
        match resource {
            "roles" => Some(Self::Role),
            "clusterroles" => Some(Self::ClusterRole),
            "rolebindings" => Some(Self::RoleBinding),
            "clusterrolebindings" => Some(Self::ClusterRoleBinding),
            _ => None,
        }
    }

    /// The plural resource name.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// An object that cannot be what its kind says.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {kind:?} {name:?}: {source}")]
pub struct RbacObjectError {
    kind: RbacKind,
    name: String,
    source: serde_json::Error,
}

/// Which role a binding gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// `rbac.authorization.k8s.io`.
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The role's name.
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleObject {
    rules: Option<Vec<PolicyRule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BindingObject {
    role_ref: RoleRef,
    subjects: Option<Vec<Subject>>,
}

#[derive(Debug)]
struct Binding {
    role_ref: RoleRef,
    subjects: Vec<Subject>,
}

/// Bindings of one scope by subject name; the number is the place of the first such subject in the binding.
type BySubject = HashMap<String, BTreeMap<String, usize>>;

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Default)]
struct Scope {
    bindings: HashMap<String, Binding>,
    users: BySubject,
    groups: BySubject,
}

/// Rules that a user has, and what could not be resolved on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRules {
    /// The rules, bindings in name order, cluster-wide ones first.
    pub rules: Vec<PolicyRule>,
    /// Bindings that point at roles that are not there.
    pub errors: Vec<UnresolvedRole>,
}

/// A role reference that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedRole {
    /// The kind of role that was looked for.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl UnresolvedRole {
    /// The error in words. The reference calls the missing object by the resource that looked for it, which is the
    /// binding's when a write is checked and the role's own kind when a request is.
    pub(super) fn describe(&self, looked_for_by: Option<&str>) -> String {
        let what = match (self.kind.as_str(), looked_for_by) {
            ("Role" | "ClusterRole", Some(resource)) => resource,
            ("Role", None) => "role",
            ("ClusterRole", None) => "clusterrole",
            (other, _) => return format!("unsupported role reference kind: {}", quoted(other)),
        };
        format!("{what}.rbac.authorization.k8s.io {} not found", quoted(&self.name))
    }
}

impl ResolvedRules {
    /// All errors as one text, in the form of Kubernetes' aggregate; `None` without errors.
    pub fn error(&self) -> Option<String> {
        aggregate(&self.errors, None)
    }

    /// The same in the words of a write to `resource`.
    pub(super) fn error_for(&self, resource: &str) -> Option<String> {
        aggregate(&self.errors, Some(resource))
    }
}

/// All roles and bindings. Cheap to ask, cheap to keep up to date.
#[derive(Debug, Default)]
pub struct RbacIndex {
    roles: HashMap<String, HashMap<String, Arc<[PolicyRule]>>>,
    cluster_roles: HashMap<String, Arc<[PolicyRule]>>,
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
}

impl RbacIndex {
    /// An index that allows nothing but system:masters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a new or changed object.
    pub fn apply(&mut self, kind: RbacKind, object: &Value) -> Result<(), RbacObjectError> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let failed = |source| RbacObjectError { kind, name: text("name"), source };
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let role = RoleObject::deserialize(object).map_err(failed)?;
                let rules: Arc<[PolicyRule]> = role.rules.unwrap_or_default().into();
                if kind == RbacKind::ClusterRole {
                    self.cluster_roles.insert(name, rules);
                } else {
                    self.roles.entry(namespace).or_default().insert(name, rules);
                }
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let binding = BindingObject::deserialize(object).map_err(failed)?;
                let binding = Binding { role_ref: binding.role_ref, subjects: binding.subjects.unwrap_or_default() };
                if kind == RbacKind::ClusterRoleBinding {
                    self.cluster.insert("", name, binding);
                } else {
                    self.namespaces.entry(namespace.clone()).or_default().insert(&namespace, name, binding);
                }
            }
        }
        Ok(())
    }

    /// Forgets an object. `namespace` is empty for the cluster-scoped kinds.
    pub fn remove(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        match kind {
            RbacKind::ClusterRole => {
                self.cluster_roles.remove(name);
            }
            RbacKind::Role => remove_nested(&mut self.roles, namespace, |roles| {
                roles.remove(name);
                roles.is_empty()
            }),
            RbacKind::ClusterRoleBinding => self.cluster.remove("", name),
            RbacKind::RoleBinding => remove_nested(&mut self.namespaces, namespace, |scope| {
                scope.remove(namespace, name);
                scope.bindings.is_empty()
            }),
        }
    }

    /// Whether `user` may do this, and why (not).
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.is_master() {
            return Decision::allow("");
        }
        let mut allowed_by = None;
        let mut errors = Vec::new();
        self.visit(user, &attributes.namespace, |found| match found {
            Found::Rules(source, rules) => {
                let hit = rules.iter().any(|rule| rule.allows(attributes));
                if hit {
                    allowed_by = Some(source.describe());
                }
                !hit
            }
            Found::Missing(error) => {
                errors.push(error);
                true
            }
        });
        match allowed_by {
            Some(source) => Decision::allow(format!("RBAC: allowed by {source}")),
            None => Decision::deny(aggregate(&errors, None).map(|e| format!("RBAC: {e}")).unwrap_or_default()),
        }
    }

    /// Every rule that applies to `user` in `namespace` (empty: at cluster scope).
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> ResolvedRules {
        let mut resolved = ResolvedRules::default();
        self.visit(user, namespace, |found| {
            match found {
                Found::Rules(_, rules) => resolved.rules.extend_from_slice(rules),
                Found::Missing(error) => resolved.errors.push(error),
            }
            true
        });
        resolved
    }

    /// The rules behind a role reference made in `namespace` (empty: by a cluster role binding).
    pub fn role_rules(&self, role_ref: &RoleRef, namespace: &str) -> Result<&[PolicyRule], UnresolvedRole> {
        let rules = match role_ref.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role_ref.name),
            "Role" => self.roles.get(namespace).and_then(|roles| roles.get(&role_ref.name)),
            _ => None,
        };
        let unresolved = || UnresolvedRole { kind: role_ref.kind.clone(), name: role_ref.name.clone() };
        rules.map(|rules| &**rules).ok_or_else(unresolved)
    }

    /// Shows `visitor` the rules of each of the user's bindings until it returns false.
    fn visit<'a>(&'a self, user: &UserInfo, namespace: &str, mut visitor: impl FnMut(Found<'a>) -> bool) {
        let local = (!namespace.is_empty()).then(|| self.namespaces.get_key_value(namespace)).flatten();
        let scopes = std::iter::once(("", &self.cluster)).chain(local.map(|(name, scope)| (name.as_str(), scope)));
        for (scope_namespace, scope) in scopes {
            for (name, subject) in scope.bindings_of(user) {
                let Some(binding) = scope.bindings.get(name) else { continue };
                let found = match self.role_rules(&binding.role_ref, scope_namespace) {
                    Ok(rules) => Found::Rules(Source { namespace: scope_namespace, name, binding, subject }, rules),
                    Err(error) => Found::Missing(error),
                };
                if !visitor(found) {
                    return;
                }
            }
        }
    }
}

fn remove_nested<T>(outer: &mut HashMap<String, T>, key: &str, remove: impl FnOnce(&mut T) -> bool) {
    if outer.get_mut(key).is_some_and(remove) {
        outer.remove(key);
    }
}

enum Found<'a> {
    Rules(Source<'a>, &'a [PolicyRule]),
    Missing(UnresolvedRole),
}

/// The binding through which a user has a rule.
struct Source<'a> {
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: usize,
}

impl Source<'_> {
    fn describe(&self) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.to_owned())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let role = &self.binding.role_ref;
        let to = self.binding.subjects.get(self.subject).map(|s| s.describe(self.namespace)).unwrap_or_default();
        format!("{kind} {} of {} {} to {to}", quoted(&name), role.kind, quoted(&role.name))
    }
}

impl Subject {
    fn describe(&self, binding_namespace: &str) -> String {
        if self.kind == "ServiceAccount" {
            let namespace = if self.namespace.is_empty() { binding_namespace } else { &self.namespace };
            return format!("{} {}", self.kind, quoted(&format!("{}/{namespace}", self.name)));
        }
        format!("{} {}", self.kind, quoted(&self.name))
    }
}

impl Scope {
    fn insert(&mut self, namespace: &str, name: String, binding: Binding) {
        self.remove(namespace, &name);
        for (place, subject) in binding.subjects.iter().enumerate() {
            if let Some((index, key)) = self.index_of(subject, namespace) {
                index.entry(key).or_default().entry(name.clone()).or_insert(place);
            }
        }
        self.bindings.insert(name, binding);
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            if let Some((index, key)) = self.index_of(subject, namespace) {
                remove_nested(index, &key, |bindings| {
                    bindings.remove(name);
                    bindings.is_empty()
                });
            }
        }
    }

    /// Which index a subject is found in, and under which name. A service account is a user with a long name; one
    /// without a namespace means the binding's own.
    fn index_of(&mut self, subject: &Subject, namespace: &str) -> Option<(&mut BySubject, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => {
                let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                (!namespace.is_empty()).then(|| (&mut self.users, service_account_user_name(namespace, &subject.name)))
            }
            _ => None,
        }
    }

    /// Names of the bindings that apply to `user`, each with its first matching subject.
    fn bindings_of(&self, user: &UserInfo) -> BTreeMap<&str, usize> {
        let mut found = BTreeMap::new();
        let by_user = self.users.get(&user.name).into_iter();
        for bindings in by_user.chain(user.groups.iter().filter_map(|group| self.groups.get(group))) {
            for (name, &place) in bindings {
                found.entry(name.as_str()).and_modify(|first: &mut usize| *first = place.min(*first)).or_insert(place);
            }
        }
        found
    }
}

/// Several errors as one text, repetitions left out.
fn aggregate(errors: &[UnresolvedRole], looked_for_by: Option<&str>) -> Option<String> {
    let mut unique: Vec<String> = Vec::new();
    for error in errors {
        let text = error.describe(looked_for_by);
        if !unique.contains(&text) {
            unique.push(text);
        }
    }
    match unique.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
