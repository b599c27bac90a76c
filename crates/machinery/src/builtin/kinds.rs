//! The table of built-in kinds: adding one is adding its name.

use k8s_openapi::Resource;
use schemars::{JsonSchema, SchemaGenerator};

/// One built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The API group; empty for core.
    pub group: &'static str,
    /// The version without the group.
    pub version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// Writes the kind's definition, and those that it refers to, into a generator.
    pub(super) describe: fn(&mut SchemaGenerator) -> schemars::Schema,
    /// The kind's definition in OpenAPI documents.
    pub(super) name: fn() -> String,
}

impl Kind {
    const fn of<T: Resource + JsonSchema>() -> Self {
        Self {
            group: T::GROUP,
            version: T::VERSION,
            kind: T::KIND,
            describe: |generator| generator.subschema_for::<T>(),
            name: || T::schema_name().into_owned(),
        }
    }

    /// The name of the kind's definition in OpenAPI documents: `io.k8s.api.core.v1.Pod`.
    pub fn definition(&self) -> String {
        (self.name)()
    }
}

macro_rules! kinds {
    ($($module:path { $($kind:ident),+ $(,)? })+) => {{
        &[$($({
            use $module as module;
            Kind::of::<module::$kind>()
        },)+)+]
    }};
}

/// Every built-in kind, by group and version.
pub static KINDS: &[Kind] = kinds! {
    k8s_openapi::api::core::v1 {
        Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
        PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
    }
    k8s_openapi::api::admissionregistration::v1 {
        MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
    }
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
    k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
    k8s_openapi::api::apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
    k8s_openapi::api::authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
    k8s_openapi::api::authorization::v1 {
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    }
    k8s_openapi::api::autoscaling::v1 { HorizontalPodAutoscaler, Scale }
    k8s_openapi::api::autoscaling::v2 { HorizontalPodAutoscaler }
    k8s_openapi::api::batch::v1 { CronJob, Job }
    k8s_openapi::api::certificates::v1 { CertificateSigningRequest }
    k8s_openapi::api::coordination::v1 { Lease }
    k8s_openapi::api::discovery::v1 { EndpointSlice }
    k8s_openapi::api::events::v1 { Event }
    k8s_openapi::api::networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
    k8s_openapi::api::node::v1 { RuntimeClass }
    k8s_openapi::api::policy::v1 { Eviction, PodDisruptionBudget }
    k8s_openapi::api::rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
    k8s_openapi::api::scheduling::v1 { PriorityClass }
    k8s_openapi::api::storage::v1 {
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    }
};

/// Definitions that are no kinds but that every API needs: metadata, options, answers.
pub(super) fn describe_common(generator: &mut SchemaGenerator) {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1;
    generator.subschema_for::<v1::ObjectMeta>();
    generator.subschema_for::<v1::ListMeta>();
    generator.subschema_for::<v1::DeleteOptions>();
    generator.subschema_for::<v1::Status>();
    generator.subschema_for::<v1::WatchEvent<k8s_openapi::apimachinery::pkg::runtime::RawExtension>>();
}
