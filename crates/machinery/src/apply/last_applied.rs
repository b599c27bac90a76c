//! Moving from client-side apply: `kubectl apply` left an annotation with what it last applied, and its fields belong
//! to an updater. When `kubectl apply --server-side` finds conflicts on exactly those fields, they are no conflicts.

use serde_json::Value;

use super::fields::FieldSet;
use super::typed::{compare, field_set, validate};
use crate::schema::Schema;

/// The only manager that gets this treatment.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations together may not be larger than this.
const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that were last applied client-side and still have those values.
pub(super) fn still_valid(schema: &Schema, live: &Value, api_version: &str) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion")?.as_str()? != api_version {
        return None;
    }
    let schema = Some(schema);
    validate(schema, live).ok()?;
    validate(schema, &applied).ok()?;
    let changes = compare(schema, Some(&applied), live);
    Some(
        field_set(schema, &applied)
            .difference(&changes.modified)
            .difference(&changes.added)
            .difference(&changes.removed),
    )
}

/// Keeps the annotation true for clients that still apply client-side.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    // The encoder of unstructured objects ends with a line break.
    let text = format!("{applied}\n");
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS_SIZE {
        annotations.remove(ANNOTATION);
    }
}
