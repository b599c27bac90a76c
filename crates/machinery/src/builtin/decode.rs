//! The message of Go's JSON decoder for a value of the wrong type in a built-in kind.
//!
//! kube-apiserver decodes built-in kinds into Go structs, so a wrong type is not a validation error but a failed
//! decode, and its message names Go's types. What a schema does not know (Go's names for string enums, some inlined
//! structs) is approximated.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

use crate::quote::go_quote;
use crate::schema::pattern;
use crate::schema::{Schema, Type};

/// What Go's decoder says about the first value that does not fit its field; `None` when all fit.
///
/// kube-apiserver puts `Pod in version "v1" cannot be handled as a Pod: ` in front of it.
pub fn builtin_type_errors(schema: &Schema, value: &Value) -> Option<String> {
    Walk { path: Vec::new(), structs: Vec::new() }.value(schema, value).err()
}

struct Walk {
    /// Names of the fields on the way, with those of inlined structs; lists and maps leave no trace.
    path: Vec<String>,
    /// Names of the Go structs that hold these fields.
    structs: Vec<String>,
}

impl Walk {
    fn value(&mut self, schema: &Schema, value: &Value) -> Result<(), String> {
        let format = schema.checks.as_deref().and_then(|checks| checks.format.as_deref());
        match (value, schema.kind) {
            (Value::Null, _) => Ok(()),
            (_, Type::Any) if schema.int_or_string && format == Some("quantity") => quantity(value),
            (_, Type::Any) if schema.int_or_string => self.int_or_string(value),
            (_, Type::Any) => Ok(()),
            (Value::Object(fields), Type::Object) => {
                for (name, child) in fields {
                    if let Some(known) = schema.properties.get(name) {
                        self.field(schema, name, known, child)?;
                    } else if let Some(values) = &schema.additional_properties {
                        self.value(values, child)?;
                    }
                }
                Ok(())
            }
            (Value::Array(items), Type::Array) => match &schema.items {
                Some(element) => items.iter().try_for_each(|item| self.value(element, item)),
                None => Ok(()),
            },
            (Value::String(text), Type::String) => text_of(text, schema, format),
            (Value::Bool(_), Type::Boolean) | (Value::Number(_), Type::Number) => Ok(()),
            (Value::Number(number), Type::Integer) if fits(number, format) => Ok(()),
            (Value::Number(number), Type::Integer) => self.mismatch(&format!("number {number}"), &go_type(schema)),
            (value, _) => self.mismatch(json_name(value), &go_type(schema)),
        }
    }

    fn field(&mut self, parent: &Schema, name: &str, schema: &Schema, value: &Value) -> Result<(), String> {
        let holder = parent.definition.as_deref().map(short_name).unwrap_or_default().to_owned();
        let depth = self.path.len();
        if let Some(inlined) = inlined_struct(&holder, name) {
            self.path.push(inlined.to_owned());
        }
        self.path.push(name.to_owned());
        self.structs.push(holder);
        let result = self.value(schema, value);
        self.structs.pop();
        self.path.truncate(depth);
        result
    }

    fn int_or_string(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(_) => Ok(()),
            Value::Number(number) if fits(number, Some("int32")) => Ok(()),
            Value::Number(number) => self.mismatch(&format!("number {number}"), "int32"),
            other => self.mismatch(json_name(other), "int32"),
        }
    }

    fn mismatch(&self, value: &str, go_type: &str) -> Result<(), String> {
        Err(match self.structs.last() {
            Some(holder) => {
                let path = self.path.join(".");
                format!("json: cannot unmarshal {value} into Go struct field {holder}.{path} of type {go_type}")
            }
            None => format!("json: cannot unmarshal {value} into Go value of type {go_type}"),
        })
    }
}

fn json_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn fits(number: &Number, format: Option<&str>) -> bool {
    match number.as_i64() {
        Some(whole) if format == Some("int32") => i32::try_from(whole).is_ok(),
        found => found.is_some(),
    }
}

fn short_name(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or_default()
}

/// The Go type that a schema stands for, as `%T` prints it.
fn go_type(schema: &Schema) -> String {
    let format = schema.checks.as_deref().and_then(|checks| checks.format.as_deref());
    match schema.kind {
        Type::Boolean => "bool".to_owned(),
        Type::Integer => if format == Some("int32") { "int32" } else { "int64" }.to_owned(),
        Type::Number => "float64".to_owned(),
        Type::String if format == Some("byte") => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Array => match schema.items.as_deref() {
            Some(element) => format!("[]{}", go_type(element)),
            None => "[]interface {}".to_owned(),
        },
        Type::Object => match (&schema.definition, &schema.additional_properties) {
            (Some(definition), _) => {
                let mut parts = definition.rsplit('.');
                let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{name}")
            }
            (None, Some(values)) if values.int_or_string => "v1.ResourceList".to_owned(),
            (None, Some(values)) => format!("map[string]{}", go_type(values)),
            (None, None) => "map[string]interface {}".to_owned(),
        },
        Type::Any => "interface {}".to_owned(),
    }
}

