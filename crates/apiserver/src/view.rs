//! From stored objects to answers: version, read-time defaults, tables and metadata.
//!
//! Stored bodies carry neither `apiVersion` nor `kind`; both are put in front when an object is shown. So one stored
//! buffer serves every version of a kind, and the common case copies bytes without parsing them.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use ferrovirt_machinery::table::Printer;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::http::negotiate::{Output, Shape};
use crate::http::options::Query;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, Revision};

/// Shows objects of one resource in one form.
#[derive(Clone)]
pub struct View<'a> {
    resource: &'a Resource,
    output: &'a Output,
    now: jiff::Timestamp,
    /// `{"apiVersion":…,"kind":…,`
    head: String,
    include: Include,
}

/// What a table row carries besides its cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

impl<'a> View<'a> {
    /// A view of `resource` in the form that `output` says.
    ///
    /// `includeObject` is checked by [`check_include`] before.
    pub fn new(resource: &'a Resource, output: &'a Output, query: &Query, now: jiff::Timestamp) -> Self {
        let head = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.api_version(), resource.kind);
        let include = match query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self { resource, output, now, head, include }
    }

    /// The object as a value of this resource's version, as of `revision`.
    pub fn value(&self, object: &Object, revision: Revision) -> Value {
        let mut value = object.body.value_at(revision);
        self.finish(&mut value, object.revision);
        value
    }

    /// Puts the type in, converts, and fills defaults that the schema got after the object was written.
    fn finish(&self, value: &mut Value, written: Revision) {
        if let Value::Object(map) = value {
            map.insert("apiVersion".into(), self.resource.api_version().into());
            map.insert("kind".into(), self.resource.kind.to_string().into());
        }
        if self.resource.strategy.converts(self.resource) {
            self.resource.strategy.from_storage(self.resource, value);
        }
        if self.stale(written)
            && let Some(custom) = &self.resource.custom
        {
            custom.schema.prune(value, true);
            custom.schema.apply_defaults(value);
        }
    }

    fn stale(&self, written: Revision) -> bool {
        self.resource
            .custom
            .as_ref()
            .is_some_and(|custom| written <= custom.schema_revision || custom.storage_schema.is_some())
    }

    /// The stored bytes can be sent as they are.
    fn is_verbatim(&self, object: &Object) -> bool {
        !self.resource.strategy.converts(self.resource) && !self.stale(object.revision)
    }

    /// Writes one object with its type, as in a watch frame or an answer to GET.
    pub fn write(&self, object: &Object, revision: Revision, out: &mut BytesMut) {
        match self.output.shape {
            Shape::Object if self.is_verbatim(object) => {
                out.put_slice(self.head.as_bytes());
                self.write_tail(object, revision, out);
            }
            Shape::Object => write_value(&self.value(object, revision), out),
            Shape::Metadata { version, .. } => write_value(&metadata_only(self.value(object, revision), version), out),
            Shape::Table { version } => {
                let value = self.value(object, revision);
                write_value(
                    &self.table(version, &[Cow::Owned(value)], &json!({"resourceVersion": revision.to_string()})),
                    out,
                );
            }
        }
    }

    /// The stored object without its opening brace.
    fn write_tail(&self, object: &Object, revision: Revision, out: &mut BytesMut) {
        let (before, after) = object.body.parts();
        out.put_slice(before.get(1..).unwrap_or_default());
        put_revision(revision, out);
        out.put_slice(&after);
    }

    /// An answer with one object that is in the store.
    pub fn one(&self, code: StatusCode, object: &Object) -> Answer {
        if self.output.shape == Shape::Object && !self.output.yaml && !self.output.pretty {
            let mut out = BytesMut::with_capacity(object.body.len() + self.head.len() + 24);
            self.write(object, object.revision, &mut out);
            out.put_u8(b'\n');
            return respond::bytes(code, "application/json", out.freeze());
        }
        self.one_value(code, self.value(object, object.revision))
    }

    /// An answer with one object that may exist only in this request (a dry run, a deleted object).
    pub fn one_value(&self, code: StatusCode, value: Value) -> Answer {
        let shown = match self.output.shape {
            Shape::Object => value,
            Shape::Metadata { version, .. } => metadata_only(value, version),
            Shape::Table { version } => {
                let meta = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                self.table(version, &[Cow::Owned(value)], &meta)
            }
        };
        respond::object(code, self.output, &shown)
    }

    /// A list.
    pub fn list(&self, objects: &[std::sync::Arc<Object>], meta: &Value) -> Answer {
        match self.output.shape {
            Shape::Object if !self.output.yaml && !self.output.pretty => {
                respond::bytes(StatusCode::OK, "application/json", self.list_bytes(objects, meta))
            }
            Shape::Table { version } => {
                let values: Vec<_> =
                    objects.iter().map(|object| Cow::Owned(self.value(object, object.revision))).collect();
                respond::object(StatusCode::OK, self.output, &self.table(version, &values, meta))
            }
            _ => {
                let items: Vec<_> = objects.iter().map(|object| self.item(object)).collect();
                respond::object(StatusCode::OK, self.output, &self.list_value(&items, meta))
            }
        }
    }

    fn item(&self, object: &Object) -> Value {
        let mut value = self.value(object, object.revision);
        if let Shape::Metadata { version, .. } = self.output.shape {
            return metadata_only(value, version);
        }
        self.strip_type(&mut value);
        value
    }

    /// Built-in lists name the type once, custom ones in every item.
    fn strip_type(&self, value: &mut Value) {
        if self.resource.custom.is_none()
            && let Value::Object(map) = value
        {
            map.remove("apiVersion");
            map.remove("kind");
        }
    }

    /// A list value around ready items.
    pub fn list_value(&self, items: &[Value], meta: &Value) -> Value {
        let (api_version, kind) = match self.output.shape {
            Shape::Metadata { version, .. } => {
                (format!("meta.k8s.io/{version}"), "PartialObjectMetadataList".to_owned())
            }
            _ => (self.resource.api_version(), self.resource.list_kind.clone()),
        };
        json!({"apiVersion": api_version, "kind": kind, "metadata": meta, "items": items})
    }

    fn list_bytes(&self, objects: &[std::sync::Arc<Object>], meta: &Value) -> bytes::Bytes {
        let size: usize = objects.iter().map(|object| object.body.len() + self.head.len() + 24).sum();
        let mut out = BytesMut::with_capacity(size + 256);
        out.put_slice(format!("{{\"apiVersion\":\"{}\",\"items\":[", self.resource.api_version(),).as_bytes());
        let head = if self.resource.custom.is_some() { self.head.as_str() } else { "{" };
        for (index, object) in objects.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            if self.is_verbatim(object) {
                out.put_slice(head.as_bytes());
                self.write_tail(object, object.revision, &mut out);
            } else {
                write_value(&self.item(object), &mut out);
            }
        }
        out.put_slice(format!("],\"kind\":\"{}\",\"metadata\":{meta}}}\n", self.resource.list_kind).as_bytes());
        out.freeze()
    }

    /// A table of the given objects.
    fn table(&self, version: &str, objects: &[Cow<'_, Value>], meta: &Value) -> Value {
        let printer = self.printer();
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let mut row = Map::new();
                row.insert("cells".into(), printer.row(object, self.now).into());
                let attached = match self.include {
                    Include::None => None,
                    Include::Metadata => Some(metadata_only(object.clone().into_owned(), version)),
                    Include::Object => Some(object.clone().into_owned()),
                };
                row.insert("object".into(), attached.unwrap_or(Value::Null));
                let conditions = printer.conditions(object);
                if !conditions.is_empty() {
                    row.insert("conditions".into(), conditions.into());
                }
                Value::Object(row)
            })
            .collect();
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
            "columnDefinitions": printer.columns(), "rows": rows,
        })
    }

    fn printer(&self) -> Cow<'_, Printer> {
        match &self.resource.custom {
            Some(custom) => Cow::Borrowed(&custom.printer),
            None => Cow::Owned(Printer::builtin(&self.resource.group, &self.resource.kind)),
        }
    }

    /// The object of a bookmark.
    pub fn bookmark(&self, revision: Revision, initial_events_end: bool) -> Value {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match self.output.shape {
            Shape::Table { version } => {
                let object = json!({
                    "kind": self.resource.kind.to_string(), "apiVersion": self.resource.api_version(), "metadata": meta,
                });
                let row = json!({"cells": null, "object": object});
                json!({
                    "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": {"resourceVersion": revision.to_string()}, "columnDefinitions": null, "rows": [row],
                })
            }
            Shape::Metadata { version, .. } => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta})
            }
            Shape::Object => {
                json!({"kind": self.resource.kind.to_string(), "apiVersion": self.resource.api_version(), "metadata": meta})
            }
        }
    }
}

/// Refuses a table whose rows shall carry something that does not exist.
pub fn check_include(output: &Output, query: &Query) -> ApiResult<()> {
    match (&output.shape, query.get("includeObject")) {
        (Shape::Table { .. }, Some(other)) if !matches!(other, "" | "None" | "Metadata" | "Object") => {
            Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
            )))
        }
        _ => Ok(()),
    }
}

/// `PartialObjectMetadata` of an object.
pub fn metadata_only(mut object: Value, version: &str) -> Value {
    let metadata = object["metadata"].take();
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}

fn write_value(value: &Value, out: &mut BytesMut) {
    let mut writer = (&mut *out).writer();
    // Writing to memory cannot fail, and a Value always has string keys.
    let _ = serde_json::to_writer(&mut writer, value);
}

fn put_revision(revision: Revision, out: &mut BytesMut) {
    out.put_slice(revision.to_string().as_bytes());
}

/// Takes `apiVersion` and `kind` off, as bodies are stored.
pub fn strip_type(object: &mut Value) {
    if let Value::Object(map) = object {
        map.remove("apiVersion");
        map.remove("kind");
    }
}
