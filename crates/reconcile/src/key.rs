//! [`ObjectKey`]: the name under which the caches and most queues know an object.

use std::{borrow::Borrow, fmt, sync::Arc};

use kube::Resource;

/// Namespace and name of an object, written `namespace/name`, or just `name` for an object without a namespace.
///
/// The text is shared, so that a clone costs one reference count: the same key sits in the store, in its indexes and in a
/// queue at the same time. Neither a namespace nor a name can contain a slash, which makes the text unambiguous.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The key of `name` in `namespace`; an empty namespace means a cluster-scoped object.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    /// The key of an object, or `None` when it has no name yet (`generateName` that no server has seen).
    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        let name = meta.name.as_deref()?;
        Some(Self::new(meta.namespace.as_deref().unwrap_or_default(), name))
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// The whole key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The resource version of an object as a number. Versions are decimal numbers that grow; one that is not cannot be compared.
pub(crate) fn version_of<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_out() {
        let key = ObjectKey::new("shop", "db");
        assert_eq!((key.namespace(), key.name(), key.to_string().as_str()), ("shop", "db", "shop/db"));
        let node = ObjectKey::new("", "node01");
        assert_eq!((node.namespace(), node.name(), node.to_string().as_str()), ("", "node01", "node01"));
    }
}
