//! The path of every write, after decoding: defaults, admission, server-owned metadata, checks, and the store.
//!
//! Create, update, patch, apply and the controllers in this process all come through [`Writer`], so a rule about
//! writes exists once.

use std::sync::Arc;

use ferrovirt_machinery::apply;
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::names;
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::auth::{Attributes, UserInfo};
use crate::registry::{Generation, Resource};
use crate::server::Server;
use crate::status::{ApiError, ApiResult, Subject};
use crate::store::{Body, Change, Expect, Object, Revision, Write, WriteError};
use crate::view;

/// How often a write that races with others is tried again before the client hears of it.
const RETRIES: usize = 5;

/// Everything about a write except the object.
pub struct Writer<'a> {
    /// The server.
    pub server: &'a Arc<Server>,
    /// What is written.
    pub resource: &'a Arc<Resource>,
    /// Who writes.
    pub user: &'a UserInfo,
    /// Where.
    pub namespace: &'a str,
    /// `status`, `finalize`, … or empty.
    pub subresource: &'a str,
    /// Everything but the write itself.
    pub dry_run: bool,
    /// Owner of the changed fields.
    pub manager: String,
    /// Ownership is recorded here; an apply has done so already.
    pub tracks: bool,
}

/// What became of a write.
pub enum Outcome {
    /// A new object.
    Created(Shown),
    /// A changed (or unchanged) object.
    Updated(Shown),
    /// The last finalizer went, and the object with it.
    Deleted(Value),
}

/// An object to show to the client: stored, or only as it would have been.
pub enum Shown {
    /// In the store.
    Stored(Arc<Object>),
    /// The result of a dry run.
    Imagined(Value),
}

/// Makes the new object from the current one; called again when another writer was faster.
pub trait Make: Fn(Option<&Value>) -> ApiResult<Value> + Send + Sync {}
impl<F: Fn(Option<&Value>) -> ApiResult<Value> + Send + Sync> Make for F {}

