//! Paths and messages of field errors, spelled as Kubernetes spells them.

use std::fmt;

use serde_json::{Number, Value};

use crate::error::{FieldError, FieldErrorKind};
use crate::quote::go_quote;

/// A place in an object, made of borrowed steps so that walking valid objects allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Root,
    Field(&'p str),
    Key(&'p str),
    Index(usize),
}

impl<'p> Path<'p> {
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A field of an object.
    pub(crate) fn field(&'p self, name: &'p str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// A key of a map.
    pub(crate) fn key(&'p self, name: &'p str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Key(name) }
    }

    /// An element of a list.
    pub(crate) fn index(&'p self, index: usize) -> Path<'p> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// With map keys as fields, `spec.map.key`: how schema validation writes it.
    pub(crate) fn dotted(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        out
    }

    fn write(&self, out: &mut String, dotted: bool) {
        use fmt::Write as _;
        if let Some(parent) = self.parent {
            parent.write(out, dotted);
        }
        let result = match self.step {
            Step::Root => Ok(()),
            Step::Key(key) if !dotted => write!(out, "[{key}]"),
            Step::Field(name) | Step::Key(name) if out.is_empty() => write!(out, "{name}"),
            Step::Field(name) | Step::Key(name) => write!(out, ".{name}"),
            Step::Index(index) => write!(out, "[{index}]"),
        };
        debug_assert!(result.is_ok(), "writing to a string cannot fail");
    }
}

/// With map keys in brackets, `spec.map[key]`: how everything but schema validation writes it.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out, false);
        f.write_str(&out)
    }
}

/// A value as it stands in `Invalid value: …`.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Number(number) => go_number(number),
        Value::Array(_) | Value::Object(_) => go_escaped(&value.to_string()),
        other => other.to_string(),
    }
}

/// JSON with the three characters escaped that Go escapes in strings.
pub(crate) fn go_escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A number as `%v` prints it.
pub(crate) fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() || number.as_i64().is_none() => go_float(float),
        _ => number.to_string(),
    }
}

/// A float as `%v` prints it: the shortest form, with an exponent below 1e-4 and from 1e21 on.
pub(crate) fn go_float(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let Some((mantissa, exponent)) = text.split_once('e') else { return text };
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

fn with_detail(mut message: String, detail: &str) -> String {
    if !detail.is_empty() {
        message.push_str(": ");
        message.push_str(detail);
    }
    message
}

/// `Invalid value: <value>: <detail>`.
pub(crate) fn invalid(path: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> FieldError {
    invalid_shown(path, &shown(value), detail)
}

/// The same for a value that is already in the form in which it is shown.
pub(crate) fn invalid_shown(path: impl Into<String>, shown: &str, detail: impl AsRef<str>) -> FieldError {
    let message = with_detail(format!("Invalid value: {shown}"), detail.as_ref());
    FieldError::new(FieldErrorKind::Invalid, path, message)
}

/// The same for a value of the wrong type.
pub(crate) fn type_invalid(path: impl Into<String>, value: &Value, detail: impl AsRef<str>) -> FieldError {
    FieldError { kind: FieldErrorKind::TypeInvalid, ..invalid(path, value, detail) }
}

/// `Invalid value: <detail>`, where the value is too long to be shown.
pub(crate) fn invalid_hidden(path: impl Into<String>, detail: impl AsRef<str>) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, path, with_detail("Invalid value".to_owned(), detail.as_ref()))
}

/// `Required value: <detail>`.
pub(crate) fn required(path: impl Into<String>, detail: impl AsRef<str>) -> FieldError {
    FieldError::new(FieldErrorKind::Required, path, with_detail("Required value".to_owned(), detail.as_ref()))
}

/// `Forbidden: <detail>`.
pub(crate) fn forbidden(path: impl Into<String>, detail: impl AsRef<str>) -> FieldError {
    FieldError::new(FieldErrorKind::Forbidden, path, with_detail("Forbidden".to_owned(), detail.as_ref()))
}

/// `Duplicate value: <value>`.
pub(crate) fn duplicate(path: impl Into<String>, value: &Value) -> FieldError {
    FieldError::new(FieldErrorKind::Duplicate, path, format!("Duplicate value: {}", shown(value)))
}

/// `Unsupported value: <value>: supported values: …`.
pub(crate) fn not_supported(path: impl Into<String>, value: &Value, supported: &[Value]) -> FieldError {
    let supported: Vec<String> = supported
        .iter()
        .map(|value| match value {
            Value::String(text) => go_quote(text),
            other => go_quote(&other.to_string()),
        })
        .collect();
    let message = format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", "));
    FieldError::new(FieldErrorKind::NotSupported, path, message)
}

/// `Too long: may not be more than <max> bytes`.
pub(crate) fn too_long(path: impl Into<String>, max: u64) -> FieldError {
    let unit = if max == 1 { "byte" } else { "bytes" };
    FieldError::new(FieldErrorKind::TooLong, path, format!("Too long: may not be more than {max} {unit}"))
}

/// `Too many: <actual>: must have at most <max> items`.
pub(crate) fn too_many(path: impl Into<String>, actual: usize, max: u64) -> FieldError {
    let unit = if max == 1 { "item" } else { "items" };
    FieldError::new(FieldErrorKind::TooMany, path, format!("Too many: {actual}: must have at most {max} {unit}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_written_both_ways() {
        let (spec, root) = (Path::ROOT.field("spec"), Path::ROOT);
        let map = spec.field("map");
        let key = map.key("a.b");
        let index = key.index(3);
        assert_eq!(index.field("x").to_string(), "spec.map[a.b][3].x");
        assert_eq!(index.dotted(), "spec.map.a.b[3]");
        assert_eq!(root.to_string(), "");
    }

    #[test]
    fn values_are_shown_as_go_shows_them() {
        for (value, expected) in [
            (json!("a\"b"), r#""a\"b""#),
            (json!(5), "5"),
            (json!(1.5), "1.5"),
            (json!(2.0), "2"),
            (json!(1e21), "1e+21"),
            (json!(0.00001), "1e-05"),
            (json!(true), "true"),
            (json!(null), "null"),
            (json!({"a": ["<"]}), r#"{"a":["\u003c"]}"#),
        ] {
            assert_eq!(shown(&value), expected);
        }
    }

    #[test]
    fn every_kind_of_message() {
        assert_eq!(invalid("a", &json!(1), "no").to_string(), "a: Invalid value: 1: no");
        assert_eq!(invalid_hidden("", "no").to_string(), "<nil>: Invalid value: no");
        assert_eq!(required("a", "").to_string(), "a: Required value");
        assert_eq!(forbidden("a", "no").to_string(), "a: Forbidden: no");
        assert_eq!(duplicate("a", &json!({"n": 1})).to_string(), r#"a: Duplicate value: {"n":1}"#);
        assert_eq!(
            not_supported("a", &json!("x"), &[json!("y"), json!(1)]).to_string(),
            r#"a: Unsupported value: "x": supported values: "y", "1""#
        );
        assert_eq!(too_long("a", 1).to_string(), "a: Too long: may not be more than 1 byte");
        assert_eq!(too_many("a", 3, 2).to_string(), "a: Too many: 3: must have at most 2 items");
    }
}
