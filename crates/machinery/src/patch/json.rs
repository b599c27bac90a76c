//! JSON patch (RFC 6902) as kube-apiserver runs it.
//!
//! It is more lenient than the RFC in ways that clients have come to rely on: `replace` of a missing object member adds
//! it, negative indices count from the end of a list, `test` for `null` passes when the member is missing. Libraries
//! that follow the RFC to the letter refuse those, which is why the operations are written out here.

use serde_json::{Map, Value};

use super::{PatchError, json_type_name};

/// The most operations that one patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// The most bytes that the `copy` operations of one patch may add together.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// The members of an operation; anything else is an unknown field.
const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies `patch`, a list of operations, to `document`.
pub fn apply(document: Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { count: operations.len() });
    }
    let mut run = Run { document, copied_bytes: 0 };
    for operation in operations {
        run.step(&operation)?;
    }
    Ok(run.document)
}

/// The complaints that `fieldValidation` turns into warnings or errors: members that no operation has.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let Value::Array(operations) = patch else { return Vec::new() };
    let mut complaints = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        let Value::Object(members) = operation else { continue };
        for name in members.keys().filter(|name| !MEMBERS.contains(&name.as_str())) {
            complaints.push(format!("json patch unknown field \"[{index}].{name}\""));
        }
    }
    complaints
}

/// One operation with its members read.
struct Operation<'a> {
    kind: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

fn operations(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    match patch {
        // A null list is an empty list.
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.iter().map(operation).collect(),
        other => Err(wrong_type(other, "Go value of type []handlers.jsonPatchOp")),
    }
}

fn operation(item: &Value) -> Result<Operation<'_>, PatchError> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Ok(Operation { kind: "unknown", path: None, from: None, value: None }),
        other => return Err(wrong_type(other, "Go value of type handlers.jsonPatchOp")),
    };
    Ok(Operation {
        kind: text_member(members, "op")?.unwrap_or("unknown"),
        path: text_member(members, "path")?,
        from: text_member(members, "from")?,
        value: members.get("value"),
    })
}

fn text_member<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, PatchError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(other, &format!("Go struct field jsonPatchOp.{name} of type string"))),
    }
}

fn wrong_type(found: &Value, wanted: &str) -> PatchError {
    PatchError::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {} into {wanted}",
        json_type_name(found)
    ))
}

/// The document while the operations run.
struct Run {
    document: Value,
    copied_bytes: usize,
}

impl Run {
    fn step(&mut self, operation: &Operation<'_>) -> Result<(), PatchError> {
        let value = || operation.value.cloned().unwrap_or(Value::Null);
        match operation.kind {
            "add" => add(&mut self.document, path(operation)?, value()),
            "remove" => remove(&mut self.document, path(operation)?).map(drop),
            "replace" => replace(&mut self.document, path(operation)?, operation.value),
            "move" => {
                let moved = remove(&mut self.document, from(operation)?)?;
                add(&mut self.document, path(operation)?, moved)
            }
            "copy" => self.copy(from(operation)?, path(operation)?),
            "test" => test(&self.document, path(operation)?, operation.value.unwrap_or(&Value::Null)),
            other => Err(PatchError::rejected(format!("Unexpected kind: {other}"))),
        }
    }

    fn copy(&mut self, from: &str, to: &str) -> Result<(), PatchError> {
        let (parent, key) = parent(&self.document, from)?;
        let copied = child(parent, &key)?.cloned();
        if let Some(value) = &copied {
            self.copied_bytes += value.to_string().len();
        }
        if self.copied_bytes > MAX_COPIED_BYTES {
            return Err(PatchError::rejected(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                 {MAX_COPIED_BYTES}",
                self.copied_bytes
            )));
        }
        add(&mut self.document, to, copied.unwrap_or(Value::Null))
    }
}

fn path<'a>(operation: &Operation<'a>) -> Result<&'a str, PatchError> {
    operation.path.ok_or_else(|| PatchError::rejected("operation missing path field: missing value"))
}

fn from<'a>(operation: &Operation<'a>) -> Result<&'a str, PatchError> {
    operation.from.ok_or_else(|| PatchError::rejected("operation missing from field: missing value"))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = position(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, PatchError> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(members) => members.remove(&key).ok_or_else(|| missing(path)),
        Value::Array(items) => {
            let index = position(&key, items.len())?;
            Ok(items.remove(index))
        }
        _ => Err(missing(path)),
    }
}

fn replace(document: &mut Value, path: &str, value: Option<&Value>) -> Result<(), PatchError> {
    let value = value.cloned().unwrap_or(Value::Null);
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(PatchError::rejected("replace operation value must be object or array"));
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) => {
            let index = position(&key, items.len())?;
            items[index] = value;
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn test(document: &Value, path: &str, wanted: &Value) -> Result<(), PatchError> {
    let found = if path.is_empty() {
        document
    } else {
        let (parent, key) = parent(document, path)?;
        // A missing member and a null member are the same thing.
        child(parent, &key)?.unwrap_or(&Value::Null)
    };
    if found == wanted {
        Ok(())
    } else {
        Err(PatchError::rejected(format!("testing value {path} failed: test failed")))
    }
}

/// Splits a pointer into the decoded tokens of the container and the last token.
fn tokens(path: &str) -> Result<(Vec<String>, String), PatchError> {
    let mut tokens: Vec<String> =
        path.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
    let last = tokens.pop().ok_or_else(|| missing(path))?;
    Ok((tokens, last))
}

fn parent<'a>(document: &'a Value, path: &str) -> Result<(&'a Value, String), PatchError> {
    let (steps, key) = tokens(path)?;
    let mut node = document;
    for step in steps {
        node = child(node, &step).ok().flatten().ok_or_else(|| missing(path))?;
    }
    Ok((node, key))
}

