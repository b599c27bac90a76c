//! The built-in kinds: one row each. To add a kind, add a row.

use std::sync::Arc;

use ferrovirt_machinery::names::NameRule;

use super::{Generation, Resource, Rules, Subresource, join_api_version};
use crate::strategy::{self, Strategy};

const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const CREATE_ONLY: &[&str] = &["create"];

/// One built-in kind.
struct Row {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    verbs: &'static [&'static str],
    status: bool,
    scale: bool,
    extra: &'static [Extra],
    rules: Rules,
    stored_as: Option<(&'static str, &'static str)>,
    strategy: &'static dyn Strategy,
}

/// A subresource with a body of another kind: name, group, version, kind, verbs.
type Extra = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

/// Rules that most built-in kinds share.
const USUAL: Rules = Rules {
    names: NameRule::DnsSubdomain,
    generation: Generation::None,
    create_on_update: false,
    unconditional_update: true,
    returns_deleted: false,
    has_status: false,
};

const fn row(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Row {
    Row {
        group,
        version,
        plural,
        kind,
        namespaced: true,
        short: &[],
        categories: &[],
        verbs: ALL_VERBS,
        status: false,
        scale: false,
        extra: &[],
        rules: USUAL,
        stored_as: None,
        strategy: &strategy::PLAIN,
    }
}

impl Row {
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }
    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short = names;
        self
    }
    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }
    const fn in_category(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }
    const fn status(mut self) -> Self {
        self.status = true;
        self.rules.has_status = true;
        self
    }
    const fn scale(mut self) -> Self {
        self.scale = true;
        self
    }
    const fn extra(mut self, extra: &'static [Extra]) -> Self {
        self.extra = extra;
        self
    }
    const fn generation(mut self) -> Self {
        self.rules.generation = Generation::Spec;
        self
    }
    const fn annotated_generation(mut self) -> Self {
        self.rules.generation = Generation::SpecAndAnnotations;
        self
    }
    const fn content_generation(mut self) -> Self {
        self.rules.generation = Generation::Content;
        self
    }
    const fn names(mut self, names: NameRule) -> Self {
        self.rules.names = names;
        self
    }
    const fn create_on_update(mut self) -> Self {
        self.rules.create_on_update = true;
        self
    }
    const fn needs_version(mut self) -> Self {
        self.rules.unconditional_update = false;
        self
    }
    const fn returns_deleted(mut self) -> Self {
        self.rules.returns_deleted = true;
        self
    }
    const fn one_by_one(mut self) -> Self {
        self.verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];
        self
    }
    const fn review(mut self) -> Self {
        self.verbs = CREATE_ONLY;
        self
    }
    const fn stored_as(mut self, group: &'static str, version: &'static str) -> Self {
        self.stored_as = Some((group, version));
        self
    }
    const fn with(mut self, strategy: &'static dyn Strategy) -> Self {
        self.strategy = strategy;
        self
    }
}

const APIS: &[&str] = &["api-extensions"];
const POD_EXTRAS: &[Extra] = &[
    ("attach", "", "v1", "PodAttachOptions", &["create", "get"]),
    ("binding", "", "v1", "Binding", CREATE_ONLY),
    ("ephemeralcontainers", "", "v1", "Pod", STATUS_VERBS),
    ("eviction", "policy", "v1", "Eviction", CREATE_ONLY),
    ("exec", "", "v1", "PodExecOptions", &["create", "get"]),
    ("log", "", "v1", "Pod", &["get"]),
    ("portforward", "", "v1", "PodPortForwardOptions", &["create", "get"]),
    ("resize", "", "v1", "Pod", STATUS_VERBS),
];

