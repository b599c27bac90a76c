//! Columns of custom resources: definitions from the CRD, cells by JSONPath.

use jiff::Timestamp;
use serde_json::Value;

use super::duration::since;
use super::jsonpath::{JsonPath, JsonPathError};

/// One column of a table: an element of `columnDefinitions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `name` marks the column that identifies the object.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// Columns above 0 are for `-o wide`.
    pub priority: i64,
}

/// A column of a custom resource that is not its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CustomColumn {
    kind: String,
    path: JsonPath,
}

/// The definition of an additional column of a CRD, compiled.
pub(super) fn compile(definition: &Value) -> Result<(Column, CustomColumn), JsonPathError> {
    let text = |field: &str| definition[field].as_str().unwrap_or_default().to_owned();
    let json_path = text("jsonPath");
    let path = JsonPath::compile(&json_path)?;
    let description = match text("description") {
        given if !given.is_empty() => given,
        _ => format!("Custom resource definition column (in JSONPath format): {json_path}"),
    };
    let priority = definition["priority"].as_i64().unwrap_or(0);
    let column = Column { name: text("name"), kind: text("type"), format: text("format"), description, priority };
    Ok((column, CustomColumn { kind: text("type"), path }))
}

impl CustomColumn {
    /// The cell of an object: the first thing that the path finds, `null` if it finds nothing of the column's type.
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(found) = self.path.first(object) else { return Value::Null };
        match (self.kind.as_str(), found) {
            ("string", found) => go_text(found).into(),
            ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => int.into(),
                #[expect(clippy::cast_possible_truncation, reason = "Go truncates, too")]
                (None, Some(float)) => (float as i64).into(),
                _ => Value::Null,
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => found.clone(),
            ("date", Value::String(_)) => since(found, now).into(),
            _ => Value::Null,
        }
    }
}

/// A value in a cell of type `string`, as Go prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        Value::Object(_) | Value::Array(_) => {
            // Go's encoder escapes what could end a script element.
            let text = value.to_string();
            text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        other => other.to_string(),
    }
}

/// The shortest text, with an exponent only for the very large and the very small.
fn go_float(float: f64) -> String {
    if float != 0.0 && (float.abs() >= 1e21 || float.abs() < 1e-4) {
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "values are made at the call")]
    fn cell(kind: &str, value: Value) -> Value {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        let (_, column) = compile(&json!({"name": "x", "type": kind, "jsonPath": ".v"})).expect("a legal path");
        column.cell(&json!({"v": value}), now)
    }

    #[test]
    fn definitions_say_what_they_show() {
        let (column, _) =
            compile(&json!({"name": "Ready", "type": "string", "jsonPath": ".a", "priority": 1})).expect("legal");
        assert_eq!(
            serde_json::to_value(&column).expect("serializable"),
            json!({"name": "Ready", "type": "string", "format": "", "priority": 1,
                "description": "Custom resource definition column (in JSONPath format): .a"})
        );
        assert!(compile(&json!({"name": "x", "type": "string", "jsonPath": ".a["})).is_err());
    }

    #[test]
    fn cells_have_the_columns_type() {
        assert_eq!(cell("string", json!("a")), json!("a"));
        assert_eq!(cell("string", json!(5)), json!("5"));
        assert_eq!(cell("string", json!(true)), json!("true"));
        assert_eq!(cell("string", json!(1.0)), json!("1"));
        assert_eq!(cell("string", json!(1e21)), json!("1e+21"));
        assert_eq!(cell("string", json!(0.00001)), json!("1e-05"));
        assert_eq!(cell("string", Value::Null), json!("<no value>"));
        assert_eq!(cell("string", json!({"b": [1, "<"], "a": null})), json!(r#"{"a":null,"b":[1,"\u003c"]}"#));
        assert_eq!(cell("integer", json!(5)), json!(5));
        assert_eq!(cell("integer", json!(5.9)), json!(5));
        assert_eq!(cell("integer", json!("5")), Value::Null);
        assert_eq!(cell("number", json!(1.5)), json!(1.5));
        assert_eq!(cell("boolean", json!(false)), json!(false));
        assert_eq!(cell("boolean", json!("true")), Value::Null);
        assert_eq!(cell("date", json!("2026-01-01T00:00:00Z")), json!("5m3s"));
        assert_eq!(cell("date", json!("soon")), json!("<invalid>"));
        assert_eq!(cell("date", json!("")), json!("<unknown>"));
        assert_eq!(cell("date", json!(5)), Value::Null);
        assert_eq!(cell("date", Value::Null), Value::Null);
    }

    #[test]
    fn what_is_missing_is_null() {
        let now = Timestamp::UNIX_EPOCH;
        for path in [".missing", ".v[3]", ".v[?(@.x>'a')].x"] {
            let (_, column) = compile(&json!({"name": "x", "type": "string", "jsonPath": path})).expect("legal");
            assert_eq!(column.cell(&json!({"v": [{"x": 1}]}), now), Value::Null, "{path}");
        }
    }
}
