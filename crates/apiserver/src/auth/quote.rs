//! Go's `%q` for strings and string lists: messages of kube-apiserver are full of it, and clients compare them.

use std::fmt::Write as _;

/// Quotes `text` as Go's `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    out
}

/// Quotes a list as Go's `%q` does for `[]string`: `["a" "b"]`.
pub(crate) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let quoted: Vec<String> = items.iter().map(|s| quoted(s.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

fn push_escaped(out: &mut String, c: char) {
    let code = u32::from(c);
    // Writing to a String cannot fail, so the results below carry nothing.
    let _ = match c {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\u{07}' => out.write_str("\\a"),
        '\u{08}' => out.write_str("\\b"),
        '\u{0c}' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{0b}' => out.write_str("\\v"),
        _ if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
        _ if is_printable(c) => out.write_char(c),
        _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}

/// Rust escapes in `Debug` what is not printable, by nearly the same Unicode tables as Go; combining marks are
/// printable for Go and escaped by Rust, which only shows in names that no API object can have.
fn is_printable(c: char) -> bool {
    c == '\'' || c.escape_debug().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        for (text, want) in [
            ("", r#""""#),
            ("pods", r#""pods""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("it's", r#""it's""#),
            ("tab\tnul\0del\x7f", r#""tab\tnul\x00del\x7f""#),
            ("grün", r#""grün""#),
            ("a\u{200b}b", r#""a\u200bb""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quoted(text), want);
        }
        assert_eq!(quoted_list(&["a", "b"]), r#"["a" "b"]"#);
        assert_eq!(quoted_list::<&str>(&[]), "[]");
    }
}