static TABLE: &[Row] = &[
    row("", "v1", "bindings", "Binding").review(),
    row("", "v1", "configmaps", "ConfigMap").short(&["cm"]).with(&strategy::CONFIG_MAP),
    row("", "v1", "endpoints", "Endpoints").short(&["ep"]).create_on_update().with(&strategy::ENDPOINTS),
    row("", "v1", "events", "Event").short(&["ev"]).create_on_update().with(&strategy::EVENT),
    row("", "v1", "limitranges", "LimitRange").short(&["limits"]).create_on_update().with(&strategy::LIMIT_RANGE),
    row("", "v1", "namespaces", "Namespace")
        .cluster()
        .short(&["ns"])
        .status()
        .names(NameRule::DnsLabel)
        .returns_deleted()
        .one_by_one()
        .extra(&[("finalize", "", "v1", "Namespace", &["update"])])
        .with(&strategy::NAMESPACE),
    row("", "v1", "nodes", "Node").cluster().short(&["no"]).status().with(&strategy::NODE),
    row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
        .short(&["pvc"])
        .status()
        .returns_deleted()
        .with(&strategy::PVC),
    row("", "v1", "persistentvolumes", "PersistentVolume")
        .cluster()
        .short(&["pv"])
        .status()
        .returns_deleted()
        .with(&strategy::PV),
    row("", "v1", "pods", "Pod")
        .short(&["po"])
        .all()
        .status()
        .generation()
        .returns_deleted()
        .extra(POD_EXTRAS)
        .with(&strategy::POD),
    row("", "v1", "podtemplates", "PodTemplate").generation().returns_deleted().with(&strategy::POD_TEMPLATE),
    row("", "v1", "replicationcontrollers", "ReplicationController")
        .short(&["rc"])
        .all()
        .status()
        .scale()
        .generation()
        .with(&strategy::REPLICATION_CONTROLLER),
    row("", "v1", "resourcequotas", "ResourceQuota")
        .short(&["quota"])
        .status()
        .returns_deleted()
        .with(&strategy::RESOURCE_QUOTA),
    row("", "v1", "secrets", "Secret").with(&strategy::SECRET),
    row("", "v1", "serviceaccounts", "ServiceAccount").short(&["sa"]).returns_deleted().extra(&[(
        "token",
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
        CREATE_ONLY,
    )]),
    row("", "v1", "services", "Service")
        .short(&["svc"])
        .all()
        .status()
        .names(NameRule::DnsLabel)
        .create_on_update()
        .returns_deleted()
        .with(&strategy::SERVICE),
    // events.k8s.io shows the same stored events in its own shape.
    row("events.k8s.io", "v1", "events", "Event")
        .short(&["ev"])
        .create_on_update()
        .stored_as("", "v1")
        .with(&strategy::EVENT),
    row("apps", "v1", "controllerrevisions", "ControllerRevision").with(&strategy::CONTROLLER_REVISION),
    row("apps", "v1", "daemonsets", "DaemonSet").short(&["ds"]).all().status().generation().with(&strategy::DAEMON_SET),
    row("apps", "v1", "deployments", "Deployment")
        .short(&["deploy"])
        .all()
        .status()
        .scale()
        .annotated_generation()
        .with(&strategy::DEPLOYMENT),
    row("apps", "v1", "replicasets", "ReplicaSet")
        .short(&["rs"])
        .all()
        .status()
        .scale()
        .generation()
        .with(&strategy::REPLICA_SET),
    row("apps", "v1", "statefulsets", "StatefulSet")
        .short(&["sts"])
        .all()
        .status()
        .scale()
        .generation()
        .with(&strategy::STATEFUL_SET),
    row("batch", "v1", "cronjobs", "CronJob").short(&["cj"]).all().status().generation().with(&strategy::CRON_JOB),
    row("batch", "v1", "jobs", "Job").all().status().generation().with(&strategy::JOB),
    row("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
        .short(&["hpa"])
        .all()
        .status()
        .with(&strategy::AUTOSCALER),
    row("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
        .short(&["hpa"])
        .all()
        .status()
        .stored_as("autoscaling", "v2")
        .with(&strategy::AUTOSCALER),
    row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
        .short(&["pdb"])
        .status()
        .generation()
        .needs_version()
        .with(&strategy::PDB),
    row("coordination.k8s.io", "v1", "leases", "Lease").create_on_update().needs_version().with(&strategy::LEASE),
    row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice").generation().with(&strategy::ENDPOINT_SLICE),
    row("networking.k8s.io", "v1", "ingresses", "Ingress")
        .short(&["ing"])
        .status()
        .generation()
        .with(&strategy::INGRESS),
    row("networking.k8s.io", "v1", "ingressclasses", "IngressClass")
        .cluster()
        .generation()
        .with(&strategy::INGRESS_CLASS),
    row("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
        .short(&["netpol"])
        .generation()
        .with(&strategy::NETWORK_POLICY),
    row("storage.k8s.io", "v1", "csidrivers", "CSIDriver").cluster(),
    row("storage.k8s.io", "v1", "csinodes", "CSINode").cluster(),
    row("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    row("storage.k8s.io", "v1", "storageclasses", "StorageClass")
        .cluster()
        .short(&["sc"])
        .with(&strategy::STORAGE_CLASS),
    row("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment").cluster().status(),
    row("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
        .cluster()
        .short(&["pc"])
        .generation()
        .with(&strategy::PRIORITY_CLASS),
    row("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass").cluster().with(&strategy::RUNTIME_CLASS),
    row("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest")
        .cluster()
        .short(&["csr"])
        .status()
        .extra(&[("approval", "", "", "CertificateSigningRequest", STATUS_VERBS)]),
    row("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding")
        .cluster()
        .names(NameRule::PathSegment)
        .create_on_update()
        .with(&strategy::BINDING),
    row("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
        .cluster()
        .names(NameRule::PathSegment)
        .create_on_update()
        .with(&strategy::ROLE),
    row("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
        .names(NameRule::PathSegment)
        .create_on_update()
        .with(&strategy::BINDING),
    row("rbac.authorization.k8s.io", "v1", "roles", "Role")
        .names(NameRule::PathSegment)
        .create_on_update()
        .with(&strategy::ROLE),
    row("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
        .cluster()
        .in_category(APIS)
        .content_generation()
        .needs_version()
        .with(&strategy::MUTATING_WEBHOOKS),
    row("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
        .cluster()
        .in_category(APIS)
        .content_generation()
        .needs_version()
        .with(&strategy::VALIDATING_WEBHOOKS),
    row("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
        .cluster()
        .in_category(APIS)
        .status()
        .generation()
        .needs_version(),
    row("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
        .cluster()
        .in_category(APIS)
        .generation()
        .needs_version(),
    row("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
        .cluster()
        .short(&["crd", "crds"])
        .in_category(APIS)
        .status()
        .generation()
        .needs_version()
        .with(&strategy::CRD),
    row("apiregistration.k8s.io", "v1", "apiservices", "APIService")
        .cluster()
        .names(NameRule::PathSegment)
        .in_category(APIS)
        .status()
        .needs_version()
        .with(&strategy::API_SERVICE),
    row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview").cluster().review(),
    row("authentication.k8s.io", "v1", "tokenreviews", "TokenReview").cluster().review(),
    row("authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview").review(),
    row("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview").cluster().review(),
    row("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview").cluster().review(),
    row("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview").cluster().review(),
];

/// The table as resources.
pub(super) fn resources() -> impl Iterator<Item = Resource> {
    TABLE.iter().map(build)
}

fn build(row: &Row) -> Resource {
    let (storage_group, storage_version) = row.stored_as.unwrap_or((row.group, row.version));
    Resource {
        group: row.group.into(),
        version: row.version.into(),
        plural: row.plural.into(),
        singular: row.kind.to_lowercase(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind),
        namespaced: row.namespaced,
        short_names: strings(row.short),
        categories: strings(row.categories),
        verbs: row.verbs,
        subresources: subresources(row),
        storage: Arc::from(format!("{storage_group}/{}", row.plural)),
        storage_api_version: join_api_version(storage_group, storage_version).into(),
        rules: row.rules,
        strategy: row.strategy,
        custom: None,
    }
}

fn subresources(row: &Row) -> Vec<Subresource> {
    let extra = row.extra.iter().map(|(name, group, version, kind, verbs)| Subresource {
        name: (*name).into(),
        kind: (*kind).into(),
        group_version: (!version.is_empty() && (*group, *version) != (row.group, row.version))
            .then(|| ((*group).into(), (*version).into())),
        verbs,
    });
    let mut out: Vec<_> = extra.collect();
    if row.scale {
        out.push(Subresource {
            name: "scale".into(),
            kind: "Scale".into(),
            group_version: Some(("autoscaling".into(), "v1".into())),
            verbs: STATUS_VERBS,
        });
    }
    if row.status {
        out.push(Subresource {
            name: "status".into(),
            kind: row.kind.into(),
            group_version: None,
            verbs: STATUS_VERBS,
        });
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_schema() {
        for row in TABLE {
            let resource = build(row);
            assert!(resource.schema().is_some(), "{}/{} {}", row.group, row.version, row.kind);
        }
    }
}
