//! Ownership seen through the `scale` subresource: who owns `spec.replicas` of a Scale owns the replicas field of the
//! scaled object, wherever that is.

use serde_json::Value;

use super::entries::{self, Entry, EntryError};
use super::fields::FieldSet;
use super::path::PathElement;

const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas_in_scale() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

/// The path of a replicas field such as `.spec.replicas`.
fn path_of(replicas: &str) -> Vec<PathElement> {
    replicas.split('.').filter(|name| !name.is_empty()).map(PathElement::field).collect()
}

/// The `managedFields` of a Scale, made from those of the object that it scales. `replicas` is the path of the
/// object's replicas field.
pub fn to_scale(parent: &Value, replicas: &str) -> Result<Value, EntryError> {
    let path = path_of(replicas);
    let mut scale = Vec::new();
    for mut entry in entries::read(parent.clone())? {
        if entry.set()?.has(&path) {
            entry.identity.api_version = SCALE_VERSION.to_owned();
            entry.replace_set(replicas_in_scale());
            scale.push(entry);
        }
    }
    Ok(entries::write(scale))
}

/// The `managedFields` of the scaled object after its Scale was written with `scale`.
pub fn to_parent(parent: &Value, scale: &Value, replicas: &str, api_version: &str) -> Result<Value, EntryError> {
    let path = path_of(replicas);
    let mut replicas = FieldSet::new();
    replicas.insert(&path);
    let mut owners = entries::read(scale.clone())?;
    let mut result: Vec<Entry> = Vec::new();
    for mut entry in entries::read(parent.clone())? {
        if entry.set()?.has(&path) {
            // The versions differ by design: the Scale has its own.
            match owners.iter().position(|owner| is_same_manager(owner, &entry)) {
                Some(place) => {
                    owners.remove(place);
                }
                None => {
                    let rest = entry.set()?.difference(&replicas);
                    entry.replace_set(rest);
                }
            }
        }
        if !entry.is_empty() {
            result.push(entry);
        }
    }
    for mut owner in owners {
        if owner.set()?.has(&path_of(".spec.replicas")) {
            owner.identity.api_version = api_version.to_owned();
            // kube-apiserver looks the time up under the wrong name and finds none; clients see entries without.
            owner.time = None;
            owner.replace_set(replicas.clone());
            result.push(owner);
        }
    }
    Ok(entries::write(result))
}

fn is_same_manager(a: &Entry, b: &Entry) -> bool {
    let (a, b) = (&a.identity, &b.identity);
    a.manager == b.manager && a.operation == b.operation && a.subresource == b.subresource
}