impl Writer<'_> {
    fn subject(&self) -> Subject<'_> {
        self.resource.subject()
    }

    fn now(&self) -> String {
        format_time(self.server.environment.now())
    }

    /// The stored object as a value of the resource's version.
    pub fn value(&self, object: &Object) -> Value {
        let output = crate::http::negotiate::Output::JSON;
        let query = crate::http::options::Query::default();
        view::View::new(self.resource, &output, &query, self.server.environment.now()).value(object, object.revision)
    }

    /// Creates an object.
    pub async fn create(&self, mut object: Value) -> ApiResult<Shown> {
        let generated = object["metadata"]["name"].as_str().is_none_or(str::is_empty);
        for _ in 0..RETRIES {
            // Only a generated name is tried again.
            let attempt = if generated { object.clone() } else { std::mem::take(&mut object) };
            let prepared = self.prepare_new(attempt).await?;
            let name = prepared["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match self.commit(&name, Expect::Absent, prepared).await {
                Err(CommitError::Exists) if generated => {}
                Err(CommitError::Exists) => return Err(ApiError::already_exists(self.subject(), &name)),
                Err(error) => return Err(error.into_api(self.subject(), &name)),
                Ok(shown) => return Ok(shown),
            }
        }
        Err(ApiError::already_exists(self.subject(), object["metadata"]["generateName"].as_str().unwrap_or_default()))
    }

    /// Everything before the write of a new object.
    async fn prepare_new(&self, mut object: Value) -> ApiResult<Value> {
        let resource = self.resource;
        if object["metadata"]["resourceVersion"].is_string() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", message));
        }
        self.check_namespace_takes_objects(&object)?;
        self.fill_new_metadata(&mut object);
        self.default(&mut object);
        self.drop_foreign_status(&mut object);
        self.track(None, &mut object);
        let managed = object["metadata"].get("managedFields").cloned();
        let mut object = self.server.admission.mutate(self, Operation::Create, object, None).await?;
        super::decode::clean_metadata(&mut object);
        put_metadata(&mut object, "managedFields", managed);
        self.default(&mut object);
        self.drop_foreign_status(&mut object);
        resource.strategy.prepare_create(self.server, &mut object)?;
        self.settle(&mut object);
        if resource.rules.generation != Generation::None {
            object["metadata"]["generation"] = 1.into();
        }
        let mut errors =
            names::validate_object_meta(&object["metadata"], resource.namespaced, resource.rules.names, "metadata");
        if resource.custom.is_none() {
            errors.extend(names::validate_builtin_finalizers(&object["metadata"]["finalizers"], "metadata.finalizers"));
        }
        errors.extend(resource.strategy.validate(&object));
        errors.extend(self.validate_schema(&object, None));
        self.refuse(&object, &errors)?;
        self.server.admission.validate(self, Operation::Create, &object, None).await?;
        Ok(object)
    }

    fn default(&self, object: &mut Value) {
        if let Some(custom) = &self.resource.custom {
            custom.schema.apply_defaults(object);
        }
        if self.resource.custom.is_none() {
            crate::strategy::tidy(&self.resource.api_version(), &self.resource.kind, object);
        }
        self.resource.strategy.default(object);
        self.settle(object);
    }

    /// Built-in kinds have the form that their Go types give them.
    fn settle(&self, object: &mut Value) {
        if self.resource.custom.is_none() {
            crate::strategy::settle(&self.resource.api_version(), &self.resource.kind, object);
        }
    }

    fn fill_new_metadata(&self, object: &mut Value) {
        let environment = &self.server.environment;
        let metadata = &mut object["metadata"];
        for owned in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Value::Object(map) = metadata {
                map.remove(owned);
            }
        }
        if self.resource.namespaced {
            metadata["namespace"] = self.namespace.into();
        } else if let Value::Object(map) = metadata {
            map.remove("namespace");
        }
        if metadata["name"].as_str().is_none_or(str::is_empty)
            && let Some(prefix) = metadata["generateName"].as_str()
        {
            let prefix: String = prefix.chars().take(58).collect();
            metadata["name"] = format!("{prefix}{}", environment.name_suffix()).into();
        }
        metadata["uid"] = environment.uid().into();
        metadata["creationTimestamp"] = self.now().into();
    }

    /// Nothing new in a namespace that is missing or going away.
    fn check_namespace_takes_objects(&self, object: &Value) -> ApiResult<()> {
        if !self.resource.namespaced {
            return Ok(());
        }
        let namespaces = Subject { group: "", resource: "namespaces" };
        let key = crate::store::Key::new("/namespaces", "", self.namespace);
        let Some(namespace) = self.server.store.current(&key) else {
            return Err(ApiError::not_found(namespaces, self.namespace));
        };
        let namespace = namespace.body.value();
        if namespace["status"]["phase"] == "Terminating" && &*self.resource.plural != "localsubjectaccessreviews" {
            let why =
                format!("unable to create new content in namespace {} because it is being terminated", self.namespace);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let cause = json!({
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {} is being terminated", self.namespace),
            });
            return Err(ApiError::forbidden(self.subject(), name, &why).with_causes(vec![cause]));
        }
        Ok(())
    }

    /// Changes an object, or creates it where the kind allows that (or an apply asks for it).
    pub async fn change(&self, name: &str, may_create: bool, make: &dyn Make) -> ApiResult<Outcome> {
        for _ in 0..RETRIES {
            let current = self.server.store.current(&self.resource.key(self.namespace, name));
            let Some(current) = current else {
                if !may_create {
                    return Err(ApiError::not_found(self.subject(), name));
                }
                self.check_may_create(name)?;
                return Ok(Outcome::Created(self.create(make(None)?).await?));
            };
            match self.change_once(name, &current, make).await {
                Err(CommitError::Changed) => {}
                Err(error) => return Err(error.into_api(self.subject(), name)),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(ApiError::modified(self.subject(), name))
    }

    /// Whoever may change objects need not be allowed to make them.
    fn check_may_create(&self, name: &str) -> ApiResult<()> {
        let Resource { group, version, plural, .. } = &**self.resource;
        let create = Attributes {
            version: version.to_string(),
            ..Attributes::resource("create", group, plural, self.namespace)
        };
        self.server.identity.check(self.user, &create.named(name))
    }

    async fn change_once(&self, name: &str, current: &Arc<Object>, make: &dyn Make) -> Result<Outcome, CommitError> {
        let old = self.value(current);
        let new = make(Some(&old)).map_err(CommitError::Refused)?;
        let new = self.prepare_change(&old, new).await.map_err(CommitError::Refused)?;
        if same_but_version(&old, &new) {
            return Ok(Outcome::Updated(Shown::Stored(current.clone())));
        }
        if self.is_gone(&new) {
            self.remove(name, current).await?;
            return Ok(Outcome::Deleted(new));
        }
        self.commit(name, Expect::Revision(current.revision), new).await.map(Outcome::Updated)
    }

    /// Everything before the write of a changed object.
    async fn prepare_change(&self, old: &Value, mut new: Value) -> ApiResult<Value> {
        let resource = self.resource;
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        self.check_version(old, &mut new, name)?;
        self.keep_owned_metadata(old, &mut new);
        self.default(&mut new);
        self.keep_other_half(old, &mut new);
        self.track(Some(old), &mut new);
        let managed = new["metadata"].get("managedFields").cloned();
        let mut new = self.server.admission.mutate(self, Operation::Update, new, Some(old)).await?;
        super::decode::clean_metadata(&mut new);
        self.keep_owned_metadata(old, &mut new);
        self.default(&mut new);
        self.keep_other_half(old, &mut new);
        put_metadata(&mut new, "managedFields", managed);
        match self.subresource {
            "status" | "approval" => resource.strategy.prepare_status_update(&mut new, old),
            // These change what an update of the object may not.
            "finalize" | "binding" => {}
            _ => {
                resource.strategy.prepare_update(self.server, &mut new, old);
                self.settle(&mut new);
                self.bump_generation(old, &mut new);
            }
        }
        let mut errors = names::validate_object_meta_update(&new["metadata"], &old["metadata"], "metadata");
        if resource.custom.is_none() {
            // Built-in kinds are checked by the registry and once more by their own strategy.
            errors.extend(errors.clone());
            errors.extend(names::validate_builtin_finalizers(&new["metadata"]["finalizers"], "metadata.finalizers"));
        }
        if self.subresource.is_empty() {
            errors.extend(resource.strategy.validate(&new));
            errors.extend(resource.strategy.validate_update(&new, old));
        }
        errors.extend(self.validate_schema(&new, Some(old)));
        self.refuse(&new, &errors)?;
        self.server.admission.validate(self, Operation::Update, &new, Some(old)).await?;
        Ok(new)
    }

    fn check_version(&self, old: &Value, new: &mut Value, name: &str) -> ApiResult<()> {
        let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if version.is_empty() || version == "0" {
            if !self.resource.rules.unconditional_update {
                let message = "Invalid value: 0: must be specified for an update";
                let error = FieldError::new(FieldErrorKind::Invalid, "metadata.resourceVersion", message);
                return Err(ApiError::invalid(&self.resource.group, &self.resource.plural, name, &[error]));
            }
        } else if old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"] {
            return Err(ApiError::modified(self.subject(), name));
        }
        Ok(())
    }

    /// Metadata that clients cannot change.
    fn keep_owned_metadata(&self, old: &Value, new: &mut Value) {
        let Value::Object(metadata) = &mut new["metadata"] else { return };
        for field in ["generation", "resourceVersion", "creationTimestamp"] {
            put(metadata, field, old["metadata"].get(field).cloned());
        }
        // Left out means unchanged; another value is refused by the checks.
        for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            if !metadata.contains_key(field) {
                put(metadata, field, old["metadata"].get(field).cloned());
            }
        }
    }

    /// A write of the spec leaves the status alone, and the other way round. An approval is a part of the status.
    fn keep_other_half(&self, old: &Value, new: &mut Value) {
        let Value::Object(map) = new else { return };
        if matches!(self.subresource, "status" | "approval") {
            let status = map.get("status").cloned();
            let metadata = map.get("metadata").cloned();
            map.clone_from(old.as_object().unwrap_or(&serde_json::Map::new()));
            put(map, "status", status);
            if self.resource.custom.is_some() {
                let managed = metadata.as_ref().and_then(|metadata| metadata.get("managedFields").cloned());
                if let Some(Value::Object(kept)) = map.get_mut("metadata") {
                    put(kept, "managedFields", managed);
                }
            } else {
                put(map, "metadata", metadata);
            }
        } else if self.resource.rules.has_status && self.subresource != "binding" {
            put(map, "status", old.get("status").cloned());
        }
    }

    fn bump_generation(&self, old: &Value, new: &mut Value) {
        let changed = match self.resource.rules.generation {
            Generation::None => false,
            Generation::Spec => old.get("spec") != new.get("spec"),
            Generation::SpecAndAnnotations => {
                old.get("spec") != new.get("spec")
                    || old["metadata"].get("annotations") != new["metadata"].get("annotations")
            }
            Generation::Content => {
                let skip = |key: &str| key == "metadata" || (key == "status" && self.resource.rules.has_status);
                let content = |value| Value::as_object(value).into_iter().flatten().filter(|(key, _)| !skip(key));
                content(old).ne(content(new))
            }
        };
        if changed {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
    }

    /// The status of a new object is not the client's to say, where it has an endpoint of its own.
    fn drop_foreign_status(&self, object: &mut Value) {
        if self.resource.rules.has_status
            && self.resource.custom.is_some()
            && let Value::Object(map) = object
        {
            map.remove("status");
        }
    }

    /// Records who set which field.
    pub fn track(&self, old: Option<&Value>, new: &mut Value) {
        let is_wanted = self.tracks && self.server.environment.tracks_fields();
        let Some(schema) = self.resource.typed_schema().filter(|_| is_wanted) else { return };
        let api_version = self.resource.api_version();
        apply::update(&schema, old, new, &self.apply_writer(&api_version));
        if self.subresource == "scale" {
            // Ownership through a scale is recorded without a time.
            for entry in new["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
                if entry["subresource"] == "scale"
                    && let Value::Object(entry) = entry
                {
                    entry.remove("time");
                }
            }
        }
    }

    /// How server-side apply knows this write.
    pub fn apply_writer<'w>(&'w self, api_version: &'w str) -> apply::Writer<'w> {
        static NOTHING: std::sync::LazyLock<apply::FieldSet> = std::sync::LazyLock::new(apply::FieldSet::new);
        let reset = match self.subresource {
            "status" if self.resource.custom.is_some() => apply::reset_by_status(),
            "status" => apply::reset_by_builtin_status(),
            _ if self.resource.rules.has_status => apply::reset_by_main(),
            _ => &NOTHING,
        };
        let now = self.server.environment.now();
        apply::Writer { manager: &self.manager, api_version, subresource: self.subresource, reset, now }
    }

    fn validate_schema(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Some(custom) = &self.resource.custom else { return Vec::new() };
        let mut errors = match old {
            None => custom.schema.validate(object),
            Some(old) => custom.schema.validate_update(old, object),
        };
        errors.extend(custom.scale.as_ref().and_then(|paths| super::scale::accessor_error(object, &paths.spec)));
        errors
    }

    fn refuse(&self, object: &Value, errors: &[FieldError]) -> ApiResult<()> {
        if errors.is_empty() {
            return Ok(());
        }
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default();
        Err(self.invalid(name, errors))
    }

    /// 422 about this kind.
    pub fn invalid(&self, name: &str, errors: &[FieldError]) -> ApiError {
        // Kinds that are stored as those of another group are checked there, and errors say so.
        let (group, _) = crate::registry::split_api_version(&self.resource.storage_api_version);
        ApiError::invalid(group, &self.resource.kind, name, errors)
    }

    /// The object is marked as deleted and nothing holds it any more.
    pub fn is_gone(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        metadata["deletionTimestamp"].is_string()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
            && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && self.resource.strategy.may_vanish(object)
    }

    /// Takes an object out of the store.
    ///
    /// Returns the revision of the deletion, or that of the object in a dry run.
    pub async fn remove(&self, name: &str, current: &Object) -> Result<Revision, CommitError> {
        if self.dry_run {
            return Ok(current.revision);
        }
        let key = self.resource.key(self.namespace, name);
        let write = Write { key, expect: Expect::Revision(current.revision), change: Change::Delete };
        self.server.store.write(write).await.map(|committed| committed.revision).map_err(CommitError::from)
    }

    /// Writes a prepared object.
    pub async fn commit(&self, name: &str, expect: Expect, mut object: Value) -> Result<Shown, CommitError> {
        if self.dry_run {
            if matches!(expect, Expect::Absent)
                && self.server.store.current(&self.resource.key(self.namespace, name)).is_some()
            {
                return Err(CommitError::Exists);
            }
            return Ok(Shown::Imagined(object));
        }
        self.resource.strategy.to_storage(self.resource, &mut object);
        if let Some(schema) = self.resource.custom.as_ref().and_then(|custom| custom.storage_schema.as_ref()) {
            schema.prune(&mut object, true);
        }
        view::strip_type(&mut object);
        let key = self.resource.key(self.namespace, name);
        let write = Write { key, expect, change: Change::Put(Body::encode(&object)) };
        let committed = self.server.store.write(write).await.map_err(CommitError::from)?;
        committed.object.map(Shown::Stored).ok_or(CommitError::Refused(ApiError::internal("the write left no object")))
    }
}

/// Why a prepared write did not happen.
pub enum CommitError {
    /// Created by somebody else.
    Exists,
    /// Changed or deleted by somebody else.
    Changed,
    /// A rule said no.
    Refused(ApiError),
}

impl CommitError {
    /// As the client hears it.
    pub fn into_api(self, subject: Subject<'_>, name: &str) -> ApiError {
        match self {
            Self::Exists => ApiError::already_exists(subject, name),
            Self::Changed => ApiError::modified(subject, name),
            Self::Refused(error) => error,
        }
    }
}

impl From<WriteError> for CommitError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Exists(_) => Self::Exists,
            WriteError::Changed(_) | WriteError::Missing => Self::Changed,
            other => Self::Refused(ApiError::internal(other)),
        }
    }
}

pub(super) fn put_metadata(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        put(metadata, key, value);
    }
}

fn put(map: &mut serde_json::Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key.into(), value),
        None => map.remove(key),
    };
}

/// Equal objects are not written again: a reconciler that repeats itself makes no revisions and no events.
fn same_but_version(old: &Value, new: &Value) -> bool {
    old == new
}

/// RFC 3339 with seconds, as metadata has it.
pub fn format_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
