//! What makes a type an object of the API: `apiVersion`, `kind`, `metadata`, and a place in a group.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::Resource;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// An object of the API, with the versions that it may come in.
pub trait Object: Resource {
    /// Versions that are read besides [`Resource::VERSION`]; they have the same shape.
    const OLDER_VERSIONS: &'static [&'static str];
    /// The kind's name in the singular, lower case.
    const SINGULAR: &'static str;

    /// Whether an object with this `apiVersion` can be read as this type.
    fn accepts_api_version(api_version: &str) -> bool {
        let Some((group, version)) = api_version.split_once('/') else {
            return false;
        };
        group == Self::GROUP && (version == Self::VERSION || Self::OLDER_VERSIONS.contains(&version))
    }
}

/// Checks an `apiVersion` while it is read.
pub(crate) struct ApiVersionOf<T>(PhantomData<T>);

/// Checks a `kind` while it is read.
pub(crate) struct KindOf<T>(PhantomData<T>);

impl<'de, T: Object> Deserialize<'de> for ApiVersionOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Check<T>(PhantomData<T>);

        impl<T: Object> Visitor<'_> for Check<T> {
            type Value = ApiVersionOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::API_VERSION)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if T::accepts_api_version(text) {
                    Ok(ApiVersionOf(PhantomData))
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }

        deserializer.deserialize_str(Check(PhantomData))
    }
}

impl<'de, T: Object> Deserialize<'de> for KindOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Check<T>(PhantomData<T>);

        impl<T: Object> Visitor<'_> for Check<T> {
            type Value = KindOf<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::KIND)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == T::KIND {
                    Ok(KindOf(PhantomData))
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }

        deserializer.deserialize_str(Check(PhantomData))
    }
}

/// Declares an object: the struct, its wire form, and its place in the API.
///
/// `apiVersion` and `kind` are constants of the type, not fields: they cannot be wrong. An older version of the same
/// shape is read, and written as the newest. Both may be missing, as they are in the items of a list.
macro_rules! object {
    (
        #[doc = $doc:literal]
        pub struct $name:ident { spec: $spec:ty, status: $status:ty, }
        group: $group:literal, version: $version:literal, older: [$($older:literal),*],
        singular: $singular:literal, plural: $plural:literal, scope: $scope:ident
    ) => {
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            /// Name, namespace, labels and everything else that all objects have.
            pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What is known.
            pub status: Option<$status>,
        }

        impl ::k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = ::k8s_openapi::$scope;
        }

        impl ::k8s_openapi::ListableResource for $name {
            const LIST_KIND: &'static str = concat!(stringify!($name), "List");
        }

        impl ::k8s_openapi::Metadata for $name {
            type Ty = ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl $crate::object::Object for $name {
            const OLDER_VERSIONS: &'static [&'static str] = &[$($older),*];
            const SINGULAR: &'static str = $singular;
        }

        // The functions that know the type are no generic ones and are never inlined: only so are they compiled here alone.
        const _: () = {
            #[derive(::serde::Serialize)]
            #[serde(rename_all = "camelCase", rename = $singular)]
            struct Written<'object> {
                api_version: &'static str,
                kind: &'static str,
                metadata: &'object ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                spec: &'object $spec,
                #[serde(skip_serializing_if = "Option::is_none")]
                status: Option<&'object $status>,
            }

            #[inline(never)]
            fn erased<'object>(written: &'object Written<'object>) -> &'object dyn ::erased_serde::Serialize {
                written
            }

            impl ::serde::Serialize for $name {
                fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let written = Written {
                        api_version: <Self as ::k8s_openapi::Resource>::API_VERSION,
                        kind: <Self as ::k8s_openapi::Resource>::KIND,
                        metadata: &self.metadata,
                        spec: &self.spec,
                        status: self.status.as_ref(),
                    };
                    $crate::wire::write(erased(&written), serializer)
                }
            }

            #[derive(::serde::Deserialize)]
            #[serde(rename_all = "camelCase", rename = $singular)]
            struct Read {
                #[serde(rename = "apiVersion")]
                _api_version: Option<$crate::object::ApiVersionOf<$name>>,
                #[serde(rename = "kind")]
                _kind: Option<$crate::object::KindOf<$name>>,
                #[serde(default, deserialize_with = "crate::wire::or_default")]
                metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                spec: $spec,
                status: Option<$status>,
            }

            impl ::ferrovirt_kubernetes::json::FromJson for $name {
                #[inline(never)]
                fn from_json(
                    value: &::serde_json::Value,
                ) -> Result<Self, ::ferrovirt_kubernetes::json::DecodeError> {
                    let Read { metadata, spec, status, .. } = ::ferrovirt_kubernetes::json::read(value)?;
                    Ok(Self { metadata, spec, status })
                }
            }

            impl<'de> ::serde::Deserialize<'de> for $name {
                fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    $crate::wire::read(deserializer)
                }
            }
        };

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({
                    "description": $doc.trim_start(),
                    "type": "object",
                    "properties": {
                        "apiVersion": { "description": "Group and version of this object.", "type": "string" },
                        "kind": { "description": "Kind of this object.", "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": generator.subschema_for::<$spec>(),
                        "status": generator.subschema_for::<$status>(),
                    },
                    "required": ["spec"],
                })
            }
        }
    };
}

pub(crate) use object;
