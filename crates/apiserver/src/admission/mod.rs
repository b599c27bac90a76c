//! What is asked before a write: first those who may change the object, then those who may only refuse it.
//!
//! virt-api and other code of this process are [`Plugin`]s and are called directly; everybody else's webhooks are
//! called over HTTPS by [`webhook`]. Both see the same [`Review`], and plugins run before webhooks.

pub mod warnings;
pub mod webhook;

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::handlers::write::Writer;
use crate::registry::Resource;
use crate::server::Server;
use crate::status::ApiResult;

/// What is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// A deletion.
    Delete,
    /// A connection to a subresource such as `exec`.
    Connect,
}

impl Operation {
    /// As `AdmissionReview` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write, as admission sees it.
pub struct Review<'a> {
    /// The server that is asked.
    pub server: &'a Arc<Server>,
    /// What happens.
    pub operation: Operation,
    /// To which resource.
    pub resource: &'a Arc<Resource>,
    /// Its subresource, or empty.
    pub subresource: &'a str,
    /// Where, empty for cluster scope.
    pub namespace: &'a str,
    /// The object's name, which a generated one gets before admission.
    pub name: &'a str,
    /// Who does it.
    pub user: &'a UserInfo,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The new state; `null` for deletions.
    pub object: &'a Value,
    /// The stored state; `null` for creations.
    pub old_object: &'a Value,
}

/// Admission code inside this process.
pub trait Plugin: Send + Sync {
    /// Returns a changed object, or `None` to leave it.
    fn mutate<'a>(&'a self, _review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async { Ok(None) })
    }

    /// Refuses by returning an error.
    fn validate<'a>(&'a self, _review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// All admission of a server.
#[derive(Default)]
pub struct Admission {
    plugins: RwLock<Vec<Arc<dyn Plugin>>>,
    /// Webhooks of others.
    pub webhooks: webhook::Webhooks,
}

impl Admission {
    /// Adds code of this process.
    pub fn add(&self, plugin: Arc<dyn Plugin>) {
        self.plugins.write().push(plugin);
    }

    fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        self.plugins.read().clone()
    }

    /// Lets everybody change the object who may.
    pub async fn mutate(
        &self,
        writer: &Writer<'_>,
        operation: Operation,
        object: Value,
        old: Option<&Value>,
    ) -> ApiResult<Value> {
        let mut object = object;
        for plugin in self.plugins() {
            let changed = plugin.mutate(&review(writer, operation, &object, old)).await?;
            object = changed.unwrap_or(object);
        }
        let changed = self.webhooks.mutate(&review(writer, operation, &object, old)).await?;
        Ok(changed.unwrap_or(object))
    }

    /// Lets everybody refuse the write who may.
    pub async fn validate(
        &self,
        writer: &Writer<'_>,
        operation: Operation,
        object: &Value,
        old: Option<&Value>,
    ) -> ApiResult<()> {
        let review = review(writer, operation, object, old);
        if operation == Operation::Delete {
            // There is nothing to change, but mutating webhooks may refuse a deletion too.
            self.webhooks.mutate(&review).await?;
        }
        for plugin in self.plugins() {
            plugin.validate(&review).await?;
        }
        self.webhooks.validate(&review).await
    }
}

fn review<'a>(writer: &'a Writer<'_>, operation: Operation, object: &'a Value, old: Option<&'a Value>) -> Review<'a> {
    let shown = if object.is_null() { old.unwrap_or(object) } else { object };
    Review {
        server: writer.server,
        operation,
        resource: writer.resource,
        subresource: writer.subresource,
        namespace: if writer.resource.namespaced { writer.namespace } else { "" },
        name: shown["metadata"]["name"].as_str().unwrap_or_default(),
        user: writer.user,
        dry_run: writer.dry_run,
        object,
        old_object: old.unwrap_or(&Value::Null),
    }
}
