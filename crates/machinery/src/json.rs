//! Request bodies to values: JSON and YAML, noting fields that appear twice, with errors worded like Go's decoder.

mod syntax;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::quote::go_quote;

/// How deep objects and lists may nest. serde_json has the same limit; kube-apiserver allows more than any object needs.
const MAX_DEPTH: usize = 127;

/// kube-apiserver stops listing strict errors here.
const MAX_DUPLICATES: usize = 100;

/// A body that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value; of a field that appears twice, the last.
    pub value: Value,
    /// One message for each field that appears twice, `duplicate field "spec.replicas"`: a strict client gets them as
    /// an error, others as warnings.
    pub duplicates: Vec<String>,
}

/// Why a body could not be read; the text is Go's, without what kube-apiserver puts before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON.
    #[error("{0}")]
    Json(String),
    /// Not YAML, or YAML that unfolds to too much.
    #[error("{0}")]
    Yaml(String),
}

/// Reads a JSON body.
pub fn parse_strict(body: &[u8]) -> Result<Parsed, JsonError> {
    match parse(body) {
        Ok(parsed) => Ok(parsed),
        Err(error) => match syntax::first_error(body) {
            Some(message) => Err(JsonError::Json(message)),
            // Go puts U+FFFD in the place of bytes that are not UTF-8 instead of refusing them.
            None => match String::from_utf8_lossy(body) {
                std::borrow::Cow::Owned(text) => parse(text.as_bytes()).map_err(|error| not_syntax(&error)),
                std::borrow::Cow::Borrowed(_) => Err(not_syntax(&error)),
            },
        },
    }
}

/// What serde_json refuses although its syntax is right: too deep, a number without bounds, half a surrogate pair.
fn not_syntax(error: &serde_json::Error) -> JsonError {
    let text = error.to_string();
    JsonError::Json(if text.starts_with("recursion limit") { "exceeded max depth".to_owned() } else { text })
}

fn parse(body: &[u8]) -> serde_json::Result<Parsed> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = read(&mut deserializer)?;
    deserializer.end()?;
    Ok(parsed)
}

/// Reads a YAML body. JSON is YAML, and most bodies that claim to be YAML are JSON.
pub fn parse_yaml(body: &[u8]) -> Result<Parsed, JsonError> {
    if body.trim_ascii_start().starts_with(b"{")
        && let Ok(parsed) = parse(body)
    {
        return Ok(parsed);
    }
    let text = String::from_utf8_lossy(body);
    let last_wins = yaml_options(serde_saphyr::options::DuplicateKeyPolicy::LastWins);
    let mut parsed =
        serde_saphyr::with_deserializer_from_str_with_options(&text, last_wins, |deserializer| read(deserializer))
            .map_err(|error| JsonError::Yaml(yaml_message(&error)))?;
    if !parsed.duplicates.is_empty() {
        parsed.duplicates = vec![yaml_duplicate(&text, &parsed.duplicates)];
    }
    Ok(parsed)
}

fn yaml_options(duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy) -> serde_saphyr::Options {
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
        // A body has at most 3 MiB; aliases may not unfold it to much more than that.
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
    }
}

/// `yaml: line 3: did not find expected key`: the words are close to Go's, whose scanner counts lines from one, whose
/// parser counts them from zero, and which both leave out the first.
fn yaml_message(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.split(" at line ").next().unwrap_or_default();
    let text =
        if text.starts_with("while ") { text.split_once(", ").map_or(text, |(_, problem)| problem) } else { text };
    let line = error.location().map_or(0, |location| location.line());
    let (line, text) = match text {
        "unclosed bracket '['" => (line, "did not find expected ',' or ']'"),
        "unclosed bracket '{'" => (line, "did not find expected ',' or '}'"),
        text if text.starts_with("did not find expected") => (line.saturating_sub(1), text),
        text => (if line > 1 { line } else { 0 }, text),
    };
    if line == 0 { format!("yaml: {text}") } else { format!("yaml: line {line}: {text}") }
}

/// Go names the line of the first key that is there twice, so a second reading that stops there finds it.
fn yaml_duplicate(text: &str, duplicates: &[String]) -> String {
    let stop = yaml_options(serde_saphyr::options::DuplicateKeyPolicy::Error);
    let found = serde_saphyr::with_deserializer_from_str_with_options(text, stop, |deserializer| read(deserializer));
    let line = found.err().and_then(|error| error.location()).map_or(0, |location| location.line());
    let path = duplicates.first().map(String::as_str).unwrap_or_default().trim_end_matches('"');
    let key = path.rsplit(['.', '"']).next().unwrap_or_default();
    format!("yaml: unmarshal errors:\n  line {line}: key \"{key}\" already set in map")
}

/// A body in one short text, for messages about bodies that could not be read.
pub fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let start = &body[..body.len().min(LENGTH)];
    let text = match start.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > LENGTH { format!("{text} ...") } else { text }
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Parsed, D::Error> {
    let mut duplicates = Vec::new();
    let value = Reader { place: &Place::Root, duplicates: &mut duplicates }.deserialize(deserializer)?;
    Ok(Parsed { value, duplicates })
}

/// Where in the document a value stands: a list on the stack, so that a path costs nothing until it is printed.
enum Place<'p> {
    Root,
    Field { parent: &'p Place<'p>, name: &'p str, depth: usize },
    Element { parent: &'p Place<'p>, index: usize, depth: usize },
}

