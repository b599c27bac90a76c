//! Messages to JSON values, driven by the table of facts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::facts::{FACTS, Field, Item, Shape};
use super::wire::{Fields, Wire, varint};
use super::{MAX_DEPTH, ProtobufError, decode_envelope};

/// The object that the message `index` of the table holds in `bytes`.
pub(super) fn message(index: usize, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ProtobufError> {
    if depth > MAX_DEPTH {
        return Err(ProtobufError::TooDeep);
    }
    let mut object = Map::new();
    let Some(message) = FACTS.message(index) else { return Ok(object) };
    for field in Fields::of(bytes) {
        let (number, wire) = field?;
        // A field that the table lacks is newer than it; Go skips those, too.
        if let Some(field) = message.field(number) {
            insert(&mut object, field, wire, depth)?;
        }
    }
    Ok(object)
}

/// Puts one field, or one element of it, into `object`.
fn insert(object: &mut Map<String, Value>, field: &Field, wire: Wire<'_>, depth: usize) -> Result<(), ProtobufError> {
    let Some(name) = field.name else {
        if let Value::Object(inlined) = value(&field.item, wire, depth)?.value {
            object.extend(inlined);
        }
        return Ok(());
    };
    match field.shape {
        Shape::One => {
            let Decoded { value, empty } = value(&field.item, wire, depth)?;
            if value.is_null() || (empty && field.omit_empty) {
                object.remove(name);
            } else {
                object.insert(name.to_owned(), value);
            }
        }
        Shape::List => {
            let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                append(list, &field.item, wire, depth)?;
            }
        }
        Shape::Map => {
            let (key, value) = map_entry(&field.item, wire, depth)?;
            let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                map.insert(key, value);
            }
        }
    }
    Ok(())
}

/// One element, or all of them where numbers come packed into bytes.
fn append(list: &mut Vec<Value>, item: &Item, wire: Wire<'_>, depth: usize) -> Result<(), ProtobufError> {
    match (item, wire) {
        (Item::Int | Item::Bool, Wire::Bytes(mut packed)) => {
            while !packed.is_empty() {
                list.push(value(item, Wire::Varint(varint(&mut packed)?), depth)?.value);
            }
        }
        _ => list.push(value(item, wire, depth)?.value),
    }
    Ok(())
}

/// A map is a list of messages with a key and a value; either may be missing when it is empty.
fn map_entry(item: &Item, wire: Wire<'_>, depth: usize) -> Result<(String, Value), ProtobufError> {
    let mut key = String::new();
    let mut found = None;
    for field in Fields::of(bytes(wire)?) {
        match field? {
            (1, wire) => key = text(bytes(wire)?),
            (2, wire) => found = Some(value(item, wire, depth)?.value),
            _ => {}
        }
    }
    let value = match found {
        Some(value) => value,
        None => match item {
            Item::Int | Item::Bool => value(item, Wire::Varint(0), depth)?.value,
            Item::Double => value(item, Wire::Fixed64(0), depth)?.value,
            _ => value(item, Wire::Bytes(&[]), depth)?.value,
        },
    };
    Ok((key, value))
}

/// A value, and whether Go would call it empty.
struct Decoded {
    value: Value,
    empty: bool,
}

impl Decoded {
    fn new(value: impl Into<Value>, empty: bool) -> Self {
        Self { value: value.into(), empty }
    }
}

fn value(item: &Item, wire: Wire<'_>, depth: usize) -> Result<Decoded, ProtobufError> {
    Ok(match item {
        Item::String => {
            let text = text(bytes(wire)?);
            let empty = text.is_empty();
            Decoded::new(text, empty)
        }
        Item::Bool => Decoded::new(number(wire)? != 0, number(wire)? == 0),
        Item::Int => Decoded::new(number(wire)?, number(wire)? == 0),
        Item::Double => match wire {
            Wire::Fixed64(bits) => Decoded::new(f64::from_bits(bits), f64::from_bits(bits) == 0.0),
            _ => return Err(ProtobufError::WrongType),
        },
        Item::Bytes => Decoded::new(STANDARD.encode(bytes(wire)?), bytes(wire)?.is_empty()),
        Item::Time => time(bytes(wire)?, false)?,
        Item::MicroTime => time(bytes(wire)?, true)?,
        Item::Quantity => {
            let quantity = single_text(bytes(wire)?)?;
            let quantity = if quantity.is_empty() { "0".to_owned() } else { quantity };
            let empty = quantity == "0";
            Decoded::new(quantity, empty)
        }
        Item::IntOrString => int_or_string(bytes(wire)?)?,
        Item::Raw => raw(bytes(wire)?, depth)?,
        Item::Json => json(single_bytes(bytes(wire)?)?)?,
        Item::SchemaOrBool(schema) => schema_or_bool(*schema, bytes(wire)?, depth)?,
        Item::SchemaOrArray(schema) => schema_or_list(*schema, &Item::Message(*schema), bytes(wire)?, depth)?,
        Item::SchemaOrStrings(schema) => schema_or_list(*schema, &Item::String, bytes(wire)?, depth)?,
        Item::ListOf(element) => {
            let mut list = Vec::new();
            for field in Fields::of(bytes(wire)?) {
                if let (1, wire) = field? {
                    append(&mut list, element, wire, depth + 1)?;
                }
            }
            let empty = list.is_empty();
            Decoded::new(list, empty)
        }
        Item::Message(index) => {
            let object = message(*index, bytes(wire)?, depth + 1)?;
            let empty = object.is_empty();
            Decoded::new(object, empty)
        }
    })
}

