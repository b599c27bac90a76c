//! Volumes, claims and storage classes.

use ferrovirt_api::values::Quantity;
use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::selector::validate_label_selector;
use serde_json::{Value, json};

use super::check::{Errors, fields, list, quantity, text};
use super::defaults::{child, field, remove};
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
        let spec = &object["spec"];
        let mut errors = Errors::default();
        if list(&spec["accessModes"]).is_empty() {
            errors.required("spec.accessModes", "at least 1 access mode is required");
        }
        access_modes(&spec["accessModes"], &mut errors);
        errors.extend(validate_label_selector(&spec["selector"], "spec.selector"));
        let size = &spec["resources"]["requests"]["storage"];
        match quantity(size) {
            None => errors.required("spec.resources[storage]", ""),
            Some(amount) if amount <= Quantity::default() => {
                errors.invalid("spec.resources[storage]", size, "must be greater than zero");
            }
            Some(_) => {}
        }
        errors.subdomain("spec.storageClassName", &spec["storageClassName"]);
        errors.one_of("spec.volumeMode", &spec["volumeMode"], &["Block", "Filesystem"]);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        const WHY: &str =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let mut errors = Errors::default();
        let bound = new["status"]["phase"] == "Bound";
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            if old["spec"]["volumeName"].is_null() {
                remove(&mut spec, "volumeName");
            }
            // A default class that came later may still be filled in.
            if old["spec"]["storageClassName"].is_null() {
                remove(&mut spec, "storageClassName");
            }
            if bound {
                remove(&mut spec["resources"]["requests"], "storage");
                remove(&mut spec, "volumeAttributesClassName");
            }
            spec
        };
        if fixed(new) != fixed(old) {
            errors.forbidden("spec", WHY);
        }
        let size = |object: &Value| quantity(&object["spec"]["resources"]["requests"]["storage"]);
        let capacity = quantity(&old["status"]["capacity"]["storage"]).unwrap_or_default();
        if size(new) < size(old) && size(new).is_some_and(|size| size <= capacity) {
            let why = "field can not be less than status.capacity";
            errors.forbidden("spec.resources.requests.storage", why);
        }
        errors.unchanged("volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
        errors.into_vec()
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

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        if new["status"]["lastPhaseTransitionTime"].is_null()
            && let Some(time) = old["status"].get("lastPhaseTransitionTime")
        {
            new["status"]["lastPhaseTransitionTime"] = time.clone();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        if list(&spec["accessModes"]).is_empty() {
            errors.required("spec.accessModes", "");
        }
        access_modes(&spec["accessModes"], &mut errors);
        if fields(&spec["capacity"]).next().is_none() {
            errors.required("spec.capacity", "");
        } else if spec["capacity"]["storage"].is_null() || fields(&spec["capacity"]).count() > 1 {
            let supported = ["storage"];
            errors.extend([super::unsupported("spec.capacity", &spec["capacity"], &supported)]);
        }
        for (name, amount) in fields(&spec["capacity"]) {
            if quantity(amount).is_some_and(|amount| amount <= Quantity::default()) {
                errors.invalid(format!("spec.capacity[{name}]"), amount, "must be greater than zero");
            }
        }
        let reclaim = ["Delete", "Recycle", "Retain"];
        errors.one_of("spec.persistentVolumeReclaimPolicy", &spec["persistentVolumeReclaimPolicy"], &reclaim);
        sources(spec, &mut errors);
        errors.one_of("spec.volumeMode", &spec["volumeMode"], &["Block", "Filesystem"]);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let differs = SOURCES.iter().any(|name| new["spec"][*name] != old["spec"][*name]);
        if differs {
            errors.forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation");
        }
        errors.unchanged("spec.volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
        if !old["spec"]["nodeAffinity"].is_null() {
            errors.unchanged("spec.nodeAffinity", &new["spec"]["nodeAffinity"], &old["spec"]["nodeAffinity"]);
        }
        errors.into_vec()
    }
}

/// Where the bytes of a volume may be.
const SOURCES: &[&str] = &[
    "hostPath",
    "local",
    "nfs",
    "csi",
    "iscsi",
    "fc",
    "rbd",
    "cephfs",
    "glusterfs",
    "cinder",
    "flexVolume",
    "flocker",
    "azureFile",
    "azureDisk",
    "awsElasticBlockStore",
    "gcePersistentDisk",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "scaleIO",
    "storageos",
];

fn sources(spec: &Value, errors: &mut Errors) {
    let mut given = SOURCES.iter().filter(|name| spec[**name].is_object());
    match given.next() {
        None => errors.required("spec", "must specify a volume type"),
        Some(first) => {
            let needed: &[&str] = match *first {
                "hostPath" | "local" => &["path"],
                "nfs" => &["server", "path"],
                "csi" => &["driver", "volumeHandle"],
                _ => &[],
            };
            for name in needed.iter().filter(|name| text(&spec[*first][**name]).is_empty()) {
                errors.required(format!("spec.{first}.{name}"), "");
            }
            if *first == "local" && spec["nodeAffinity"].is_null() {
                errors.required("spec.nodeAffinity", "Local volume requires node affinity");
            }
        }
    }
    for more in given {
        errors.forbidden(format!("spec.{more}"), "may not specify more than 1 volume type");
    }
}

fn access_modes(modes: &Value, errors: &mut Errors) {
    const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in list(modes) {
        errors.one_of("spec.accessModes", mode, MODES);
    }
    if list(modes).len() > 1 && list(modes).iter().any(|mode| mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden("spec.accessModes", why);
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
                    "parameters" => forbidden(name, "updates to parameters are forbidden."),
                    _ => super::immutable(name, &new[name]),
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
