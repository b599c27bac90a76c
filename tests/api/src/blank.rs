//! Takes out of an answer what no two runs can have in common: uids, times, versions, generated names, tokens, addresses.
//!
//! What is taken out leaves a placeholder, and equal values leave equal ones, so that identity is still compared.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// Blanks the answers of one run of one case.
pub(crate) struct Blanker {
    /// Exact strings and what to write instead, longest first.
    literals: Vec<(String, String)>,
    /// Per class of placeholder the values seen, numbered from 1.
    seen: HashMap<&'static str, Vec<String>>,
    now: i64,
}

fn fixed(expression: &str) -> Regex {
    Regex::new(expression).expect("a fixed expression")
}

static UUID: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\b(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|[+-]\d\d:\d\d)"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| fixed(r"\beyJ[\w-]{20,}\.[\w-]+\.[\w-]+"));
static CERTIFICATE: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n?"));
static HASH: LazyLock<Regex> = LazyLock::new(|| fixed(r"\bhash=[0-9A-F]{16,}"));
/// Store-wide revisions that messages mention.
static REVISION: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(, current: |too old resource version: \d+ \(|ResourceVersion in (?:the precondition|record) \()(\d{2,})")
});
static TOKEN_VOLUME: LazyLock<Regex> = LazyLock::new(|| fixed(r"\bkube-api-access-[a-z0-9]{5}\b"));
/// Some messages quote a whole object, either in the order of Go's fields or with the names of Go's internal fields: too much for
/// anyone to depend on.
static QUOTED_OBJECT: LazyLock<Regex> =
    LazyLock::new(|| fixed(r#"(?s)Invalid value: (?:"\{\\".*?\}"|\[?\{"[A-Z].*?\}\]?): "#));
static AGE: LazyLock<Regex> = LazyLock::new(|| fixed(r"^(\d+[dhms]){1,2}$"));

impl Blanker {
    /// A blanker that knows these values by name: the namespace, the case's unique word, the server's address.
    pub(crate) fn new(known: &[(&str, &str)]) -> Self {
        let literals = known.iter().map(|(value, name)| ((*value).to_owned(), format!("<{name}>"))).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() as i64);
        Self { literals, seen: HashMap::new(), now }
    }

    /// Blanks a whole answer.
    pub(crate) fn blank(&mut self, answer: &Value) -> Value {
        self.learn_generated_names(answer);
        self.literals.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        self.value(answer, "")
    }

    /// Names made from `generateName` turn up in messages and other objects too, so they are learned before anything is blanked.
    fn learn_generated_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let (Some(Value::String(prefix)), Some(Value::String(name))) =
                    (fields.get("generateName"), fields.get("name"))
                    && name.len() > prefix.len()
                    && name.starts_with(prefix.as_str())
                    && !self.literals.iter().any(|(known, _)| known == name)
                {
                    let placeholder = format!("{}{}", self.text(prefix), self.numbered("generated", name));
                    self.literals.push((name.clone(), placeholder));
                }
                fields.values().for_each(|field| self.learn_generated_names(field));
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.learn_generated_names(element)),
            _ => {}
        }
    }

    fn value(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(elements) if key == "managedFields" => Value::Array(self.managed_fields(elements)),
            Value::Array(elements) => Value::Array(elements.iter().map(|element| self.value(element, key)).collect()),
            Value::String(text) => Value::String(self.field(key, text)),
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => Value::String("<port>".to_owned()),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let mut keys: Vec<_> = fields.keys().collect();
        keys.sort();
        let mut blanked: Map<String, Value> =
            keys.into_iter().map(|key| (self.text(key), self.value(&fields[key], key))).collect();
        if is_snapshot(fields) {
            blank_snapshot_version(&mut blanked);
        }
        if let Some(Value::Array(columns)) = blanked.get_mut("columnDefinitions") {
            blank_descriptions(columns);
        }
        if let Some(Value::Array(cells)) = blanked.get_mut("cells") {
            blank_ages(cells);
        }
        Value::Object(blanked)
    }

    /// The server sorts these by time before name, so that the order depends on where a second ends. Sorted by name it does not.
    fn managed_fields(&mut self, entries: &[Value]) -> Vec<Value> {
        let mut entries: Vec<_> = entries.iter().collect();
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        entries.sort_by_key(|entry| ["operation", "manager", "subresource", "apiVersion"].map(|key| text(entry, key)));
        entries.into_iter().map(|entry| self.value(entry, "")).collect()
    }

    fn field(&mut self, key: &str, text: &str) -> String {
        match key {
            "resourceVersion" if text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.numbered("rv", text)
            }
            "clusterIP" | "clusterIPs" if text.contains(['.', ':']) => self.numbered("ip", text),
            "continue" if !text.is_empty() => "<continue>".to_owned(),
            "storageVersionHash" => "<hash>".to_owned(),
            // Prose: Kubernetes explains its fields and columns in its words, we in ours.
            "description" => "<description>".to_owned(),
            _ => self.text(text),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (value, placeholder) in &self.literals {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), placeholder);
            }
        }
        let text = TOKEN.replace_all(&text, "<token>").into_owned();
        let text = TOKEN_VOLUME.replace_all(&text, "kube-api-access-<generated>").into_owned();
        let text = QUOTED_OBJECT.replace_all(&text, "Invalid value: <object>: ").into_owned();
        let text = CERTIFICATE.replace_all(&text, "<certificate>").into_owned();
        let text = HASH.replace_all(&text, "hash=<hash>").into_owned();
        let text = REVISION.replace_all(&text, "${1}<revision>").into_owned();
        let now = self.now;
        let text = TIME.replace_all(&text, |time: &Captures<'_>| blank_time(time, now)).into_owned();
        UUID.replace_all(&text, |uid: &Captures<'_>| self.numbered("uid", &uid[0])).into_owned()
    }

    fn numbered(&mut self, class: &'static str, value: &str) -> String {
        let seen = self.seen.entry(class).or_default();
        let index = seen.iter().position(|known| known == value).unwrap_or_else(|| {
            seen.push(value.to_owned());
            seen.len() - 1
        });
        format!("<{class}-{}>", index + 1)
    }
}

