//! [`Foreign`]: an object of somebody else's kind, read and written by code that this crate has compiled.

use std::ops::{Deref, DerefMut};

use k8s_openapi::{ListableResource, Metadata, Resource};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

use crate::json::{DecodeError, FromJson};

/// A kind that is written by code which this crate has compiled.
pub trait Writable {
    /// The object as something that any format can write.
    fn writable(&self) -> &dyn erased_serde::Serialize;
}

/// An object of a kind of Kubernetes. It is used like the object itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreign<K>(pub K);

impl<K> From<K> for Foreign<K> {
    fn from(object: K) -> Self {
        Self(object)
    }
}

impl<K> Deref for Foreign<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K> DerefMut for Foreign<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.0
    }
}

impl<'de, K: FromJson> Deserialize<'de> for Foreign<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        K::from_json(&value).map(Self).map_err(D::Error::custom)
    }
}

impl<K: FromJson> FromJson for Foreign<K> {
    fn from_json(value: &Value) -> Result<Self, DecodeError> {
        K::from_json(value).map(Self)
    }
}

impl<K: Writable> Serialize for Foreign<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        erased_serde::serialize(self.0.writable(), serializer)
    }
}

impl<K: Resource> Resource for Foreign<K> {
    const API_VERSION: &'static str = K::API_VERSION;
    const GROUP: &'static str = K::GROUP;
    const KIND: &'static str = K::KIND;
    const VERSION: &'static str = K::VERSION;
    const URL_PATH_SEGMENT: &'static str = K::URL_PATH_SEGMENT;
    type Scope = K::Scope;
}

impl<K: ListableResource> ListableResource for Foreign<K> {
    const LIST_KIND: &'static str = K::LIST_KIND;
}

impl<K: Metadata> Metadata for Foreign<K> {
    type Ty = K::Ty;

    fn metadata(&self) -> &K::Ty {
        self.0.metadata()
    }

    fn metadata_mut(&mut self) -> &mut K::Ty {
        self.0.metadata_mut()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Pod;

    #[test]
    fn an_object_is_read_and_written_like_the_kind_itself() {
        let text = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"containers": [{"name": "d", "ports": [{"containerPort": 80}]}]},
        });
        let itself: k8s_openapi::api::core::v1::Pod = serde_json::from_value(text.clone()).unwrap();
        let pod: Pod = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(*pod, itself);
        assert_eq!(serde_json::from_str::<Pod>(&text.to_string()).unwrap(), pod);
        assert_eq!(serde_json::to_value(&pod).unwrap(), text);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {}}"#;
        let error = serde_json::from_str::<Pod>(text).unwrap_err().to_string();
        assert!(error.contains("Node") && error.contains("expected Pod"), "{error}");
    }
}
