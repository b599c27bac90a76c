//! The kinds of objects that the operator makes, and where they are.

use kube::api::GroupVersionKind;
use kube::discovery::ApiResource;

/// A kind of managed objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name.
    pub plural: &'static str,
    /// Where its objects are.
    pub place: Place,
}

/// Where objects of a kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In no namespace.
    Cluster,
    /// In the installation's.
    Own,
    /// In `kube-system`.
    System,
}

const fn kind(group: &'static str, kind: &'static str, plural: &'static str, place: Place) -> Kind {
    Kind { group, version: "v1", kind, plural, place }
}

/// One row for each kind and place.
pub const KINDS: &[Kind] = &[
    kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", Place::Cluster),
    kind("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", Place::Cluster),
    kind("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", Place::Cluster),
    kind("rbac.authorization.k8s.io", "Role", "roles", Place::Own),
    kind("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", Place::Own),
    kind("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", Place::System),
    kind("", "ServiceAccount", "serviceaccounts", Place::Own),
    kind("", "Service", "services", Place::Own),
    kind("", "Secret", "secrets", Place::Own),
    kind("", "ConfigMap", "configmaps", Place::Own),
    kind("apps", "Deployment", "deployments", Place::Own),
    kind("apps", "DaemonSet", "daemonsets", Place::Own),
    kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", Place::Own),
    kind("apiregistration.k8s.io", "APIService", "apiservices", Place::Cluster),
    kind(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        Place::Cluster,
    ),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        Place::Cluster,
    ),
    kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Place::Cluster),
    kind(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        Place::Cluster,
    ),
];

impl Kind {
    /// The row of a kind, wherever its objects are.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.kind == name)
    }

    /// As a client addresses it.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(self.group, self.version, self.kind), self.plural)
    }
}
