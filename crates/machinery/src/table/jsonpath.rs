//! kubectl's JSONPath, as printer columns use it: `.spec.x`, `[0]`, `[*]`, `['a\.b']`, `[?(@.type=="Ready")].status`, `..`.
//!
//! A path is compiled once. Evaluation finds references into the object; what is missing finds nothing, what makes no
//! sense for a value (an index past the end, a comparison of different types) is an error.

use std::cmp::Ordering;

use serde_json::Value;

/// The most values that an evaluation may hold: several `..` in one path multiply.
const MAX_RESULTS: usize = 100_000;

/// Why a path does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    /// A bracket, filter or quote without an end.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// A character that starts nothing.
    #[error("unrecognized character in action: {0:?}")]
    Unrecognized(char),
    /// A word that is no keyword.
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    /// Between brackets stands neither a key nor an index nor a slice.
    #[error("invalid array index {0}")]
    Index(String),
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(String),
    /// A filter that compares with no known operator.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    /// `....`
    #[error("invalid multiple recursive descent")]
    Recursion,
}

/// The path does not fit the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path does not fit the value")]
pub struct Unfit;

/// A compiled path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Slice(Slice),
    Filter {
        left: Vec<Step>,
        comparison: Option<(Comparison, Vec<Step>)>,
    },
    Union(Vec<Vec<Step>>),
    Wildcard,
    Recursive,
    /// A constant on one side of a filter.
    Literal(Value),
}

/// `[start:end:step]`; an index is a slice of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: End,
    step: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Last,
    At(i64),
    /// One past the start.
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Compiles a path without the braces that kubectl puts around it.
    pub fn compile(path: &str) -> Result<Self, JsonPathError> {
        Ok(Self { steps: Compiler { rest: path, steps: Vec::new() }.compile()? })
    }

    /// All values that the path finds in `root`.
    pub fn find<'v>(&'v self, root: &'v Value) -> Result<Vec<&'v Value>, Unfit> {
        walk(&self.steps, vec![root])
    }

    /// The first value that the path finds, and `None` where it finds none or does not fit.
    pub fn first<'v>(&'v self, root: &'v Value) -> Option<&'v Value> {
        self.find(root).ok()?.first().copied()
    }
}

struct Compiler<'p> {
    rest: &'p str,
    steps: Vec<Step>,
}

