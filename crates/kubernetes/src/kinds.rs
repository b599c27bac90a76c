//! The kinds that are read or written as whole objects.

use k8s_openapi::api::{apps, certificates, coordination, core, policy, storage};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;

use serde_json::Value;

use crate::foreign::{Foreign, Writable};
use crate::json::{DecodeError, FromJson, read};

macro_rules! kinds {
    ($($kind:ident: $type:ty;)*) => {$(
        #[doc = concat!("A `", stringify!($kind), "`.")]
        pub type $kind = Foreign<$type>;

        // Neither generic nor inlined: only so is all that they call compiled in this crate and in no other.
        impl FromJson for $type {
            #[inline(never)]
            fn from_json(value: &Value) -> Result<Self, DecodeError> {
                read(value)
            }
        }

        impl Writable for $type {
            #[inline(never)]
            fn writable(&self) -> &dyn erased_serde::Serialize {
                self
            }
        }
    )*};
}

kinds! {
    CertificateSigningRequest: certificates::v1::CertificateSigningRequest;
    ConfigMap: core::v1::ConfigMap;
    ControllerRevision: apps::v1::ControllerRevision;
    CustomResourceDefinition: apiextensions::v1::CustomResourceDefinition;
    Event: core::v1::Event;
    Lease: coordination::v1::Lease;
    Namespace: core::v1::Namespace;
    Node: core::v1::Node;
    PersistentVolume: core::v1::PersistentVolume;
    PersistentVolumeClaim: core::v1::PersistentVolumeClaim;
    Pod: core::v1::Pod;
    PodDisruptionBudget: policy::v1::PodDisruptionBudget;
    Secret: core::v1::Secret;
    StorageClass: storage::v1::StorageClass;
}
