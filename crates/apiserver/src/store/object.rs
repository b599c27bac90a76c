//! What the store holds: keys, encoded bodies, objects and the events that change them.
//!
//! Bodies are kept as the JSON text that clients get, with a hole where `metadata.resourceVersion` goes. The revision
//! is only known at commit, and a deletion shows the last state under a later revision, so the digits are spliced in
//! while a response is written. One buffer serves every reader and nobody parses it again.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use serde_json::{Map, Value};

/// A point in the store's history: one per committed write, strictly increasing, never 0.
pub type Revision = u64;

/// Where an object lives.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// `group/plural`, as in `kubevirt.io/virtualmachineinstances`; the core group is empty: `/pods`.
    pub resource: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its three parts.
    pub fn new(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        Key { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.resource, self.name)
        } else {
            write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
        }
    }
}

/// The compact JSON of an object with a hole where `metadata.resourceVersion` goes, and its labels in a form that
/// selectors can read without parsing.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    json: Bytes,
    /// Offset in `json`, between the quotes of an empty `resourceVersion`; `NO_HOLE` when there is none.
    hole: u32,
    labels: Labels,
}

/// Marks a body that is not an object with metadata: it is stored and served as it is.
const NO_HOLE: u32 = u32::MAX;

impl Body {
    /// Encodes an object; a `metadata.resourceVersion` in it is ignored.
    pub fn encode(value: &Value) -> Body {
        let mut out = Vec::with_capacity(4096);
        let hole = match value {
            Value::Object(fields) => write_object(fields, &mut out),
            other => {
                append(&mut out, other);
                NO_HOLE
            }
        };
        // Copied so that the lasting buffer is exactly as large as its text.
        Body { json: Bytes::copy_from_slice(&out), hole, labels: Labels::of(value) }
    }

    /// Puts a body together from what [`Body::stored`] gave; `None` when the hole is not inside the text.
    pub(super) fn from_stored(json: Bytes, hole: u32, labels: Labels) -> Option<Body> {
        (hole == NO_HOLE || hole as usize <= json.len()).then_some(Body { json, hole, labels })
    }

    /// The parts that are written to disk: the text, the hole's offset, the labels.
    pub(super) fn stored(&self) -> (&Bytes, u32, &Labels) {
        (&self.json, self.hole, &self.labels)
    }

    /// The object without `metadata.resourceVersion`.
    pub fn value(&self) -> Value {
        let mut value = self.parse();
        if let Some(metadata) = self.metadata(&mut value) {
            metadata.remove("resourceVersion");
        }
        value
    }

    /// The object with `metadata.resourceVersion` set.
    pub fn value_at(&self, revision: Revision) -> Value {
        let mut value = self.parse();
        if let Some(metadata) = self.metadata(&mut value) {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        value
    }

    /// Length of the text without the revision's digits.
    pub fn len(&self) -> usize {
        self.json.len()
    }

    /// True for an empty text, which [`Body::encode`] never makes.
    pub fn is_empty(&self) -> bool {
        self.json.is_empty()
    }

    /// The text before and after the revision's digits, sharing the body's buffer. The second part is empty when the
    /// body has no place for a revision.
    pub fn parts(&self) -> (Bytes, Bytes) {
        let at = self.split();
        (self.json.slice(..at), self.json.slice(at..))
    }

    /// Writes the object's JSON with this `metadata.resourceVersion`.
    pub fn write_json_at(&self, revision: Revision, out: &mut impl BufMut) {
        let at = self.split();
        out.put_slice(&self.json[..at]);
        if self.hole != NO_HOLE {
            put_decimal(revision, out);
        }
        out.put_slice(&self.json[at..]);
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find_map(|(k, v)| (k == key).then_some(v))
    }

    /// All labels, in the order of the object's text.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter()
    }

