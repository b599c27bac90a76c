//! Results as JSON or YAML.

use std::io::Write;

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

/// Prints to standard output. A reader that went away is no error: `virtctl get vm | head -1`.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot write the result"),
        _ => Ok(()),
    }
}
