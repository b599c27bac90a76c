//! Text as Go prints it. Messages on the wire quote values the way `%q` and `%#v` do, and clients compare them.

use std::fmt::Write as _;

/// `value` in double quotes, escaped like Go's `strconv.Quote`.
pub fn go_quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

/// One byte in single quotes as Go's JSON decoder names it in a syntax error.
pub(crate) fn go_quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let mut out = String::from("'");
            push_escaped(&mut out, char::from(byte));
            out.push('\'');
            out
        }
    }
}

/// A list of strings as `%#v` prints `[]string`.
pub fn go_string_slice<S: AsRef<str>>(values: &[S]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| go_quote(value.as_ref())).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

/// True where Go's `unicode.IsPrint` is (up to differences between Unicode versions).
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{a0}' => false,
        // Rust escapes what is not printable, and combining marks, which Go prints.
        _ => !matches!(c.escape_debug().nth(1), Some('u')) || is_combining_mark(c),
    }
}

/// Rust's `escape_debug` on a `str` escapes a combining mark only at the start, on a `char` always; that tells them apart.
fn is_combining_mark(c: char) -> bool {
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().count() == 2
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        c if is_printable(c) => out.push(c),
        // Writing to a String cannot fail.
        c if u32::from(c) < 0x20 || c == '\x7f' => drop(write!(out, "\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x10000 => drop(write!(out, "\\u{:04x}", u32::from(c))),
        c => drop(write!(out, "\\U{:08x}", u32::from(c))),
    }
}

/// A JSON value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub fn go_map(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let fields: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", go_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(go_quote("plain"), r#""plain""#);
        assert_eq!(go_quote("a\"b\\c\n\t'"), r#""a\"b\\c\n\t'""#);
        assert_eq!(go_quote("\x00\x7f\u{a0}"), r#""\x00\x7f\u00a0""#);
        assert_eq!(go_quote("é日\u{301}"), "\"é日\u{301}\"");
        assert_eq!(go_quote("\u{200b}\u{10ffff}"), r#""\u200b\U0010ffff""#);
    }

    #[test]
    fn quotes_bytes_like_gos_json_decoder() {
        assert_eq!(go_quote_byte(b'}'), "'}'");
        assert_eq!(go_quote_byte(b'\''), r"'\''");
        assert_eq!(go_quote_byte(b'"'), "'\"'");
        assert_eq!(go_quote_byte(0), r"'\x00'");
        assert_eq!(go_quote_byte(b'\n'), r"'\n'");
        assert_eq!(go_quote_byte(0xff), "'ÿ'");
    }

    #[test]
    fn prints_slices_like_go() {
        assert_eq!(go_string_slice(&["a", "b/c"]), r#"[]string{"a", "b/c"}"#);
        assert_eq!(go_string_slice::<&str>(&[]), "[]string{}");
    }
}