impl<'p> Compiler<'p> {
    fn compile(mut self) -> Result<Vec<Step>, JsonPathError> {
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("[?(") {
                self.filter()?;
            } else if let Some(rest) = self.rest.strip_prefix("..") {
                self.recursive(rest)?;
            } else {
                self.simple(c)?;
            }
        }
        Ok(self.steps)
    }

    fn simple(&mut self, c: char) -> Result<(), JsonPathError> {
        match c {
            // The current object: what the steps start from anyway.
            ' ' | '@' | '$' => self.rest = &self.rest[1..],
            '.' => {
                self.rest = &self.rest[1..];
                self.field();
            }
            '[' => self.bracket()?,
            '"' | '\'' => {
                let end = closing_quote(self.rest).ok_or(JsonPathError::Unterminated("quoted string"))?;
                let text = unquote(&self.rest[1..end]);
                self.rest = &self.rest[end + 1..];
                self.steps.push(Step::Literal(text.into()));
            }
            '+' | '-' | '0'..='9' => self.number()?,
            c if c == '_' || c.is_alphanumeric() => self.identifier()?,
            c => return Err(JsonPathError::Unrecognized(c)),
        }
        Ok(())
    }

    fn recursive(&mut self, rest: &'p str) -> Result<(), JsonPathError> {
        if self.steps.last() == Some(&Step::Recursive) {
            return Err(JsonPathError::Recursion);
        }
        self.rest = rest;
        self.steps.push(Step::Recursive);
        if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
            self.field();
        }
        Ok(())
    }

    /// A name up to something that ends it; a backslash takes the next character as it is.
    fn field(&mut self) {
        let mut name = String::new();
        let mut escaped = false;
        let mut end = self.rest.len();
        for (index, c) in self.rest.char_indices() {
            if escaped {
                escaped = false;
                name.push(c);
            } else if c == '\\' {
                escaped = true;
            } else if is_terminator(c) {
                end = index;
                break;
            } else {
                name.push(c);
            }
        }
        let literal = &self.rest[..end];
        self.rest = &self.rest[end..];
        self.steps.push(if literal == "*" { Step::Wildcard } else { Step::Field(name) });
    }

    fn number(&mut self) -> Result<(), JsonPathError> {
        let digits = self.rest[1..].find(|c: char| c != '.' && !c.is_ascii_digit());
        let end = digits.map_or(self.rest.len(), |end| end + 1);
        let text = &self.rest[..end];
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let value = match (unsigned.parse::<i64>(), unsigned.parse::<f64>()) {
            (Ok(int), _) => Value::from(int),
            (_, Ok(float)) => Value::from(float),
            _ => return Err(JsonPathError::Number(text.to_owned())),
        };
        self.rest = &self.rest[end..];
        self.steps.push(Step::Literal(value));
        Ok(())
    }

    fn identifier(&mut self) -> Result<(), JsonPathError> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        let value = match &self.rest[..end] {
            "true" => true,
            "false" => false,
            other => return Err(JsonPathError::Identifier(other.to_owned())),
        };
        self.rest = &self.rest[end..];
        self.steps.push(Step::Literal(value.into()));
        Ok(())
    }

    /// `[*]`, `['key']`, `[0]`, `[1:3]`, or several of them with commas.
    fn bracket(&mut self) -> Result<(), JsonPathError> {
        let end = self.rest.find(']').ok_or(JsonPathError::Unterminated("array"))?;
        let inside = &self.rest[1..end];
        self.rest = &self.rest[end + 1..];
        if inside.contains(',') {
            let members = inside.split(',').map(|member| bracket_steps(member.trim_matches(' ')));
            self.steps.push(Step::Union(members.collect::<Result<_, _>>()?));
        } else {
            self.steps.extend(bracket_steps(inside)?);
        }
        Ok(())
    }

    /// `[?(left op right)]`; without an operator it asks whether the left side finds something.
    fn filter(&mut self) -> Result<(), JsonPathError> {
        let body = &self.rest["[?(".len()..];
        let end = closing_parenthesis(body).ok_or(JsonPathError::Unterminated("filter"))?;
        let inside = &body[..end];
        self.rest = body[end + 1..].strip_prefix(']').ok_or(JsonPathError::Unterminated("array"))?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let step = match inside.find(is_operator).filter(|start| *start > 0) {
            None => Step::Filter { left: JsonPath::compile(inside)?.steps, comparison: None },
            Some(start) => {
                let length = inside[start..].find(|c| !is_operator(c)).unwrap_or(inside.len() - start);
                let (operator, right) = inside[start..].split_at(length);
                let comparison = Comparison::parse(operator)?;
                let right = JsonPath::compile(right)?.steps;
                Step::Filter { left: JsonPath::compile(&inside[..start])?.steps, comparison: Some((comparison, right)) }
            }
        };
        self.steps.push(step);
        Ok(())
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Where the quote that `text` starts with ends.
fn closing_quote(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    text.char_indices().skip(1).find_map(|(index, c)| {
        let closes = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        closes.then_some(index)
    })
}

/// Where the filter ends: at the first `)` outside of quotes.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            ')' => return Some(at),
            '"' | '\'' => at += closing_quote(&text[at..])? + 1,
            c => at += c.len_utf8(),
        }
    }
    None
}

fn unquote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            }),
            c => out.push(c),
        }
    }
    out
}

fn bracket_steps(inside: &str) -> Result<Vec<Step>, JsonPathError> {
    let quoted = inside.strip_prefix('\'').and_then(|inside| inside.strip_suffix('\''));
    if let Some(key) = quoted.filter(|key| !key.contains('\'')) {
        // kubectl reads a key like a field: its dots separate unless they are escaped.
        return Ok(JsonPath::compile(&format!(".{key}"))?.steps);
    }
    let invalid = || JsonPathError::Index(inside.to_owned());
    let parts: Vec<&str> = if inside == "*" { vec!["", ""] } else { inside.split(':').collect() };
    let number = |text: &str| if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| invalid()) };
    let slice = match parts[..] {
        [start] => Slice { start: number(start)?, end: End::One, step: None },
        [start, end] => Slice { start: number(start)?, end: number(end)?.map_or(End::Last, End::At), step: None },
        [start, end, step] => {
            Slice { start: number(start)?, end: number(end)?.map_or(End::Last, End::At), step: number(step)? }
        }
        _ => return Err(invalid()),
    };
    Ok(vec![Step::Slice(slice)])
}

