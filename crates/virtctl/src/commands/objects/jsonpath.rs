//! The part of kubectl's JSONPath that scripts use: `{.status.phase}`, `{.items[*].metadata.name}`,
//! `{.status.conditions[?(@.type=="Ready")].status}`.

use anyhow::{Context, bail};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Where { path: Vec<Step>, equals: Value },
}

/// A template: text and paths.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
}

impl Template {
    /// Reads a template. A path without braces is a path: `.status.phase`.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        if !text.contains('{') {
            return Ok(Self(vec![Part::Path(steps(text)?)]));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = closing(after).with_context(|| format!("\"{text}\" has a {{ without a }}"))?;
            let inner = after[..end].trim();
            let quoted = inner.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
            parts.push(match quoted {
                Some(literal) => Part::Text(literal.replace("\\n", "\n").replace("\\t", "\t")),
                None => Part::Path(steps(inner)?),
            });
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The template with the values of an object; values of a list are separated by spaces.
    pub(super) fn render(&self, object: &Value) -> String {
        let show = |value: &&Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Path(steps) => find(object, steps).iter().map(show).collect::<Vec<_>>().join(" "),
        };
        self.0.iter().map(part).collect()
    }

    /// There is at least one value.
    pub(super) fn finds(&self, object: &Value) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Path(steps) if !find(object, steps).is_empty()))
    }
}

/// The end of a path: a brace outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, c)| {
        match (quote, c) {
            (None, '}') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        None
    })
}

fn steps(text: &str) -> anyhow::Result<Vec<Step>> {
    let wrong = || {
        format!(
            "\"{text}\" is no path: write for example .status.phase or .status.conditions[?(@.type==\"Ready\")].status"
        )
    };
    let (mut steps, mut rest) = (Vec::new(), text.trim().trim_start_matches('$'));
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("[?(@") {
            let end = inner.find(")]").with_context(wrong)?;
            let (path, value) = inner[..end].split_once("==").with_context(wrong)?;
            let value = value.trim().trim_matches(['"', '\'']);
            let equals =
                serde_json::from_str(value).ok().filter(|value: &Value| value.is_boolean() || value.is_number());
            steps.push(Step::Where { path: self::steps(path.trim())?, equals: equals.unwrap_or_else(|| value.into()) });
            rest = &inner[end + 2..];
        } else if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').with_context(wrong)?;
            steps.push(match inner[..end].trim() {
                "*" => Step::All,
                index if index.starts_with(['"', '\'']) => Step::Field(index.trim_matches(['"', '\'']).to_owned()),
                index => Step::Index(index.parse().with_context(wrong)?),
            });
            rest = &inner[end + 1..];
        } else if let Some(inner) = rest.strip_prefix('.') {
            // A dot that belongs to a name is escaped.
            let mut name = String::new();
            let mut length = 0;
            let mut chars = inner.char_indices().peekable();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, c)| c)),
                    '.' | '[' => break,
                    c => name.push(c),
                }
                length = chars.peek().map_or(inner.len(), |(next, _)| *next).max(at);
            }
            match name.as_str() {
                "" if inner.is_empty() && steps.is_empty() => {}
                "" if inner.starts_with('[') => {}
                "" => bail!(wrong()),
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Field(name)),
            }
            rest = &inner[length..];
        } else {
            bail!(wrong());
        }
    }
    Ok(steps)
}

fn find<'a>(object: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| follow(value, step)).collect();
    }
    found
}

fn follow<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            let index = if *index < 0 { length + index } else { *index };
            usize::try_from(index).ok().and_then(|index| list.get(index)).into_iter().collect()
        }
        Step::All => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Where { path, equals } => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            list.iter().filter(|item| find(item, path).contains(&equals)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_found() {
        let object = json!({
            "metadata": {"name": "web", "labels": {"kubevirt.io/vm": "x"}},
            "status": {"ready": true, "conditions": [{"type": "Ready", "status": "True"}, {"type": "Paused", "status": "False"}]},
        });
        for (template, expected) in [
            ("{.metadata.name}", "web"),
            (".metadata.name", "web"),
            ("{.status.ready}", "true"),
            ("name: {.metadata.name}{\"\\n\"}", "name: web\n"),
            ("{.status.conditions[?(@.type==\"Paused\")].status}", "False"),
            ("{.status.conditions[*].type}", "Ready Paused"),
            ("{.status.conditions[-1].type}", "Paused"),
            ("{.metadata.labels.kubevirt\\.io/vm}", "x"),
            ("{$['metadata']['name']}", "web"),
            ("{.nothing.here}", ""),
        ] {
            assert_eq!(Template::parse(template).unwrap().render(&object), expected, "{template}");
        }
        assert!(Template::parse("{.status.ready}").unwrap().finds(&object));
        assert!(!Template::parse("{.status.other}").unwrap().finds(&object));
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["{.a", "{a}", "{.a[x]}", "{.a..b}", "{.a[?(@.b)]}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
