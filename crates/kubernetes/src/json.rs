//! Reading typed objects from JSON, with errors that say where: the path of the field, the value, and what was expected.
//!
//! [`Source`] is the one deserializer that whole objects are read with. Serde compiles each type once for every
//! deserializer that reads it; one that is not generic, for a tree that is already parsed, keeps that to one.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// Why a document is not the object that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The field, such as `spec.template.spec.domain.devices.disks[0].disk.bus`; empty for the document itself.
    pub path: String,
    /// What is wrong with its value.
    pub problem: String,
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for DecodeError {}

impl DecodeError {
    /// The same error, seen from the object that has the value under `step`: a name, or an index in brackets.
    fn below(mut self, step: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }
}

impl Error for DecodeError {
    fn custom<T: Display>(problem: T) -> Self {
        Self { path: String::new(), problem: problem.to_string() }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        // Serde's data model has no null.
        match unexpected {
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            other => Self::custom(format_args!("invalid type: {other}, expected {expected}")),
        }
    }
}

/// An object that is read by code which is compiled in the crate of its type.
pub trait FromJson: Sized {
    /// Reads it from JSON that is already parsed.
    fn from_json(value: &Value) -> Result<Self, DecodeError>;
}

/// Reads a value of any type. It is compiled wherever it is called: for whole objects there is [`FromJson`].
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(Source(value))
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Source<'de>(&'de Value);

