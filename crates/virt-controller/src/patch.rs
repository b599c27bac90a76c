//! The smallest merge patch from one object to another.

use serde_json::{Map, Value};

/// What a merge patch has to say to turn `old` into `new`; lists are replaced as a whole.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| {
        let change = old.get(key).map_or_else(|| Some(value.clone()), |old| difference(old, value));
        Some((key.clone(), change?))
    });
    Some(Value::Object(removed.chain(changed).collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_says_only_what_changed() {
        let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1], "f": 1});
        let new = json!({"a": 1, "b": {"c": 1, "d": 3}, "e": [2], "g": {"h": 1}});
        let expected = json!({"b": {"d": 3}, "e": [2], "f": null, "g": {"h": 1}});
        assert_eq!(difference(&old, &new), Some(expected));
        assert_eq!(difference(&old, &old), None);
    }
}
