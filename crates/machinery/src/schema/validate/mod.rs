//! Checks objects against their schema, with the messages of kube-apiserver.
//!
//! The walk mirrors the order of kube-openapi's checks (type, compositions, string, number, list, enum, object),
//! because the choice of the best-fitting branch of `anyOf` and `oneOf` counts how many of them passed.

mod correlate;
mod embedded;
pub(crate) mod format;
mod lists;
mod number;

use serde_json::{Map, Value};

pub(crate) use correlate::Old;

use super::report::{self, Path};
use super::{Checks, Schema, Type, pattern, rules};
use crate::error::{FieldError, FieldErrorKind};

/// The largest whole number that a float holds exactly, which is where Go stops to see an integer in one.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

impl Schema {
    /// What is wrong with a new object: types and values, embedded resources' metadata, duplicates in sets and maps,
    /// and the rules of `x-kubernetes-validations`.
    ///
    /// The root's own `metadata` is left to those who know the kind. Expects a pruned and defaulted object.
    pub fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_values(value, None);
        embedded::check(self, value, &Path::ROOT, &mut errors);
        lists::duplicates(self, value, &Path::ROOT, &mut errors);
        rules::check_unless_blocked(self, value, None, &mut errors);
        errors
    }

    /// What is wrong with a changed object. Parts that were invalid before and have not changed are tolerated, and
    /// transition rules see the old value.
    pub fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.validate_values(new, Some(old));
        embedded::check(self, new, &Path::ROOT, &mut errors);
        let mut before = Vec::new();
        lists::duplicates(self, old, &Path::ROOT, &mut before);
        if before.is_empty() {
            lists::duplicates(self, new, &Path::ROOT, &mut errors);
        }
        rules::check_unless_blocked(self, new, Some(old), &mut errors);
        errors
    }

    /// Only types and values.
    pub(crate) fn validate_values(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let old = old.map(|old| Old::new(old, self));
        part(self, value, old, &Path::ROOT).list.into_iter().map(|finding| finding.error).collect()
    }
}

/// One error, with the text by which repeated ones are recognised.
struct Finding {
    error: FieldError,
    text: String,
}

/// What the checks of one value found, and how many of them passed.
#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    matches: usize,
}

impl Findings {
    fn push(&mut self, error: FieldError, text: String) {
        if !self.list.iter().any(|known| known.text == text) {
            self.list.push(Finding { error, text });
        }
    }

    fn merge(&mut self, other: Self) {
        for finding in other.list {
            self.push(finding.error, finding.text);
        }
        self.matches += other.matches;
    }

    fn is_valid(&self) -> bool {
        self.list.is_empty()
    }

    /// `Invalid value: <value>: <path> in body <detail>`.
    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: impl AsRef<str>) {
        self.invalid_bare(path, value, format!("{} in body {}", path.dotted(), detail.as_ref()));
    }

    fn invalid_bare(&mut self, path: &Path<'_>, value: &Value, text: String) {
        self.push(report::invalid(path.dotted(), value, &text), text);
    }

    fn wrong_type(&mut self, path: &Path<'_>, expected: &str, value: &str) {
        let text = format!("{} in body must be of type {expected}: {}", path.dotted(), crate::quote::go_quote(value));
        self.push(report::type_invalid(path.dotted(), &Value::from(value), &text), text);
    }

    /// An error that kube-apiserver reports without a field.
    fn plain(&mut self, text: String) {
        self.push(report::invalid("", &Value::from(""), &text), text);
    }
}

/// Checks a value that stands for itself: a field, an element, or the whole object.
fn part(schema: &Schema, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) -> Findings {
    let mut found = node(schema, value, old, path);
    if !found.is_valid() && old.is_some_and(|old| old.is(value)) {
        found.list.clear();
    }
    found
}

