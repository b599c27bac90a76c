//! Regular expressions written for Go's `regexp`, run by Rust's.
//!
//! Both engines descend from RE2 and agree on almost everything. Where they differ the pattern is translated: `\d`,
//! `\w`, `\s` and `\b` are ASCII in Go, and `[` and `&` have no meaning inside of a class there.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;

/// How many compiled patterns are kept; beyond it the cache starts anew.
const KEPT: usize = 2048;

/// Compiles a pattern, or finds it compiled; the error is the reason why it is none.
pub(crate) fn compiled(pattern: &str) -> Result<Arc<Regex>, String> {
    static CACHE: LazyLock<Mutex<HashMap<String, Arc<Regex>>>> = LazyLock::new(Mutex::default);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cache.get(pattern) {
        return Ok(Arc::clone(found));
    }
    let regex = Arc::new(Regex::new(&translate(pattern)).map_err(|error| reason(&error))?);
    if cache.len() >= KEPT {
        cache.clear();
    }
    cache.insert(pattern.to_owned(), Arc::clone(&regex));
    Ok(regex)
}

/// The last line of a syntax error says what is wrong; the lines before it draw where.
fn reason(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// The same reason as Go's parser gives it, where the two have a word for the same thing.
pub(crate) fn in_words_of_go(reason: &str) -> &str {
    match reason {
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        "unclosed character class" => "missing closing ]",
        "repetition operator missing expression" => "missing argument to repetition operator",
        other => other,
    }
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !in_class => out.push_str("(?-u:\\b)"),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A closing bracket in the first place stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compiled(pattern).expect("compiles").is_match(text)
    }

    #[test]
    fn classes_are_ascii_and_literal() {
        assert!(matches(r"^\d+$", "42"));
        assert!(!matches(r"^\d+$", "٤٢"));
        assert!(matches(r"^[\w.-]+$", "a.b-c_1"));
        assert!(matches(r"^[[&]+$", "[&"));
        assert!(matches(r"^[]a]+$", "]a"));
        assert!(matches(r"^[[:alpha:]]+$", "abc"));
        assert!(matches(r"\bfoo\b", "a foo b"));
    }

    #[test]
    fn bad_patterns_say_why() {
        assert_eq!(compiled("(").expect_err("refused"), "unclosed group");
    }
}
