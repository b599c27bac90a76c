//! What a request wants to do, as authorization sees it, and the words for saying no.

use super::super::quote::quoted;
use super::super::user::UserInfo;

/// One action: on a resource, or on a path that is no resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create`, … for resources; the lower-case HTTP method for other paths.
    pub verb: String,
    /// API group; empty is the core group.
    pub group: String,
    /// API version. RBAC ignores it.
    pub version: String,
    /// Plural resource name; empty for a path that is no resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// URL path. Only looked at when `resource` is empty.
    pub path: String,
}

impl Attributes {
    /// An action on a resource of `group` in a namespace (empty: cluster scope).
    pub fn resource(verb: &str, group: &str, resource: &str, namespace: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    /// An action on a path that is no resource.
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    /// The same action on one object.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The same action on a subresource.
    pub fn on_subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }

    /// Whether this is about a resource, not a bare path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// `resource` or `resource/subresource`.
    pub fn combined_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// The answer to "may they?".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// Why; may be empty, for system:masters and for a plain no.
    pub reason: String,
}

impl Decision {
    /// Yes, because of `reason`.
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { allowed: true, reason: reason.into() }
    }

    /// No; `reason` may be empty.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self { allowed: false, reason: reason.into() }
    }
}

/// The part of the 403 message that says what the user cannot do, sanitised against being read as HTML.
fn cannot(user: &UserInfo, attributes: &Attributes) -> String {
    let text = if attributes.is_resource() {
        let scope = if attributes.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quoted(&attributes.namespace))
        };
        format!(
            "User {} cannot {} resource {} in API group {} {scope}",
            quoted(&user.name),
            attributes.verb,
            quoted(&attributes.combined_resource()),
            quoted(&attributes.group),
        )
    } else {
        format!("User {} cannot {} path {}", quoted(&user.name), attributes.verb, quoted(&attributes.path))
    };
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The message of the 403 `Status` with which kube-apiserver refuses an action. `reason` is the decision's.
pub fn forbidden_message(user: &UserInfo, attributes: &Attributes, reason: &str) -> String {
    let mut why = cannot(user, attributes);
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    forbidden_because(&attributes.group, &attributes.resource, &attributes.name, &why)
}

/// The message of a 403 `Status` about an object, with the refusing component's own words as `why`.
pub fn forbidden_because(group: &str, resource: &str, name: &str, why: &str) -> String {
    let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    match (qualified.is_empty(), name.is_empty()) {
        (true, _) => format!("forbidden: {why}"),
        (false, true) => format!("{qualified} is forbidden: {why}"),
        (false, false) => format!("{qualified} {} is forbidden: {why}", quoted(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_messages_are_kube_apiservers() {
        let jane = UserInfo::new::<&str>("jane", []);
        let cases = [
            (
                Attributes::resource("list", "", "pods", "y"),
                r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "y""#,
            ),
            (
                Attributes::resource("get", "", "nodes", "").named("n1"),
                r#"nodes "n1" is forbidden: User "jane" cannot get resource "nodes" in API group "" at the cluster scope"#,
            ),
            (
                Attributes::resource("update", "kubevirt.io", "virtualmachines", "y")
                    .named("vm")
                    .on_subresource("status"),
                r#"virtualmachines.kubevirt.io "vm" is forbidden: User "jane" cannot update resource "virtualmachines/status" in API group "kubevirt.io" in the namespace "y""#,
            ),
            (Attributes::path("get", "/metrics"), r#"forbidden: User "jane" cannot get path "/metrics""#),
            (Attributes::path("get", "/<x>&"), r#"forbidden: User "jane" cannot get path "/&lt;x&gt;&amp;""#),
        ];
        for (attributes, want) in cases {
            assert_eq!(forbidden_message(&jane, &attributes, ""), want);
        }
        assert_eq!(
            forbidden_message(&jane, &Attributes::path("get", "/x"), "RBAC: broken"),
            r#"forbidden: User "jane" cannot get path "/x": RBAC: broken"#
        );
    }
}
