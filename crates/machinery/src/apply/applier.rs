//! Server-side apply.

use serde_json::Value;

use super::entries::{self, Entry, EntryError, Identity, Operation, time_text};
use super::fields::{FieldSet, FieldsError};
use super::path::{PathElement, path_text};
use super::typed::{TypeErrors, field_set, merge, remove, validate};
use super::update::{Change, track_existing};
use super::{Writer, last_applied, unowned};
use crate::schema::Schema;

/// How a configuration is applied.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// Who applies, where and when.
    pub writer: Writer<'a>,
    /// The kind of the endpoint.
    pub kind: &'a str,
    /// Take fields over from other managers instead of reporting a conflict.
    pub force: bool,
}

/// One field that another manager owns and that the configuration would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as messages show it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// `causes[].reason`.
    pub const REASON: &'static str = "FieldManagerConflict";

    /// `causes[].message`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that would change: 409.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration is not of the endpoint's kind: 400.
    #[error("invalid object type: {0}")]
    WrongKind(String),
    /// The configuration says who owns what: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// Unknown fields, wrong types, list elements that cannot be told apart: 500, as kube-apiserver has it.
    #[error("failed to create typed patch object ({object}): {errors}")]
    Types {
        /// Namespace, name and kind.
        object: String,
        /// What is wrong.
        errors: TypeErrors,
    },
    /// The live object's entries cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    Entries(#[from] EntryError),
    /// The live object's fields cannot be read: 500.
    #[error("failed to decode managed fields: {0}")]
    Fields(#[from] FieldsError),
}

impl ApplyError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Conflicts(_) => 409,
            Self::WrongKind(_) | Self::ManagedFields => 400,
            Self::Types { .. } | Self::Entries(_) | Self::Fields(_) => 500,
        }
    }

    /// `Status.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflicts(_) => "Conflict",
            Self::WrongKind(_) | Self::ManagedFields => "BadRequest",
            Self::Types { .. } | Self::Entries(_) | Self::Fields(_) => "",
        }
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut lines = Vec::new();
    let mut last = "";
    for conflict in conflicts {
        if conflict.manager != last {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = &conflict.manager;
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Merges `applied` into `live` (`None`: the object is created) and records who owns what.
///
/// `schema` is the schema of whole objects (see [`Schema::with_object_meta`]). The result has no defaults filled in yet.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    options: &ApplyOptions<'_>,
) -> Result<Value, ApplyError> {
    check(schema, applied, options)?;
    let mut managed = entries::read(live.and_then(entries::of).cloned().unwrap_or_default())?;
    for entry in &mut managed {
        entry.decode(Some(schema))?;
    }
    if let Some(live) = live.filter(|_| managed.is_empty()) {
        managed = track_existing(schema, live, &options.writer);
    }
    let request = Request { schema, live, applied, options };
    let outcome = match request.run(managed.clone(), options.force) {
        Err(conflicts) if options.writer.manager == last_applied::MANAGER => {
            let allowed = live.and_then(|live| last_applied::still_valid(schema, live, options.writer.api_version));
            match allowed {
                None => Err(conflicts),
                Some(allowed) => {
                    let left: Vec<_> = conflicts.into_iter().filter(|found| !allowed.has(&found.path)).collect();
                    if left.is_empty() { request.run(managed, true) } else { Err(left) }
                }
            }
        }
        outcome => outcome,
    };
    let mut object = outcome.map_err(|conflicts| ApplyError::Conflicts(shown(conflicts)))?;
    if options.writer.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, applied);
    }
    Ok(object)
}