fn bytes(wire: Wire<'_>) -> Result<&[u8], ProtobufError> {
    match wire {
        Wire::Bytes(bytes) => Ok(bytes),
        _ => Err(ProtobufError::WrongType),
    }
}

/// Every integer is signed; a negative one fills all 64 bits.
fn number(wire: Wire<'_>) -> Result<i64, ProtobufError> {
    match wire {
        Wire::Varint(value) => Ok(i64::from_ne_bytes(value.to_ne_bytes())),
        _ => Err(ProtobufError::WrongType),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Field 1 of a message that has nothing else.
fn single_bytes(message: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found: &[u8] = &[];
    for field in Fields::of(message) {
        if let (1, wire) = field? {
            found = bytes(wire)?;
        }
    }
    Ok(found)
}

fn single_text(message: &[u8]) -> Result<String, ProtobufError> {
    single_bytes(message).map(text)
}

/// Seconds and nanoseconds. No bytes at all are the zero time, which is `null` in JSON; a plain time has no fraction.
fn time(message: &[u8], micro: bool) -> Result<Decoded, ProtobufError> {
    if message.is_empty() {
        return Ok(Decoded::new(Value::Null, true));
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, wire) => seconds = number(wire)?,
            (2, wire) => nanoseconds = number(wire)?,
            _ => {}
        }
    }
    let microseconds = if micro { nanoseconds / 1000 } else { 0 };
    let second = Timestamp::from_second(seconds).map_err(|_| ProtobufError::TimeOutOfRange)?;
    // jiff prints the fraction only when asked; `%s`-like tricks would lose the sign before 1970.
    let text = second.strftime("%Y-%m-%dT%H:%M:%S");
    let microseconds = microseconds.clamp(0, 999_999);
    let text = if micro { format!("{text}.{microseconds:06}Z") } else { format!("{text}Z") };
    Ok(Decoded::new(text, false))
}

fn int_or_string(message: &[u8]) -> Result<Decoded, ProtobufError> {
    let (mut is_string, mut int, mut string) = (false, 0, String::new());
    for field in Fields::of(message) {
        match field? {
            (1, wire) => is_string = number(wire)? == 1,
            (2, wire) => int = number(wire)?,
            (3, wire) => string = text(bytes(wire)?),
            _ => {}
        }
    }
    Ok(if is_string { Decoded::new(string, false) } else { Decoded::new(int, int == 0) })
}

fn raw(message: &[u8], depth: usize) -> Result<Decoded, ProtobufError> {
    let content = single_bytes(message)?;
    if content.starts_with(super::MAGIC) {
        return Ok(Decoded::new(decode_envelope(content, None, depth + 1)?.value, false));
    }
    json(content)
}

fn json(content: &[u8]) -> Result<Decoded, ProtobufError> {
    if content.is_empty() {
        return Ok(Decoded::new(Value::Null, true));
    }
    let parsed = crate::json::parse_strict(content).map_err(ProtobufError::Json)?;
    Ok(Decoded::new(parsed.value, false))
}

/// `{allows = 1, schema = 2}`: the schema if there is one, else the boolean.
fn schema_or_bool(schema: usize, union: &[u8], depth: usize) -> Result<Decoded, ProtobufError> {
    let mut decoded = Value::Bool(false);
    for field in Fields::of(union) {
        match field? {
            (1, wire) if !decoded.is_object() => decoded = Value::Bool(number(wire)? != 0),
            (2, wire) => decoded = Value::Object(message(schema, bytes(wire)?, depth + 1)?),
            _ => {}
        }
    }
    Ok(Decoded::new(decoded, false))
}

/// `{schema = 1, list = 2}`: the list if it has elements, else the schema.
fn schema_or_list(schema: usize, element: &Item, union: &[u8], depth: usize) -> Result<Decoded, ProtobufError> {
    let mut list = Vec::new();
    let mut object = Value::Null;
    for field in Fields::of(union) {
        match field? {
            (1, wire) => object = Value::Object(message(schema, bytes(wire)?, depth + 1)?),
            (2, wire) => append(&mut list, element, wire, depth + 1)?,
            _ => {}
        }
    }
    Ok(Decoded::new(if list.is_empty() { object } else { Value::Array(list) }, false))
}
