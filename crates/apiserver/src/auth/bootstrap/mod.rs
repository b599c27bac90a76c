//! The roles and bindings that every cluster starts with, as kube-apiserver 1.36 has them.
//!
//! They are data: [`roles`] for people and components, [`controllers`] for controllers, the rest here. Lists are one
//! string with spaces between the items; `core` stands for the core group, whose name is empty.

mod controllers;
mod roles;

use serde_json::{Value, json};

use super::rbac::escalation::RBAC_GROUP;
use super::rbac::{PolicyRule, RbacKind};
use controllers::CONTROLLER_ROLES;
use roles::CLUSTER_ROLES;
use verbs::{READ, RECORD};

/// Verbs that go together.
mod verbs {
    pub(super) const READ: &str = "get list watch";
    pub(super) const READ_UPDATE: &str = "get list patch update watch";
    pub(super) const READ_WRITE: &str = "create delete deletecollection get list patch update watch";
    pub(super) const RECORD: &str = "create patch update";
    pub(super) const WRITE: &str = "create delete deletecollection patch update";
}

/// Marks objects that the server makes.
pub const BOOTSTRAPPING_LABEL: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");
/// Whether the server may add rules that it misses in such an object; an administrator sets it to `false` to keep
/// a change.
pub const AUTOUPDATE_ANNOTATION: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// One rule, in short.
#[derive(Clone, Copy)]
struct Rule {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    urls: &'static str,
}

const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> Rule {
    Rule { verbs, groups, resources, names: "", urls: "" }
}

const fn urls(verbs: &'static str, urls: &'static str) -> Rule {
    Rule { verbs, groups: "", resources: "", names: "", urls }
}

impl Rule {
    const fn named(mut self, names: &'static str) -> Self {
        self.names = names;
        self
    }

    fn expand(&self) -> PolicyRule {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let groups = self.groups.split_whitespace().map(|group| if group == "core" { "" } else { group });
        PolicyRule {
            verbs: list(self.verbs),
            api_groups: groups.map(str::to_owned).collect(),
            resources: list(self.resources),
            resource_names: list(self.names),
            non_resource_urls: list(self.urls),
        }
    }
}

/// A role, in short.
#[derive(Clone, Copy)]
struct Role {
    name: &'static str,
    rules: &'static [Rule],
    /// Its rules are gathered by roles that ask for this label.
    label: &'static str,
    /// It gathers the rules of roles with this label.
    gathers: &'static str,
}

impl Role {
    const fn new(name: &'static str, rules: &'static [Rule]) -> Self {
        Self { name, rules, label: "", gathers: "" }
    }