    /// About how many bytes of memory the body takes.
    pub(super) fn footprint(&self) -> usize {
        self.json.len() + self.labels.text.len() + self.labels.ends.len() * 4 + size_of::<Body>()
    }

    fn split(&self) -> usize {
        if self.hole == NO_HOLE { self.json.len() } else { self.hole as usize }
    }

    fn parse(&self) -> Value {
        // The text was written by `encode` or came back from disk, where checksums guard it.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    fn metadata<'v>(&self, value: &'v mut Value) -> Option<&'v mut Map<String, Value>> {
        if self.hole == NO_HOLE { None } else { value.get_mut("metadata")?.as_object_mut() }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.json))
    }
}

/// Labels packed into one text, so that an object costs two small allocations however many labels it has.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Labels {
    /// Keys and values one after the other.
    text: Box<str>,
    /// Where each key and each value ends in `text`.
    ends: Box<[u32]>,
}

impl Labels {
    fn of(object: &Value) -> Labels {
        let Some(Value::Object(labels)) = object.pointer("/metadata/labels") else {
            return Labels::default();
        };
        Labels::pack(labels.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))))
    }

    pub(super) fn pack<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for (key, value) in labels {
            for part in [key, value] {
                text.push_str(part);
                ends.push(text.len() as u32);
            }
        }
        Labels { text: text.into_boxed_str(), ends: ends.into_boxed_slice() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        self.ends.chunks_exact(2).map(move |ends| {
            let (key_end, value_end) = (ends[0] as usize, ends[1] as usize);
            let pair = (&self.text[start..key_end], &self.text[key_end..value_end]);
            start = value_end;
            pair
        })
    }
}

/// Writes the object with an empty `resourceVersion` in its metadata and returns the offset between its quotes.
fn write_object(fields: &Map<String, Value>, out: &mut Vec<u8>) -> u32 {
    let mut hole = NO_HOLE;
    out.push(b'{');
    for (name, value) in fields {
        separate(out);
        append(out, name);
        out.push(b':');
        match value {
            Value::Object(metadata) if name == "metadata" => hole = write_metadata(metadata, out),
            other => append(out, other),
        }
    }
    if !fields.contains_key("metadata") {
        separate(out);
        out.extend_from_slice(br#""metadata":"#);
        hole = write_metadata(&Map::new(), out);
    }
    out.push(b'}');
    hole
}

fn write_metadata(metadata: &Map<String, Value>, out: &mut Vec<u8>) -> u32 {
    const FIELD: &str = "resourceVersion";
    let mut hole = None;
    let leave_hole = |out: &mut Vec<u8>| {
        separate(out);
        append(out, FIELD);
        out.extend_from_slice(br#":""#);
        let at = out.len() as u32;
        out.push(b'"');
        at
    };
    out.push(b'{');
    for (name, value) in metadata {
        // In alphabetical order like the other fields, so that the same object always has the same text.
        if hole.is_none() && name.as_str() >= FIELD {
            hole = Some(leave_hole(out));
        }
        if name != FIELD {
            separate(out);
            append(out, name);
            out.push(b':');
            append(out, value);
        }
    }
    let hole = hole.unwrap_or_else(|| leave_hole(out));
    out.push(b'}');
    hole
}

/// A comma, unless the text stands right behind an opening brace.
fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

fn append<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON values can always be written to memory");
}

/// Decimal digits without an allocation: lists call this once per object.
fn put_decimal(mut number: u64, out: &mut impl BufMut) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

/// One state of an object; immutable, shared by the state, the history and every reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Where it lives.
    pub key: Key,
    /// The revision that created it.
    pub created: Revision,
    /// The revision that wrote this state: its resourceVersion.
    pub revision: Revision,
    /// The encoded object.
    pub body: Arc<Body>,
}

