//! Who writes: one of the components, and if it is a virt-handler, of which node.

use super::review::User;

/// What the user names of service accounts begin with; namespace and name follow.
const ACCOUNTS: &str = "system:serviceaccount:";
/// The components by their accounts, as this project and as KubeVirt's manifests call them.
const COMPONENTS: [&str; 8] = [
    "virt-api",
    "virt-controller",
    "virt-handler",
    "virt-operator",
    "kubevirt-apiserver",
    "kubevirt-controller",
    "kubevirt-handler",
    "kubevirt-operator",
];
const CONTROLLERS: [&str; 2] = ["virt-controller", "kubevirt-controller"];
const HANDLERS: [&str; 2] = ["virt-handler", "kubevirt-handler"];
/// The API server's own user: on the local cluster, virt-api is a part of it.
const API_SERVER: &str = "system:apiserver";
/// What a bound service account token says about the node of its pod.
const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// Group of a virt-handler whose identity is a client certificate, which has no extra: the node's name follows.
pub const HANDLER_GROUP: &str = "ferrovirt:virt-handler:";

impl<'a> User<'a> {
    fn account(&self) -> Option<&'a str> {
        self.name.strip_prefix(ACCOUNTS)?.strip_prefix(self.installation)?.strip_prefix(':')
    }

    /// One of us: only they write a guest's status and the labels of the system.
    pub(super) fn is_component(&self) -> bool {
        self.name == API_SERVER || self.account().is_some_and(|account| COMPONENTS.contains(&account))
    }

    /// The controllers, which alone decide about priorities.
    pub(super) fn is_controller(&self) -> bool {
        self.name == API_SERVER || self.account().is_some_and(|account| CONTROLLERS.contains(&account))
    }

    /// A node's agent.
    pub(super) fn is_handler(&self) -> bool {
        self.account().is_some_and(|account| HANDLERS.contains(&account))
    }

    /// The node that a [handler](Self::is_handler) acts for, when its identity says so.
    pub(super) fn node(&self) -> Option<&'a str> {
        let extra = self.extra.get(NODE_EXTRA).and_then(|values| values.first());
        let group = self.groups.iter().find_map(|group| group.strip_prefix(HANDLER_GROUP));
        extra.map(String::as_str).or(group)
    }
}
