//! The JSON documents of an image: index, manifest and configuration.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The media types of manifests and indexes that are understood, as a registry is asked for them.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Points to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

impl Platform {
    /// This machine's, in the words of the specification.
    pub(crate) fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), os: "linux".to_owned() }
    }
}

/// A document that is a manifest or an index: they are told apart by what they contain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Document {
    /// One image.
    Manifest(Manifest),
    /// Images for several platforms.
    Index(Index),
}

/// One image: its configuration and layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u8,
    pub(crate) media_type: Option<String>,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// Several images.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u8,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Index {
    /// The image for this machine: the one of its platform, or the only one when it does not say what it is for.
    pub(crate) fn select(&self, platform: &Platform) -> Result<&Descriptor, String> {
        let matching = self.manifests.iter().find(|entry| entry.platform.as_ref() == Some(platform));
        let only = match self.manifests.as_slice() {
            [only] if only.platform.is_none() => Some(only),
            _ => None,
        };
        matching.or(only).ok_or_else(|| format!("no match for platform {}/{}", platform.os, platform.architecture))
    }
}

/// The configuration document of an image, as far as it is of use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConfigFile {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) config: Option<ImageConfig>,
    pub(crate) rootfs: RootFs,
}

/// The uncompressed layers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RootFs {
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    pub(crate) diff_ids: Vec<Digest>,
}

/// How a container of the image starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageConfig {
    /// The command, before the arguments.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments, or the command where there is no entry point.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Environment variables: `NAME=value`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// `user[:group]`, names or numbers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Where the command starts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// What asks it to end, such as `SIGQUIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// Builders write `null` for what is empty.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(content: &str, platform: Option<(&str, &str)>) -> Descriptor {
        Descriptor {
            media_type: String::new(),
            digest: Digest::of(content.as_bytes()),
            size: 1,
            platform: platform.map(|(os, architecture)| Platform { architecture: architecture.into(), os: os.into() }),
            annotations: None,
        }
    }

    #[test]
    fn an_index_answers_the_image_of_the_platform() {
        let here = Platform { architecture: "amd64".into(), os: "linux".into() };
        let select = |manifests: Vec<Descriptor>| {
            Index { schema_version: 2, manifests }.select(&here).map(|entry| entry.digest.clone())
        };
        let several = vec![
            entry("arm", Some(("linux", "arm64"))),
            entry("windows", Some(("windows", "amd64"))),
            entry("right", Some(("linux", "amd64"))),
        ];
        assert_eq!(select(several.clone()).unwrap(), Digest::of(b"right"));
        assert_eq!(select(several[..2].to_vec()).unwrap_err(), "no match for platform linux/amd64");
        assert_eq!(select(vec![entry("only", None)]).unwrap(), Digest::of(b"only"));
        assert!(select(vec![entry("one", None), entry("two", None)]).is_err());
    }

    #[test]
    fn configurations_with_null_lists_are_read() {
        let text = r#"{"rootfs":{"type":"layers","diff_ids":[]},"config":{"Entrypoint":null,"Cmd":["sh"],"Labels":{"a":"b"}}}"#;
        let config = serde_json::from_str::<ConfigFile>(text).unwrap().config.unwrap();
        assert_eq!((config.entrypoint, config.cmd), (vec![], vec!["sh".to_owned()]));
    }
}
