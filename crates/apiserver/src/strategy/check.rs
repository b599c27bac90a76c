//! A list of what is wrong with an object, and the checks that many kinds share.

use ferrovirt_api::values::Quantity;
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::names;
use serde_json::Value;

/// Collects errors in the order in which they are found.
#[derive(Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// All that was found.
    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.0.extend(errors);
    }

    pub(super) fn required(&mut self, path: impl Into<String>, why: &str) {
        self.0.push(super::required(path, why));
    }

    pub(super) fn invalid(&mut self, path: impl Into<String>, value: &Value, why: &str) {
        self.0.push(super::invalid(path, value, why));
    }

    pub(super) fn invalid_text(&mut self, path: impl Into<String>, value: &str, why: &str) {
        self.0.push(names::invalid(path, value, why));
    }

    pub(super) fn forbidden(&mut self, path: impl Into<String>, why: &str) {
        self.0.push(names::forbidden(path, why));
    }

    pub(super) fn duplicate(&mut self, path: impl Into<String>, value: &Value) {
        self.0.push(FieldError::new(FieldErrorKind::Duplicate, path, format!("Duplicate value: {value}")));
    }

    pub(super) fn not_found(&mut self, path: impl Into<String>, value: &Value) {
        self.0.push(FieldError::new(FieldErrorKind::NotFound, path, format!("Not found: {value}")));
    }

    /// A field that may not change.
    pub(super) fn unchanged(&mut self, path: &str, new: &Value, old: &Value) {
        if new != old {
            self.0.push(super::immutable(path, new));
        }
    }

    /// A value out of a closed set; nothing is said about one that is not there.
    pub(super) fn one_of(&mut self, path: impl Into<String>, value: &Value, supported: &[&str]) {
        if value.as_str().is_some_and(|text| !supported.contains(&text)) {
            self.0.push(super::unsupported(path, value, supported));
        }
    }

    /// A name that must be there and be a DNS label.
    pub(super) fn label_name(&mut self, path: &str, value: &Value) {
        match text(value) {
            "" => self.required(path, ""),
            name => names::dns_label(name).iter().for_each(|why| self.invalid(path, value, why)),
        }
    }

    /// A name that must be a DNS subdomain, if it is there.
    pub(super) fn subdomain(&mut self, path: &str, value: &Value) {
        let name = text(value);
        if !name.is_empty() {
            names::dns_subdomain(name).iter().for_each(|why| self.invalid(path, value, why));
        }
    }

    /// A number that cannot be below zero, if it is there.
    pub(super) fn not_negative(&mut self, path: impl Into<String>, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    /// A quantity that cannot be below zero.
    pub(super) fn not_negative_quantity(&mut self, path: impl Into<String>, value: &Value) {
        if quantity(value).is_some_and(|amount| amount < Quantity::default()) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    /// A port number.
    pub(super) fn port_number(&mut self, path: impl Into<String>, value: &Value) {
        let number = value.as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            self.invalid(path, &number.into(), "must be between 1 and 65535, inclusive");
        }
    }

    /// A port's number or name.
    pub(super) fn port(&mut self, path: &str, value: &Value) {
        match value {
            Value::String(name) => port_name(name).iter().for_each(|why| self.invalid(path, value, why)),
            _ => self.port_number(path, value),
        }
    }
}

/// What is wrong with the name of a port.
pub(super) fn port_name(name: &str) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push("must be no more than 15 characters");
    }
    if name.is_empty() || !name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|c| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen");
    }
    wrong
}

/// The text of a value, or nothing.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The elements of a value, if it is a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The fields of a value, if it is an object.
pub(super) fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// An amount, if the value is one.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_have_names_or_numbers() {
        let mut errors = Errors::default();
        errors.port("a", &json!("http"));
        errors.port("b", &json!(80));
        assert!(errors.is_empty());
        errors.port("c", &json!(0));
        errors.port("d", &json!("80"));
        errors.port("e", &json!("A--"));
        let paths: Vec<_> = errors.into_vec().into_iter().map(|error| error.path).collect();
        assert_eq!(paths, ["c", "d", "e", "e", "e", "e"]);
    }
}
