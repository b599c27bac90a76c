//! Horizontal pod autoscalers: stored as `autoscaling/v2`; `v1` shows the CPU target as a number of its own and carries
//! what it has no fields for in annotations.

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::check::{Errors, list, text};
use super::defaults::{child, field, remove};
use crate::registry::Resource;
use crate::server::Server;
use crate::status::ApiResult;

/// Autoscalers of both versions.
pub struct Autoscaler;
/// The strategy of autoscalers.
pub static AUTOSCALER: Autoscaler = Autoscaler;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const TARGET: &str = "targetCPUUtilizationPercentage";

impl Strategy for Autoscaler {
    fn default(&self, object: &mut Value) {
        let is_stored_form = object["apiVersion"] == "autoscaling/v2";
        let spec = child(object, "spec");
        field(spec, "minReplicas", 1);
        if is_stored_form && list(&spec["metrics"]).is_empty() {
            spec["metrics"] = json!([cpu_metric(&json!(80))]);
        }
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        let (least, most) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
        if least.is_some_and(|least| least < 1) {
            errors.invalid("spec.minReplicas", &spec["minReplicas"], "must be greater than or equal to 1");
        }
        if most < 1 {
            errors.invalid("spec.maxReplicas", &json!(most), "must be greater than 0");
        }
        if least.is_some_and(|least| most < least) {
            errors.invalid("spec.maxReplicas", &json!(most), "must be greater than or equal to `minReplicas`");
        }
        let target = &spec["scaleTargetRef"];
        for name in ["kind", "name"] {
            if text(&target[name]).is_empty() {
                errors.required(format!("spec.scaleTargetRef.{name}"), "");
            }
        }
        let version = text(&target["apiVersion"]);
        if !version.contains('/') && version != "v1" {
            let why = "apiVersion must specify API group";
            errors.invalid_text("spec.scaleTargetRef.apiVersion", version, why);
        }
        errors.into_vec()
    }

    fn converts(&self, resource: &Resource) -> bool {
        &*resource.version == "v1"
    }

    fn to_storage(&self, resource: &Resource, object: &mut Value) {
        if self.converts(resource) {
            to_stored_form(object);
            super::settle("autoscaling/v2", "HorizontalPodAutoscaler", object);
        }
    }

    fn from_storage(&self, resource: &Resource, object: &mut Value) {
        if self.converts(resource) {
            from_stored_form(object);
            super::settle("autoscaling/v1", "HorizontalPodAutoscaler", object);
        }
    }
}

fn cpu_metric(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["type"] == "Utilization"
}

fn to_stored_form(object: &mut Value) {
    let mut metrics = Vec::new();
    let percent = object["spec"][TARGET].clone();
    if !percent.is_null() {
        metrics.push(cpu_metric(&percent));
    }
    if let Some(Value::Array(more)) = take_annotation(object, METRICS) {
        metrics.extend(more);
    }
    if let Some(behavior) = take_annotation(object, BEHAVIOR) {
        object["spec"]["behavior"] = behavior;
    }
    remove(&mut object["spec"], TARGET);
    let metrics = if metrics.is_empty() { vec![cpu_metric(&json!(80))] } else { metrics };
    object["spec"]["metrics"] = metrics.into();
    remove(&mut object["status"], "currentCPUUtilizationPercentage");
}

fn from_stored_form(object: &mut Value) {
    let metrics = list(&object["spec"]["metrics"]).to_vec();
    let (cpu, others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu);
    if let Some(metric) = cpu.first() {
        object["spec"][TARGET] = metric["resource"]["target"]["averageUtilization"].clone();
    }
    if !others.is_empty() {
        put_annotation(object, METRICS, &others.into());
    }
    let behavior = object["spec"]["behavior"].clone();
    if !behavior.is_null() {
        put_annotation(object, BEHAVIOR, &behavior);
    }
    for name in ["metrics", "behavior"] {
        remove(&mut object["spec"], name);
    }
    for name in ["currentMetrics", "conditions"] {
        remove(&mut object["status"], name);
    }
}

fn take_annotation(object: &mut Value, name: &str) -> Option<Value> {
    let annotations = object.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let value = annotations.remove(name)?;
    if annotations.is_empty() {
        remove(&mut object["metadata"], "annotations");
    }
    serde_json::from_str(value.as_str()?).ok()
}

fn put_annotation(object: &mut Value, name: &str, value: &Value) {
    child(&mut object["metadata"], "annotations")[name] = value.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let memory =
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Value", "value": "1Gi"}}});
        let stored = json!({
            "metadata": {"name": "a"}, "status": {},
            "spec": {"maxReplicas": 3, "metrics": [cpu_metric(&json!(50)), memory], "behavior": {"scaleUp": {}}},
        });
        let mut shown = stored.clone();
        from_stored_form(&mut shown);
        assert_eq!(shown["spec"], json!({"maxReplicas": 3, TARGET: 50}));
        to_stored_form(&mut shown);
        assert_eq!(shown, stored);
    }
}
