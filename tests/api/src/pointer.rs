//! JSON pointers with one addition: a segment `[key=value]` picks the element of an array by the value of a field, which may be a
//! field within a field (`[metadata.name=a]`).

use serde_json::Value;

/// The value at `pointer`, if there is one.
pub(crate) fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    segments(pointer).try_fold(value, |value, segment| match position(value, &segment)? {
        Place::Key => value.get(&segment),
        Place::Index(index) => value.get(index),
    })
}

/// The same, to be changed.
pub(crate) fn get_mut<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    segments(pointer).try_fold(value, |value, segment| match position(value, &segment)? {
        Place::Key => value.get_mut(&segment),
        Place::Index(index) => value.get_mut(index),
    })
}

/// Appends a segment to a pointer.
pub(crate) fn join(pointer: &str, segment: &str) -> String {
    format!("{pointer}/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Whether `path` is at or below `pattern`, in which `*` stands for any one segment.
pub(crate) fn covers(pattern: &str, path: &str) -> bool {
    let mut path = segments(path);
    segments(pattern).all(|wanted| path.next().is_some_and(|segment| wanted == "*" || wanted == segment))
}

enum Place {
    Key,
    Index(usize),
}

fn position(value: &Value, segment: &str) -> Option<Place> {
    let Value::Array(elements) = value else { return Some(Place::Key) };
    let Some((key, wanted)) = segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.split_once('=')) else {
        return segment.parse().ok().map(Place::Index);
    };
    let field = |element: &Value| {
        key.split('.').try_fold(element, |value, part| value.get(part)).and_then(Value::as_str).map(str::to_owned)
    };
    elements.iter().position(|element| field(element).as_deref() == Some(wanted)).map(Place::Index)
}

fn segments(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_by_key_index_and_field() {
        let value = json!({"a/b": [{"name": "x", "n": 1}, {"name": "y/z", "n": 2}]});
        assert_eq!(get(&value, "/a~1b/0/n"), Some(&json!(1)));
        assert_eq!(get(&value, "/a~1b/[name=y~1z]/n"), Some(&json!(2)));
        assert_eq!(get(&value, "/a~1b/[name=q]/n"), None);
        assert_eq!(get(&value, ""), Some(&value));
    }

    #[test]
    fn patterns_cover_what_is_below() {
        assert!(covers("/steps/*/body", "/steps/3/body/kind"));
        assert!(!covers("/steps/*/body/kind", "/steps/3/body"));
        assert!(!covers("/steps/1", "/steps/2"));
    }
}
