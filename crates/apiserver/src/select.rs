//! Selectors applied to stored objects, parsing an object only when a field beyond its name is asked for.

use std::borrow::Cow;
use std::sync::Arc;

use ferrovirt_machinery::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

use crate::http::options::ListOptions;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::Object;

/// Which objects of a resource are meant.
pub struct Selection {
    resource: Arc<Resource>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Only these two fields are asked for, so objects need not be parsed.
    by_name_only: bool,
}

impl Selection {
    /// Checks that the resource knows every field that is selected by.
    pub fn new(resource: &Arc<Resource>, options: &ListOptions) -> ApiResult<Self> {
        let mut supported = vec!["metadata.name", "metadata.namespace"];
        if !resource.namespaced {
            supported.pop();
        }
        supported.extend(resource.strategy.selectable_fields());
        let custom = resource.custom.as_ref();
        supported.extend(custom.iter().flat_map(|custom| custom.selectable.iter().map(|(name, _)| name.as_str())));
        let plain = resource.custom.is_none() && resource.strategy.selectable_fields().is_empty();
        let checked = if plain { options.fields.check_metadata_only() } else { options.fields.check(&supported) };
        checked.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let by_name_only = options
            .fields
            .requirements()
            .iter()
            .all(|need| matches!(need.path.as_str(), "metadata.name" | "metadata.namespace"));
        Ok(Self {
            resource: resource.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            by_name_only,
        })
    }

    /// No restriction at all.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Object) -> bool {
        if !self.labels.is_everything() && !self.labels.matches(|key| object.label(key)) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let parsed = if self.by_name_only { Value::Null } else { object.body.value() };
        self.fields.matches(|path| match path {
            "metadata.name" => Cow::Borrowed(object.name()),
            "metadata.namespace" => Cow::Borrowed(object.namespace()),
            other => self.field(&parsed, other),
        })
    }

    fn field<'v>(&'v self, object: &'v Value, path: &str) -> Cow<'v, str> {
        let custom = self.resource.custom.as_ref();
        if let Some((_, json_path)) = custom.and_then(|custom| custom.selectable.iter().find(|(name, _)| name == path))
        {
            return json_path.first(object).map(text).unwrap_or_default();
        }
        let found = path.split('.').try_fold(object, |value, part| value.get(part));
        found.map(text).unwrap_or_default()
    }
}

fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}