fn parent_mut<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchError> {
    let (steps, key) = tokens(path)?;
    let mut node = document;
    for step in steps {
        node = match node {
            Value::Object(members) => members.get_mut(&step),
            Value::Array(items) => position(&step, items.len()).ok().and_then(|index| items.get_mut(index)),
            _ => None,
        }
        .ok_or_else(|| missing(path))?;
    }
    Ok((node, key))
}

/// The member or element called `key`; a missing member is `None`, a bad index an error.
fn child<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, PatchError> {
    match parent {
        Value::Object(members) => Ok(members.get(key)),
        Value::Array(items) => position(key, items.len()).map(|index| items.get(index)),
        _ => Err(missing(key)),
    }
}

/// The index that `key` means in a list of `length` places; negative ones count from the end.
fn position(key: &str, length: usize) -> Result<usize, PatchError> {
    let bad = || PatchError::rejected(format!("Unable to access invalid index: {key}: invalid index referenced"));
    let index: i64 = key.parse().map_err(|_| bad())?;
    let length = i64::try_from(length).map_err(|_| bad())?;
    let index = if index < 0 { index + length } else { index };
    if (0..length).contains(&index) { usize::try_from(index).map_err(|_| bad()) } else { Err(bad()) }
}

fn missing(path: &str) -> PatchError {
    PatchError::rejected(format!("operation does not apply: doc is missing path: \"{path}\": missing value"))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "values are written in place")]
mod tests {
    use serde_json::json;

    use super::*;

    fn ok(document: Value, patch: Value) -> Value {
        apply(document, &patch).unwrap()
    }

    fn fails(document: Value, patch: Value) -> PatchError {
        apply(document, &patch).unwrap_err()
    }

    #[test]
    fn the_six_operations() {
        let cases = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": [1]}]), json!({"a": 1, "b": [1]})),
            (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
            (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
            (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/0"}]), json!({"a": [2]})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), json!({"a": 2})),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
            (
                json!({"a": {"x": 1}}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                json!({"a": {"x": 1}, "b": {"x": 1}}),
            ),
            (json!({"a": [1]}), json!([{"op": "test", "path": "/a", "value": [1]}]), json!({"a": [1]})),
            (json!({"a~b/c": 1}), json!([{"op": "remove", "path": "/a~0b~1c"}]), json!({})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(ok(document, patch.clone()), expected, "{patch}");
        }
    }

    #[test]
    fn what_is_more_lenient_than_the_rfc() {
        assert_eq!(ok(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}])), json!({"a": 1}));
        assert_eq!(ok(json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}])), json!({"a": [1]}));
        assert_eq!(ok(json!({"a": [1]}), json!([{"op": "add", "path": "/a/-1", "value": 2}])), json!({"a": [1, 2]}));
        assert_eq!(ok(json!({}), json!([{"op": "test", "path": "/a", "value": null}])), json!({}));
        assert_eq!(ok(json!({}), json!([{"op": "copy", "from": "/a", "path": "/b"}])), json!({"b": null}));
        assert_eq!(ok(json!({}), json!([{"op": "add", "path": "/a"}])), json!({"a": null}));
    }

    #[test]
    fn failures_are_422_with_the_fixed_sentence() {
        for patch in [
            json!([{"op": "remove", "path": "/missing"}]),
            json!([{"op": "remove", "path": "/list/7"}]),
            json!([{"op": "add", "path": "/missing/child", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "add", "path": "/scalar/child", "value": 1}]),
            json!([{"op": "replace", "path": "", "value": 1}]),
            json!([{"op": "test", "path": "/scalar", "value": 2}]),
            json!([{"op": "test", "path": "/scalar", "value": 1.0}]),
            json!([{"op": "move", "from": "/missing", "path": "/a"}]),
            json!([{"op": "frobnicate", "path": "/a"}]),
            json!([{"op": "add", "value": 1}]),
            json!([{"path": "/a"}]),
        ] {
            let error = fails(json!({"list": [1], "scalar": 1}), patch.clone());
            assert_eq!(error.code(), 422, "{patch}");
            assert_eq!(error.reason(), "Invalid");
            assert_eq!(error.to_string(), "the server rejected our request due to an error in our request");
        }
    }

    #[test]
    fn a_patch_of_the_wrong_shape_is_400() {
        let error = fails(json!({}), json!({"op": "add"}));
        assert_eq!(error.code(), 400);
        assert_eq!(
            error.to_string(),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        assert_eq!(fails(json!({}), json!(["x"])).code(), 400);
        assert_eq!(fails(json!({}), json!([{"op": 1}])).code(), 400);
    }

    #[test]
    fn too_many_operations_are_413() {
        let patch = Value::Array(vec![json!({"op": "test", "path": "/a", "value": null}); MAX_OPERATIONS + 1]);
        let error = fails(json!({}), patch);
        assert_eq!(error.code(), 413);
        assert_eq!(
            error.to_string(),
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    #[test]
    fn copies_may_not_grow_without_bound() {
        let big = "x".repeat(1024 * 1024);
        let copies: Vec<Value> =
            (0..4).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/b{i}")})).collect();
        assert_eq!(fails(json!({"a": big}), Value::Array(copies)).code(), 422);
    }

    #[test]
    fn unknown_members_are_named() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "add", "path": "/a", "valu": 1}]);
        assert_eq!(unknown_fields(&patch), ["json patch unknown field \"[1].valu\""]);
    }
}
