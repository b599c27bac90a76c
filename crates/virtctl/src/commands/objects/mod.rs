//! `virtctl get`, `apply`, `delete` and `wait`: enough of kubectl that a machine without it can work with virtual machines and what
//! they are made of. They know no kinds: discovery tells what a cluster serves, and tables come from the server.

pub(crate) mod apply;
pub(crate) mod delete;
mod discovery;
pub(crate) mod get;
mod jsonpath;
pub(crate) mod manifests;
mod table;
pub(crate) mod wait;

use anyhow::bail;
use serde_json::Value;

use self::discovery::{Discovery, Resource};

/// Which objects, as kubectl's words say it: `vm web`, `vm/web pod/x`, `vm,vmi`.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    /// Each kind with the names that are wanted of it; none for all.
    parts: Vec<(Resource, Vec<String>)>,
}

impl Selection {
    fn parse(words: &[String], known: &Discovery) -> anyhow::Result<Self> {
        let Some(first) = words.first() else { bail!("name a kind, such as vm, or KIND/NAME") };
        if first.contains('/') {
            let mut parts: Vec<(Resource, Vec<String>)> = Vec::new();
            for word in words {
                let Some((kind, name)) = word.split_once('/').filter(|(_, name)| !name.is_empty()) else {
                    bail!("\"{word}\" names no object: after KIND/NAME, write each as KIND/NAME");
                };
                for resource in known.find(kind)? {
                    match parts.iter_mut().find(|(known, _)| *known == resource) {
                        Some((_, names)) => names.push(name.to_owned()),
                        None => parts.push((resource, vec![name.to_owned()])),
                    }
                }
            }
            return Ok(Self { parts });
        }
        let mut parts = Vec::new();
        for kind in first.split(',').filter(|kind| !kind.is_empty()) {
            parts.extend(known.find(kind)?.into_iter().map(|resource| (resource, words[1..].to_vec())));
        }
        Ok(Self { parts })
    }
}

/// `virtualmachine.kubevirt.io/web`, or `pod/web` for kinds without a group.
fn full_name(resource: &Resource, name: &str) -> String {
    format!("{}/{name}", resource.typed())
}

/// A selector, ready for a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The items of a list, each with the kind and version that lists leave out.
fn items(list: &Value, resource: &Resource) -> Vec<Value> {
    let whole = |item: &Value| {
        let mut item = item.clone();
        item["apiVersion"] = resource.api_version().into();
        item["kind"] = resource.kind.clone().into();
        item
    };
    list["items"].as_array().into_iter().flatten().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::discovery::tests::known;
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let parts = Selection::parse(&words, &known())?.parts;
        Ok(parts.into_iter().map(|(resource, names)| (resource.plural, names)).collect())
    }

    #[test]
    fn objects_are_named_in_kubectl_s_ways() {
        let part =
            |kind: &str, names: &[&str]| (kind.to_owned(), names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(parse("vm").unwrap(), [part("virtualmachines", &[])]);
        assert_eq!(parse("vm web db").unwrap(), [part("virtualmachines", &["web", "db"])]);
        assert_eq!(parse("vm,pods").unwrap(), [part("virtualmachines", &[]), part("pods", &[])]);
        assert_eq!(
            parse("vm/web po/x vm/db").unwrap(),
            [part("virtualmachines", &["web", "db"]), part("pods", &["x"])]
        );
        assert_eq!(parse("all").unwrap(), [part("pods", &[]), part("virtualmachines", &[])]);
        assert!(parse("vm/web db").is_err() && parse("vm/").is_err());
        assert!(parse("cars").unwrap_err().to_string().contains("doesn't have a resource type \"cars\""));
    }

    #[test]
    fn selectors_survive_a_query() {
        assert_eq!(encoded("app=a b,tier!=x"), "app%3Da%20b%2Ctier%21%3Dx");
    }
}
