//! Leases, which hold a claim of leadership, and controller revisions, which hold a past that cannot change.

use ferrovirt_machinery::error::FieldError;
use serde_json::Value;

use super::Strategy;
use super::check::Errors;

/// Leases.
pub struct Lease;
/// The strategy of leases.
pub static LEASE: Lease = Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
            errors.invalid("spec.leaseDurationSeconds", &spec["leaseDurationSeconds"], "must be greater than 0");
        }
        if spec["leaseTransitions"].as_i64().is_some_and(|count| count < 0) {
            errors.invalid("spec.leaseTransitions", &spec["leaseTransitions"], "must be greater than or equal to 0");
        }
        errors.into_vec()
    }
}

/// Controller revisions.
pub struct ControllerRevision;
/// The strategy of controller revisions.
pub static CONTROLLER_REVISION: ControllerRevision = ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if object["data"].is_null() {
            errors.required("data", "data is mandatory");
        }
        errors.not_negative("revision", &object["revision"]);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if new["data"] != old["data"] {
            // Go shows the decoded object, which is empty for data that it does not know.
            errors.invalid("data", &Value::Object(serde_json::Map::new()), "field is immutable");
        }
        errors.into_vec()
    }
}
