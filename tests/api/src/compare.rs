//! Compares a recorded answer with a fresh one and says where they differ.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::pointer::{covers, join};

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Pointer into the answer.
    pub(crate) path: String,
    /// What the recording has there.
    pub(crate) expected: Option<Value>,
    /// What came now.
    pub(crate) got: Option<Value>,
}

/// All differences, except at or below the `ignored` pointers.
pub(crate) fn compare(expected: &Value, got: &Value, ignored: &[&str]) -> Vec<Difference> {
    let mut comparison = Comparison { ignored, ..Comparison::default() };
    comparison.values("", expected, got);
    comparison.differences
}

/// Placeholders that carry an identity: equal numbers in one answer must be equal numbers in the other.
static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"<([a-z]+(?:-[a-z]+)*)-(\d+)>").expect("a fixed expression"));

#[derive(Default)]
struct Comparison<'a> {
    ignored: &'a [&'a str],
    differences: Vec<Difference>,
    /// Which placeholder of the one answer is which of the other; both ways, so that two cannot become one.
    forward: HashMap<String, String>,
    backward: HashMap<String, String>,
}

impl Comparison<'_> {
    fn values(&mut self, path: &str, expected: &Value, got: &Value) {
        if self.ignored.iter().any(|pattern| covers(pattern, path)) {
            return;
        }
        match (expected, got) {
            (Value::Object(left), Value::Object(right)) => {
                let mut keys: Vec<_> = left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))).collect();
                keys.sort();
                for key in keys {
                    self.options(&join(path, key), left.get(key), right.get(key));
                }
            }
            (Value::Array(left), Value::Array(right)) => {
                for index in 0..left.len().max(right.len()) {
                    self.options(&format!("{path}/{index}"), left.get(index), right.get(index));
                }
            }
            (Value::String(left), Value::String(right)) if self.same_text(left, right) => {}
            _ if expected == got => {}
            _ => self.differ(path, Some(expected), Some(got)),
        }
    }

    fn options(&mut self, path: &str, expected: Option<&Value>, got: Option<&Value>) {
        match (expected, got) {
            (Some(expected), Some(got)) => self.values(path, expected, got),
            _ if self.ignored.iter().any(|pattern| covers(pattern, path)) => {}
            _ => self.differ(path, expected, got),
        }
    }

    fn differ(&mut self, path: &str, expected: Option<&Value>, got: Option<&Value>) {
        self.differences.push(Difference { path: path.to_owned(), expected: expected.cloned(), got: got.cloned() });
    }

    fn same_text(&mut self, left: &str, right: &str) -> bool {
        let shape = |text: &str| PLACEHOLDER.replace_all(text, "<$1>").into_owned();
        if shape(left) != shape(right) {
            return false;
        }
        let pairs: Vec<_> = PLACEHOLDER.find_iter(left).zip(PLACEHOLDER.find_iter(right)).collect();
        pairs.iter().all(|(left, right)| self.same_identity(left.as_str(), right.as_str()))
    }

    fn same_identity(&mut self, left: &str, right: &str) -> bool {
        let forward = self.forward.entry(left.to_owned()).or_insert_with(|| right.to_owned()) == right;
        let backward = self.backward.entry(right.to_owned()).or_insert_with(|| left.to_owned()) == left;
        forward && backward
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(expected: &Value, got: &Value, ignored: &[&str]) -> Vec<String> {
        compare(expected, got, ignored).into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn says_where_answers_differ() {
        let expected = json!({"a": 1, "b": [1, 2], "c": "x"});
        let got = json!({"a": 2, "b": [1], "d": "x"});
        assert_eq!(paths(&expected, &got, &[]), ["/a", "/b/1", "/c", "/d"]);
        assert_eq!(paths(&expected, &got, &["/b/*", "/c", "/d"]), ["/a"]);
    }

    #[test]
    fn placeholders_match_by_identity_not_by_number() {
        let expected = json!(["<uid-1>", "<uid-1>", "<uid-2>"]);
        assert!(paths(&expected, &json!(["<uid-7>", "<uid-7>", "<uid-3>"]), &[]).is_empty());
        assert_eq!(paths(&expected, &json!(["<uid-7>", "<uid-3>", "<uid-3>"]), &[]), ["/1", "/2"]);
        assert_eq!(paths(&json!("<uid-1>"), &json!("<rv-1>"), &[]), [""]);
    }
}