/// Go inlines some structs into others; the decoder's path still names them.
fn inlined_struct(holder: &str, field: &str) -> Option<&'static str> {
    match (holder, field) {
        ("Volume", field) if field != "name" => Some("VolumeSource"),
        ("Probe", "exec" | "httpGet" | "tcpSocket" | "grpc") => Some("ProbeHandler"),
        ("EphemeralContainer", field) if field != "targetContainerName" => Some("EphemeralContainerCommon"),
        (
            "ConfigMapKeySelector"
            | "SecretKeySelector"
            | "ConfigMapVolumeSource"
            | "ConfigMapProjection"
            | "SecretProjection"
            | "ConfigMapEnvSource"
            | "SecretEnvSource",
            "name",
        ) => Some("LocalObjectReference"),
        (
            "PersistentVolumeSpec",
            "awsElasticBlockStore"
            | "azureDisk"
            | "azureFile"
            | "cephfs"
            | "cinder"
            | "csi"
            | "fc"
            | "flexVolume"
            | "flocker"
            | "gcePersistentDisk"
            | "glusterfs"
            | "hostPath"
            | "iscsi"
            | "local"
            | "nfs"
            | "photonPersistentDisk"
            | "portworxVolume"
            | "quobyte"
            | "rbd"
            | "scaleIO"
            | "storageos"
            | "vsphereVolume",
        ) => Some("PersistentVolumeSource"),
        ("RuleWithOperations", "apiGroups" | "apiVersions" | "resources" | "scope") => Some("Rule"),
        _ => None,
    }
}

fn quantity(value: &Value) -> Result<(), String> {
    const PATTERN: &str = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match pattern::compiled(PATTERN) {
        Ok(regex) if !regex.is_match(&text) => Err(format!("quantities must match the regular expression '{PATTERN}'")),
        _ => Ok(()),
    }
}

fn text_of(text: &str, schema: &Schema, format: Option<&str>) -> Result<(), String> {
    match format {
        Some("byte") => match STANDARD.decode(text) {
            Ok(_) => Ok(()),
            Err(error) => {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => text.len() / 4 * 4,
                };
                Err(format!("illegal base64 data at input byte {at}"))
            }
        },
        Some("date-time") => {
            let micro = schema.definition.as_deref().is_some_and(|name| name.ends_with(".MicroTime"));
            time(text, if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" })
        }
        _ => Ok(()),
    }
}

/// Reads a time as Go's parser does, part by part, to name the part that does not fit.
fn time(text: &str, layout: &str) -> Result<(), String> {
    let refuse = |rest: &str, part: &str| {
        let (text, layout) = (go_quote(text), go_quote(layout));
        Err(format!("parsing time {text} as {layout}: cannot parse {} as {}", go_quote(rest), go_quote(part)))
    };
    let range = |what: &str| Err(format!("parsing time {}: {what} out of range", go_quote(text)));
    let mut rest = text;
    let mut month = 0;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let is_number = part.starts_with(|c: char| c.is_ascii_digit());
        let taken = rest.get(..part.len());
        match taken {
            Some(taken) if !is_number && taken == part => {}
            Some(taken) if is_number && taken.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number: u32 = taken.parse().unwrap_or_default();
                match part {
                    "01" if !(1..=12).contains(&number) => return range("month"),
                    "01" => month = number,
                    "02" if number == 0 || number > if month == 2 { 29 } else { 31 } => return range("day"),
                    "15" if number > 23 => return range("hour"),
                    "04" if number > 59 => return range("minute"),
                    "05" if number > 59 => return range("second"),
                    _ => {}
                }
            }
            _ => return refuse(rest, part),
        }
        rest = &rest[part.len()..];
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    } else if layout.contains(".000000") {
        return refuse(rest, ".000000");
    }
    match pattern::compiled(r"^(Z|[+-][0-9]{2}:[0-9]{2})$") {
        Ok(zone) if !zone.is_match(rest) => refuse(rest, "Z07:00"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    struct Recorded {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        object: Value,
        message: Option<String>,
    }

    #[test]
    fn wrong_types_are_told_as_by_kube_apiserver() {
        let recorded: Recorded = serde_json::from_str(include_str!("recorded.json")).expect("reads");
        let mut differences = Vec::new();
        for case in &recorded.cases {
            let text = |field: &str| case.object[field].as_str().unwrap_or_default();
            let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
            let schema = crate::builtin::schema(group, version, text("kind")).expect("a built-in kind");
            let prefix = format!("{0} in version \"{version}\" cannot be handled as a {0}: ", text("kind"));
            let theirs = case.message.as_deref().and_then(|message| message.strip_prefix(&prefix));
            let ours = builtin_type_errors(&schema, &case.object);
            if ours.as_deref() != theirs {
                differences.push(format!("{}\n  ours   {ours:?}\n  theirs {theirs:?}", case.object));
            }
        }
        assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
        assert!(recorded.cases.len() > 40);
    }

    #[test]
    fn times_are_read_part_by_part() {
        let layout = "2006-01-02T15:04:05Z07:00";
        assert_eq!(time("2026-11-15T10:00:00.25+01:00", layout), Ok(()));
        for (text, expected) in [
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2026-13-15T10:00:00Z", r#"parsing time "2026-13-15T10:00:00Z": month out of range"#),
            ("2026-11-15", r#"parsing time "2026-11-15" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            (
                "2026-11-15T10:00:00",
                r#"parsing time "2026-11-15T10:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
        ] {
            assert_eq!(time(text, layout), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_whole_value_of_the_wrong_type_has_no_field() {
        let pod = crate::builtin::schema("", "v1", "Pod").expect("a pod");
        assert_eq!(
            builtin_type_errors(&pod, &json!([])).as_deref(),
            Some("json: cannot unmarshal array into Go value of type v1.Pod")
        );
    }
}
