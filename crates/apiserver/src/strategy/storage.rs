//! Volumes, claims and storage classes.

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

use super::defaults::{child, field};
use super::{Strategy, forbidden, required};
use crate::server::Server;
use crate::status::ApiResult;

/// Claims.
pub struct Claim;
/// The strategy of persistent volume claims.
pub static PVC: Claim = Claim;

const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

impl Strategy for Claim {
    fn default(&self, object: &mut Value) {
        field(child(object, "spec"), "volumeMode", "Filesystem");
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({"phase": "Pending"});
        add_finalizer(object, CLAIM_IN_USE);
        if object["spec"]["storageClassName"].is_null()
            && let Some(class) = default_class(server)
        {
            object["spec"]["storageClassName"] = class.into();
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
            errors.push(required("spec.accessModes", "at least 1 access mode is required"));
        }
        const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
        for mode in spec["accessModes"].as_array().into_iter().flatten() {
            if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
                errors.push(super::unsupported("spec.accessModes", mode, MODES));
            }
        }
        if spec["resources"]["requests"]["storage"].is_null() {
            errors.push(required("spec.resources[storage]", ""));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let strip = |object: &Value| {
            let mut spec = object["spec"].clone();
            for name in ["resources", "volumeName", "volumeAttributesClassName"] {
                super::defaults::remove(&mut spec, name);
            }
            spec
        };
        let bound_now = old["spec"]["volumeName"].is_null() || new["spec"]["volumeName"] == old["spec"]["volumeName"];
        if strip(new) != strip(old) || !bound_now {
            const WHY: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            return vec![forbidden("spec", WHY)];
        }
        Vec::new()
    }
}

/// Volumes.
pub struct Volume;
/// The strategy of persistent volumes.
pub static PV: Volume = Volume;

impl Strategy for Volume {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        field(spec, "volumeMode", "Filesystem");
        field(spec, "persistentVolumeReclaimPolicy", "Retain");
        if let Some(path) = super::defaults::existing(spec, "hostPath") {
            field(path, "type", "");
        }
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        let now = crate::handlers::write::format_time(server.environment.now());
        object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        add_finalizer(object, VOLUME_IN_USE);
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if object["spec"]["accessModes"].as_array().is_none_or(Vec::is_empty) {
            errors.push(required("spec.accessModes", ""));
        }
        if object["spec"]["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
            errors.push(required("spec.capacity", ""));
        }
        errors
    }
}

/// Storage classes.
pub struct StorageClass;
/// The strategy of storage classes.
pub static STORAGE_CLASS: StorageClass = StorageClass;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        field(object, "reclaimPolicy", "Delete");
        field(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        if object["provisioner"].as_str().is_none_or(str::is_empty) {
            vec![required("provisioner", "")]
        } else {
            Vec::new()
        }
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if new[name] != old[name] {
                errors.push(match name {
                    "reclaimPolicy" | "volumeBindingMode" => super::immutable(name, &new[name]),
                    _ => forbidden(name, &format!("updates to {name} are forbidden.")),
                });
            }
        }
        errors
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !list.iter().any(|name| name == finalizer) {
        list.push(finalizer.into());
    }
    object["metadata"]["finalizers"] = list.into();
}

/// The class that claims get which name none.
fn default_class(server: &Server) -> Option<String> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let page = server.store.list("storage.k8s.io/storageclasses", None, None, None, None).ok()?;
    let class = page.objects.iter().find(|class| class.body.value()["metadata"]["annotations"][DEFAULT] == "true")?;
    Some(class.name().to_owned())
}
