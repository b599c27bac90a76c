//! The entries of `metadata.managedFields`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Writer;
use super::fields::{FieldSet, FieldsError};
use super::path::PathElement;
use super::shape::{self, Shape};
use crate::quote::go_quote;
use crate::schema::Schema;

/// Whether fields were applied, or written in any other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells one manager from another. An applier is the same in all versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Identity {
    pub(super) fn of(writer: &Writer<'_>, operation: Operation) -> Self {
        Self {
            manager: if writer.manager.is_empty() { "unknown" } else { writer.manager }.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Managers are listed in the order of this text.
    pub(super) fn sort_key(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let mut key = format!(r#"{{"manager":{},"operation":"{}""#, quoted(&self.manager), self.operation.name());
        if self.operation == Operation::Update {
            key.push_str(&format!(r#","apiVersion":{}"#, quoted(&self.api_version)));
        }
        if !self.subresource.is_empty() {
            key.push_str(&format!(r#","subresource":{}"#, quoted(&self.subresource)));
        }
        key.push('}');
        key
    }

    /// How a conflict names the manager.
    pub(super) fn shown(&self) -> String {
        let mut text = go_quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&go_quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }
}

/// The fields of an entry. Most writes touch few entries; the others stay as they came.
#[derive(Clone, Debug)]
pub(super) enum Fields {
    Encoded(Value),
    Decoded(FieldSet),
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    /// RFC 3339 in UTC, so that the order of texts is the order of times.
    pub(super) time: Option<String>,
    fields: Fields,
}

/// Why `managedFields` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No type of fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    MissingFieldsType(usize),
    /// Not `FieldsV1`.
    #[error("invalid fieldsType {} in managed fields entry {index}", go_quote(fields_type))]
    FieldsType {
        /// The place of the entry.
        index: usize,
        /// What it says.
        fields_type: String,
    },
    /// Unreadable fields.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
    /// The list or an entry has the wrong JSON type.
    #[error("managedFields is not a list of entries")]
    Shape,
}

impl Entry {
    pub(super) fn new(identity: Identity, time: Option<String>, set: FieldSet) -> Self {
        Self { identity, time, fields: Fields::Decoded(set) }
    }

    fn from_value(index: usize, entry: &mut Value) -> Result<Self, EntryError> {
        let members = entry.as_object_mut().ok_or(EntryError::Shape)?;
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(EntryError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(EntryError::ApiVersion);
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(EntryError::MissingFieldsType(index)),
            other => return Err(EntryError::FieldsType { index, fields_type: other.to_owned() }),
        }
        let time = members.get("time").and_then(Value::as_str).map(ToOwned::to_owned);
        let identity = Identity { manager: text("manager"), operation, api_version, subresource: text("subresource") };
        let fields = Fields::Encoded(members.get_mut("fieldsV1").map(Value::take).unwrap_or_default());
        Ok(Self { identity, time, fields })
    }

    fn into_value(self) -> Value {
        let fields = match self.fields {
            Fields::Encoded(Value::Null) => Value::Object(Map::new()),
            Fields::Encoded(fields) => fields,
            Fields::Decoded(set) => set.to_fields_v1(),
        };
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("apiVersion", Value::String(self.identity.api_version));
        put("fieldsType", Value::from("FieldsV1"));
        put("fieldsV1", fields);
        if !self.identity.manager.is_empty() {
            put("manager", Value::String(self.identity.manager));
        }
        put("operation", Value::from(self.identity.operation.name()));
        if !self.identity.subresource.is_empty() {
            put("subresource", Value::String(self.identity.subresource));
        }
        if let Some(time) = self.time {
            put("time", Value::String(time));
        }
        Value::Object(members)
    }

    /// The fields; reading them fails only for what a user made up.
    pub(super) fn set(&self) -> Result<Cow<'_, FieldSet>, FieldsError> {
        match &self.fields {
            Fields::Encoded(fields) => FieldSet::from_fields_v1(fields).map(Cow::Owned),
            Fields::Decoded(set) => Ok(Cow::Borrowed(set)),
        }
    }

    /// Whether there is no field.
    pub(super) fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Encoded(fields) => fields.as_object().is_none_or(Map::is_empty),
            Fields::Decoded(set) => set.is_empty(),
        }
    }

    /// Whether taking `changed` away could change the fields.
    pub(super) fn is_touched_by(&self, changed: &FieldSet) -> bool {
        match &self.fields {
            Fields::Encoded(fields) => changed.touches(fields),
            Fields::Decoded(_) => !changed.is_empty(),
        }
    }

    pub(super) fn replace_set(&mut self, set: FieldSet) {
        self.fields = Fields::Decoded(set);
    }

    /// Reads the fields and brings them in line with the schema: what used to be owned in parts and is now owned as a
    /// whole becomes the whole.
    pub(super) fn decode(&mut self, schema: Option<&Schema>) -> Result<&FieldSet, FieldsError> {
        if let Fields::Encoded(fields) = &self.fields {
            let set = FieldSet::from_fields_v1(fields)?;
            self.fields = Fields::Decoded(in_line_with(schema, &set).unwrap_or(set));
        }
        match &self.fields {
            Fields::Decoded(set) => Ok(set),
            Fields::Encoded(_) => Err(FieldsError::NotAnObject),
        }
    }
}

/// The set with atomic values owned as a whole; `None` when it is so already, which costs no copy.
fn in_line_with(schema: Option<&Schema>, set: &FieldSet) -> Option<FieldSet> {
    if is_in_line_with(schema, set) {
        return None;
    }
    let mut out = FieldSet::new();
    set.for_each(|element, member, below| {
        let child = schema_of(schema, element);
        if !below.is_empty() && is_atomic(child) {
            out.graft(element.clone(), true, FieldSet::new());
        } else {
            out.graft(element.clone(), member, in_line_with(child, below).unwrap_or_else(|| below.clone()));
        }
    });
    Some(out)
}

fn is_in_line_with(schema: Option<&Schema>, set: &FieldSet) -> bool {
    let mut in_line = true;
    set.for_each(|element, _, below| {
        let child = schema_of(schema, element);
        in_line =
            in_line && (below.is_empty() || child.is_none() || (!is_atomic(child) && is_in_line_with(child, below)));
    });
    in_line
}

fn schema_of<'s>(schema: Option<&'s Schema>, element: &PathElement) -> Option<&'s Schema> {
    match element {
        PathElement::Field(name) => shape::member_schema(schema, name),
        _ => shape::item_schema(schema),
    }
}

