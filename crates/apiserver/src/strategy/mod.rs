//! What a kind does beyond its data row: defaults, fields that the server owns, and checks a schema cannot express.
//!
//! A strategy is pure over JSON objects, so that each rule is a few lines and a test. Kinds without special behaviour
//! use [`PLAIN`].

mod autoscaling;
mod batch;
mod check;
mod coordination;
mod core;
mod crd_validation;
mod defaults;
mod events;
mod networking;
mod pod;
mod policy;
mod quota;
mod rbac;
mod registration;
mod service;
mod shape;
mod storage;
mod workload;

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use serde_json::Value;

pub use self::autoscaling::AUTOSCALER;
pub use self::coordination::{CONTROLLER_REVISION, LEASE};
pub use self::core::{CONFIG_MAP, NAMESPACE, NODE, SECRET};
pub use self::events::EVENT;
pub use self::networking::{ENDPOINT_SLICE, ENDPOINTS, INGRESS, INGRESS_CLASS, RUNTIME_CLASS};
pub use self::pod::POD;
pub use self::policy::{BINDING, NETWORK_POLICY, PDB, PRIORITY_CLASS};
pub use self::quota::{LIMIT_RANGE, RESOURCE_QUOTA};
pub use self::rbac::ROLE;
pub use self::registration::{API_SERVICE, CRD, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
pub use self::service::SERVICE;
pub use self::shape::{settle, tidy};
pub use self::storage::{PV, PVC, STORAGE_CLASS};
pub use self::workload::{
    CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, POD_TEMPLATE, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET,
};

use crate::registry::Resource;
use crate::server::Server;
use crate::status::ApiResult;

/// Behaviour of one kind. Every method has a neutral default.
pub trait Strategy: Send + Sync {
    /// Fills in what the user may leave out; runs on create and update.
    fn default(&self, _object: &mut Value) {}

    /// Sets what the server owns on a new object.
    fn prepare_create(&self, _server: &Server, _object: &mut Value) -> ApiResult<()> {
        Ok(())
    }

    /// Sets what the server owns on a changed object.
    fn prepare_update(&self, _server: &Server, _new: &mut Value, _old: &Value) {}

    /// Sets what the server owns when only the status changes.
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}

    /// Checks a new object.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Checks a change; `validate` is run as well.
    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Words of advice that go back as `Warning` headers.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// How long a deletion may take; 0 means the object goes at once.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> i64 {
        0
    }

    /// Deletion takes time, and what a client gets back shows that it began.
    fn is_graceful(&self) -> bool {
        false
    }

    /// The mark of deletion moves `metadata.generation`, where the kind has one.
    fn deletion_is_a_generation(&self) -> bool {
        true
    }

    /// Why this object cannot be deleted, if it cannot.
    fn refuses_deletion(&self, _object: &Value) -> Option<&'static str> {
        None
    }

    /// An object that is marked as deleted may go when this is true (besides having no finalizers).
    fn may_vanish(&self, _object: &Value) -> bool {
        true
    }

    /// The object as it is written when its deletion begins.
    fn mark_deleted(&self, _object: &mut Value) {}

    /// The resource's version stores another shape, see [`Strategy::to_storage`].
    fn converts(&self, _resource: &Resource) -> bool {
        false
    }

    /// From the shape of the resource's version to the stored one.
    fn to_storage(&self, _resource: &Resource, _object: &mut Value) {}

    /// From the stored shape to that of the resource's version.
    #[expect(clippy::wrong_self_convention, reason = "the counterpart of `to_storage`; the strategy is no converter")]
    fn from_storage(&self, _resource: &Resource, _object: &mut Value) {}
}

/// No special behaviour.
pub struct Plain;
impl Strategy for Plain {}
/// The strategy of most kinds.
pub static PLAIN: Plain = Plain;

/// `Invalid value` of a field that may not change.
pub(crate) fn immutable(path: &str, value: &Value) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, path, format!("Invalid value: {value}: field is immutable"))
}

/// `Forbidden`.
pub(crate) fn forbidden(path: &str, why: &str) -> FieldError {
    FieldError::new(FieldErrorKind::Forbidden, path, format!("Forbidden: {why}"))
}

/// `Required value`, with an explanation when there is one.
pub(crate) fn required(path: impl Into<String>, why: &str) -> FieldError {
    let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    FieldError::new(FieldErrorKind::Required, path, message)
}

/// `Invalid value`.
pub(crate) fn invalid(path: impl Into<String>, value: &Value, why: &str) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, path, format!("Invalid value: {value}: {why}"))
}

/// `Unsupported value`; the supported ones are listed as they are given.
pub(crate) fn unsupported(path: impl Into<String>, value: &Value, supported: &[&str]) -> FieldError {
    let list: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
    let message = format!("Unsupported value: {value}: supported values: {}", list.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, path, message)
}