impl<'de> Deserializer<'de> for Source<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (_, Some(value)) => visitor.visit_i64(value),
                _ => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visit_items(items, visitor),
            Value::Object(fields) => visit_fields(fields, visitor),
        }
    }

    // What a type asks for is all that its visitor is compiled for: a struct is never made from a list, as serde would
    // allow and Kubernetes does not.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::Object(fields) => visit_fields(fields, visitor),
            other => Err(wrong_type(other, &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::Array(items) => visit_items(items, visitor),
            other => Err(wrong_type(other, &visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.0 {
            Value::String(text) => visitor.visit_borrowed_str(text),
            other => Err(wrong_type(other, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let (variant, content) = match self.0 {
            Value::String(variant) => (variant, None),
            Value::Object(fields) if fields.len() == 1 => match fields.iter().next() {
                Some((variant, content)) => (variant, Some(Source(content))),
                None => return Err(DecodeError::invalid_type(Unexpected::Map, &"a map with one key")),
            },
            other => return Err(DecodeError::invalid_type(kind_of(other), &"a word, or a map with one key")),
        };
        visitor.visit_enum(Variant { name: variant, content })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        identifier
    }
}

#[cold]
#[inline(never)]
fn wrong_type(value: &Value, expected: &dyn Expected) -> DecodeError {
    DecodeError::invalid_type(kind_of(value), expected)
}

fn kind_of(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => Unexpected::Unsigned(value),
            (_, Some(value)) => Unexpected::Signed(value),
            _ => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

fn visit_items<'de, V: Visitor<'de>>(items: &'de [Value], visitor: V) -> Result<V::Value, DecodeError> {
    let mut access = Items { items, next: 0 };
    let read = visitor.visit_seq(&mut access)?;
    if access.next < items.len() {
        return Err(DecodeError::invalid_length(items.len(), &"fewer elements in array"));
    }
    Ok(read)
}

/// The elements of a list, one after the other.
struct Items<'de> {
    items: &'de [Value],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let index = self.next;
        let Some(item) = self.items.get(index) else { return Ok(None) };
        self.next += 1;
        match seed.deserialize(Source(item)) {
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(error.below(&format!("[{index}]"))),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.next)
    }
}

fn visit_fields<'de, V: Visitor<'de>>(fields: &'de Map<String, Value>, visitor: V) -> Result<V::Value, DecodeError> {
    let mut access = Fields { fields: fields.iter(), current: None };
    let read = visitor.visit_map(&mut access)?;
    if access.fields.len() > 0 {
        return Err(DecodeError::invalid_length(fields.len(), &"fewer elements in map"));
    }
    Ok(read)
}

/// The fields of an object, one after the other.
struct Fields<'de> {
    fields: serde_json::map::Iter<'de>,
    /// The field whose name has been read, and whose value has not.
    current: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        self.current = Some((name, value));
        let name: StrDeserializer<'de, DecodeError> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some((name, value)) = self.current.take() else {
            return Err(DecodeError::custom("a value was asked for before its name"));
        };
        seed.deserialize(Source(value)).map_err(|error| error.below(name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

/// One of several, by name: alone, or with what it holds.
struct Variant<'de> {
    name: &'de str,
    content: Option<Source<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        let name: StrDeserializer<'de, DecodeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.content {
            None | Some(Source(Value::Null)) => Ok(()),
            Some(Source(other)) => Err(DecodeError::invalid_type(kind_of(other), &"nothing").below(self.name)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeError> {
        let content = self.content.ok_or_else(|| DecodeError::invalid_type(Unexpected::UnitVariant, &"a value"))?;
        seed.deserialize(content).map_err(|error| error.below(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, DecodeError> {
        let content = self.content.ok_or_else(|| DecodeError::invalid_type(Unexpected::UnitVariant, &"a list"))?;
        content.deserialize_seq(visitor).map_err(|error| error.below(self.name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let content = self.content.ok_or_else(|| DecodeError::invalid_type(Unexpected::UnitVariant, &"an object"))?;
        content.deserialize_map(visitor).map_err(|error| error.below(self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Shape {
        Point,
        Circle(f64),
        Box { width: u8 },
        Line(i64, i64),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Drawing {
        title: Option<String>,
        shapes: Vec<Shape>,
        #[serde(default)]
        marks: BTreeMap<String, Vec<bool>>,
    }

    fn error(value: &Value) -> String {
        read::<Drawing>(value).unwrap_err().to_string()
    }

    #[test]
    fn everything_that_json_can_say_is_read_as_serde_json_reads_it() {
        let value = json!({
            "title": "a", "unknown": [1, {"x": null}], "marks": {"m": [true, false]},
            "shapes": ["Point", {"Circle": 1.5}, {"Circle": 2}, {"Box": {"width": 3}}, {"Line": [-1, 4]}, {"Point": null}],
        });
        let drawing: Drawing = read(&value).unwrap();
        assert_eq!(drawing, serde_json::from_value(value.clone()).unwrap());
        assert_eq!(read::<Value>(&value).unwrap(), value);
        assert_eq!(read::<Drawing>(&json!({"title": null, "shapes": []})).unwrap().title, None);
    }

    #[test]
    fn nothing_is_made_from_a_value_of_another_kind() {
        assert_eq!(error(&json!(["a", []])), "invalid type: sequence, expected struct Drawing");
        assert_eq!(
            error(&json!({"shapes": [{"Box": [3]}]})),
            "shapes[0].Box: invalid type: sequence, expected struct variant Shape::Box"
        );
        assert_eq!(error(&json!({"title": -3})), "title: invalid type: integer `-3`, expected a string");
        assert_eq!(error(&json!({"shapes": 1.5})), "shapes: invalid type: floating point `1.5`, expected a sequence");
        assert_eq!(error(&json!({"shapes": {}})), "shapes: invalid type: map, expected a sequence");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        assert_eq!(error(&json!({"shapes": null})), "shapes: invalid type: null, expected a sequence");
        assert_eq!(error(&json!({"title": "a"})), "missing field `shapes`");
        assert_eq!(
            error(&json!({"shapes": ["Point", {"Box": {"width": 300}}]})),
            "shapes[1].Box.width: invalid value: integer `300`, expected u8"
        );
        assert_eq!(
            error(&json!({"shapes": [{"Circle": [1]}]})),
            "shapes[0].Circle: invalid type: sequence, expected f64"
        );
        assert_eq!(
            error(&json!({"shapes": [], "marks": {"m": [true, "x"]}})),
            "marks.m[1]: invalid type: string \"x\", expected a boolean"
        );
        assert_eq!(
            error(&json!({"shapes": [{"Line": [1, 2, 3]}]})),
            "shapes[0].Line: invalid length 3, expected fewer elements in array"
        );
        assert_eq!(
            error(&json!({"shapes": [{}]})),
            "shapes[0]: invalid type: map, expected a word, or a map with one key"
        );
        assert_eq!(
            error(&json!({"shapes": ["Oval"]})),
            "shapes[0]: unknown variant `Oval`, expected one of `Point`, `Circle`, `Box`, `Line`"
        );
    }
}
