//! Server-side apply: who owns which field, and what happens when two disagree.
//!
//! Every write goes through here. A create, update or patch calls [`update`], which gives the writer what it changed.
//! An apply calls [`apply`], which merges the configuration into the live object, finds conflicts with other managers,
//! and takes out what the manager applied before and no longer does. Both keep `metadata.managedFields` true.
//!
//! | file | what it knows |
//! |---|---|
//! | `path` | one step into an object and how it is written |
//! | `fields` | sets of paths, `fieldsV1` |
//! | `shape` | what the schema says about ownership |
//! | `typed` | walks over schema and value: field set, comparison, merge, removal |
//! | `entries` | `managedFields` entries: reading, order, writing |
//! | `update`, `applier` | the two operations |
//! | `last_applied` | moving over from client-side apply |
//! | `scale` | entries seen through the scale subresource |
//! | `names` | names of managers |
//!
//! All versions of a kind have the same fields here, so entries of other versions need no conversion.

mod applier;
mod entries;
mod fields;
mod last_applied;
mod names;
mod path;
pub mod scale;
mod shape;
pub mod typed;
mod update;

use std::sync::LazyLock;

use jiff::Timestamp;

pub use applier::{ApplyError, ApplyOptions, Conflict, apply};
pub use entries::{EntryError, keep_times_if_unchanged, validate_managed_fields};
pub use fields::{FieldSet, FieldsError};
pub use names::{MAX_MANAGER_LENGTH, manager_or_user_agent, validate_field_manager};
pub use path::{PathElement, PathElementError};
pub use shape::ItemError;
pub use update::{UpdateOptions, update};

/// Who writes, where and when; the part that [`apply`] and [`update`] have in common.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; empty means `unknown`.
    pub manager: &'a str,
    /// `apiVersion` of the request: `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The subresource written through, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint ignores, with all that is below: nobody can own them through it. See
    /// [`reset_by_main`] and [`reset_by_status`].
    pub reset: &'a FieldSet,
    /// The time of the request.
    pub now: Timestamp,
}

/// What the main endpoint of a kind with a status subresource ignores.
pub fn reset_by_main() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
    &FIELDS
}

/// What the status endpoint of a custom resource ignores.
pub fn reset_by_status() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["metadata"], &["spec"]]));
    &FIELDS
}

/// What the status endpoint of most built-in kinds ignores: metadata can be written through it.
pub fn reset_by_builtin_status() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["spec"]]));
    &FIELDS
}

/// Fields that the server keeps; they belong to nobody.
fn unowned() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of_fields(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    });
    &FIELDS
}

#[cfg(test)]
mod tests;
