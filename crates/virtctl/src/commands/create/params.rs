//! Flags with several values: `src:quay.io/os:1,name:root,bootorder:1`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use anyhow::{Context, bail};

/// The text of a mistake in a flag.
pub(super) fn wrong(flag: &str, why: &str) -> String {
    format!("failed to parse \"--{flag}\" flag: {why}")
}

/// Five letters and digits that nobody else has.
pub(super) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut number = std::collections::hash_map::RandomState::new().build_hasher().finish();
    let mut letter = || {
        let index = usize::try_from(number % LETTERS.len() as u64).unwrap_or_default();
        number /= LETTERS.len() as u64;
        char::from(LETTERS[index])
    };
    (0..5).map(|_| letter()).collect()
}

/// The values of one flag.
pub(super) struct Params {
    flag: &'static str,
    values: BTreeMap<String, String>,
}

impl Params {
    /// Reads `name:value` pairs; only the known names are allowed.
    pub(super) fn parse(flag: &'static str, text: &str, known: &[&str]) -> anyhow::Result<Self> {
        let mut values = BTreeMap::new();
        for pair in text.split(',') {
            let (name, value) = pair
                .split_once(':')
                .with_context(|| wrong(flag, &format!("params need to have at least one colon: {pair}")))?;
            if !known.contains(&name) {
                bail!(wrong(flag, &format!("unknown param(s): {pair}; supported are: {}", known.join(", "))));
            }
            values.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self { flag, values })
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of a name that must be there.
    pub(super) fn need(&self, name: &str) -> anyhow::Result<&str> {
        self.get(name).with_context(|| wrong(self.flag, &format!("{name} must be specified")))
    }

    /// `[NAMESPACE/]NAME` in `src`.
    pub(super) fn source(&self) -> anyhow::Result<(Option<&str>, &str)> {
        let source = self.need("src")?;
        match source.split('/').collect::<Vec<_>>()[..] {
            [name] => Ok((None, name)),
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => Ok((Some(namespace), name)),
            _ => bail!(self.wrong("src invalid: use [NAMESPACE/]NAME")),
        }
    }

    /// The boot order.
    pub(super) fn boot_order(&self) -> anyhow::Result<Option<u32>> {
        let Some(text) = self.get("bootorder") else { return Ok(None) };
        let order: u32 = text
            .parse()
            .with_context(|| self.wrong(&format!("failed to parse param \"bootorder\": \"{text}\" is no number")))?;
        if order == 0 {
            bail!(self.wrong("bootorder must be greater than 0"));
        }
        Ok(Some(order))
    }

    /// A mistake in this flag.
    pub(super) fn wrong(&self, why: &str) -> String {
        wrong(self.flag, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_contain_colons() {
        let params = Params::parse("x", "src:quay.io:5000/os:1,name:root", &["src", "name"]).unwrap();
        assert_eq!(params.get("src"), Some("quay.io:5000/os:1"));
        assert_eq!(params.need("name").unwrap(), "root");
        assert!(params.need("size").is_err());
    }

    #[test]
    fn suffixes_differ() {
        assert_ne!(suffix(), suffix());
        assert_eq!(suffix().len(), 5);
    }
}
