//! Reading and keeping `metadata` of objects held as JSON values.

use serde_json::Value;

/// The longest prefix that a generated name keeps, so that the name has at most 63 characters.
const MAX_GENERATED_PREFIX: usize = 58;

/// A text field of `metadata`; empty if it is not there.
pub fn text<'o>(object: &'o Value, field: &str) -> &'o str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// `metadata.generation`; 0 if it is not there.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// Whether the object waits for its finalizers.
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// One label of the object.
pub fn label<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// One annotation of the object.
pub fn annotation<'o>(object: &'o Value, key: &str) -> Option<&'o str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The group and the version of an `apiVersion`; the legacy group is the empty one. `None` if there are two slashes.
pub fn group_version(api_version: &str) -> Option<(&str, &str)> {
    match api_version.split_once('/') {
        None => Some(("", api_version)),
        Some((_, version)) if version.contains('/') => None,
        Some((group, version)) => Some((group, version)),
    }
}

/// `apiVersion` of a group and a version.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The name made from `generateName` and a random suffix of five characters.
pub fn generated_name(prefix: &str, suffix: &str) -> String {
    let mut end = prefix.len().min(MAX_GENERATED_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &prefix[..end])
}

/// Keeps in `new` what an update may leave out or may not change, before it is validated against `old`.
pub fn keep_system_fields(new: &mut Value, old: &Value) {
    let old = &old["metadata"];
    let Some(new) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let mut copy = |field: &str, only_if_absent: bool| {
        let absent = new.get(field).is_none_or(|value| value.is_null() || value == "");
        if !old[field].is_null() && (absent || !only_if_absent) {
            new.insert(field.to_owned(), old[field].clone());
        }
    };
    copy("uid", true);
    copy("creationTimestamp", false);
    copy("deletionTimestamp", false);
    copy("deletionGracePeriodSeconds", true);
    copy("generation", false);
}

/// Removes what only the server sets, from an object that a client sent for creation.
pub fn wipe_system_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_metadata() {
        let object = json!({"metadata": {"name": "a", "labels": {"k": "v"}, "generation": 3, "finalizers": ["f"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!((name(&object), namespace(&object), generation(&object)), ("a", "", 3));
        assert_eq!((label(&object, "k"), annotation(&object, "k")), (Some("v"), None));
        assert!(is_deleting(&object) && finalizers(&object) == ["f"]);
        assert_eq!((name(&Value::Null), uid(&json!([]))), ("", ""));
    }

    #[test]
    fn splits_api_versions() {
        assert_eq!(group_version("v1"), Some(("", "v1")));
        assert_eq!(group_version("apps/v1"), Some(("apps", "v1")));
        assert_eq!(group_version("a/b/c"), None);
        assert_eq!((api_version("", "v1"), api_version("apps", "v1")), ("v1".to_owned(), "apps/v1".to_owned()));
    }

    #[test]
    fn generated_names_fit() {
        assert_eq!(generated_name("web-", "abcde"), "web-abcde");
        assert_eq!(generated_name(&"x".repeat(80), "abcde").len(), 63);
        assert_eq!(generated_name(&"é".repeat(80), "abcde").len(), 63);
    }

    #[test]
    fn updates_keep_what_the_server_set() {
        let old = json!({"metadata": {"uid": "1", "creationTimestamp": "t", "generation": 4}});
        let mut new = json!({"metadata": {"creationTimestamp": "other", "generation": 9}});
        keep_system_fields(&mut new, &old);
        assert_eq!(new, old);
        let mut new = json!({"metadata": {"uid": "2"}});
        keep_system_fields(&mut new, &old);
        assert_eq!(uid(&new), "2");
        wipe_system_fields(&mut new);
        assert_eq!(new, json!({"metadata": {"generation": 4}}));
    }
}