impl Object {
    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.body.label(key)
    }

    /// All labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.body.labels()
    }

    /// Writes the object's JSON with its own resourceVersion.
    pub fn write_json(&self, out: &mut impl BufMut) {
        self.body.write_json_at(self.revision, out);
    }

    /// Writes the object's JSON with another resourceVersion, as DELETED events show it.
    pub fn write_json_at(&self, revision: Revision, out: &mut impl BufMut) {
        self.body.write_json_at(revision, out);
    }

    /// The object's JSON with its resourceVersion.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 20);
        self.write_json(&mut out);
        out
    }

    /// The parsed object with its resourceVersion.
    pub fn value(&self) -> Value {
        self.body.value_at(self.revision)
    }
}

/// One committed change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The change's revision.
    pub revision: Revision,
    /// What changed.
    pub key: Key,
    /// The new state; `None` when the change deleted the object.
    pub object: Option<Arc<Object>>,
    /// The state before; `None` when the change created the object.
    pub previous: Option<Arc<Object>>,
}

impl Event {
    /// The state that clients see in this event: the new one, or for a deletion the last one.
    pub fn shown(&self) -> Option<&Arc<Object>> {
        self.object.as_ref().or(self.previous.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(body: &Body, revision: Revision) -> String {
        let mut out = Vec::new();
        body.write_json_at(revision, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn revision_is_spliced_in_its_place() {
        let cases = [
            (
                json!({"metadata": {"name": "a", "uid": "u"}}),
                r#"{"metadata":{"name":"a","resourceVersion":"7","uid":"u"}}"#,
            ),
            (json!({"metadata": {"name": "a"}}), r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#),
            (json!({"metadata": {"uid": "u"}}), r#"{"metadata":{"resourceVersion":"7","uid":"u"}}"#),
            (json!({"metadata": {"resourceVersion": "12"}}), r#"{"metadata":{"resourceVersion":"7"}}"#),
            (json!({"metadata": {}}), r#"{"metadata":{"resourceVersion":"7"}}"#),
            (json!({"kind": "A"}), r#"{"kind":"A","metadata":{"resourceVersion":"7"}}"#),
            (json!({}), r#"{"metadata":{"resourceVersion":"7"}}"#),
        ];
        for (value, expected) in cases {
            let body = Body::encode(&value);
            assert_eq!(text(&body, 7), expected);
            assert_eq!(serde_json::from_str::<Value>(expected).unwrap(), body.value_at(7));
            let (before, after) = body.parts();
            assert_eq!([&before[..], b"7", &after[..]].concat(), expected.as_bytes());
        }
    }

    #[test]
    fn a_body_without_room_for_a_revision_stays_as_it_is() {
        for value in [json!([1, 2]), json!("x"), json!(null), json!({"metadata": 3})] {
            let body = Body::encode(&value);
            assert_eq!(text(&body, 7), value.to_string());
            assert_eq!(body.value(), value);
            assert_eq!(body.value_at(7), value);
        }
    }

    #[test]
    fn value_drops_the_old_revision() {
        let body = Body::encode(&json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {"x": [1, {}]}}));
        assert_eq!(body.value(), json!({"metadata": {"name": "a"}, "spec": {"x": [1, {}]}}));
    }

    #[test]
    fn equal_objects_have_equal_bodies_whatever_their_revision() {
        let a = Body::encode(&json!({"metadata": {"name": "a", "resourceVersion": "5"}}));
        assert_eq!(a, Body::encode(&json!({"metadata": {"name": "a"}})));
    }

    #[test]
    fn labels_are_readable_without_parsing() {
        let body = Body::encode(&json!({"metadata": {"labels": {"app": "web", "empty": "", "n": 3, "ü": "\"q\""}}}));
        assert_eq!(body.labels().collect::<Vec<_>>(), [("app", "web"), ("empty", ""), ("ü", "\"q\"")]);
        assert_eq!(body.label("app"), Some("web"));
        assert_eq!(body.label("empty"), Some(""));
        assert_eq!(body.label("none"), None);
    }

    #[test]
    fn decimal_digits() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            put_decimal(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
