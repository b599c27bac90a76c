//! Results as JSON or YAML, and text that terminals show and do not obey.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

use anyhow::Context;
use serde_json::Value;

/// How a result is printed.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

impl Format {
    /// The text, which ends with a line feed.
    pub(crate) fn text(self, value: &Value) -> anyhow::Result<String> {
        let mut text = match self {
            Self::Json => serde_json::to_string_pretty(value)?,
            Self::Yaml => yaml(value)?,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

/// One YAML document.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(value).context("cannot write YAML")
}

/// The text without what would make a terminal do something: objects hold words of registries, guests and other users.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    // The last ones turn the direction of what follows, so that it reads as something else.
    let is_order = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            // As terminals write them.
            '\0'..='\u{1f}' | '\u{7f}' if is_order(c) => shown.extend(['^', char::from(c as u8 ^ 0x40)]),
            _ if is_order(c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Prints to standard output; programs get every character as it is. A reader that went away is no error: `virtctl get vm | head -1`.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { plain(text) } else { Cow::Borrowed(text) };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot write the result"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn terminals_get_no_orders() {
        assert!(matches!(plain("a line\n\tand another: ü →"), std::borrow::Cow::Borrowed(_)));
        assert_eq!(plain("\u{1b}]0;title\u{7}x\rhidden\u{7f}"), "^[]0;title^Gx^Mhidden^?");
        assert_eq!(plain("\u{9b}31m \u{202e}txt.exe"), r"\u{9b}31m \u{202e}txt.exe");
    }
}
