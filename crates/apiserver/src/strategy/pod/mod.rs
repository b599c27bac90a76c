//! Pods: defaults, what admission adds, the fields that may change after creation, and graceful deletion.

mod admit;
mod containers;
mod defaults;
mod limits;
mod update;
mod validate;
mod volumes;

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

pub(super) use self::defaults::pod_spec;
pub(super) use self::limits::default_limits;
pub(super) use self::validate::{pod_spec_errors, template_errors};
use super::Strategy;
use super::check::text;
use super::defaults::{child, each, field};
use crate::server::Server;
use crate::status::ApiResult;

/// Pods.
pub struct Pod;
/// The strategy of pods.
pub static POD: Pod = Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        pod_spec(child(object, "spec"));
        let spec = &mut object["spec"];
        field(spec, "enableServiceLinks", true);
        for list in ["containers", "initContainers"] {
            for container in each(spec, list) {
                defaults::requests_from_limits(container);
            }
        }
        defaults::mirror_addresses(object);
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        admit::admit(server, object)?;
        object["status"] = json!({"phase": "Pending", "qosClass": admit::quality_of_service(&object["spec"])});
        if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            let now = crate::handlers::write::format_time(server.environment.now());
            object["status"]["conditions"] = json!([{
                "lastTransitionTime": now, "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        Ok(())
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        // What a status update does not say about its class and its node stays.
        if new["status"]["qosClass"].is_null()
            && let Some(class) = old["status"].get("qosClass")
        {
            new["status"]["qosClass"] = class.clone();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        pod_spec_errors(&object["spec"], "spec")
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update::errors(&new["spec"], &old["spec"])
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    }

    fn is_graceful(&self) -> bool {
        true
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> i64 {
        let finished = matches!(text(&object["status"]["phase"]), "Succeeded" | "Failed");
        if text(&object["spec"]["nodeName"]).is_empty() || finished {
            return 0;
        }
        let wanted = asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
        // A negative period means the shortest one that is still graceful.
        if wanted < 0 { 1 } else { wanted }
    }
}