/// Checks a value against one schema node; branches of compositions come here directly.
fn node(schema: &Schema, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) -> Findings {
    let mut found = Findings::default();
    let format = known_format(schema);
    if schema.int_or_string || schema.kind != Type::Any || format.is_some() {
        check_type(schema, format, value, path, &mut found);
        found.matches += usize::from(!value.is_null());
    }
    let checks = schema.checks.as_deref();
    if value.is_null() {
        check_enum(checks, value, path, &mut found);
        return found;
    }
    if let Some(checks) = checks {
        compositions(checks, value, old, path, &mut found);
    }
    found.matches += 2;
    match value {
        Value::String(text) => {
            if let Some(checks) = checks {
                check_text(checks, text, path, &mut found);
            }
            found.matches += 1;
            if let Some(format) = format.filter(|format| format::is_known(format)) {
                if !format::fits(format, text) {
                    found.wrong_type(path, format, text);
                }
                found.matches += 1;
            }
        }
        Value::Number(number) => {
            number::check(schema, format, number, path, &mut found);
            found.matches += 1;
        }
        Value::Array(items) => {
            check_items(schema, items, old, path, &mut found);
            found.matches += 2;
        }
        _ => {}
    }
    check_enum(checks, value, path, &mut found);
    found.matches += 1;
    if let Value::Object(fields) = value {
        check_fields(schema, fields, old, path, &mut found);
        found.matches += 1;
    }
    found.matches += 1;
    found
}

/// The format, if it is one that is enforced for the type.
fn known_format(schema: &Schema) -> Option<&str> {
    let format = schema.checks.as_deref()?.format.as_deref()?;
    let known = match schema.kind {
        _ if schema.int_or_string => format::is_known(format),
        Type::Any | Type::String => format::is_known(format),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then_some(format)
}

fn check_type(schema: &Schema, format: Option<&str>, value: &Value, path: &Path<'_>, found: &mut Findings) {
    let accepts = |kind: Type| {
        if schema.int_or_string { matches!(kind, Type::Integer | Type::String) } else { schema.kind == kind }
    };
    let expected = if schema.int_or_string { "integer,string" } else { schema.kind.name() };
    let typed = !expected.is_empty();
    let (kind, actual_format) = match value {
        Value::Null if typed && !schema.nullable => return found.wrong_type(path, expected, "null"),
        Value::Null => {
            found.matches += 1;
            return;
        }
        Value::Bool(_) => (Type::Boolean, ""),
        Value::Number(number) if number.as_i64().is_some() => (Type::Integer, "int64"),
        Value::Number(_) => (Type::Number, "float64"),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Object(_) => (Type::Object, ""),
    };
    let whole_float = kind == Type::Number
        && accepts(Type::Integer)
        && value.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT);
    let whole_as_number = kind == Type::Integer && accepts(Type::Number);
    let fits = accepts(kind) || whole_float || whole_as_number;
    if let Some(format) = format {
        let opaque = matches!(kind, Type::String | Type::Array);
        if !opaque && !fits && actual_format != format {
            return found.wrong_type(path, format, actual_format);
        }
        if opaque && !accepts(Type::Number) && !accepts(Type::Integer) {
            found.matches += 1;
            return;
        }
    }
    if fits { found.matches += 1 } else { found.wrong_type(path, expected, kind.name()) }
}

fn check_text(checks: &Checks, text: &str, path: &Path<'_>, found: &mut Findings) {
    let length = text.chars().count() as u64;
    let value = || Value::from(text);
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        let words = format!("{} in body should be at most {max} chars long", path.dotted());
        return found.push(report::too_long(path.dotted(), max), words);
    }
    if let Some(min) = checks.min_length.filter(|min| length < *min) {
        return found.invalid(path, &value(), format!("should be at least {min} chars long"));
    }
    if let Some(expression) = &checks.pattern {
        match pattern::compiled(expression) {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => found.invalid(path, &value(), format!("should match '{expression}'")),
            Err(reason) => {
                found.invalid(path, &value(), format!("should match '{expression}, but pattern is invalid: {reason}'"));
            }
        }
    }
}

fn check_enum(checks: Option<&Checks>, value: &Value, path: &Path<'_>, found: &mut Findings) {
    let Some(allowed) = checks.map(|checks| &checks.one_of_values).filter(|allowed| !allowed.is_empty()) else {
        return;
    };
    let same = |allowed: &Value| match (allowed, value) {
        (Value::Null, _) => false,
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    };
    if !allowed.iter().any(same) {
        let text = format!("{} in body should be one of {}", path.dotted(), Value::from(allowed.clone()));
        found.push(report::not_supported(path.dotted(), value, allowed), text);
    }
}