/// Lists, tables and bookmarks carry the version of the whole store, which other cases move.
fn is_snapshot(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind == "Table"
        || fields.get("items").is_some_and(Value::is_array)
        || fields.get("type").and_then(Value::as_str) == Some("BOOKMARK")
}

fn blank_snapshot_version(fields: &mut Map<String, Value>) {
    for pointer in ["metadata", "object"] {
        let Some(Value::Object(inner)) = fields.get_mut(pointer) else { continue };
        let metadata =
            if pointer == "object" { inner.get_mut("metadata").and_then(Value::as_object_mut) } else { Some(inner) };
        if let Some(Value::String(version)) = metadata.and_then(|metadata| metadata.get_mut("resourceVersion"))
            && version.starts_with('<')
        {
            "<snapshot>".clone_into(version);
        }
    }
}

/// What columns are for is prose, which every server words for itself.
fn blank_descriptions(columns: &mut [Value]) {
    for description in columns.iter_mut().filter_map(|column| column.get_mut("description")) {
        *description = Value::String("<description>".to_owned());
    }
}

/// Ages in the cells of a table: dates are given there as the time that has passed.
fn blank_ages(cells: &mut [Value]) {
    for cell in cells {
        if let Value::String(text) = cell
            && AGE.is_match(text)
        {
            "<age>".clone_into(text);
        }
    }
}

/// A time near now is the server's; one far from it was written into the case and must come back as it was.
fn blank_time(time: &Captures<'_>, now: i64) -> String {
    const NEAR: i64 = 2 * 24 * 3600;
    let number = |index: usize| time[index].parse::<i64>().unwrap_or(0);
    let seconds =
        days_since_epoch(number(1), number(2), number(3)) * 86400 + number(4) * 3600 + number(5) * 60 + number(6);
    if (seconds - now).abs() > NEAR {
        return time[0].to_owned();
    }
    if time.get(7).is_some() { "<microtime>".to_owned() } else { "<time>".to_owned() }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; the year begins in March so that leap days come last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn knows_the_calendar() {
        assert_eq!(days_since_epoch(1970, 1, 1), 0);
        assert_eq!(days_since_epoch(2000, 3, 1), 11_017);
        assert_eq!(days_since_epoch(2024, 2, 29), 19_782);
    }

    #[test]
    fn equal_values_leave_equal_placeholders() {
        let uid = "0b0a7ad5-5c3a-4a51-a3a1-3d3c0a0cbd37";
        let answer = json!([
            {"metadata": {"uid": uid, "resourceVersion": "123", "generateName": "a-", "name": "a-x7x9z", "namespace": "ns1"}},
            {"message": format!("a-x7x9z of ns1 has uid {uid}"), "metadata": {"resourceVersion": "124"}},
            {"items": [], "metadata": {"resourceVersion": "124"}},
        ]);
        let blanked = Blanker::new(&[("ns1", "namespace")]).blank(&answer);
        assert_eq!(
            blanked,
            json!([
                {"metadata": {"uid": "<uid-1>", "resourceVersion": "<rv-1>", "generateName": "a-", "name": "a-<generated-1>", "namespace": "<namespace>"}},
                {"message": "a-<generated-1> of <namespace> has uid <uid-1>", "metadata": {"resourceVersion": "<rv-2>"}},
                {"items": [], "metadata": {"resourceVersion": "<snapshot>"}},
            ])
        );
    }

    #[test]
    fn only_times_near_now_are_blanked() {
        let mut blanker = Blanker::new(&[]);
        blanker.now = days_since_epoch(2026, 11, 15) * 86400;
        assert_eq!(blanker.text("at 2026-11-15T10:00:00Z"), "at <time>");
        assert_eq!(blanker.text("2026-11-15T10:00:00.123456Z"), "<microtime>");
        assert_eq!(blanker.text("2020-01-01T00:00:00Z"), "2020-01-01T00:00:00Z");
    }

    #[test]
    fn quoted_objects_are_blanked() {
        let message = r#"patch: Invalid value: "{\"a\":{\"b\":\"c\"}}": unknown field "a""#;
        assert_eq!(Blanker::new(&[]).text(message), r#"patch: Invalid value: <object>: unknown field "a""#);
        let message = r#"spec.versions: Invalid value: [{"Name":"v1","Schema":null}]: must have one"#;
        assert_eq!(Blanker::new(&[]).text(message), "spec.versions: Invalid value: <object>: must have one");
        let message = r#"Invalid value: {"a":"b"}: does not match"#;
        assert_eq!(Blanker::new(&[]).text(message), message);
    }
}
