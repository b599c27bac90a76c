//! Fills in the defaults that a schema names.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Gives missing fields their default, in nested objects, list elements and map values.
    ///
    /// A `null` where the schema does not allow one counts as missing: it takes the default, or goes away when there is
    /// none. A default may itself bring objects whose fields have defaults.
    pub fn apply_defaults(&self, value: &mut Value) {
        self.drop_nulls(value);
        self.fill(value);
    }

    /// Removes `null` from fields that are not nullable and have no default.
    pub fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, child| {
                    !child.is_null() || self.field(name).is_none_or(|field| field.nullable || field.default.is_some())
                });
                for (name, child) in fields.iter_mut() {
                    if let Some(field) = self.field(name) {
                        field.drop_nulls(child);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(element) = &self.items {
                    for item in items {
                        element.drop_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in &self.properties {
                    let Some(default) = &field.default else { continue };
                    let missing = fields.get(name).is_none_or(|current| current.is_null() && !field.nullable);
                    if missing {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                for (name, child) in fields.iter_mut() {
                    if let Some(field) = self.field(name) {
                        field.fill_or_replace_null(child);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(element) = &self.items {
                    for item in items {
                        element.fill_or_replace_null(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_or_replace_null(&self, value: &mut Value) {
        if value.is_null()
            && !self.nullable
            && let Some(default) = &self.default
        {
            *value = default.clone();
        }
        self.fill(value);
    }

    /// The schema of a field of an object or of a key of a map.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional_properties.as_ref()).map(AsRef::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(schema: &Value, value: Value) -> Value {
        let mut value = value;
        Schema::from_json(schema).expect("parses").apply_defaults(&mut value);
        value
    }

    #[test]
    fn nested_list_and_map_fields_get_defaults() {
        let item = json!({"type": "object", "properties": {"n": {"type": "integer", "default": 1}}});
        let schema = json!({"type": "object", "properties": {
            "o": {"type": "object", "default": {}, "properties": {"s": {"type": "string", "default": "x"}}},
            "absent": {"type": "object", "properties": {"s": {"type": "string", "default": "x"}}},
            "l": {"type": "array", "items": item},
            "m": {"type": "object", "additionalProperties": item}
        }});
        assert_eq!(
            defaulted(&schema, json!({"l": [{}, {"n": 2}, 7], "m": {"a": {}}})),
            json!({"o": {"s": "x"}, "l": [{"n": 1}, {"n": 2}, 7], "m": {"a": {"n": 1}}})
        );
    }

    #[test]
    fn null_is_dropped_defaulted_or_kept() {
        let schema = json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "defaulted": {"type": "string", "default": "d"},
            "nullable": {"type": "string", "nullable": true, "default": "d"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string", "default": "e"}}
        }});
        assert_eq!(
            defaulted(
                &schema,
                json!({"plain": null, "defaulted": null, "nullable": null, "map": {"k": null}, "list": [null],
                    "unknown": null})
            ),
            json!({"defaulted": "d", "nullable": null, "map": {}, "list": ["e"], "unknown": null})
        );
    }

    #[test]
    fn defaulting_twice_changes_nothing() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "default": {"b": null}, "properties": {
                "b": {"type": "string", "default": "x"}}}}});
        let once = defaulted(&schema, json!({}));
        assert_eq!(once, json!({"a": {"b": "x"}}));
        assert_eq!(defaulted(&schema, once.clone()), once);
    }
}
