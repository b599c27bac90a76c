//! `apiVersion`, `kind` and `metadata`: the fields that every object has without its schema saying so.

use std::sync::{Arc, LazyLock};

use super::{Schema, Type};

/// The definition of `metadata`.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Whether `field` of a whole object belongs to Kubernetes and not to the kind.
pub fn is_meta_field(field: &str) -> bool {
    matches!(field, "apiVersion" | "kind" | "metadata")
}

/// The schema of `metadata`.
pub fn object_meta() -> &'static Arc<Schema> {
    static META: LazyLock<Arc<Schema>> =
        LazyLock::new(|| crate::builtin::definition(OBJECT_META).unwrap_or_else(|| Arc::new(untyped())));
    &META
}

/// A node that keeps whatever it is given.
pub fn untyped() -> Schema {
    Schema { preserve_unknown_fields: true, ..Schema::default() }
}

impl Schema {
    /// The schema of whole objects of a custom resource: like `self`, but with `apiVersion`, `kind` and `metadata`
    /// spelled out at the root, for those who walk fields without knowing that the root is special.
    pub fn with_object_meta(&self) -> Self {
        let mut whole = self.clone();
        let text = Arc::new(Self { kind: Type::String, ..Self::default() });
        whole.properties.insert("apiVersion".to_owned(), Arc::clone(&text));
        whole.properties.insert("kind".to_owned(), text);
        whole.properties.insert("metadata".to_owned(), Arc::clone(object_meta()));
        whole.embedded_resource = true;
        whole
    }
}
