//! What the parts of an installation are called. Names that KubeVirt has are KubeVirt's: users and tools look for them.

/// The product, as a label.
pub const PRODUCT: &str = "kubevirt";
/// The namespace unless somebody chooses another.
pub const NAMESPACE: &str = "kubevirt";
/// Plural name of the `KubeVirt` kind.
pub const INSTALLATIONS: &str = "kubevirts";

/// virt-operator's Deployment and lease.
pub const OPERATOR: &str = "virt-operator";
/// virt-api's Deployment and Service.
pub const API: &str = "virt-api";
/// virt-controller's Deployment and lease.
pub const CONTROLLER: &str = "virt-controller";
/// virt-handler's DaemonSet.
pub const HANDLER: &str = "virt-handler";

/// Service account of virt-operator.
pub const OPERATOR_ACCOUNT: &str = "kubevirt-operator";
/// Service account of virt-api.
pub const API_ACCOUNT: &str = "kubevirt-apiserver";
/// Service account of virt-controller.
pub const CONTROLLER_ACCOUNT: &str = "kubevirt-controller";
/// Service account of virt-handler.
pub const HANDLER_ACCOUNT: &str = "kubevirt-handler";

/// The authority: a Secret that only the operator reads, and a ConfigMap with the certificates for everybody.
pub const CA: &str = "kubevirt-ca";
/// The key of the certificates in that ConfigMap, and the file's name where it is mounted.
pub const CA_BUNDLE_KEY: &str = "ca-bundle";
/// virt-api's certificate.
pub const API_CERTIFICATE: &str = "kubevirt-virt-api-certs";
/// What the operator makes the first `KubeVirt` object from: a user cannot apply a kind and an object of it at once.
pub const FIRST_INSTALLATION: &str = "kubevirt-first-installation";
/// The key of the object in that ConfigMap.
pub const FIRST_INSTALLATION_KEY: &str = "kubevirt.json";

/// What the one name in a virt-handler's certificate ends with, after its node's.
pub const NODE_CERTIFICATE_SUFFIX: &str = ".node.migration.kubevirt.io";

/// Priority of the components.
pub const PRIORITY_CLASS: &str = "kubevirt-cluster-critical";
/// Keeps virt-handlers to their own nodes.
pub const NODE_RESTRICTION: &str = "kubevirt-node-restriction-policy";

/// Port of virt-api's Service.
pub const API_SERVICE_PORT: u16 = 443;
/// Port of virt-api in its pods.
pub const API_PORT: u16 = 8443;
/// Where virt-operator and virt-controller say that they live.
pub const HEALTH_PORT: u16 = 8080;
/// Where virt-handler says so; it shares the node's network.
pub const HANDLER_HEALTH_PORT: u16 = 8190;
/// Where virt-handler is asked by virt-api.
pub const HANDLER_PORT: u16 = 8186;
/// Where virt-handlers meet for moves.
pub const MIGRATION_PORT: u16 = 8189;

/// The user name of a service account.
#[must_use]
pub fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The names in virt-api's certificate; virt-handlers know it by the first.
#[must_use]
pub fn api_certificate_names(namespace: &str) -> [String; 3] {
    [format!("{API}.{namespace}.svc"), format!("{API}.{namespace}.svc.cluster.local"), API.to_owned()]
}