impl Place<'_> {
    fn depth(&self) -> usize {
        match self {
            Place::Root => 0,
            Place::Field { depth, .. } | Place::Element { depth, .. } => *depth,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Field { parent: Place::Root, name, .. } => f.write_str(name),
            Place::Field { parent, name, .. } => write!(f, "{parent}.{name}"),
            Place::Element { parent, index, .. } => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Builds a [`Value`] and collects the fields that appear twice.
struct Reader<'r> {
    place: &'r Place<'r>,
    duplicates: &'r mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.place.depth() > MAX_DEPTH {
            return Err(D::Error::custom("exceeded max depth"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// What does not fit into Go's `int64` becomes a float there.
    #[expect(clippy::cast_precision_loss, reason = "the loss is what Go's decoder does, too")]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let place = Place::Element { parent: self.place, index: list.len(), depth: self.place.depth() + 1 };
            match access.next_element_seed(Reader { place: &place, duplicates: &mut *self.duplicates })? {
                Some(element) => list.push(element),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            let place = Place::Field { parent: self.place, name: &name, depth: self.place.depth() + 1 };
            if object.contains_key(&name) && self.duplicates.len() < MAX_DUPLICATES {
                let message = format!("duplicate field {}", go_quote(&place.to_string()));
                if !self.duplicates.contains(&message) {
                    self.duplicates.push(message);
                }
            }
            let value = access.next_value_seed(Reader { place: &place, duplicates: &mut *self.duplicates })?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(body: &str) -> String {
        parse_strict(body.as_bytes()).expect_err("the body is wrong").to_string()
    }

    #[test]
    fn reads_values() {
        let parsed = parse_strict(br#" {"a": [1, -2, 1.5, true, null, "x"], "b": {}} "#).expect("JSON");
        assert_eq!(parsed.value, json!({"a": [1, -2, 1.5, true, null, "x"], "b": {}}));
        assert!(parsed.duplicates.is_empty());
        let large = parse_strict(b"[9223372036854775807,18446744073709551615]").expect("JSON");
        assert_eq!(large.value, json!([i64::MAX, 18446744073709551615.0]));
    }

    #[test]
    fn names_duplicates_once_and_keeps_the_last() {
        let parsed = parse_strict(br#"{"k":1,"k":2,"k":3,"spec":{"l":[{"x":1},{"x":1,"x":2}],"r":1,"r":{}}}"#);
        let parsed = parsed.expect("JSON");
        assert_eq!(parsed.value, json!({"k": 3, "spec": {"l": [{"x": 1}, {"x": 2}], "r": {}}}));
        assert_eq!(
            parsed.duplicates,
            [r#"duplicate field "k""#, r#"duplicate field "spec.l[1].x""#, r#"duplicate field "spec.r""#]
        );
    }

    #[test]
    fn syntax_errors_read_like_gos() {
        assert_eq!(refusal(""), "unexpected end of JSON input");
        assert_eq!(refusal("{"), "unexpected end of JSON input");
        assert_eq!(refusal("{}}"), "invalid character '}' after top-level value");
        assert_eq!(refusal(r#"{"a":1,}"#), "invalid character '}' looking for beginning of object key string");
        assert_eq!(refusal("nope"), "invalid character 'o' in literal null (expecting 'u')");
        assert_eq!(refusal(&"[".repeat(500)), "unexpected end of JSON input");
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(refusal(&deep), "exceeded max depth");
    }

    #[test]
    fn bytes_that_are_not_text_become_replacement_characters() {
        let parsed = parse_strict(b"{\"a\":\"x\xffy\"}").expect("Go accepts it");
        assert_eq!(parsed.value, json!({"a": "x\u{fffd}y"}));
    }

    #[test]
    fn summarizes_bodies() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"{"), "{");
        assert_eq!(summary(b"nope"), "6e6f7065");
        assert_eq!(
            summary("{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}".as_bytes()),
            "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaa ..."
        );
    }

    #[test]
    fn reads_yaml() {
        let parsed = parse_yaml(b"a: 1\nb:\n- x\n- {c: true, d: null}\ne: '1'\n3: z\n").expect("YAML");
        assert_eq!(parsed.value, json!({"a": 1, "b": ["x", {"c": true, "d": null}], "e": "1", "3": "z"}));
        let parsed = parse_yaml(br#"{"a": 1, "a": 2}"#).expect("JSON is YAML");
        assert_eq!((parsed.value, parsed.duplicates.len()), (json!({"a": 2}), 1));
    }

    #[test]
    fn names_the_line_of_a_yaml_duplicate() {
        let parsed = parse_yaml(b"a: 1\nspec:\n  x: 1\n  x: 2\n").expect("YAML");
        assert_eq!(parsed.value, json!({"a": 1, "spec": {"x": 2}}));
        assert_eq!(parsed.duplicates, ["yaml: unmarshal errors:\n  line 4: key \"x\" already set in map"]);
    }

    #[test]
    fn refuses_alias_bombs_and_broken_yaml() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(matches!(parse_yaml(bomb.as_bytes()), Err(JsonError::Yaml(_))));
        for (body, message) in [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a: 1\nb: c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
            ("a:\n  - x\n b: 1\n", "yaml: line 2: did not find expected key"),
            ("- a\nb: 1", "yaml: line 1: did not find expected '-' indicator"),
            ("a: 1\nb: [1\n", "yaml: line 2: did not find expected ',' or ']'"),
        ] {
            assert_eq!(parse_yaml(body.as_bytes()).map_err(|error| error.to_string()), Err(message.to_owned()));
        }
    }

    proptest::proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let _ = parse_strict(&bytes);
            let _ = parse_yaml(&bytes);
        }

        #[test]
        fn the_scanner_and_the_reader_agree(text in r#"[{}\[\]:,"a1\-.e+ tfrulnse\\]{0,16}"#) {
            // Whatever the reader refuses for its syntax, the scanner can name, and nothing else.
            let read = parse_strict(text.as_bytes()).is_ok();
            proptest::prop_assert!(!read || syntax::first_error(text.as_bytes()).is_none());
        }
    }
}