impl Comparison {
    fn parse(operator: &str) -> Result<Self, JsonPathError> {
        Ok(match operator {
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            other => return Err(JsonPathError::Operator(other.to_owned())),
        })
    }

    fn holds(self, left: &Value, right: &Value) -> Result<bool, Unfit> {
        let ordering = order(left, right)?;
        // Booleans have no order.
        if left.is_boolean() && !matches!(self, Self::Equal | Self::NotEqual) {
            return Err(Unfit);
        }
        Ok(match self {
            Self::Equal => ordering == Ordering::Equal,
            Self::NotEqual => ordering != Ordering::Equal,
            Self::Less => ordering == Ordering::Less,
            Self::LessOrEqual => ordering != Ordering::Greater,
            Self::Greater => ordering == Ordering::Greater,
            Self::GreaterOrEqual => ordering != Ordering::Less,
        })
    }
}

/// Only scalars of the same type compare; an integer and a float do not.
fn order(left: &Value, right: &Value) -> Result<Ordering, Unfit> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Ok(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Ok(left.cmp(&right)),
            (None, None) => left.as_f64().partial_cmp(&right.as_f64()).ok_or(Unfit),
            _ => Err(Unfit),
        },
        _ => Err(Unfit),
    }
}

fn walk<'v>(steps: &'v [Step], mut values: Vec<&'v Value>) -> Result<Vec<&'v Value>, Unfit> {
    for step in steps {
        values = apply(step, &values)?;
        if values.len() > MAX_RESULTS {
            return Err(Unfit);
        }
    }
    Ok(values)
}

fn apply<'v>(step: &'v Step, values: &[&'v Value]) -> Result<Vec<&'v Value>, Unfit> {
    Ok(match step {
        Step::Field(name) => values.iter().filter_map(|value| value.as_object()?.get(name)).collect(),
        Step::Wildcard => values.iter().flat_map(|value| children(value)).collect(),
        Step::Literal(literal @ Value::String(_)) => vec![literal],
        Step::Literal(literal) => vec![literal; values.len()],
        Step::Recursive => {
            let mut found = Vec::new();
            for value in values {
                descend(value, &mut found)?;
            }
            found
        }
        Step::Union(members) => {
            let mut found = Vec::new();
            for member in members {
                found.extend(walk(member, values.to_vec())?);
            }
            found
        }
        Step::Slice(slice) => {
            let mut found = Vec::new();
            for value in values.iter().filter(|value| !value.is_null()) {
                slice.cut(value.as_array().ok_or(Unfit)?, &mut found)?;
            }
            found
        }
        Step::Filter { left, comparison } => {
            let mut found = Vec::new();
            for value in values {
                for element in value.as_array().ok_or(Unfit)? {
                    if passes(element, left, comparison.as_ref())? {
                        found.push(element);
                    }
                }
            }
            found
        }
    })
}

fn passes<'v>(
    element: &'v Value,
    left: &'v [Step],
    comparison: Option<&'v (Comparison, Vec<Step>)>,
) -> Result<bool, Unfit> {
    let lefts = walk(left, vec![element]);
    let Some((comparison, right)) = comparison else { return Ok(lefts.is_ok_and(|lefts| !lefts.is_empty())) };
    match (lefts?.as_slice(), walk(right, vec![element])?.as_slice()) {
        ([left], [right]) => comparison.holds(left, right),
        ([], _) | (_, []) => Ok(false),
        _ => Err(Unfit),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(object) => object.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    }
}

/// A value that has children, then the same for each child.
fn descend<'v>(value: &'v Value, found: &mut Vec<&'v Value>) -> Result<(), Unfit> {
    let children = children(value);
    if children.is_empty() {
        return Ok(());
    }
    found.push(value);
    if found.len() > MAX_RESULTS {
        return Err(Unfit);
    }
    children.into_iter().try_for_each(|child| descend(child, found))
}

