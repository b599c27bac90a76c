//! Decisions, and that the index decides as reading everything would.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn role(name: &str, namespace: &str, rules: Value) -> Value {
    let mut role = json!({"metadata": {"name": name, "namespace": namespace}});
    role["rules"] = rules;
    role
}

fn binding(name: &str, namespace: &str, kind: &str, role: &str, subjects: Value) -> Value {
    let mut binding = json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
    });
    binding["subjects"] = subjects;
    binding
}

fn read_pods() -> Value {
    json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
}

fn index() -> RbacIndex {
    let mut index = RbacIndex::new();
    let mut apply = |kind, object: Value| index.apply(kind, &object).unwrap();
    apply(RbacKind::ClusterRole, role("reader", "", read_pods()));
    apply(RbacKind::ClusterRole, role("urls", "", json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz*"]}])));
    apply(RbacKind::Role, role("local", "ns", read_pods()));
    let to = |kind: &str, name: &str| json!([{"kind": kind, "name": name}]);
    apply(RbacKind::ClusterRoleBinding, binding("everywhere", "", "ClusterRole", "reader", to("Group", "ops")));
    apply(RbacKind::ClusterRoleBinding, binding("health", "", "ClusterRole", "urls", to("User", "jane")));
    apply(RbacKind::RoleBinding, binding("here", "ns", "Role", "local", to("User", "jane")));
    apply(RbacKind::RoleBinding, binding("robot", "ns", "ClusterRole", "reader", to("ServiceAccount", "robot")));
    apply(RbacKind::RoleBinding, binding("lost", "lost", "Role", "gone", to("User", "jane")));
    apply(RbacKind::RoleBinding, binding("lost2", "lost", "Role", "gone2", to("User", "jane")));
    index
}

#[test]
fn decisions_say_which_binding_allowed_them() {
    let pods = |namespace: &str| Attributes::resource("list", "", "pods", namespace);
    let jane = UserInfo::new::<&str>("jane", []);
    let ops = UserInfo::new("bob", ["ops"]);
    let robot = UserInfo::service_account("ns", "robot", None);
    let master = UserInfo::new("root", ["system:masters"]);
    let cases = [
        (&jane, pods("ns"), true, r#"RBAC: allowed by RoleBinding "here/ns" of Role "local" to User "jane""#),
        (&jane, pods("other"), false, ""),
        (&jane, pods(""), false, ""),
        (
            &jane,
            pods("lost"),
            false,
            r#"RBAC: [role.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone2" not found]"#,
        ),
        (
            &jane,
            Attributes::path("get", "/healthz/x"),
            true,
            r#"RBAC: allowed by ClusterRoleBinding "health" of ClusterRole "urls" to User "jane""#,
        ),
        (
            &ops,
            pods("any"),
            true,
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "ops""#,
        ),
        (
            &ops,
            pods(""),
            true,
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "ops""#,
        ),
        (
            &robot,
            pods("ns"),
            true,
            r#"RBAC: allowed by RoleBinding "robot/ns" of ClusterRole "reader" to ServiceAccount "robot/ns""#,
        ),
        (&robot, pods("ns2"), false, ""),
        (&master, Attributes::resource("delete", "x", "y", ""), true, ""),
    ];
    let index = index();
    for (user, attributes, allowed, reason) in cases {
        let want = Decision { allowed, reason: reason.to_owned() };
        assert_eq!(index.authorize(user, &attributes), want, "{user:?} {attributes:?}");
    }
}

#[test]
fn changes_take_effect_at_once() {
    let mut index = index();
    let jane = UserInfo::new::<&str>("jane", []);
    let pods = Attributes::resource("get", "", "pods", "ns");
    index.remove(RbacKind::Role, "ns", "local");
    assert!(!index.authorize(&jane, &pods).allowed);
    index.apply(RbacKind::Role, &role("local", "ns", read_pods())).unwrap();
    assert!(index.authorize(&jane, &pods).allowed);
    // The binding is given to somebody else.
    let moved = binding("here", "ns", "Role", "local", json!([{"kind": "User", "name": "bob"}]));
    index.apply(RbacKind::RoleBinding, &moved).unwrap();
    assert!(!index.authorize(&jane, &pods).allowed);
    assert!(index.authorize(&UserInfo::new::<&str>("bob", []), &pods).allowed);
    index.remove(RbacKind::RoleBinding, "ns", "here");
    index.remove(RbacKind::RoleBinding, "ns", "robot");
    assert!(!index.namespaces.contains_key("ns"), "nothing is left behind");
    index.remove(RbacKind::ClusterRoleBinding, "", "everywhere");
    index.remove(RbacKind::ClusterRoleBinding, "", "health");
    assert!(index.cluster.users.is_empty() && index.cluster.groups.is_empty());
    index.remove(RbacKind::ClusterRole, "", "no such role");
}

#[test]
fn rules_are_listed_with_what_is_missing() {
    let jane = UserInfo::new::<&str>("jane", []);
    let resolved = index().rules_for(&jane, "lost");
    assert_eq!(resolved.rules.len(), 1);
    assert_eq!(
        resolved.error().unwrap(),
        r#"[role.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone2" not found]"#
    );
    assert_eq!(index().rules_for(&jane, "ns").error(), None);
}

#[test]
fn nonsense_is_an_error_that_names_the_object() {
    let bad = json!({"metadata": {"name": "x"}, "rules": "all"});
    let error = RbacIndex::new().apply(RbacKind::ClusterRole, &bad).unwrap_err();
    assert!(error.to_string().starts_with(r#"cannot read ClusterRole "x""#), "{error}");
    let odd = binding("b", "ns", "Pod", "p", json!([{"kind": "User", "name": "jane"}, {"kind": "Robot", "name": "r"}]));
    let mut index = RbacIndex::new();
    index.apply(RbacKind::RoleBinding, &odd).unwrap();
    let decision = index.authorize(&UserInfo::new::<&str>("jane", []), &Attributes::resource("get", "", "pods", "ns"));
    assert_eq!(decision, Decision::deny(r#"RBAC: unsupported role reference kind: "Pod""#));
}

#[test]
fn kinds_have_names() {
    for kind in ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"] {
        let parsed = RbacKind::from_kind(kind).unwrap();
        assert_eq!(format!("{parsed:?}"), kind);
        assert_eq!(RbacKind::from_resource(parsed.resource()), Some(parsed));
    }
    assert_eq!((RbacKind::from_kind("Pod"), RbacKind::from_resource("pods")), (None, None));
}

/// What happened to the store, in order.
#[derive(Clone, Debug)]
enum Step {
    Apply(RbacKind, Value),
    Remove(RbacKind, String, String),
}

fn pick(items: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(items).prop_map(str::to_owned)
}

const NAMESPACES: &[&str] = &["n1", "n2"];
const NAMES: &[&str] = &["a", "b", "c"];
const USERS: &[&str] = &["u1", "u2", "system:serviceaccount:n1:sa", "system:serviceaccount:n2:sa"];
const GROUPS: &[&str] = &["g1", "g2", "system:masters"];
const VERBS: &[&str] = &["get", "list", "*"];
const RESOURCES: &[&str] = &["pods", "pods/log", "*/log", "*"];

fn rules() -> impl Strategy<Value = Value> {
    let rule = (
        prop::collection::vec(pick(VERBS), 0..2),
        prop::collection::vec(pick(&["", "apps", "*"]), 0..2),
        prop::collection::vec(pick(RESOURCES), 0..2),
        prop::collection::vec(pick(NAMES), 0..2),
        prop::collection::vec(pick(&["/x", "/x/*", "*"]), 0..2),
    )
        .prop_map(|(verbs, groups, resources, names, urls)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names, "nonResourceURLs": urls})
        });
    prop::collection::vec(rule, 0..3).prop_map(Value::from)
}

fn subjects() -> impl Strategy<Value = Value> {
    let subject = prop_oneof![
        pick(USERS).prop_map(|name| json!({"kind": "User", "name": name})),
        pick(&["g1", "g2"]).prop_map(|name| json!({"kind": "Group", "name": name})),
        pick(&["", "n1", "n2"]).prop_map(|ns| json!({"kind": "ServiceAccount", "name": "sa", "namespace": ns})),
        Just(json!({"kind": "Other", "name": "u1"})),
    ];
    prop::collection::vec(subject, 0..3).prop_map(Value::from)
}

fn step() -> impl Strategy<Value = Step> {
    use RbacKind::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
    let scope = |kind: RbacKind, ns: String| if matches!(kind, Role | RoleBinding) { ns } else { String::new() };
    let any_kind = prop::sample::select(vec![Role, ClusterRole, RoleBinding, ClusterRoleBinding]);
    prop_oneof![
        4 => (prop::sample::select(vec![Role, ClusterRole]), pick(NAMESPACES), pick(NAMES), rules())
            .prop_map(move |(kind, ns, name, rules)| Step::Apply(kind, role(&name, &scope(kind, ns), rules))),
        4 => (prop::sample::select(vec![RoleBinding, ClusterRoleBinding]), pick(NAMESPACES), pick(NAMES),
              pick(&["Role", "ClusterRole"]), pick(NAMES), subjects())
            .prop_map(move |(kind, ns, name, to, target, who)|
                Step::Apply(kind, binding(&name, &scope(kind, ns), &to, &target, who))),
        1 => (any_kind, pick(NAMESPACES), pick(NAMES))
            .prop_map(move |(kind, ns, name)| Step::Remove(kind, scope(kind, ns), name)),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let resource = (
        pick(&["get", "list", "delete"]),
        pick(&["", "apps"]),
        pick(&["", "log"]),
        pick(&["", "n1", "n2"]),
        pick(&["", "a"]),
    )
        .prop_map(|(verb, group, sub, namespace, name)| {
            Attributes::resource(&verb, &group, "pods", &namespace).on_subresource(&sub).named(&name)
        });
    prop_oneof![resource, pick(&["/x", "/x/y", "/z"]).prop_map(|path| Attributes::path("get", &path))]
}

/// Reads every binding for every question, as the definition of RBAC does.
fn naive(objects: &BTreeMap<(String, String, String), Value>, user: &UserInfo, wanted: &Attributes) -> bool {
    let applies = |subject: &Value, namespace: &str| {
        let name = subject["name"].as_str().unwrap();
        match subject["kind"].as_str().unwrap() {
            "User" => user.name == name,
            "Group" => user.groups.iter().any(|group| group == name),
            "ServiceAccount" => {
                let own = subject["namespace"].as_str().filter(|ns| !ns.is_empty()).unwrap_or(namespace);
                !own.is_empty() && user.name == format!("system:serviceaccount:{own}:{name}")
            }
            _ => false,
        }
    };
    user.groups.iter().any(|group| group == "system:masters")
        || objects.iter().any(|((kind, namespace, _), binding)| {
            let in_scope = match kind.as_str() {
                "ClusterRoleBinding" => true,
                "RoleBinding" => !wanted.namespace.is_empty() && *namespace == wanted.namespace,
                _ => false,
            };
            let role_kind = binding["roleRef"]["kind"].as_str().unwrap_or_default();
            let role_namespace = if role_kind == "Role" { namespace.clone() } else { String::new() };
            let role_name = binding["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
            in_scope
                && binding["subjects"].as_array().unwrap().iter().any(|subject| applies(subject, namespace))
                && objects.get(&(role_kind.to_owned(), role_namespace, role_name)).is_some_and(|role| {
                    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
                    rules.iter().any(|rule| rule.allows(wanted))
                })
        })
}

proptest! {
    #[test]
    fn the_index_decides_as_reading_everything_does(
        steps in prop::collection::vec(step(), 0..40),
        name in pick(USERS),
        groups in prop::collection::vec(pick(GROUPS), 0..3),
        wanted in attributes(),
    ) {
        let mut index = RbacIndex::new();
        let mut objects = BTreeMap::new();
        for step in steps {
            match step {
                Step::Apply(kind, object) => {
                    index.apply(kind, &object).unwrap();
                    let field = |f: &str| object["metadata"][f].as_str().unwrap().to_owned();
                    objects.insert((format!("{kind:?}"), field("namespace"), field("name")), object.clone());
                }
                Step::Remove(kind, namespace, name) => {
                    index.remove(kind, &namespace, &name);
                    objects.remove(&(format!("{kind:?}"), namespace, name));
                }
            }
        }
        let user = UserInfo::new(name, groups);
        let decision = index.authorize(&user, &wanted);
        prop_assert_eq!(decision.allowed, naive(&objects, &user, &wanted), "{:?}", decision.reason);
        if !user.is_master() {
            let by_rules = index.rules_for(&user, &wanted.namespace).rules.iter().any(|rule| rule.allows(&wanted));
            prop_assert_eq!(decision.allowed, by_rules, "the list of rules says the same");
        }
    }
}
