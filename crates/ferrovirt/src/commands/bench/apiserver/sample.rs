//! The objects that are written: a VirtualMachineInstance as one finds it in clusters, about 5 KB.

use bytes::Bytes;

/// `@NAME@` and the like are filled in for each write.
const TEMPLATE: &str = include_str!("vmi.json");

/// The template, cut at its placeholders once, so that a body is made by joining strings.
pub(crate) struct Sample {
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Name,
    Version,
    Serial,
}

impl Sample {
    /// Cuts the template.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let compact = serde_json::from_str::<serde_json::Value>(TEMPLATE)?.to_string();
        // A create must not name a version, so the field comes and goes.
        let compact = compact.replacen("\"metadata\":{", "\"metadata\":{@VERSION@", 1);
        let mut parts = Vec::new();
        for (index, piece) in compact.split('@').enumerate() {
            parts.push(match (index % 2, piece) {
                (1, "NAME") => Part::Name,
                (1, "VERSION") => Part::Version,
                (1, "SERIAL") => Part::Serial,
                _ => Part::Text(piece.to_owned()),
            });
        }
        Ok(Self { parts })
    }

    /// The name of the object with a number.
    pub(crate) fn name(number: usize) -> String {
        format!("vmi-{number:06}")
    }

    /// A body. `version` is empty for a create; `serial` makes the status differ from the one before.
    pub(crate) fn body(&self, number: usize, version: &str, serial: u64) -> Bytes {
        let mut body = String::with_capacity(TEMPLATE.len() + 256);
        for part in &self.parts {
            match part {
                Part::Text(text) => body.push_str(text),
                Part::Name => body.push_str(&Self::name(number)),
                Part::Version if version.is_empty() => {}
                Part::Version => body.push_str(&format!("\"resourceVersion\":\"{version}\",")),
                Part::Serial => body.push_str(&serial.to_string()),
            }
        }
        body.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_valid_instances_of_a_realistic_size() {
        let sample = Sample::new().unwrap();
        for (version, serial) in [("", 0), ("77", 5)] {
            let body = sample.body(3, version, serial);
            assert!((4500..6000).contains(&body.len()), "{} bytes", body.len());
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(value["metadata"]["name"], "vmi-000003");
            assert_eq!(value["metadata"]["resourceVersion"].as_str().unwrap_or_default(), version);
            ferrovirt_api::decode::decode_json::<ferrovirt_api::vmi::VirtualMachineInstance>(&body).unwrap();
        }
        assert_ne!(sample.body(3, "77", 5), sample.body(3, "77", 6));
    }
}
