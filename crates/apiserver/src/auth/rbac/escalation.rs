//! Nobody can grant what they do not have.
//!
//! Whoever writes a role must hold every right in it, and whoever writes a binding must hold every right of the role
//! that it gives, unless they were allowed to `escalate` that role or to `bind` it.

use serde::Deserialize;
use serde_json::Value;

use super::super::quote::{quoted, quoted_list};
use super::super::user::UserInfo;
use super::aggregation::rules_of;
use super::attributes::{Attributes, forbidden_because};
use super::index::{RbacIndex, RbacKind, RoleRef};
use super::missing::missing;
use super::rule::PolicyRule;

/// The API group of roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Why a role or binding may not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EscalationError {
    /// 403: it would give rights that the writer does not have. Holds the whole message of the `Status`.
    #[error("{0}")]
    Forbidden(String),
    /// 404: the binding's role does not exist, so its rights cannot be compared.
    #[error("{message}")]
    RoleNotFound {
        /// The role's name: `details.name`.
        name: String,
        /// The message of the `Status`.
        message: String,
    },
}

/// Whether `user` may write `new` (over `old`, if it exists). `namespace` is empty for cluster-scoped kinds.
pub fn check_write(
    index: &RbacIndex,
    user: &UserInfo,
    kind: RbacKind,
    namespace: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), EscalationError> {
    if user.is_master() || old.is_some_and(|old| only_collector_fields_differ(new, old)) {
        return Ok(());
    }
    let writer = Writer { index, user, kind, namespace, name: new["metadata"]["name"].as_str().unwrap_or_default() };
    match kind {
        RbacKind::Role | RbacKind::ClusterRole => writer.may_write_role(new, old),
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => writer.may_write_binding(new),
    }
}

struct Writer<'a> {
    index: &'a RbacIndex,
    user: &'a UserInfo,
    kind: RbacKind,
    namespace: &'a str,
    name: &'a str,
}

