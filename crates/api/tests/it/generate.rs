//! Objects that a schema allows, made from a seed.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

/// Makes values that pass a structural schema.
pub(crate) struct Generator {
    runner: TestRunner,
}

impl Generator {
    /// The same seed makes the same values.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Self { runner: TestRunner::new_with_rng(Config::default(), rng) }
    }

    /// A value of a strategy.
    pub(crate) fn pick<S: Strategy>(&mut self, strategy: &S) -> S::Value {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    /// Whether something happens that happens so often.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.pick(&(0..100_u32)) < percent
    }

    /// A value that the schema allows. `percent` is how likely each optional field is there.
    pub(crate) fn value(&mut self, schema: &Value, percent: u32) -> Value {
        if schema["x-kubernetes-int-or-string"] == true {
            return self.int_or_string(schema);
        }
        if let Some(words) = schema["enum"].as_array() {
            let index = self.pick(&(0..words.len()));
            return words[index].clone();
        }
        match schema["type"].as_str().expect("a structural schema types every node") {
            "boolean" => json!(self.chance(50)),
            "integer" => self.integer(schema),
            "number" => json!(f64::from(self.pick(&(0..100_000_u32))) / 8.0),
            "string" => self.string(schema),
            "array" => {
                let length = self.pick(&(1..3_usize));
                (0..length).map(|_| self.value(&schema["items"], percent)).collect()
            }
            "object" => self.object(schema, percent),
            other => panic!("unknown type {other}"),
        }
    }

    fn object(&mut self, schema: &Value, percent: u32) -> Value {
        if let Some(values) = schema.get("additionalProperties") {
            let key = self.pick(&"[a-z]{1,8}(/[a-z]{1,4})?");
            return json!({ key: self.value(values, percent) });
        }
        if schema.get("properties").is_none() && schema["x-kubernetes-preserve-unknown-fields"] == true {
            return json!({ "anything": ["goes"] });
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut object = Map::new();
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            // A field with a default is always there by the time that anyone reads the object.
            let always = required.contains(&json!(name)) || child.get("default").is_some();
            if always || self.chance(percent) {
                object.insert(name.clone(), self.value(child, percent));
            }
        }
        Value::Object(object)
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (least, most) = match schema["format"].as_str() {
            Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let bound = |key: &str, otherwise: i64| schema[key].as_f64().map_or(otherwise, |bound| bound as i64);
        let (least, most) = (bound("minimum", least), bound("maximum", most));
        json!(self.pick(&(least..=most)))
    }

    fn int_or_string(&mut self, schema: &Value) -> Value {
        if self.chance(30) {
            return self.integer(schema);
        }
        // The usual pattern of a quantity lets fractional exponents through, which are not quantities.
        let quantity = schema.get("pattern").is_some();
        let text = if quantity {
            "[+-]?[0-9]{1,6}(\\.[0-9]{0,4})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
        } else {
            "[a-z]{1,5}"
        };
        json!(self.pick(&text))
    }

    fn string(&mut self, schema: &Value) -> Value {
        if schema["format"] == "date-time" {
            let (month, day, second) = (self.pick(&(1..13_u32)), self.pick(&(1..29_u32)), self.pick(&(0..60_u32)));
            return json!(format!("2026-{month:02}-{day:02}T01:02:{second:02}Z"));
        }
        let pattern = schema["pattern"].as_str().map(|pattern| pattern.trim_start_matches('^').trim_end_matches('$'));
        json!(self.pick(&pattern.unwrap_or("\\PC{0,12}")))
    }
}