fn is_atomic(schema: Option<&Schema>) -> bool {
    use crate::schema::Type;
    let Some(node) = schema else { return false };
    match node.kind {
        Type::Object => shape::shape(schema, shape::empty_object()) == Shape::Leaf,
        Type::Array => shape::shape(schema, &Value::Array(Vec::new())) == Shape::Leaf,
        _ => false,
    }
}

/// Reads a whole list; the last of two entries of the same manager wins.
pub(super) fn read(managed_fields: Value) -> Result<Vec<Entry>, EntryError> {
    let list = match managed_fields {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        _ => return Err(EntryError::Shape),
    };
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    for (index, mut value) in list.into_iter().enumerate() {
        let entry = Entry::from_value(index, &mut value)?;
        match entries.iter_mut().find(|other| other.identity.is_same(&entry.identity)) {
            Some(other) => *other = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

/// Reads a list that a user sent: everything is checked, and times and fields get the form that we write.
pub(super) fn read_foreign(managed_fields: Value) -> Result<Vec<Entry>, EntryError> {
    let mut entries = read(managed_fields)?;
    for entry in &mut entries {
        entry.decode(None)?;
        let time = entry.time.take().and_then(|time| time.parse::<Timestamp>().ok());
        entry.time = time.map(time_text);
    }
    Ok(entries)
}

/// Writes a list: appliers first, then by time and name.
pub(super) fn write(mut entries: Vec<Entry>) -> Value {
    entries.sort_by(|a, b| {
        let (x, y) = (&a.identity, &b.identity);
        (x.operation, &a.time, &x.manager, &x.api_version, &x.subresource).cmp(&(
            y.operation,
            &b.time,
            &y.manager,
            &y.api_version,
            &y.subresource,
        ))
    });
    Value::Array(entries.into_iter().map(Entry::into_value).collect())
}

/// A time as entries have it.
pub(super) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metadata.managedFields` of an object.
pub(super) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Takes `metadata.managedFields` out of an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts `metadata.managedFields` into an object; an empty list is left out.
pub(super) fn put(object: &mut Value, managed_fields: Value) {
    let is_empty = managed_fields.is_null() || managed_fields.as_array().is_some_and(Vec::is_empty);
    let Some(members) = object.as_object_mut() else { return };
    if is_empty && !members.contains_key("metadata") {
        return;
    }
    let metadata = members.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if is_empty {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), managed_fields);
    }
}

/// Checks a whole `managedFields`, for example after admission webhooks had the object in their hands.
pub fn validate_managed_fields(managed_fields: &Value) -> Result<(), EntryError> {
    for entry in read(managed_fields.clone())? {
        entry.set()?;
    }
    Ok(())
}

/// Takes the old times back when nothing but times of entries differs, so that writing what is there already is no
/// change. To be called when the new object is ready to be stored.
pub fn keep_times_if_unchanged(old: &Value, new: &mut Value) {
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (of(old), of(new)) else { return };
    let differs_in_time_only = before.len() == after.len()
        && before != after
        && before.iter().zip(after).all(|(before, after)| without_time(before).eq(without_time(after)));
    if !differs_in_time_only {
        return;
    }
    let written = take(new);
    let kept = if is_same_object(old, new) { of(old).cloned() } else { written };
    put(new, kept.unwrap_or_default());
}

/// Whether `new`, which has no entries, is `old` but for its entries.
pub(super) fn is_same_object(old: &Value, new: &Value) -> bool {
    match (old.as_object(), new.as_object()) {
        (Some(old), Some(new)) => old.len() == new.len() && old.iter().zip(new).all(same_but_managed_fields),
        _ => old == new,
    }
}

fn same_but_managed_fields(((old_name, old), (new_name, new)): ((&String, &Value), (&String, &Value))) -> bool {
    if old_name != new_name {
        return false;
    }
    match (old_name.as_str(), old, new) {
        ("metadata", Value::Object(old), Value::Object(new)) => {
            old.iter().filter(|(name, _)| *name != "managedFields").eq(new)
        }
        _ => old == new,
    }
}

fn without_time(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
    entry.as_object().into_iter().flatten().filter(|(name, _)| *name != "time")
}
