//! The log's rows as bytes.
//!
//! ```text
//! kind, created, previous, resource, namespace, name              a deletion ends here
//! hole, number of labels, (key, value)…, the JSON up to the end
//! ```
//! Numbers are LEB128, texts carry their length. Labels are stored so that opening a store parses no JSON.

use bytes::Bytes;

use super::object::{Body, Event, Key, Labels, Revision};
use super::state::Names;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One row of the log.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) key: Key,
    /// The revision that created the object.
    pub(super) created: Revision,
    /// The revision that this row supersedes; 0 for none.
    pub(super) previous: Revision,
    /// The new state; `None` for a deletion.
    pub(super) body: Option<Body>,
}

/// Writes an event's row behind what is in `out`.
pub(super) fn encode(event: &Event, out: &mut Vec<u8>) {
    out.push(if event.object.is_some() { PUT } else { DELETE });
    put_number(event.shown().map_or(0, |object| object.created), out);
    put_number(event.previous.as_ref().map_or(0, |object| object.revision), out);
    for part in [&event.key.resource, &event.key.namespace, &event.key.name] {
        put_text(part, out);
    }
    if let Some(object) = &event.object {
        let (json, hole, labels) = object.body.stored();
        put_number(hole.into(), out);
        put_number(labels.iter().count() as u64, out);
        for (key, value) in labels.iter() {
            put_text(key, out);
            put_text(value, out);
        }
        out.extend_from_slice(json);
    }
}

/// Reads a row; `None` when the bytes are not one.
pub(super) fn decode(mut bytes: &[u8], names: &mut Names) -> Option<Row> {
    let input = &mut bytes;
    let (&kind, rest) = input.split_first()?;
    *input = rest;
    let created = take_number(input)?;
    let previous = take_number(input)?;
    let key = Key {
        resource: names.share_str(take_text(input)?),
        namespace: names.share_str(take_text(input)?),
        name: take_text(input)?.into(),
    };
    let body = match kind {
        PUT => Some(decode_body(input)?),
        DELETE if input.is_empty() => None,
        _ => return None,
    };
    Some(Row { key, created, previous, body })
}

fn decode_body(input: &mut &[u8]) -> Option<Body> {
    let hole = take_number(input)?.try_into().ok()?;
    let count = take_number(input)?;
    let mut labels = Vec::new();
    for _ in 0..count {
        labels.push((take_text(input)?, take_text(input)?));
    }
    let labels = Labels::pack(labels.into_iter());
    Body::from_stored(Bytes::copy_from_slice(input), hole, labels)
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn take_text<'i>(input: &mut &'i [u8]) -> Option<&'i str> {
    let length = usize::try_from(take_number(input)?).ok()?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Object;
    use proptest::prelude::*;
    use serde_json::json;
    use std::sync::Arc;

    fn event(deleted: bool) -> Event {
        let key = Key::new("kubevirt.io/virtualmachines", "default", "vm");
        let body = |n: u32| Arc::new(Body::encode(&json!({"metadata": {"labels": {"n": n.to_string(), "a": "b"}}})));
        let object = |revision, n| Some(Arc::new(Object { key: key.clone(), created: 300, revision, body: body(n) }));
        Event {
            revision: 77_000,
            key: key.clone(),
            object: if deleted { None } else { object(77_000, 2) },
            previous: object(301, 1),
        }
    }

    #[test]
    fn rows_come_back() {
        for deleted in [false, true] {
            let event = event(deleted);
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            let row = decode(&bytes, &mut Names::default()).unwrap();
            assert_eq!((&row.key, row.created, row.previous), (&event.key, 300, 301));
            assert_eq!(row.body.as_ref(), event.object.as_ref().map(|object| &*object.body));
        }
    }

    #[test]
    fn cut_headers_are_refused() {
        let mut bytes = Vec::new();
        encode(&event(true), &mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], &mut Names::default()), None, "{end}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0u8..3) {
            let mut row = vec![kind];
            row.extend(bytes);
            let _ = decode(&row, &mut Names::default());
        }

        #[test]
        fn numbers_come_back(number: u64) {
            let mut bytes = Vec::new();
            put_number(number, &mut bytes);
            prop_assert_eq!(take_number(&mut &bytes[..]), Some(number));
        }
    }
}
