//! The first syntax error of a JSON text, in the words of Go's `encoding/json`. Runs only after a body was refused.

use crate::quote::go_quote_byte;

const UNEXPECTED_END: &str = "unexpected end of JSON input";

/// Go's message for the first thing wrong in `text`; `None` if nothing is.
pub(super) fn first_error(text: &[u8]) -> Option<String> {
    Scanner { text, position: 0 }.document().err()
}

/// What an open bracket waits for.
#[derive(Clone, Copy)]
enum Open {
    Object,
    Array,
}

struct Scanner<'t> {
    text: &'t [u8],
    position: usize,
}

type Scan<T> = Result<T, String>;

impl Scanner<'_> {
    /// One value with nothing but space around it. The stack is explicit: a hostile body nests as deep as it likes.
    fn document(&mut self) -> Scan<()> {
        let mut open = Vec::new();
        loop {
            self.value_start(&mut open)?;
            // A value has ended; close what it ends.
            loop {
                self.skip_space();
                let Some(innermost) = open.last().copied() else { return self.end() };
                let (closing, context) = match innermost {
                    Open::Object => (b'}', "after object key:value pair"),
                    Open::Array => (b']', "after array element"),
                };
                match self.next()? {
                    b',' => {
                        if matches!(innermost, Open::Object) {
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == closing => drop(open.pop()),
                    byte => return Err(unexpected(byte, context)),
                }
            }
        }
    }

    /// Scans up to the end of a scalar or of an empty list or object, through the brackets that open before it.
    fn value_start(&mut self, open: &mut Vec<Open>) -> Scan<()> {
        loop {
            self.skip_space();
            match self.next()? {
                b'{' => {
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        self.position += 1;
                        return Ok(());
                    }
                    self.key()?;
                    open.push(Open::Object);
                }
                b'[' => {
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        self.position += 1;
                        return Ok(());
                    }
                    open.push(Open::Array);
                }
                b'"' => return self.string(),
                b't' => return self.literal("true"),
                b'f' => return self.literal("false"),
                b'n' => return self.literal("null"),
                byte @ (b'-' | b'0'..=b'9') => return self.number(byte),
                byte => return Err(unexpected(byte, "looking for beginning of value")),
            }
        }
    }

    /// A key and its colon.
    fn key(&mut self) -> Scan<()> {
        self.skip_space();
        match self.next()? {
            b'"' => self.string()?,
            byte => return Err(unexpected(byte, "looking for beginning of object key string")),
        }
        self.skip_space();
        match self.next()? {
            b':' => Ok(()),
            byte => Err(unexpected(byte, "after object key")),
        }
    }

    fn string(&mut self) -> Scan<()> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Scan<()> {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    let byte = self.next()?;
                    if !byte.is_ascii_hexdigit() {
                        return Err(unexpected(byte, "in \\u hexadecimal character escape"));
                    }
                }
                Ok(())
            }
            byte => Err(unexpected(byte, "in string escape code")),
        }
    }

    /// The rest of `word`, whose first letter was read.
    fn literal(&mut self, word: &str) -> Scan<()> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                return Err(unexpected(byte, &format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Scan<()> {
        let mut leading = first;
        if first == b'-' {
            leading = self.next()?;
            if !leading.is_ascii_digit() {
                return Err(unexpected(leading, "in numeric literal"));
            }
        }
        if leading != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digit(&mut self, context: &str) -> Scan<()> {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return Err(unexpected(byte, context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.position += 1;
        }
    }

    fn end(&self) -> Scan<()> {
        match self.peek() {
            None => Ok(()),
            Some(byte) => Err(unexpected(byte, "after top-level value")),
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn next(&mut self) -> Scan<u8> {
        let byte = self.peek().ok_or_else(|| UNEXPECTED_END.to_owned())?;
        self.position += 1;
        Ok(byte)
    }
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", go_quote_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_go_says() {
        for (text, message) in [
            ("", UNEXPECTED_END),
            ("  ", UNEXPECTED_END),
            ("{\"a\"", UNEXPECTED_END),
            ("[1,", UNEXPECTED_END),
            ("\"a", UNEXPECTED_END),
            ("tru", UNEXPECTED_END),
            ("-", UNEXPECTED_END),
            ("1.", UNEXPECTED_END),
            ("<html>", "invalid character '<' looking for beginning of value"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[,]", "invalid character ',' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1]", "invalid character ']' after object key:value pair"),
            ("[}", "invalid character '}' looking for beginning of value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("folse", "invalid character 'o' in literal false (expecting 'a')"),
            ("{} x", "invalid character 'x' after top-level value"),
        ] {
            assert_eq!(first_error(text.as_bytes()).as_deref(), Some(message), "{text}");
        }
        for text in ["{}", "[]", " [1, -0.5e+3, {\"a\": [true, false, null]}] ", "\"\\u00e9\\n\""] {
            assert_eq!(first_error(text.as_bytes()), None, "{text}");
        }
    }
}