impl Slice {
    fn cut<'v>(self, list: &'v [Value], found: &mut Vec<&'v Value>) -> Result<(), Unfit> {
        let length = i64::try_from(list.len()).map_err(|_| Unfit)?;
        let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            End::Last => length,
            End::At(end) => from_end(end),
            End::One => start.saturating_add(1),
        };
        if start == end {
            return Ok(());
        }
        if start < 0 || start >= length || end > length || start > end {
            return Err(Unfit);
        }
        let step = self.step.unwrap_or(1);
        let step = usize::try_from(step).ok().filter(|step| *step > 0).ok_or(Unfit)?;
        let (start, end) = (usize::try_from(start).map_err(|_| Unfit)?, usize::try_from(end).map_err(|_| Unfit)?);
        found.extend(list.get(start..end).ok_or(Unfit)?.iter().step_by(step));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(path: &str, value: &Value) -> Result<Value, Unfit> {
        let path = JsonPath::compile(path).expect("the path is legal");
        path.find(value).map(|found| found.into_iter().cloned().collect())
    }

    #[test]
    fn finds_what_columns_ask_for() {
        let object = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"list": [1, 2, 3, 4], "names": [{"n": "a"}, {"n": "b"}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1},
                {"type": "Live)", "status": "False", "n": 2},
            ]},
        });
        for (path, expected) in [
            (".spec.list", json!([[1, 2, 3, 4]])),
            ("$.spec.list[0]", json!([1])),
            (".spec.list[-1]", json!([4])),
            (".spec.list[1:3]", json!([2, 3])),
            (".spec.list[:-1]", json!([1, 2, 3])),
            (".spec.list[::2]", json!([1, 3])),
            (".spec.list[*]", json!([1, 2, 3, 4])),
            (".spec.list[0,2]", json!([1, 3])),
            (".spec.names[*].n", json!(["a", "b"])),
            (".spec['list']", json!([[1, 2, 3, 4]])),
            (".spec['names', 'list'][0]", json!([{"n": "a"}, 1])),
            (r".metadata.labels.app\.kubernetes\.io/name", json!(["web"])),
            (r".metadata.labels['app\.kubernetes\.io/name']", json!(["web"])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type == \"Live)\")].status", json!(["False"])),
            (".status.conditions[?(@.type!='Ready')].n", json!([2])),
            (".status.conditions[?(@.n>1)].n", json!([2])),
            (".status.conditions[?(@.n<=1)].n", json!([1])),
            (".status.conditions[?(@.missing)].n", json!([])),
            (".status.conditions[?(@.status)].n", json!([1, 2])),
            ("..n", json!(["a", "b", 1, 2])),
            (".spec.*[0]", json!([1, {"n": "a"}])),
            (".missing.deeper[0].x", json!([])),
            ("@", json!([object])),
        ] {
            assert_eq!(find(path, &object), Ok(expected), "{path}");
        }
    }

    #[test]
    fn tells_what_does_not_fit() {
        let object = json!({"list": [1], "text": "x", "mixed": [{"n": "1"}], "null": null});
        for path in [".list[5]", ".text[0]", ".text[?(@.x)]", ".mixed[?(@.n>0)]", ".list[0:1:0]", ".null[?(@.x)]"] {
            assert_eq!(find(path, &object), Err(Unfit), "{path}");
        }
        assert_eq!(find(".null[0]", &object), Ok(json!([])));
        assert_eq!(find(".null", &object), Ok(json!([null])));
    }

    #[test]
    fn refuses_broken_paths() {
        for (path, error) in [
            (".a[0", JsonPathError::Unterminated("array")),
            (".a[?(@.x", JsonPathError::Unterminated("filter")),
            (".a[?(@.x)", JsonPathError::Unterminated("array")),
            (".a[x]", JsonPathError::Index("x".to_owned())),
            (".a[?(@.x=1)]", JsonPathError::Operator("=".to_owned())),
            ("spec", JsonPathError::Identifier("spec".to_owned())),
            ("'x", JsonPathError::Unterminated("quoted string")),
            ("....", JsonPathError::Recursion),
            ("#", JsonPathError::Unrecognized('#')),
        ] {
            assert_eq!(JsonPath::compile(path), Err(error), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(path in r#"[.\[\]?(@)'"a0*:,=<\\ é$-]{0,20}"#) {
            let object = json!({"a": [{"a": 0}, "é", [0, 1]], "0": {"a": null}});
            if let Ok(path) = JsonPath::compile(&path) {
                let _ = path.find(&object);
            }
        }
    }
}
