//! What names, labels, annotations and the rest of `metadata` may look like, with kube-apiserver's messages.
//!
//! The functions that check one string return messages without a path; an empty list means that the string is legal.

use serde_json::Value;

use crate::error::{FieldError, FieldErrorKind};
use crate::quote::{go_quote, go_string_slice, is_printable};

/// The most bytes that all annotations of an object may have together, keys and values.
pub const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

const MAX_SUBDOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
const MAX_FIELD_MANAGER_BYTES: usize = 128;
const MAX_SUBRESOURCE_BYTES: usize = 256;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_FORMAT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// Which names a kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Lower-case labels joined by dots, 253 bytes: most kinds.
    DnsSubdomain,
    /// One lower-case label, 63 bytes: namespaces.
    DnsLabel,
    /// One label that starts with a letter: services.
    Dns1035Label,
    /// Anything that fits into one URL path segment: roles and bindings.
    PathSegment,
}

impl NameRule {
    /// What is wrong with `name`.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::DnsSubdomain => dns_subdomain(name),
            Self::DnsLabel => dns_label(name),
            Self::Dns1035Label => dns_1035_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// What is wrong with `prefix` as a `generateName`: a trailing dash is fine because something follows it.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match (self, prefix.strip_suffix('-')) {
            (Self::PathSegment, _) => path_segment_prefix(prefix),
            // The character before the dash goes too, as in kube-apiserver; it matters for lengths and for `--`.
            (_, Some(stem)) if !stem.is_empty() => {
                let mut masked: String = stem.chars().collect();
                masked.pop();
                masked.push('a');
                self.check(&masked)
            }
            _ => self.check(prefix),
        }
    }
}

/// A name like `example.com`.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > MAX_SUBDOMAIN_BYTES {
        // The reference counts bytes here too, and calls them characters.
        messages.push(format!("must be no more than {MAX_SUBDOMAIN_BYTES} characters"));
    }
    if !is_dns_subdomain(name) {
        messages.push(pattern_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    messages
}

/// A name like `my-name`.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut messages = too_long(name, MAX_LABEL_BYTES);
    if !is_dns_label(name) {
        messages.push(if is_dns_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            pattern_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            )
        });
    }
    messages
}

/// A name like `my-name` that starts with a letter.
pub fn dns_1035_label(name: &str) -> Vec<String> {
    let mut messages = too_long(name, MAX_LABEL_BYTES);
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        messages.push(pattern_message(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS_1035_FORMAT,
            &["my-name", "abc-123"],
        ));
    }
    messages
}

/// A name that can stand between two slashes of a URL.
pub fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_prefix(name),
    }
}

fn path_segment_prefix(name: &str) -> Vec<String> {
    let contained = ['/', '%'].into_iter().filter(|illegal| name.contains(*illegal));
    contained.map(|illegal| format!("may not contain '{illegal}'")).collect()
}

/// A label key, also called a qualified name: `name` or `prefix.example/name`.
pub fn label_key(key: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let pattern = || pattern_message(LABEL_KEY_RULE, LABEL_KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            }
            let wrong = if prefix.is_empty() { Vec::new() } else { dns_subdomain(prefix) };
            messages.extend(wrong.into_iter().map(|message| format!("prefix part {message}")));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern()
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    }
    messages.extend(too_long(name, MAX_LABEL_BYTES).into_iter().map(|message| format!("name part {message}")));
    if !is_label_text(name) {
        messages.push(format!("name part {}", pattern()));
    }
    messages
}