    const fn labelled(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    const fn gathering(mut self, label: &'static str) -> Self {
        self.gathers = label;
        self
    }

    fn expand(&self, kind: &str, name: &str, namespace: &str) -> Value {
        let mut object = object(kind, name, namespace);
        if !self.label.is_empty() {
            object["metadata"]["labels"][format!("{RBAC_GROUP}/{}", self.label)] = json!("true");
        }
        if self.gathers.is_empty() {
            object["rules"] = json!(self.rules.iter().map(Rule::expand).collect::<Vec<_>>());
        } else {
            let label = format!("{RBAC_GROUP}/{}", self.gathers);
            object["rules"] = Value::Null;
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        object
    }
}

/// A binding, in short. Subjects are `User:name`, `Group:name` or `ServiceAccount:namespace/name`.
struct Bound {
    name: &'static str,
    role: &'static str,
    subjects: &'static str,
}

impl Bound {
    const fn new(name: &'static str, role: &'static str, subjects: &'static str) -> Self {
        Self { name, role, subjects }
    }
}

const ROLES: &[(&str, Role)] = &[
    (
        "kube-public",
        Role::new(
            "system:controller:bootstrap-signer",
            &[
                on(READ, "core", "configmaps"),
                on("update", "core", "configmaps").named("cluster-info"),
                on(RECORD, "core events.k8s.io", "events"),
            ],
        ),
    ),
    (
        "kube-system",
        Role::new(
            "extension-apiserver-authentication-reader",
            &[on(READ, "core", "configmaps").named("extension-apiserver-authentication")],
        ),
    ),
    ("kube-system", Role::new("system::leader-locking-kube-controller-manager", LEADER_LOCKING)),
    ("kube-system", Role::new("system::leader-locking-kube-scheduler", LEADER_LOCKING)),
    ("kube-system", Role::new("system:controller:bootstrap-signer", &[on(READ, "core", "secrets")])),
    (
        "kube-system",
        Role::new("system:controller:cloud-provider", &[on("create get list watch", "core", "configmaps")]),
    ),
    (
        "kube-system",
        Role::new(
            "system:controller:token-cleaner",
            &[on("delete get list watch", "core", "secrets"), on(RECORD, "core events.k8s.io", "events")],
        ),
    ),
];

const LEADER_LOCKING: &[Rule] = &[
    on("create get list update watch", "coordination.k8s.io", "leases"),
    on("create get list update watch", "coordination.k8s.io", "leasecandidates"),
];

const CLUSTER_ROLE_BINDINGS: &[Bound] = &[
    Bound::new("cluster-admin", "cluster-admin", "Group:system:masters"),
    Bound::new("system:basic-user", "system:basic-user", "Group:system:authenticated"),
    Bound::new("system:discovery", "system:discovery", "Group:system:authenticated"),
    Bound::new(
        "system:kube-controller-manager",
        "system:kube-controller-manager",
        "User:system:kube-controller-manager",
    ),
    Bound::new("system:kube-dns", "system:kube-dns", "ServiceAccount:kube-system/kube-dns"),
    Bound::new("system:kube-scheduler", "system:kube-scheduler", "User:system:kube-scheduler"),
    Bound::new("system:monitoring", "system:monitoring", "Group:system:monitoring"),
    Bound::new("system:node", "system:node", ""),
    Bound::new("system:node-proxier", "system:node-proxier", "User:system:kube-proxy"),
    Bound::new(
        "system:public-info-viewer",
        "system:public-info-viewer",
        "Group:system:authenticated Group:system:unauthenticated",
    ),
    Bound::new(
        "system:service-account-issuer-discovery",
        "system:service-account-issuer-discovery",
        "Group:system:serviceaccounts",
    ),
    Bound::new("system:volume-scheduler", "system:volume-scheduler", "User:system:kube-scheduler"),
];

const ROLE_BINDINGS: &[(&str, Bound)] = &[
    (
        "kube-public",
        Bound::new(
            "system:controller:bootstrap-signer",
            "system:controller:bootstrap-signer",
            "ServiceAccount:kube-system/bootstrap-signer",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system::extension-apiserver-authentication-reader",
            "extension-apiserver-authentication-reader",
            "User:system:kube-controller-manager User:system:kube-scheduler",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system::leader-locking-kube-controller-manager",
            "system::leader-locking-kube-controller-manager",
            "User:system:kube-controller-manager ServiceAccount:kube-system/kube-controller-manager \
             ServiceAccount:kube-system/leader-election-controller",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system::leader-locking-kube-scheduler",
            "system::leader-locking-kube-scheduler",
            "User:system:kube-scheduler ServiceAccount:kube-system/kube-scheduler",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system:controller:bootstrap-signer",
            "system:controller:bootstrap-signer",
            "ServiceAccount:kube-system/bootstrap-signer",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system:controller:cloud-provider",
            "system:controller:cloud-provider",
            "ServiceAccount:kube-system/cloud-provider",
        ),
    ),
    (
        "kube-system",
        Bound::new(
            "system:controller:token-cleaner",
            "system:controller:token-cleaner",
            "ServiceAccount:kube-system/token-cleaner",
        ),
    ),
];

/// Everything, cluster roles first. Objects carry no uid or times; roles that gather others have no rules yet (see
/// [`super::rbac::aggregation`]).
pub fn objects() -> Vec<(RbacKind, Value)> {
    let controller = |role: &Role| format!("system:controller:{}", role.name);
    let mut objects = Vec::new();
    objects.extend(CLUSTER_ROLES.iter().map(|r| (RbacKind::ClusterRole, r.expand("ClusterRole", r.name, ""))));
    objects
        .extend(CONTROLLER_ROLES.iter().map(|r| (RbacKind::ClusterRole, r.expand("ClusterRole", &controller(r), ""))));
    let cluster_binding = |name: &str, role: &str, subjects: Value| {
        (RbacKind::ClusterRoleBinding, binding("ClusterRoleBinding", name, "", ("ClusterRole", role), subjects))
    };
    objects.extend(CLUSTER_ROLE_BINDINGS.iter().map(|b| cluster_binding(b.name, b.role, subjects(b.subjects))));
    objects.extend(CONTROLLER_ROLES.iter().map(|role| {
        let account = json!([{"kind": "ServiceAccount", "name": role.name, "namespace": "kube-system"}]);
        cluster_binding(&controller(role), &controller(role), account)
    }));
    objects.extend(ROLES.iter().map(|(namespace, r)| (RbacKind::Role, r.expand("Role", r.name, namespace))));
    objects.extend(ROLE_BINDINGS.iter().map(|(namespace, b)| {
        (RbacKind::RoleBinding, binding("RoleBinding", b.name, namespace, ("Role", b.role), subjects(b.subjects)))
    }));
    objects
}

fn object(kind: &str, name: &str, namespace: &str) -> Value {
    let (label, value) = BOOTSTRAPPING_LABEL;
    let mut metadata = json!({"name": name, "labels": {label: value}, "annotations": {AUTOUPDATE_ANNOTATION: "true"}});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": kind, "metadata": metadata})
}

fn binding(kind: &str, name: &str, namespace: &str, (role_kind, role): (&str, &str), subjects: Value) -> Value {
    let mut binding = object(kind, name, namespace);
    binding["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role});
    if !subjects.is_null() {
        binding["subjects"] = subjects;
    }
    binding
}

fn subjects(text: &str) -> Value {
    let subject = |text: &str| {
        let (kind, name) = text.split_once(':')?;
        Some(match name.split_once('/').filter(|_| kind == "ServiceAccount") {
            Some((namespace, name)) => json!({"kind": kind, "name": name, "namespace": namespace}),
            None => json!({"apiGroup": RBAC_GROUP, "kind": kind, "name": name}),
        })
    };
    let subjects: Vec<Value> = text.split_whitespace().filter_map(subject).collect();
    if subjects.is_empty() { Value::Null } else { Value::from(subjects) }
}

#[cfg(test)]
mod tests {
    use super::super::rbac::aggregation::aggregated_rules;
    use super::super::rbac::{Attributes, RbacIndex};
    use super::super::user::UserInfo;
    use super::*;

    /// All of it in an index, gathered roles computed until nothing changes.
    fn settled() -> RbacIndex {
        let mut objects = objects();
        for _ in 0..3 {
            let roles: Vec<Value> = objects
                .iter()
                .filter(|(kind, _)| *kind == RbacKind::ClusterRole)
                .map(|(_, role)| role.clone())
                .collect();
            for (_, object) in &mut objects {
                if let Some(rules) = aggregated_rules(object, &roles) {
                    object["rules"] = json!(rules);
                }
            }
        }
        let mut index = RbacIndex::new();
        for (kind, object) in &objects {
            index.apply(*kind, object).unwrap();
        }
        index
    }

    fn grant(index: &mut RbacIndex, role: &str) {
        let subject = json!([{"kind": "User", "name": role}]);
        let object = binding("RoleBinding", role, "ns", ("ClusterRole", role), subject);
        index.apply(RbacKind::RoleBinding, &object).unwrap();
    }

    #[test]
    fn view_edit_and_admin_grow_in_this_order() {
        let mut index = settled();
        for role in ["view", "edit", "admin"] {
            grant(&mut index, role);
        }
        let table = [
            // verb, group, resource, and the weakest role that may
            ("list", "", "pods", "view"),
            ("get", "apps", "deployments", "view"),
            ("get", "", "secrets", "edit"),
            ("create", "", "pods", "edit"),
            ("create", "", "pods/exec", "edit"),
            ("impersonate", "", "serviceaccounts", "edit"),
            ("create", "rbac.authorization.k8s.io", "rolebindings", "admin"),
            ("create", "authorization.k8s.io", "localsubjectaccessreviews", "admin"),
            ("update", "", "resourcequotas", "nobody"),
            ("update", "", "namespaces", "nobody"),
        ];
        for (verb, group, resource, weakest) in table {
            let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = Attributes::resource(verb, group, resource, "ns").on_subresource(sub);
            let mut allowed = false;
            for role in ["view", "edit", "admin"] {
                allowed |= role == weakest;
                let decision = index.authorize(&UserInfo::new::<&str>(role, []), &attributes);
                assert_eq!(decision.allowed, allowed, "{role} {verb} {resource}");
            }
        }
    }

    #[test]
    fn everybody_can_discover_and_nobody_else_can_read() {
        let index = settled();
        let jane = UserInfo::new("jane", ["system:authenticated"]);
        let anonymous = UserInfo::anonymous();
        let cases = [
            (&anonymous, Attributes::path("get", "/healthz"), true),
            (&anonymous, Attributes::path("get", "/version"), true),
            (&anonymous, Attributes::path("get", "/api"), false),
            (&jane, Attributes::path("get", "/apis/apps/v1"), true),
            (&jane, Attributes::path("get", "/metrics"), false),
            (&jane, Attributes::resource("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""), true),
            (&anonymous, Attributes::resource("create", "authorization.k8s.io", "selfsubjectaccessreviews", ""), false),
            (&jane, Attributes::resource("list", "", "pods", "default"), false),
        ];
        for (user, attributes, want) in cases {
            assert_eq!(index.authorize(user, &attributes).allowed, want, "{} {attributes:?}", user.name);
        }
        let account = UserInfo::service_account("ns", "x", None);
        assert!(index.authorize(&account, &Attributes::path("get", "/openid/v1/jwks")).allowed);
        let reader = UserInfo::new::<&str>("system:kube-scheduler", []);
        let config = Attributes::resource("get", "", "configmaps", "kube-system");
        assert!(index.authorize(&reader, &config.clone().named("extension-apiserver-authentication")).allowed);
        assert!(!index.authorize(&reader, &config.named("other")).allowed);
    }

    #[test]
    fn names_are_unique_and_bindings_lead_somewhere() {
        let objects = objects();
        let key = |kind: RbacKind, object: &Value| {
            (
                kind.resource(),
                object["metadata"]["namespace"].clone().to_string(),
                object["metadata"]["name"].to_string(),
            )
        };
        let mut keys: Vec<_> = objects.iter().map(|(kind, object)| key(*kind, object)).collect();
        keys.sort();
        let count = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), count);
        for (kind, object) in &objects {
            if let Some(target) = object["roleRef"]["name"].as_str() {
                let role_kind = RbacKind::from_kind(object["roleRef"]["kind"].as_str().unwrap()).unwrap();
                assert!(
                    objects.iter().any(|(k, role)| *k == role_kind
                        && role["metadata"]["name"] == target
                        && role["metadata"]["namespace"] == object["metadata"]["namespace"]),
                    "{kind:?} {target}"
                );
            }
        }
    }

    #[test]
    fn every_rule_is_complete() {
        for (_, object) in objects() {
            for rule in object["rules"].as_array().into_iter().flatten() {
                let rule: PolicyRule = serde_json::from_value(rule.clone()).unwrap();
                assert!(!rule.verbs.is_empty());
                assert_ne!(rule.resources.is_empty(), rule.non_resource_urls.is_empty(), "{rule:?}");
                assert_eq!(rule.resources.is_empty(), rule.api_groups.is_empty(), "{rule:?}");
            }
        }
    }
}
