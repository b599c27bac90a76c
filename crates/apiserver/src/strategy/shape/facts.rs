//! The table of Go's structs: which fields they have, of what type, and when JSON shows them.
//!
//! `fields.txt` is made by `tests/reference/shapefacts` from Kubernetes' own types. Its lines are
//!
//! ```text
//! kind apps/v1 Deployment apps/v1.Deployment       the struct of a kind
//! apps/v1.Deployment                               a struct; its fields follow
//!  spec apps/v1.DeploymentSpec                     JSON name, mark and type
//! ```
//!
//! The mark is `?` for a field that is left out when it is empty, `*` for a pointer (left out when it is not there), `!`
//! for a pointer that is `null` when it is not there; fields without a mark are always written. `[]` is a list, `{}` a map.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The table, read once.
pub(super) static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts::read(include_str!("fields.txt")));

/// All structs, and which kinds they are.
#[derive(Debug, Default)]
pub(super) struct Facts {
    structs: Vec<Vec<Field>>,
    kinds: HashMap<(&'static str, &'static str), usize>,
}

/// One field of a struct.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shown: Shown,
    pub(super) kind: Type,
}

/// When JSON shows a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Always, with its zero value when nobody set it.
    Always,
    /// Always, as `null` when it is not there.
    AlwaysOrNull,
    /// When it is not empty.
    NotEmpty,
    /// When it is there, even if it is empty.
    Present,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    String,
    Bool,
    Number,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Any,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(usize),
}

impl Facts {
    /// The struct of a kind.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&[Field]> {
        self.kinds.get(&(api_version, kind)).map(|index| self.fields(*index))
    }

    /// The fields of a struct.
    pub(super) fn fields(&self, index: usize) -> &[Field] {
        self.structs.get(index).map(Vec::as_slice).unwrap_or_default()
    }

    fn read(text: &'static str) -> Self {
        let is_name = |line: &&str| !line.starts_with(' ') && !line.starts_with("kind ");
        let names: HashMap<&str, usize> =
            text.lines().filter(is_name).enumerate().map(|(index, name)| (name, index)).collect();
        let mut facts = Self::default();
        for line in text.lines() {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["kind", api_version, kind, name] => {
                    facts.kinds.extend(names.get(name).map(|index| ((*api_version, *kind), *index)));
                }
                [name, kind] => {
                    if let Some(fields) = facts.structs.last_mut() {
                        fields.push(field(name, kind, &names));
                    }
                }
                _ => facts.structs.push(Vec::new()),
            }
        }
        facts
    }
}

fn field(name: &'static str, text: &str, names: &HashMap<&str, usize>) -> Field {
    let (shown, text) = match text.split_at_checked(1) {
        Some(("?", rest)) => (Shown::NotEmpty, rest),
        Some(("*", rest)) => (Shown::Present, rest),
        Some(("!", rest)) => (Shown::AlwaysOrNull, rest),
        _ => (Shown::Always, text),
    };
    Field { name, shown, kind: type_of(text, names) }
}

fn type_of(text: &str, names: &HashMap<&str, usize>) -> Type {
    if let Some(item) = text.strip_prefix("[]") {
        return Type::List(Box::new(type_of(item, names)));
    }
    if let Some(item) = text.strip_prefix("{}") {
        return Type::Map(Box::new(type_of(item, names)));
    }
    match text {
        "string" => Type::String,
        "bool" => Type::Bool,
        "number" => Type::Number,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        name => names.get(name).map_or(Type::Any, |index| Type::Struct(*index)),
    }
}
