//! One step of a path into an object, and whole paths: `.spec.containers[name="web"].image`.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Map, Number, Value};

use crate::quote::go_quote;

/// How a child is picked from the value that contains it.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A member of an object.
    Field(String),
    /// The element of a list of objects whose key fields have these values; sorted by name.
    Key(Vec<(String, Value)>),
    /// The element of a set that is this scalar.
    Value(Value),
    /// The element of a list at this place; nobody writes these any more, but old entries may have them.
    Index(i64),
}

/// A text that is not a path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathElementError {
    /// Too short to say what it is.
    #[error("key must be 2 characters long:")]
    TooShort,
    /// No `:` behind the first character.
    #[error("missing colon: {0}")]
    MissingColon(String),
    /// What is behind the colon is not JSON, or not an index.
    #[error("cannot read {0}")]
    Content(String),
}

impl PathElement {
    /// A member of an object.
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// Reads the form that `fieldsV1` has: `f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`. A form that is not known yet is
    /// `None`, so that what a newer server wrote is skipped.
    pub fn parse(text: &str) -> Result<Option<Self>, PathElementError> {
        if text.len() < 2 {
            return Err(PathElementError::TooShort);
        }
        let Some((kind, content)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(PathElementError::MissingColon(text.to_owned()));
        };
        let bad = || PathElementError::Content(text.to_owned());
        Ok(Some(match kind {
            "f" => Self::Field(content.to_owned()),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(content).map_err(|_| bad())?;
                Self::Key(fields.into_iter().map(|(name, value)| (name, plain_number(value))).collect())
            }
            "v" => Self::Value(plain_number(serde_json::from_str(content).map_err(|_| bad())?)),
            "i" => Self::Index(content.parse().map_err(|_| bad())?),
            _ => return Ok(None),
        }))
    }

    /// Writes the form that `fieldsV1` has.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        match self {
            Self::Field(name) => {
                text.reserve(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
            }
            Self::Key(fields) => {
                text.push_str("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    push_json(&mut text, &Value::String(name.clone()));
                    text.push(':');
                    push_json(&mut text, value);
                }
                text.push('}');
            }
            Self::Value(value) => {
                text.push_str("v:");
                push_json(&mut text, value);
            }
            Self::Index(index) => {
                let _ = write!(text, "i:{index}");
            }
        }
        text
    }
}

/// `80.0` and `80` are the same key.
fn plain_number(value: Value) -> Value {
    match value.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        Some(float) if !value.is_i64() && !value.is_u64() && float.fract() == 0.0 && float.abs() < 9e15 => {
            Value::Number(Number::from(float as i64))
        }
        _ => value,
    }
}

/// JSON as Go writes it: `<`, `>` and `&` are escaped.
fn push_json(text: &mut String, value: &Value) {
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            other => text.push(other),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// Field by field: names decide before values do.
fn compare_keys(a: &[(String, Value)], b: &[(String, Value)]) -> Ordering {
    for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
        let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A total order over JSON values: numbers by size, then texts, booleans, lists, objects, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differing = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let differing = a
                .iter()
                .zip(b)
                .map(|((name_a, a), (name_b, b))| name_a.cmp(name_b).then_with(|| compare_values(a, b)))
                .find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => kind_rank(a).cmp(&kind_rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    if let (Some(a), Some(b)) = (a.as_u64(), b.as_u64()) {
        return a.cmp(&b);
    }
    let float = |number: &Number| number.as_f64().unwrap_or(0.0);
    float(a).total_cmp(&float(b))
}

fn kind_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A path as conflicts show it.
pub(super) fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_written_as_they_are_read() {
        for text in [
            "f:spec",
            "f:a:b/c.d",
            "f:",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"a\u003cb""#,
            "v:1",
            "v:true",
            "i:3",
        ] {
            let element = PathElement::parse(text).unwrap().unwrap();
            assert_eq!(element.encode(), text);
        }
        assert_eq!(PathElement::parse("v:80.0").unwrap(), PathElement::parse("v:80").unwrap());
        assert_eq!(PathElement::parse("x:new").unwrap(), None);
    }

    #[test]
    fn bad_elements_are_errors() {
        assert_eq!(PathElement::parse("f"), Err(PathElementError::TooShort));
        assert_eq!(PathElement::parse("spec"), Err(PathElementError::MissingColon("spec".into())));
        for text in ["k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(PathElement::parse(text), Err(PathElementError::Content(text.into())));
        }
    }

    #[test]
    fn elements_show_as_in_messages() {
        let path = [
            PathElement::field("spec"),
            PathElement::Key(vec![("name".into(), json!("a\"b")), ("port".into(), json!(80))]),
            PathElement::Value(json!("x")),
            PathElement::Index(2),
        ];
        assert_eq!(path_text(&path), r#".spec[name="a\"b",port=80][="x"][2]"#);
    }

    #[test]
    fn numbers_sort_by_size() {
        let port = |number: i64| PathElement::Key(vec![("port".into(), json!(number))]);
        assert!(port(80) < port(443));
        assert!(PathElement::field("z") < port(1));
        assert!(port(1) < PathElement::Value(json!(0)));
        assert!(PathElement::Value(json!(2)) < PathElement::Value(json!("1")));
    }
}
