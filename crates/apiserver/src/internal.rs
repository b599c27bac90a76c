//! Reads and writes for code inside the server: the same path as a client's request, without HTTP.

use std::sync::Arc;

use ferrovirt_machinery::apply::{self, ApplyOptions};
use serde_json::Value;

use crate::auth::UserInfo;
use crate::handlers::delete::{self, Deleted};
use crate::handlers::read;
use crate::handlers::write::{Outcome, Shown, Writer};
use crate::http::options::DeleteOptions;
use crate::registry::Resource;
use crate::server::Server;
use crate::status::{ApiError, ApiResult};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Place {
    /// A place.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// A resource as the server's own controllers use it.
pub struct Internal<'a> {
    server: &'a Arc<Server>,
    resource: Arc<Resource>,
    user: UserInfo,
    manager: String,
}

impl Server {
    /// The served resource at a path, for use inside the server. `manager` names the writer in `managedFields`.
    pub fn internal(
        self: &Arc<Self>,
        group: &str,
        version: &str,
        plural: &str,
        manager: &str,
    ) -> ApiResult<Internal<'_>> {
        let resource = self.registry.snapshot().find(group, version, plural).cloned();
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        Ok(self.internal_for(resource, manager))
    }

    /// Like [`Server::internal`], for a resource that is at hand.
    pub fn internal_for(self: &Arc<Self>, resource: Arc<Resource>, manager: &str) -> Internal<'_> {
        Internal { server: self, resource, user: UserInfo::apiserver(), manager: manager.to_owned() }
    }
}

impl Internal<'_> {
    fn writer<'a>(&'a self, namespace: &'a str, subresource: &'a str) -> Writer<'a> {
        Writer {
            server: self.server,
            resource: &self.resource,
            user: &self.user,
            namespace,
            subresource,
            dry_run: false,
            manager: self.manager.clone(),
            tracks: true,
        }
    }

    /// The object, if it is there.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        let object = self.server.store.current(&self.resource.key(namespace, name))?;
        Some(self.writer(namespace, "").value(&object))
    }

    /// Every object, in one namespace or all.
    pub fn list(&self, namespace: Option<&str>) -> Vec<Value> {
        read::values(self.server, &self.resource, namespace)
    }

    /// Where every object is, in one namespace or all. Parses nothing, so it is cheap however many there are.
    pub fn places(&self, namespace: Option<&str>) -> Vec<Place> {
        let page = self.server.store.list(&self.resource.storage, namespace, None, None, None);
        let objects = page.map(|page| page.objects).unwrap_or_default();
        objects.iter().map(|object| Place::new(object.namespace(), object.name())).collect()
    }

    /// Creates an object.
    pub async fn create(&self, mut object: Value) -> ApiResult<Value> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        object["apiVersion"] = self.resource.api_version().into();
        object["kind"] = self.resource.kind.to_string().into();
        let writer = self.writer(&namespace, "");
        Ok(self.shown(&writer, writer.create(object).await?))
    }

    /// Creates an object unless one of that name is there.
    pub async fn ensure(&self, object: Value) -> ApiResult<()> {
        let metadata = &object["metadata"];
        let (namespace, name) =
            (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
        if self.get(namespace, name).is_some() {
            return Ok(());
        }
        match self.create(object).await {
            Err(error) if error.reason() == "AlreadyExists" => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Changes an object; `change` may run more than once.
    pub async fn change(
        &self,
        place: &Place,
        subresource: &str,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> ApiResult<Value> {
        let writer = self.writer(&place.namespace, subresource);
        let make = |old: Option<&Value>| {
            let mut object = old.cloned().unwrap_or_default();
            change(&mut object);
            Ok(object)
        };
        Ok(match writer.change(&place.name, false, &make).await? {
            Outcome::Created(shown) | Outcome::Updated(shown) => self.shown(&writer, shown),
            Outcome::Deleted(value) => value,
        })
    }

    /// Applies a part of an object that is there, taking its fields over from other managers.
    pub async fn apply(&self, place: &Place, mut applied: Value) -> ApiResult<Value> {
        applied["apiVersion"] = self.resource.api_version().into();
        applied["kind"] = self.resource.kind.to_string().into();
        let schema = self.resource.typed_schema().ok_or_else(|| ApiError::internal("the kind has no schema"))?;
        let writer = Writer { tracks: false, ..self.writer(&place.namespace, "") };
        let api_version = self.resource.api_version();
        let make = |old: Option<&Value>| {
            let options =
                ApplyOptions { writer: writer.apply_writer(&api_version), kind: &self.resource.kind, force: true };
            apply::apply(&schema, old, &applied, &options).map_err(ApiError::internal)
        };
        Ok(match writer.change(&place.name, false, &make).await? {
            Outcome::Created(shown) | Outcome::Updated(shown) => self.shown(&writer, shown),
            Outcome::Deleted(value) => value,
        })
    }

    /// Deletes an object, or begins to.
    pub async fn delete(&self, place: &Place, options: &DeleteOptions) -> ApiResult<Deleted> {
        delete::remove(&self.writer(&place.namespace, ""), &place.name, options).await
    }

    fn shown(&self, writer: &Writer<'_>, shown: Shown) -> Value {
        match shown {
            Shown::Stored(object) => writer.value(&object),
            Shown::Imagined(value) => value,
        }
    }
}
