//! From stored objects to answers: version, read-time defaults, tables and metadata.
//!
//! Stored bodies carry neither `apiVersion` nor `kind`; both are put in front when an object is shown. So one stored
//! buffer serves every version of a kind, and the common case copies bytes without parsing them.

use std::borrow::Cow;
use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
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
    /// Made when the first row is.
    printer: OnceLock<Cow<'a, Printer>>,
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
        Self { resource, output, now, head, include, printer: OnceLock::new() }
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
                write_value(&self.table(version, &value, &json!({"resourceVersion": revision.to_string()})), out);
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
                self.table(version, &value, &meta)
            }
        };
        respond::object(code, self.output, &shown)
    }

    /// What stands before the items of a list, and the name of the field that holds them.
    pub fn list_head(&self, meta: &Value) -> (Value, &'static str) {
        let (api_version, kind) = match self.output.shape {
            Shape::Table { version } => {
                let head = json!({
                    "apiVersion": format!("meta.k8s.io/{version}"), "columnDefinitions": self.printer().columns(),
                    "kind": "Table", "metadata": meta,
                });
                return (head, "rows");
            }
            Shape::Metadata { version, .. } => {
                (format!("meta.k8s.io/{version}"), "PartialObjectMetadataList".to_owned())
            }
            Shape::Object => (self.resource.api_version(), self.resource.list_kind.clone()),
        };
        (json!({"apiVersion": api_version, "kind": kind, "metadata": meta}), "items")
    }

    /// One item of a list, or one row of a table.
    pub fn item(&self, object: &Object) -> Value {
        let mut value = self.value(object, object.revision);
        match self.output.shape {
            Shape::Table { version } => return self.row(version, &value),
            Shape::Metadata { version, .. } => return metadata_only(value, version),
            Shape::Object if self.resource.custom.is_none() => strip_type(&mut value),
            Shape::Object => {}
        }
        value
    }

    /// The text of an item as it is stored: what stands before it, and the two parts around its revision. `None` where the item is not sent
    /// as it is.
    ///
    /// Built-in lists name the type once, custom ones in every item.
    pub fn verbatim(&self, object: &Object) -> Option<(&str, Bytes, Bytes)> {
        let as_it_is = self.output.shape == Shape::Object && !self.output.yaml && !self.output.pretty;
        if !as_it_is || !self.is_verbatim(object) {
            return None;
        }
        let head = if self.resource.custom.is_some() { self.head.as_str() } else { "{" };
        let (before, after) = object.body.parts();
        Some((head, before.slice(1.min(before.len())..), after))
    }

    /// A table of one object.
    fn table(&self, version: &str, object: &Value, meta: &Value) -> Value {
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
            "columnDefinitions": self.printer().columns(), "rows": [self.row(version, object)],
        })
    }

    fn row(&self, version: &str, object: &Value) -> Value {
        let printer = self.printer();
        let mut row = Map::new();
        row.insert("cells".into(), printer.row(object, self.now).into());
        let attached = match self.include {
            Include::None => None,
            Include::Metadata => Some(metadata_only(object.clone(), version)),
            Include::Object => Some(object.clone()),
        };
        row.insert("object".into(), attached.unwrap_or(Value::Null));
        let conditions = printer.conditions(object);
        if !conditions.is_empty() {
            row.insert("conditions".into(), conditions.into());
        }
        Value::Object(row)
    }

    fn printer(&self) -> &Printer {
        self.printer.get_or_init(|| match &self.resource.custom {
            Some(custom) => Cow::Borrowed(&custom.printer),
            None => Cow::Owned(Printer::builtin(&self.resource.group, &self.resource.kind)),
        })
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

pub(crate) fn put_revision(revision: Revision, out: &mut BytesMut) {
    out.put_slice(revision.to_string().as_bytes());
}

/// Takes `apiVersion` and `kind` off, as bodies are stored.
pub fn strip_type(object: &mut Value) {
    if let Value::Object(map) = object {
        map.remove("apiVersion");
        map.remove("kind");
    }
}
