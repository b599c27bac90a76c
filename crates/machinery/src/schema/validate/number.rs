//! Limits on numbers.

use serde_json::{Number, Value};

use super::Findings;
use crate::schema::report::{Path, go_float};
use crate::schema::{Checks, Schema, Type};

/// Checks a number against the range of its format and the schema's limits.
pub(super) fn check(schema: &Schema, format: Option<&str>, number: &Number, path: &Path<'_>, found: &mut Findings) {
    let kind = if schema.int_or_string { Type::Any } else { schema.kind };
    let format = format.filter(|_| matches!(kind, Type::Integer | Type::Number));
    if !in_range(kind, format, number) {
        found.plain(range_message("Checked", kind, format, path));
    }
    if let Some(checks) = schema.checks.as_deref() {
        limits(checks, kind, format, number, path, found);
    }
    found.matches += 1;
}

fn limits(checks: &Checks, kind: Type, format: Option<&str>, number: &Number, path: &Path<'_>, found: &mut Findings) {
    let float = number.as_f64().unwrap_or_default();
    let shown = Value::Number(number.clone());
    if let Some(factor) = checks.multiple_of {
        check_limit("MultipleOf", kind, format, factor, path, found);
        match is_multiple(number, float, factor) {
            Some(true) => {}
            Some(false) => {
                found.invalid(path, &shown, format!("should be a multiple of {}", text(number, factor)));
            }
            None => found.invalid_bare(
                path,
                &Value::from(if number.as_i64().is_some() { factor.trunc() } else { factor }),
                format!("factor MultipleOf declared for {} must be positive: {}", path.dotted(), text(number, factor)),
            ),
        }
    }
    if let Some((limit, exclusive)) = checks.minimum {
        check_limit("Minimum boundary", kind, format, limit, path, found);
        if float < limit || (exclusive && float <= limit) {
            let words = if exclusive { "greater than" } else { "greater than or equal to" };
            found.invalid(path, &shown, format!("should be {words} {}", text(number, limit)));
        }
    }
    if let Some((limit, exclusive)) = checks.maximum {
        check_limit("Maximum boundary", kind, format, limit, path, found);
        if float > limit || (exclusive && float >= limit) {
            let words = if exclusive { "less than" } else { "less than or equal to" };
            found.invalid(path, &shown, format!("should be {words} {}", text(number, limit)));
        }
    }
}

/// A limit that its own type cannot hold is an error of its own.
fn check_limit(what: &str, kind: Type, format: Option<&str>, limit: f64, path: &Path<'_>, found: &mut Findings) {
    if Number::from_f64(limit).is_some_and(|limit| !in_range(kind, format, &limit)) {
        found.plain(range_message(what, kind, format, path));
    }
}

/// A limit is written like the value that it is compared with: whole beside a whole number.
#[expect(clippy::cast_possible_truncation, reason = "Go truncates the limit in the same way")]
fn text(number: &Number, limit: f64) -> String {
    if number.as_i64().is_some() { (limit as i64).to_string() } else { go_float(limit) }
}

/// `None` when the factor is no factor.
#[expect(clippy::cast_possible_truncation, reason = "Go truncates the factor in the same way")]
fn is_multiple(number: &Number, float: f64, factor: f64) -> Option<bool> {
    if let Some(whole) = number.as_i64() {
        let factor = factor as i64;
        return (factor > 0).then(|| whole % factor == 0);
    }
    if factor <= 0.0 {
        return None;
    }
    let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
    Some((quotient - quotient.round()).abs() < 1e-9)
}

fn in_range(kind: Type, format: Option<&str>, number: &Number) -> bool {
    let float = number.as_f64().unwrap_or(f64::NAN);
    match (kind, format) {
        (Type::Integer, Some("int32")) => {
            float.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&float)
        }
        (Type::Integer, _) => {
            number.as_i64().is_some() || (float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0)
        }
        (Type::Number, Some("float")) => float.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

fn range_message(what: &str, kind: Type, format: Option<&str>, path: &Path<'_>) -> String {
    let format = match format {
        Some(format) => format!("with format {format}"),
        None => "(default format)".to_owned(),
    };
    format!("{what} value must be of type {} {format} in {}", kind.name(), path.dotted())
}