fn check(schema: &Schema, applied: &Value, options: &ApplyOptions<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let gvk = match version.split_once('/') {
        Some(_) => format!("{version}, Kind={kind}"),
        None => format!("/{version}, Kind={kind}"),
    };
    if version != options.writer.api_version || kind != options.kind {
        return Err(ApplyError::WrongKind(gvk));
    }
    if entries::of(applied).is_some_and(Value::is_array) {
        return Err(ApplyError::ManagedFields);
    }
    validate(Some(schema), applied).map_err(|errors| {
        let namespace = crate::meta::namespace(applied);
        let object = format!("{namespace}/{}; {gvk}", crate::meta::name(applied));
        ApplyError::Types { object, errors }
    })
}

/// A conflict before it is put into words.
struct Found {
    identity: Identity,
    path: Vec<PathElement>,
}

fn shown(conflicts: Vec<Found>) -> Vec<Conflict> {
    conflicts
        .into_iter()
        .map(|found| Conflict { manager: found.identity.shown(), field: path_text(&found.path) })
        .collect()
}

struct Request<'a> {
    schema: &'a Schema,
    live: Option<&'a Value>,
    applied: &'a Value,
    options: &'a ApplyOptions<'a>,
}

impl Request<'_> {
    fn run(&self, mut managed: Vec<Entry>, force: bool) -> Result<Value, Vec<Found>> {
        let schema = Some(self.schema);
        let writer = &self.options.writer;
        let identity = Identity::of(writer, Operation::Apply);
        let set = field_set(schema, self.applied).recursive_difference(writer.reset);
        let place = managed.iter().position(|entry| entry.identity.is_same(&identity));
        let previous = place.map(|index| managed.remove(index));

        let base = self.live.unwrap_or_else(|| super::shape::empty_object());
        let mut object = merge(schema, base, self.applied);
        entries::take(&mut object);
        let last = previous.as_ref().and_then(|entry| entry.set().ok());
        if let Some(last) = &last
            && !last.difference(&set).is_empty()
        {
            let owned =
                managed.iter().filter_map(|entry| entry.set().ok()).fold(set.clone(), |all, one| all.union(&one));
            object = prune(self.schema, object, last, &owned);
        }

        let change = Change::between(self.schema, self.live, &object, writer.reset);
        if !force {
            let conflicts = conflicts(&managed, &change.gained);
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        change.take_from(self.schema, &mut managed, |_| false);
        let time = if self.live.is_some_and(|live| entries::is_same_object(live, &object)) {
            previous.and_then(|entry| entry.time)
        } else {
            Some(time_text(writer.now))
        };
        let set = set.difference(unowned());
        if !set.is_empty() {
            managed.push(Entry::new(identity, time, set));
        }
        entries::put(&mut object, entries::write(managed));
        Ok(object)
    }
}

fn conflicts(managed: &[Entry], gained: &FieldSet) -> Vec<Found> {
    let mut others: Vec<&Entry> = managed.iter().collect();
    others.sort_by_cached_key(|entry| entry.identity.sort_key());
    let mut found = Vec::new();
    for entry in others {
        let Ok(set) = entry.set() else { continue };
        for path in set.intersection(gained).paths() {
            found.push(Found { identity: entry.identity.clone(), path });
        }
    }
    found
}

/// Takes out what the manager applied `last` time and what nobody, itself included, owns now.
fn prune(schema: &Schema, merged: Value, last: &FieldSet, owned: &FieldSet) -> Value {
    let schema = Some(schema);
    let last = last.with_named_fields(schema);
    let owned = owned.with_named_fields(schema);
    let all = field_set(schema, &merged).with_named_fields(schema);

    let mut pruned = merged.clone();
    remove(schema, &mut pruned, &last);
    // Removing an element takes along what others own in it: that comes back.
    let rest = field_set(schema, &pruned).with_named_fields(schema);
    pruned.clone_from(&merged);
    remove(schema, &mut pruned, &all.difference(&rest.union(&owned)));
    // And so does what nobody owns: only what was applied before may go.
    let rest = field_set(schema, &pruned).with_named_fields(schema);
    let mut object = merged;
    remove(schema, &mut object, &all.difference(&rest).intersection(&last));
    object
}
