//! What values that are strings on the wire have in common.

/// Wires a type with `FromStr`, `as_str()` and a pattern to JSON and to schemas.
///
/// The pattern lets nothing through that `FromStr` refuses, so whatever an API server stored can be read.
macro_rules! text_on_the_wire {
    ($name:ident, expecting: $expecting:literal, pattern: $pattern:expr) => {
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl ::serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(|_| E::invalid_value(::serde::de::Unexpected::Str(text), &self))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

pub(super) use text_on_the_wire;
