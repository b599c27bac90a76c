//! The table of messages: which number is which JSON field, of what type.
//!
//! `fields.txt` is made by `tests/reference/protofacts` from Kubernetes' own types. Its lines are
//!
//! ```text
//! kind apps/v1 Deployment apps/v1.Deployment       the message of a kind
//! apps/v1.Deployment                               a message; its fields follow
//!  2 spec ?apps/v1.DeploymentSpec                  number, JSON name, type
//! ```
//!
//! A type is `string`, `bool`, `int`, `double`, `bytes`, one of the types with a JSON form of their own (`time`,
//! `quantity`, …) or a message; before it stand `[]` for a list, `{}` for a map, `list:` for a list that has a message of
//! its own, and before everything `?` if JSON leaves the field out when it is empty. The JSON name `-` means that the
//! fields of the message stand in the place of the field.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The table, read once.
pub(super) static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts::read(include_str!("fields.txt")));

/// All messages and the kinds that they are.
#[derive(Debug, Default)]
pub(super) struct Facts {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), usize>,
}

/// The fields of one message, by number.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: Vec<Field>,
}

/// One field.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    number: u32,
    /// `None`: the fields of the message stand in its place.
    pub(super) name: Option<&'static str>,
    pub(super) shape: Shape,
    pub(super) item: Item,
    /// JSON leaves it out when it is empty.
    pub(super) omit_empty: bool,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

/// The type of a value.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    String,
    Bool,
    Int,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Any object: JSON, or an envelope of its own.
    Raw,
    /// JSON in bytes.
    Json,
    SchemaOrBool(usize),
    SchemaOrArray(usize),
    SchemaOrStrings(usize),
    /// A message whose field 1 is a list.
    ListOf(Box<Item>),
    Message(usize),
}

impl Facts {
    /// The message of a kind. Options of a request are the same in every group.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("meta.k8s.io/v1", kind))).copied()
    }

    pub(super) fn message(&self, index: usize) -> Option<&Message> {
        self.messages.get(index)
    }

    fn read(text: &'static str) -> Self {
        let mut facts = Self::default();
        let mut indexes: HashMap<&str, usize> = HashMap::new();
        for name in text.lines().filter(|line| is_message(line)) {
            indexes.insert(name, indexes.len());
        }
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("kind ") {
                if let [api_version, kind, message] = kind.split(' ').collect::<Vec<_>>()[..]
                    && let Some(index) = indexes.get(message)
                {
                    facts.kinds.insert((api_version, kind), *index);
                }
            } else if is_message(line) {
                facts.messages.push(Message::default());
            } else if let (Some(message), Some(field)) = (facts.messages.last_mut(), Field::read(line, &indexes)) {
                message.fields.push(field);
            }
        }
        facts
    }
}

fn is_message(line: &str) -> bool {
    !line.starts_with(' ') && !line.starts_with("kind ")
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        let index = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(index)
    }
}

impl Field {
    fn read(line: &'static str, indexes: &HashMap<&str, usize>) -> Option<Self> {
        let [number, name, kind] = line.trim_start().split(' ').collect::<Vec<_>>()[..] else { return None };
        let (omit_empty, kind) = kind.strip_prefix('?').map_or((false, kind), |kind| (true, kind));
        let (shape, kind) = if let Some(kind) = kind.strip_prefix("[]") {
            (Shape::List, kind)
        } else if let Some(kind) = kind.strip_prefix("{}") {
            (Shape::Map, kind)
        } else {
            (Shape::One, kind)
        };
        Some(Self {
            number: number.parse().ok()?,
            name: (name != "-").then_some(name),
            shape,
            item: Item::read(kind, indexes)?,
            omit_empty,
        })
    }
}

impl Item {
    fn read(kind: &str, indexes: &HashMap<&str, usize>) -> Option<Self> {
        let schema = || indexes.get("apiextensions/v1.JSONSchemaProps").copied();
        Some(match kind {
            "string" => Self::String,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "intorstring" => Self::IntOrString,
            "raw" => Self::Raw,
            "json" => Self::Json,
            "schemaorbool" => Self::SchemaOrBool(schema()?),
            "schemaorarray" => Self::SchemaOrArray(schema()?),
            "schemaorstrings" => Self::SchemaOrStrings(schema()?),
            kind => match kind.strip_prefix("list:") {
                Some(element) => Self::ListOf(Box::new(Self::read(element, indexes)?)),
                None => Self::Message(*indexes.get(kind)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let text = include_str!("fields.txt");
        let fields: usize = FACTS.messages.iter().map(|message| message.fields.len()).sum();
        assert_eq!(fields, text.lines().filter(|line| line.starts_with(' ')).count());
        assert_eq!(FACTS.kinds.len(), text.lines().filter(|line| line.starts_with("kind ")).count());
        for message in &FACTS.messages {
            assert!(message.fields.is_sorted_by_key(|field| field.number));
        }
    }

    #[test]
    fn finds_kinds_and_fields() {
        let pod = FACTS.of_kind("v1", "Pod").and_then(|index| FACTS.message(index)).expect("there are pods");
        let spec = pod.field(2).expect("pods have a spec");
        assert_eq!((spec.name, spec.shape, spec.omit_empty), (Some("spec"), Shape::One, true));
        assert!(pod.field(99).is_none());
        assert!(FACTS.of_kind("v1", "Nothing").is_none());
        assert_eq!(FACTS.of_kind("apps/v1", "DeleteOptions"), FACTS.of_kind("meta.k8s.io/v1", "DeleteOptions"));
        for (api_version, kind) in [("v1", "Secret"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            assert!(FACTS.of_kind(api_version, kind).is_some(), "{kind}");
        }
    }
}
