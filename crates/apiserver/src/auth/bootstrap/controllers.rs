//! What each controller of a cluster may do: cluster role `system:controller:<name>`, bound to the service account
//! `<name>` in `kube-system`.

use super::verbs::{READ, READ_UPDATE, RECORD};
use super::{Role, on};

pub(super) const CONTROLLER_ROLES: &[Role] = &[
    Role::new(
        "attachdetach-controller",
        &[
            on("list watch", "core", "persistentvolumeclaims persistentvolumes"),
            on(READ, "core", "nodes"),
            on("patch update", "core", "nodes/status"),
            on("list watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
            on("create delete get list watch", "storage.k8s.io", "volumeattachments"),
            on(READ, "storage.k8s.io", "csidrivers"),
            on(READ, "storage.k8s.io", "csinodes"),
        ],
    ),
    Role::new(
        "certificate-controller",
        &[
            on("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            on(
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/approval certificatesigningrequests/status",
            ),
            on("approve", "certificates.k8s.io", "signers").named("kubernetes.io/kube-apiserver-client-kubelet"),
            on("sign", "certificates.k8s.io", "signers").named(
                "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet \
                     kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
            ),
            on("create", "authorization.k8s.io", "subjectaccessreviews"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "clusterrole-aggregation-controller",
        &[on("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    Role::new(
        "cronjob-controller",
        &[
            on("get list update watch", "batch", "cronjobs"),
            on("create delete get list patch update watch", "batch", "jobs"),
            on("update", "batch", "cronjobs/status"),
            on("update", "batch", "cronjobs/finalizers"),
            on("delete list watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "daemon-set-controller",
        &[
            on(READ, "apps extensions", "daemonsets"),
            on("update", "apps extensions", "daemonsets/status"),
            on("update", "apps extensions", "daemonsets/finalizers"),
            on("list watch", "core", "nodes"),
            on("create delete list patch watch", "core", "pods"),
            on("create", "core", "pods/binding"),
            on("create delete get list patch update watch", "apps", "controllerrevisions"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "deployment-controller",
        &[
            on("get list update watch", "apps extensions", "deployments"),
            on("update", "apps extensions", "deployments/status"),
            on("update", "apps extensions", "deployments/finalizers"),
            on("create delete get list patch update watch", "apps extensions", "replicasets"),
            on("get list update watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "device-taint-eviction-controller",
        &[
            on("delete get list watch", "core", "pods"),
            on("patch update", "core", "pods/status"),
            on(READ, "resource.k8s.io", "resourceclaims"),
            on(READ, "resource.k8s.io", "resourceslices"),
            on(READ, "resource.k8s.io", "deviceclasses"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "disruption-controller",
        &[
            on(READ, "apps extensions", "deployments"),
            on(READ, "apps extensions", "replicasets"),
            on(READ, "core", "replicationcontrollers"),
            on(READ, "policy", "poddisruptionbudgets"),
            on(READ, "apps", "statefulsets"),
            on("update", "policy", "poddisruptionbudgets/status"),
            on("patch update", "core", "pods/status"),
            on("get", "*", "*/scale"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "endpoint-controller",
        &[
            on(READ, "core", "pods services"),
            on("create delete get list update watch", "core", "endpoints"),
            on("create", "core", "endpoints/restricted"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "endpointslice-controller",
        &[
            on(READ, "core", "nodes pods services"),
            on("update", "core", "services/finalizers"),
            on("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "endpointslicemirroring-controller",
        &[
            on(READ, "core", "endpoints services"),
            on("update", "core", "services/finalizers"),
            on("update", "core", "endpoints/finalizers"),
            on("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "ephemeral-volume-controller",
        &[
            on(READ, "core", "pods"),
            on("update", "core", "pods/finalizers"),
            on("create get list watch", "core", "persistentvolumeclaims"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "expand-controller",
        &[
            on(READ_UPDATE, "core", "persistentvolumes"),
            on("patch update", "core", "persistentvolumeclaims/status"),
            on(READ, "core", "persistentvolumeclaims"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "generic-garbage-collector",
        &[on("delete get list patch update watch", "*", "*"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "horizontal-pod-autoscaler",
        &[
            on(READ, "autoscaling", "horizontalpodautoscalers"),
            on("update", "autoscaling", "horizontalpodautoscalers/status"),
            on("get update", "*", "*/scale"),
            on("list watch", "core", "pods"),
            on("list watch", "metrics.k8s.io", "pods"),
            on(READ, "custom.metrics.k8s.io", "*"),
            on(READ, "external.metrics.k8s.io", "*"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "job-controller",
        &[
            on(READ_UPDATE, "batch", "jobs"),
            on("update", "batch", "jobs/status"),
            on("update", "batch", "jobs/finalizers"),
            on("create delete list patch watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "legacy-service-account-token-cleaner",
        &[
            on("get", "core", "configmaps").named("kube-apiserver-legacy-service-account-token-tracking"),
            on("delete patch", "core", "secrets"),
        ],
    ),
    Role::new(
        "namespace-controller",
        &[
            on("delete get list watch", "core", "namespaces"),
            on("update", "core", "namespaces/finalize namespaces/status"),
            on("delete deletecollection get list watch", "*", "*"),
        ],
    ),
    Role::new(
        "node-controller",
        &[
            on("delete get list patch update watch", "core", "nodes"),
            on("patch update", "core", "nodes/status"),
            on("patch update", "core", "pods/status"),
            on("delete get list watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "persistent-volume-binder",
        &[
            on("create delete get list update watch", "core", "persistentvolumes"),
            on("update", "core", "persistentvolumes/status"),
            on("get list update watch", "core", "persistentvolumeclaims"),
            on("update", "core", "persistentvolumeclaims/status"),
            on("create delete get list watch", "core", "pods"),
            on(READ, "storage.k8s.io", "storageclasses"),
            on("list watch", "core", "nodes"),
            on(RECORD, "core events.k8s.io", "events"),
            on("watch", "core", "events"),
        ],
    ),
    Role::new(
        "pod-garbage-collector",
        &[on("delete list watch", "core", "pods"), on(READ, "core", "nodes"), on("patch", "core", "pods/status")],
    ),
    Role::new(
        "pv-protection-controller",
        &[on("get list update watch", "core", "persistentvolumes"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "pvc-protection-controller",
        &[
            on("get list update watch", "core", "persistentvolumeclaims"),
            on("update", "core", "persistentvolumeclaims/status"),
            on(READ, "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "replicaset-controller",
        &[
            on("get list update watch", "apps extensions", "replicasets"),
            on("update", "apps extensions", "replicasets/status"),
            on("update", "apps extensions", "replicasets/finalizers"),
            on("create delete list patch watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "replication-controller",
        &[
            on("get list update watch", "core", "replicationcontrollers"),
            on("update", "core", "replicationcontrollers/status"),
            on("update", "core", "replicationcontrollers/finalizers"),
            on("create delete list patch watch", "core", "pods"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "resource-claim-controller",
        &[
            on(READ, "core", "pods"),
            on("update", "core", "pods/finalizers"),
            on("create delete get list watch", "resource.k8s.io", "resourceclaims"),
            on("patch update", "resource.k8s.io", "resourceclaims resourceclaims/status"),
            on("patch update", "core", "pods/status"),
            on(RECORD, "core events.k8s.io", "events"),
            on("patch update", "resource.k8s.io", "resourceclaims/binding"),
        ],
    ),
    Role::new(
        "resourcequota-controller",
        &[
            on("list watch", "*", "*"),
            on("update", "core", "resourcequotas/status"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "root-ca-cert-publisher",
        &[on("create update", "core", "configmaps"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "route-controller",
        &[
            on("list watch", "core", "nodes"),
            on("patch", "core", "nodes/status"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "selinux-warning-controller",
        &[
            on(RECORD, "core events.k8s.io", "events"),
            on(READ, "core", "persistentvolumes"),
            on(READ, "core", "persistentvolumeclaims"),
            on(READ, "core", "pods"),
            on(READ, "storage.k8s.io", "csidrivers"),
        ],
    ),
    Role::new(
        "service-account-controller",
        &[on("create", "core", "serviceaccounts"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "service-cidrs-controller",
        &[
            on(READ_UPDATE, "networking.k8s.io", "servicecidrs"),
            on("patch update", "networking.k8s.io", "servicecidrs/finalizers"),
            on("patch update", "networking.k8s.io", "servicecidrs/status"),
            on(READ, "networking.k8s.io", "ipaddresses"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "service-controller",
        &[
            on(READ, "core", "services"),
            on("patch update", "core", "services/status"),
            on("list watch", "core", "nodes"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "statefulset-controller",
        &[
            on("list watch", "core", "pods"),
            on(READ, "apps", "statefulsets"),
            on("update", "apps", "statefulsets/status"),
            on("update", "apps", "statefulsets/finalizers"),
            on("create delete get patch update", "core", "pods"),
            on("create delete get list patch update watch", "apps", "controllerrevisions"),
            on("create get list watch", "core", "persistentvolumeclaims"),
            on("delete update", "core", "persistentvolumeclaims"),
            on("update", "core", "pods/finalizers"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "ttl-after-finished-controller",
        &[on("delete get list watch", "batch", "jobs"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "ttl-controller",
        &[on("list patch update watch", "core", "nodes"), on(RECORD, "core events.k8s.io", "events")],
    ),
    Role::new(
        "validatingadmissionpolicy-status-controller",
        &[
            on(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            on("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
    Role::new(
        "volumeattributesclass-protection-controller",
        &[
            on(READ, "core", "persistentvolumeclaims"),
            on(READ, "core", "persistentvolumes"),
            on("get list update watch", "storage.k8s.io", "volumeattributesclasses"),
            on(RECORD, "core events.k8s.io", "events"),
        ],
    ),
];