impl Writer<'_> {
    fn may_write_role(&self, new: &Value, old: Option<&Value>) -> Result<(), EscalationError> {
        let escalate =
            Attributes::resource("escalate", RBAC_GROUP, self.kind.resource(), self.namespace).named(self.name);
        if self.index.authorize(self.user, &escalate).allowed {
            return Ok(());
        }
        self.holds(&rules_of(new))?;
        let aggregates = self.kind == RbacKind::ClusterRole && (gathers(new) || old.is_some_and(gathers));
        if aggregates && self.holds(&everything()).is_err() {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn may_write_binding(&self, new: &Value) -> Result<(), EscalationError> {
        let role_ref = RoleRef::deserialize(&new["roleRef"]).unwrap_or_default();
        let resource = match role_ref.kind.as_str() {
            "ClusterRole" => Some("clusterroles"),
            "Role" => Some("roles"),
            _ => None,
        };
        let may_bind = resource.is_some_and(|resource| {
            let bind =
                Attributes::resource("bind", &role_ref.api_group, resource, self.namespace).named(&role_ref.name);
            self.index.authorize(self.user, &bind).allowed
        });
        if may_bind {
            return Ok(());
        }
        let rules =
            self.index.role_rules(&role_ref, self.namespace).map_err(|missing| EscalationError::RoleNotFound {
                name: missing.name.clone(),
                message: missing.describe(Some(self.kind.resource())),
            })?;
        self.holds(rules)
    }

    fn holds(&self, wanted: &[PolicyRule]) -> Result<(), EscalationError> {
        let owned = self.index.rules_for(self.user, self.namespace);
        let missing = missing(&owned.rules, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut listed = missing.listed.join("\n");
        if missing.more > 0 {
            listed.push_str(&format!("\n... and {} more", missing.more));
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(&self.user.name),
            quoted_list(&self.user.groups),
            listed
        );
        if let Some(error) = owned.error_for(self.kind.resource()) {
            why.push_str(&format!("; resolution errors: [{error}]"));
        }
        Err(self.forbidden(&why))
    }

    fn forbidden(&self, why: &str) -> EscalationError {
        EscalationError::Forbidden(forbidden_because(RBAC_GROUP, self.kind.resource(), self.name, why))
    }
}

fn gathers(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

fn everything() -> [PolicyRule; 2] {
    let star = || vec!["*".to_owned()];
    [
        PolicyRule { verbs: star(), api_groups: star(), resources: star(), ..PolicyRule::default() },
        PolicyRule { verbs: star(), non_resource_urls: star(), ..PolicyRule::default() },
    ]
}

/// The garbage collector must be able to let go of any object, so what only it changes needs no rights.
fn only_collector_fields_differ(new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    stripped(new) == stripped(old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Jane may read pods in `ns`, escalate role `grow` and bind cluster role `free` there.
    fn index() -> RbacIndex {
        let mut index = RbacIndex::new();
        let mut apply = |kind, object: Value| index.apply(kind, &object).unwrap();
        apply(
            RbacKind::Role,
            json!({"metadata": {"name": "reader", "namespace": "ns"}, "rules": [
                {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["escalate"], "apiGroups": [RBAC_GROUP], "resources": ["roles"], "resourceNames": ["grow"]},
                {"verbs": ["bind"], "apiGroups": [RBAC_GROUP], "resources": ["clusterroles"], "resourceNames": ["free"]},
            ]}),
        );
        apply(
            RbacKind::RoleBinding,
            json!({"metadata": {"name": "b", "namespace": "ns"}, "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "reader"},
                   "subjects": [{"kind": "User", "name": "jane"}]}),
        );
        for name in ["free", "big"] {
            apply(
                RbacKind::ClusterRole,
                json!({"metadata": {"name": name}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
            );
        }
        index
    }

    fn jane() -> UserInfo {
        UserInfo::new("jane", ["system:authenticated"])
    }

    fn role(name: &str, verbs: &[&str]) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns"}, "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn binding(kind: &str, name: &str) -> Value {
        json!({"metadata": {"name": "new", "namespace": "ns"}, "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}})
    }

    fn write(kind: RbacKind, object: &Value) -> Result<(), EscalationError> {
        check_write(&index(), &jane(), kind, "ns", object, None)
    }

    #[test]
    fn what_one_has_one_may_grant() {
        assert_eq!(write(RbacKind::Role, &role("r", &["get"])), Ok(()));
        assert_eq!(write(RbacKind::RoleBinding, &binding("Role", "reader")), Ok(()));
    }

    #[test]
    fn missing_rights_are_listed() {
        let want = concat!(
            r#"roles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["system:authenticated"]) is "#,
            "attempting to grant RBAC permissions not currently held:\n",
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}"#
        );
        assert_eq!(
            write(RbacKind::Role, &role("r", &["get", "delete", "watch"])),
            Err(EscalationError::Forbidden(want.to_owned()))
        );
        let refused = write(RbacKind::RoleBinding, &binding("ClusterRole", "big")).unwrap_err().to_string();
        assert!(
            refused.starts_with(r#"rolebindings.rbac.authorization.k8s.io "new" is forbidden: user "jane""#),
            "{refused}"
        );
    }

    #[test]
    fn unresolved_roles_of_the_writer_are_told() {
        let mut index = index();
        let dangling = json!({"metadata": {"name": "d"}, "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "gone"},
            "subjects": [{"kind": "User", "name": "jane"}]});
        index.apply(RbacKind::ClusterRoleBinding, &dangling).unwrap();
        let refused = check_write(&index, &jane(), RbacKind::Role, "ns", &role("r", &["delete"]), None).unwrap_err();
        let want = r#"; resolution errors: [roles.rbac.authorization.k8s.io "gone" not found]"#;
        assert!(refused.to_string().ends_with(want), "{refused}");
    }

    #[test]
    fn escalate_and_bind_lift_the_check() {
        assert_eq!(write(RbacKind::Role, &role("grow", &["delete"])), Ok(()));
        assert_eq!(write(RbacKind::RoleBinding, &binding("ClusterRole", "free")), Ok(()));
        let master = UserInfo::new("root", ["system:masters"]);
        let object = role("r", &["*"]);
        assert_eq!(check_write(&index(), &master, RbacKind::Role, "ns", &object, None), Ok(()));
    }

    #[test]
    fn a_binding_to_a_missing_role_is_not_found() {
        assert_eq!(
            write(RbacKind::RoleBinding, &binding("Role", "gone")),
            Err(EscalationError::RoleNotFound {
                name: "gone".to_owned(),
                message: r#"rolebindings.rbac.authorization.k8s.io "gone" not found"#.to_owned()
            })
        );
    }

    #[test]
    fn aggregation_needs_everything() {
        let gatherer = json!({"metadata": {"name": "g"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
        let refused = check_write(&index(), &jane(), RbacKind::ClusterRole, "", &gatherer, None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            r#"clusterroles.rbac.authorization.k8s.io "g" is forbidden: must have cluster-admin privileges to use the aggregationRule"#
        );
    }

    #[test]
    fn the_collector_may_always_let_go() {
        let mut old = role("r", &["*"]);
        old["metadata"]["finalizers"] = json!(["x"]);
        let new = role("r", &["*"]);
        assert_eq!(check_write(&index(), &jane(), RbacKind::Role, "ns", &new, Some(&old)), Ok(()));
        assert!(check_write(&index(), &jane(), RbacKind::Role, "ns", &role("r", &["*", "x"]), Some(&old)).is_err());
    }
}
