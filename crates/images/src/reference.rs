//! Names of images: `[registry/]repository[:tag][@digest]`, with Docker Hub and `latest` where nothing is said.

use std::fmt;

use crate::{Digest, ImageError};

const DOCKER_HUB: &str = "docker.io";

/// A complete name of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Understands what users write.
    ///
    /// # Errors
    /// When it is no name of an image.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let invalid = |reason| ImageError::InvalidReference { reference: text.to_owned(), reason };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse::<Digest>().map_err(invalid)?)),
            None => (text, None),
        };
        // A colon after the last slash separates the tag; one before it belongs to a port.
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("invalid tag"));
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DOCKER_HUB, name),
        };
        if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(invalid("invalid reference format: repository name must be lowercase"));
        }
        if !is_registry(registry) || name.len() > 255 || path.is_empty() || !path.split('/').all(is_component) {
            return Err(invalid("invalid reference format"));
        }
        let registry = if registry == "index.docker.io" { DOCKER_HUB } else { registry };
        let library = registry == DOCKER_HUB && !path.contains('/');
        let repository = if library { format!("library/{path}") } else { path.to_owned() };
        let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| "latest".to_owned()));
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }

    /// The registry's name, `docker.io` for Docker Hub.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository below the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if there is one: it wins over the tag.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The host that speaks for the registry.
    pub(crate) fn host(&self) -> &str {
        if self.registry == DOCKER_HUB { "registry-1.docker.io" } else { &self.registry }
    }

    /// What the manifest is asked for by.
    pub(crate) fn manifest(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(formatter, "@{digest}")?;
        }
        Ok(())
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let rest = |byte: u8| word(byte) || byte == b'.' || byte == b'-';
    tag.len() <= 128 && tag.bytes().next().is_some_and(word) && tag.bytes().all(rest)
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            ("ipv6", rest.strip_prefix(':'))
        }
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        },
    };
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().copied().is_some_and(alphanumeric) && bytes.last().copied().is_some_and(alphanumeric);
    let separators = component.split(|character: char| character.is_ascii_alphanumeric());
    ends && separators
        .filter(|separator| !separator.is_empty())
        .all(|separator| matches!(separator, "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let digest = Digest::of(b"x");
        for (text, complete) in [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("kubevirt/cirros", "docker.io/kubevirt/cirros:latest".to_owned()),
            ("index.docker.io/a:1", "docker.io/library/a:1".to_owned()),
            ("quay.io/containerdisks/fedora:41", "quay.io/containerdisks/fedora:41".to_owned()),
            ("localhost/a", "localhost/a:latest".to_owned()),
            ("localhost:5000/a", "localhost:5000/a:latest".to_owned()),
            ("127.0.0.1:5000/a/b:v1.2_3-x", "127.0.0.1:5000/a/b:v1.2_3-x".to_owned()),
            ("[::1]:5000/a", "[::1]:5000/a:latest".to_owned()),
            (&format!("a.io/b@{digest}"), format!("a.io/b@{digest}")),
            (&format!("a.io/b:1@{digest}"), format!("a.io/b:1@{digest}")),
            ("a__b/c---d.e", "docker.io/a__b/c---d.e:latest".to_owned()),
        ] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), complete);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            ":",
            "/",
            "a/",
            "a//b",
            "a:",
            "a:b:c",
            "a@",
            "a@sha256:12",
            "A",
            "a/B",
            "a b",
            "../x",
            "a/../b",
            "a/-b",
            "a.-b",
            "registry.io:99999/a",
            "-x.io/a",
            "a___b",
            "a:-x",
            "host.io/a?b",
            "user@host.io/a",
            "[nonsense]/a",
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert_eq!(error.reason(), "InvalidImageName", "{text}");
        }
        assert_eq!(
            Reference::parse("Busybox").unwrap_err().to_string(),
            "Failed to apply default image tag \"Busybox\": couldn't parse image name \"Busybox\": invalid reference format: repository name must be lowercase"
        );
    }
}