fn check_items(schema: &Schema, items: &[Value], old: Option<Old<'_>>, path: &Path<'_>, found: &mut Findings) {
    if let Some(element) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let before = old.and_then(|old| old.element(item));
            found.merge(part(element, item, before, &path.index(index)));
        }
    }
    let Some(checks) = schema.checks.as_deref() else { return };
    let size = items.len() as u64;
    if let Some(min) = checks.min_items.filter(|min| size < *min) {
        found.invalid(path, &Value::from(size), format!("should have at least {min} items"));
    }
    if let Some(max) = checks.max_items.filter(|max| size > *max) {
        let text = format!("{} in body should have at most {max} items", path.dotted());
        found.push(report::too_many(path.dotted(), items.len(), max), text);
    }
    if checks.unique_items && items.iter().enumerate().any(|(index, item)| items[..index].contains(item)) {
        found.invalid(path, &Value::from(""), "shouldn't contain duplicates");
    }
}

fn check_fields(
    schema: &Schema,
    fields: &Map<String, Value>,
    old: Option<Old<'_>>,
    path: &Path<'_>,
    found: &mut Findings,
) {
    let size = fields.len() as u64;
    if let Some(checks) = schema.checks.as_deref() {
        if let Some(min) = checks.min_properties.filter(|min| size < *min) {
            found.invalid(path, &Value::from(size), format!("should have at least {min} properties"));
        }
        if let Some(max) = checks.max_properties.filter(|max| size > *max) {
            let text = format!("{} in body should have at most {max} properties", path.dotted());
            found.push(report::too_many(path.dotted(), fields.len(), max), text);
        }
    }
    if let Some(values) = &schema.additional_properties {
        for (name, child) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
            let before = old.and_then(|old| old.field(name));
            found.merge(part(values, child, before, &path.key(name)));
        }
    }
    for (name, known) in &schema.properties {
        let Some(child) = fields.get(name) else { continue };
        // A changed version or kind of the whole object cannot be seen: both sides were converted to the same one.
        let hidden = path.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
        let before = old.filter(|_| !hidden).and_then(|old| old.field(name));
        found.merge(part(known, child, before, &path.field(name)));
    }
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        let place = path.field(name).dotted();
        let text = format!("{place} in body is required");
        found.push(report::required(place, ""), text);
    }
}

fn compositions(checks: &Checks, value: &Value, old: Option<Old<'_>>, path: &Path<'_>, found: &mut Findings) {
    let quoted = || crate::quote::go_quote(&path.dotted());
    if !checks.any_of.is_empty() {
        let outcome = best(&checks.any_of, value, old, path, true);
        if outcome.valid == 0 {
            found.plain(format!("{} must validate at least one schema (anyOf)", quoted()));
        }
        found.merge(outcome.kept);
    }
    if !checks.one_of.is_empty() {
        let outcome = best(&checks.one_of, value, old, path, false);
        match outcome.valid {
            1 => {}
            0 => found.plain(format!("{} must validate one and only one schema (oneOf). Found none valid", quoted())),
            many => found.plain(format!(
                "{} must validate one and only one schema (oneOf). Found {many} valid alternatives",
                quoted()
            )),
        }
        if outcome.valid < 2 {
            found.merge(outcome.kept);
        }
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for branch in &checks.all_of {
            let result = node(branch, value, old, path);
            valid += usize::from(result.is_valid());
            found.merge(result);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            found.plain(format!("{} must validate all the schemas (allOf){none}", quoted()));
        }
    }
    if let Some(branch) = &checks.not
        && node(branch, value, old, path).is_valid()
    {
        found.plain(format!("{} must not validate the schema (not)", quoted()));
    }
}

struct Best {
    valid: usize,
    /// The first branch that fits, or else the one that came closest.
    kept: Findings,
}

fn best(branches: &[Schema], value: &Value, old: Option<Old<'_>>, path: &Path<'_>, stop_at_first: bool) -> Best {
    let mut valid = 0;
    let mut kept: Option<Findings> = None;
    for branch in branches {
        let result = node(branch, value, old, path);
        if result.is_valid() {
            valid += 1;
            if valid == 1 {
                kept = Some(result);
            }
            if stop_at_first {
                break;
            }
        } else if valid == 0 && kept.as_ref().is_none_or(|kept| result.matches > kept.matches) {
            kept = Some(result);
        }
    }
    Best { valid, kept: kept.unwrap_or_default() }
}

/// What is wrong with embedded resources in a value; with `whole` the value is one itself.
pub(super) fn embedded_errors(schema: &Schema, value: &Value, whole: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if whole {
        embedded::resource(value, &Path::ROOT, &mut errors);
    }
    embedded::check(schema, value, &Path::ROOT, &mut errors);
    errors
}

/// Whether an error is of a kind after which rules are not worth running.
pub(super) fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

#[cfg(test)]
mod tests;