/// A label's value; it may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut messages = too_long(value, MAX_LABEL_BYTES);
    if !value.is_empty() && !is_label_text(value) {
        messages.push(pattern_message(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({LABEL_KEY_FORMAT})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

fn is_dns_label(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

fn is_dns_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn too_long(text: &str, limit: usize) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} bytes")] } else { Vec::new() }
}

/// The odd spacing between the examples is the reference's.
fn pattern_message(rule: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

/// An `Invalid value` error about a string.
pub fn invalid(path: impl Into<String>, value: &str, detail: impl AsRef<str>) -> FieldError {
    invalid_raw(path, &go_quote(value), detail)
}

/// An `Invalid value` error about a value that is printed already.
pub fn invalid_raw(path: impl Into<String>, value: &str, detail: impl AsRef<str>) -> FieldError {
    FieldError::new(FieldErrorKind::Invalid, path, format!("Invalid value: {value}: {}", detail.as_ref()))
}

/// A `Required value` error; `detail` may be empty.
pub fn required(path: impl Into<String>, detail: &str) -> FieldError {
    let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
    FieldError::new(FieldErrorKind::Required, path, message)
}

/// A `Forbidden` error.
pub fn forbidden(path: impl Into<String>, detail: impl AsRef<str>) -> FieldError {
    FieldError::new(FieldErrorKind::Forbidden, path, format!("Forbidden: {}", detail.as_ref()))
}

fn longer_than(path: impl Into<String>, limit: usize) -> FieldError {
    FieldError::new(FieldErrorKind::TooLong, path, format!("Too long: may not be more than {limit} bytes"))
}

/// Checks `metadata` of an object that is to be created, its name already generated. `path` is usually `metadata`.
pub fn validate_object_meta(meta: &Value, namespaced: bool, rule: NameRule, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let prefix = text("generateName");
    if !prefix.is_empty() {
        let messages = rule.check_prefix(prefix).into_iter();
        errors.extend(messages.map(|message| invalid(format!("{path}.generateName"), prefix, message)));
    }
    let name = text("name");
    if name.is_empty() {
        errors.push(required(format!("{path}.name"), "name or generateName is required"));
    } else {
        errors.extend(rule.check(name).into_iter().map(|message| invalid(format!("{path}.name"), name, message)));
    }
    errors.extend(validate_namespace(text("namespace"), namespaced, &format!("{path}.namespace")));
    if let Some(generation) = meta["generation"].as_i64().filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(invalid_raw(format!("{path}.generation"), &generation.to_string(), detail));
    }
    errors.extend(validate_labels(&meta["labels"], &format!("{path}.labels")));
    errors.extend(validate_annotations(&meta["annotations"], &format!("{path}.annotations")));
    errors.extend(validate_owner_references(&meta["ownerReferences"], &format!("{path}.ownerReferences")));
    errors.extend(validate_finalizers(&meta["finalizers"], &format!("{path}.finalizers")));
    errors.extend(validate_managed_fields(&meta["managedFields"], &format!("{path}.managedFields")));
    errors
}

/// Checks that an update changes nothing in `metadata` that only the server may change.
pub fn validate_object_meta_update(new: &Value, old: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        errors.extend(validate_no_new_finalizers(
            &new["finalizers"],
            &old["finalizers"],
            &format!("{path}.finalizers"),
        ));
    }
    if new["resourceVersion"].as_str().unwrap_or_default().is_empty() {
        errors.push(invalid(format!("{path}.resourceVersion"), "", "must be specified for an update"));
    }
    let generation = |meta: &Value| meta["generation"].as_i64().unwrap_or(0);
    if generation(new) < generation(old) {
        let value = generation(new).to_string();
        errors.push(invalid_raw(format!("{path}.generation"), &value, "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        let text = |meta: &Value| meta[field].as_str().unwrap_or_default().to_owned();
        if text(new) != text(old) {
            errors.push(invalid(format!("{path}.{field}"), &text(new), "field is immutable"));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !same_moment(&new[field], &old[field]) {
            errors.push(invalid_raw(format!("{path}.{field}"), &new[field].to_string(), "field is immutable"));
        }
    }
    errors.extend(validate_labels(&new["labels"], &format!("{path}.labels")));
    errors.extend(validate_annotations(&new["annotations"], &format!("{path}.annotations")));
    errors.extend(validate_owner_references(&new["ownerReferences"], &format!("{path}.ownerReferences")));
    errors.extend(validate_managed_fields(&new["managedFields"], &format!("{path}.managedFields")));
    errors
}

/// Everything that is checked about `metadata` in an update, in kube-apiserver's order. It runs the checks of every kind
/// and then the kind's own, which start with the same ones, so an error is listed more than once in `causes` (the
/// message says it once, see [`aggregate`]).
pub fn validate_update(new: &Value, old: &Value, namespaced: bool, builtin: bool, path: &str) -> Vec<FieldError> {
    let mut errors = validate_object_meta(new, namespaced, NameRule::PathSegment, path);
    for _ in 0..2 {
        errors.extend(validate_object_meta_update(new, old, path));
    }
    if builtin {
        errors.extend(validate_builtin_finalizers(&new["finalizers"], &format!("{path}.finalizers")));
    }
    errors
}

/// Several errors in one message: each once, in brackets when there is more than one.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

/// Equal values, or two spellings of one time.
fn same_moment(new: &Value, old: &Value) -> bool {
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    new == old || matches!((time(new), time(old)), (Some(new), Some(old)) if new == old)
}

fn validate_namespace(namespace: &str, namespaced: bool, path: &str) -> Vec<FieldError> {
    match (namespaced, namespace) {
        (true, "") => vec![required(path, "")],
        (true, _) => dns_label(namespace).into_iter().map(|message| invalid(path, namespace, message)).collect(),
        (false, "") => Vec::new(),
        (false, _) => vec![forbidden(path, "not allowed on this type")],
    }
}

/// Checks a map of labels.
pub fn validate_labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(label_key(key).into_iter().map(|message| invalid(path, key, message)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value(value).into_iter().map(|message| invalid(path, value, message)));
    }
    errors
}

/// Checks a map of annotations: keys like label keys, but in any case, and a limit on the total size.
pub fn validate_annotations(annotations: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let messages = label_key(&key.to_lowercase()).into_iter();
        errors.extend(messages.map(|message| invalid(path, key, message)));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_ANNOTATION_BYTES {
        errors.push(longer_than(path, MAX_ANNOTATION_BYTES));
    }
    errors
}

/// Checks owner references: complete, at most one controller, no events as owners.
pub fn validate_owner_references(references: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for reference in references.as_array().into_iter().flatten() {
        errors.extend(validate_owner_reference(reference, path));
        if reference["controller"] != true {
            continue;
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let this = format!("{}/{}", text("kind"), text("name"));
        match &controller {
            Some(first) => errors.push(invalid_raw(
                path,
                &owner_references_text(references),
                format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                ),
            )),
            None => controller = Some(this),
        }
    }
    errors
}

fn validate_owner_reference(reference: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    // More than one slash parses as no version at all.
    let version = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] | [_, version] => *version,
        _ => "",
    };
    if version.is_empty() {
        errors.push(invalid(format!("{path}.apiVersion"), api_version, "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if text(field).is_empty() {
            errors.push(invalid(format!("{path}.{field}"), "", "must not be empty"));
        }
    }
    if api_version == "v1" && text("kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(invalid_raw(path, &owner_reference_text(reference), detail));
    }
    errors
}

/// The references as Go marshals them into a message: fields in the type's order.
fn owner_references_text(references: &Value) -> String {
    let texts: Vec<String> = references.as_array().into_iter().flatten().map(owner_reference_text).collect();
    format!("[{}]", texts.join(","))
}

fn owner_reference_text(reference: &Value) -> String {
    let required = ["apiVersion", "kind", "name", "uid"].map(|field| {
        let text = reference[field].as_str().unwrap_or_default();
        format!("\"{field}\":{}", Value::from(text))
    });
    let optional = ["controller", "blockOwnerDeletion"];
    let optional = optional.into_iter().filter_map(|field| {
        let set = reference[field].as_bool()?;
        Some(format!("\"{field}\":{set}"))
    });
    let fields: Vec<String> = required.into_iter().chain(optional).collect();
    format!("{{{}}}", fields.join(","))
}

/// Checks finalizers: qualified names, and not both ways of treating dependents.
pub fn validate_finalizers(finalizers: &Value, path: &str) -> Vec<FieldError> {
    let names = string_list(finalizers);
    let mut errors: Vec<FieldError> = Vec::new();
    for name in &names {
        errors.extend(label_key(name).into_iter().map(|message| invalid(path, name, message)));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(invalid_raw(path, &Value::from(names).to_string(), detail));
    }
    errors
}

/// What built-in kinds ask of their finalizers besides: a name without a slash must be one of Kubernetes' own.
pub fn validate_builtin_finalizers(finalizers: &Value, path: &str) -> Vec<FieldError> {
    let names = string_list(finalizers).into_iter().enumerate();
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    let wrong = names.filter(|(_, name)| !name.contains('/') && !standard.contains(name));
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    wrong.map(|(index, name)| invalid(format!("{path}[{index}]"), name, detail)).collect()
}

fn validate_no_new_finalizers(new: &Value, old: &Value, path: &str) -> Option<FieldError> {
    let old = string_list(old);
    let mut added: Vec<&str> = string_list(new).into_iter().filter(|name| !old.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    (!added.is_empty()).then(|| {
        forbidden(
            path,
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {}",
                go_string_slice(&added)
            ),
        )
    })
}

/// Checks the parts of `managedFields` that do not depend on the object's schema.
pub fn validate_managed_fields(entries: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(invalid(format!("{path}.operation"), text("operation"), detail));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(invalid(format!("{path}.fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        errors.extend(validate_field_manager(text("manager"), &format!("{path}.manager")));
        if text("subresource").len() > MAX_SUBRESOURCE_BYTES {
            errors.push(longer_than(format!("{path}.subresource"), MAX_SUBRESOURCE_BYTES));
        }
    }
    errors
}

/// Checks the name of a field manager, in `managedFields` and in the query parameter `fieldManager`.
pub fn validate_field_manager(manager: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MAX_FIELD_MANAGER_BYTES {
        errors.push(longer_than(path, MAX_FIELD_MANAGER_BYTES));
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        // An unprintable character is named by its code point alone.
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.push(invalid(path, manager, detail));
    }
    errors
}

fn string_list(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn subdomains() {
        for name in ["a", "a-b.c1", "0.0", &"a".repeat(253)] {
            assert_eq!(dns_subdomain(name), Vec::<String>::new(), "{name}");
        }
        for name in ["", "A", "-a", "a-", "a..b", ".a", "a_b", "ä"] {
            assert_eq!(
                dns_subdomain(name),
                [
                    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ],
                "{name}"
            );
        }
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    }

    #[test]
    fn labels_and_1035_labels() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert!(dns_label("1-a").is_empty() && dns_1035_label("a-1").is_empty());
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns_1035_label("1a"),
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
    }

    #[test]
    fn path_segments() {
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(path_segment("a/b%c"), ["may not contain '/'", "may not contain '%'"]);
        assert!(path_segment("system:node:x").is_empty());
        assert!(NameRule::PathSegment.check_prefix("..").is_empty());
    }

    #[test]
    fn label_keys_and_values() {
        for key in ["a", "A.b_c-d", "example.com/x"] {
            assert!(label_key(key).is_empty(), "{key}");
        }
        assert_eq!(label_key("/a"), ["prefix part must be non-empty"]);
        assert_eq!(label_key("a/").first().map(String::as_str), Some("name part must be non-empty"));
        assert_eq!(
            label_key("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        );
        assert_eq!(label_key(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert!(
            label_key("A/b").iter().all(|message| message.starts_with("prefix part a lowercase RFC 1123 subdomain"))
        );
        assert!(label_value("").is_empty() && label_value("a.B-c_1").is_empty());
        assert_eq!(label_value("a ").len(), 1);
    }

    #[test]
    fn generated_names_may_end_in_a_dash() {
        assert!(NameRule::DnsSubdomain.check_prefix("web-").is_empty());
        assert!(NameRule::DnsLabel.check_prefix(&format!("{}-", "a".repeat(62))).is_empty());
        assert_eq!(NameRule::DnsSubdomain.check_prefix("-").len(), 1);
        assert_eq!(NameRule::DnsSubdomain.check_prefix("Web-").len(), 1);
        assert!(NameRule::DnsSubdomain.check_prefix("é-").is_empty());
    }

    #[test]
    fn create_wants_a_name_and_the_right_scope() {
        let check = |meta: Value, namespaced| {
            texts(&validate_object_meta(&meta, namespaced, NameRule::DnsSubdomain, "metadata"))
        };
        assert_eq!(check(json!({"name": "a", "namespace": "b"}), true), Vec::<String>::new());
        assert_eq!(
            check(json!({}), true),
            ["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"]
        );
        assert_eq!(
            check(json!({"name": "a", "namespace": "b"}), false),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
        assert_eq!(
            check(json!({"name": "a", "generation": -1}), false),
            ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]
        );
        let wrong = check(json!({"name": "A_", "generateName": "A_", "namespace": "x"}), true);
        assert!(wrong[0].starts_with("metadata.generateName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain"));
        assert!(wrong[1].starts_with("metadata.name: Invalid value: \"A_\": a lowercase RFC 1123 subdomain"));
    }

    #[test]
    fn annotations_have_a_total_limit() {
        assert!(validate_annotations(&json!({"Example.COM/Key": "x"}), "metadata.annotations").is_empty());
        let large = json!({"a": "x".repeat(MAX_ANNOTATION_BYTES)});
        assert_eq!(
            texts(&validate_annotations(&large, "metadata.annotations")),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn owners_are_complete_and_have_one_controller() {
        let owner =
            |name: &str| json!({"apiVersion": "a/v1", "kind": "K", "name": name, "uid": "u", "controller": true});
        assert_eq!(
            texts(&validate_owner_references(&json!([owner("x"), owner("y")]), "metadata.ownerReferences")),
            [
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"a/v1\",\"kind\":\"K\",\"name\":\"x\",\"uid\":\"u\",\"controller\":true},{\"apiVersion\":\"a/v1\",\"kind\":\"K\",\"name\":\"y\",\"uid\":\"u\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for K/x and K/y"
            ]
        );
        assert_eq!(
            texts(&validate_owner_references(&json!([{}]), "o")),
            [
                "o.apiVersion: Invalid value: \"\": version must not be empty",
                "o.kind: Invalid value: \"\": must not be empty",
                "o.name: Invalid value: \"\": must not be empty",
                "o.uid: Invalid value: \"\": must not be empty"
            ]
        );
        let event = json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]);
        assert!(
            texts(&validate_owner_references(&event, "o"))[0]
                .ends_with("/v1, Kind=Event is disallowed from being an owner")
        );
    }

    #[test]
    fn finalizers_are_qualified_and_do_not_contradict() {
        assert!(validate_finalizers(&json!(["example.com/x", "orphan"]), "f").is_empty());
        assert_eq!(
            texts(&validate_finalizers(&json!(["orphan", "foregroundDeletion"]), "f")),
            [
                "f: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
            ]
        );
        assert_eq!(validate_finalizers(&json!(["a b"]), "f").len(), 1);
        assert_eq!(
            texts(&validate_builtin_finalizers(&json!(["orphan", "a/b", "x"]), "f")),
            ["f[2]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"]
        );
    }

    #[test]
    fn updates_change_nothing_that_is_fixed() {
        let old = json!({"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["x/y"]});
        assert!(validate_object_meta_update(&old, &old, "metadata").is_empty());
        let mut new = old.clone();
        new["name"] = json!("b");
        new["uid"] = json!("2");
        new["resourceVersion"] = json!("");
        new["generation"] = json!(1);
        new["creationTimestamp"] = json!("2026-01-01T00:00:00+00:00");
        new["deletionTimestamp"] = Value::Null;
        new["finalizers"] = json!(["x/y", "z/b", "z/a"]);
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old, "metadata")),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"z/a\", \"z/b\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable"
            ]
        );
    }

    #[test]
    fn updates_say_each_error_once_and_list_it_again() {
        let old = json!({"name": "a", "resourceVersion": "1", "deletionTimestamp": "2026-01-02T00:00:00Z"});
        let mut new = old.clone();
        new["finalizers"] = json!(["x"]);
        let errors = validate_update(&new, &old, false, true, "metadata");
        assert_eq!(errors.len(), 3);
        assert_eq!(
            aggregate(&errors),
            "[metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x\"}, metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified]"
        );
        assert_eq!(aggregate(&errors[..2]), errors[0].to_string());
    }

    #[test]
    fn managed_fields_name_a_printable_manager() {
        let entries = json!([
            {"manager": "m\u{7}", "operation": "Create", "fieldsType": "V2", "subresource": "s".repeat(257)},
            {"manager": "x".repeat(129), "operation": "Apply", "fieldsType": "FieldsV1"},
        ]);
        assert_eq!(
            texts(&validate_managed_fields(&entries, "m")),
            [
                "m[0].operation: Invalid value: \"Create\": must be `Apply` or `Update`",
                "m[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "m[0].manager: Invalid value: \"m\\a\": invalid character U+0007 (at position 1)",
                "m[0].subresource: Too long: may not be more than 256 bytes",
                "m[1].manager: Too long: may not be more than 128 bytes"
            ]
        );
    }
}
