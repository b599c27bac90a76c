//! How a registry is told who asks: basic authentication, or a token from the service that its challenge names.

use std::fmt::{self, Write as _};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Response, Uri, header};
use hyper::body::Incoming;
use serde::Deserialize;

use super::Session;
use crate::{ImageError, Reference};

const MAX_TOKEN: u64 = 256 * 1024;

/// A name and a password for a registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password, or a token in its place.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: std::collections::BTreeMap<String, DockerAuth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerAuth {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
}

impl Credentials {
    /// The entry for an image in a `.dockerconfigjson`, as image pull secrets contain it. The most specific one wins.
    pub fn from_docker_config(config: &[u8], reference: &Reference) -> Option<Self> {
        let config: DockerConfig = serde_json::from_slice(config).ok()?;
        let wanted = format!("{}/{}", reference.registry(), reference.repository());
        let matching = config.auths.into_iter().filter_map(|(key, auth)| {
            let place = normalize(&key);
            let covers = wanted.strip_prefix(&place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            covers.then_some((place.len(), auth))
        });
        let (_, auth) = matching.max_by_key(|(length, _)| *length)?;
        auth.credentials()
    }

    fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.username, self.password)))
    }
}

impl DockerAuth {
    fn credentials(self) -> Option<Credentials> {
        if let (Some(username), Some(password)) = (self.username, self.password) {
            return Some(Credentials { username, password });
        }
        let decoded = String::from_utf8(STANDARD.decode(self.auth?.trim()).ok()?).ok()?;
        let (username, password) = decoded.split_once(':')?;
        Some(Credentials { username: username.to_owned(), password: password.to_owned() })
    }
}

/// `https://index.docker.io/v1/` and its like are registries too.
fn normalize(key: &str) -> String {
    let place = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let place = place.trim_end_matches("/v1").trim_end_matches("/v2");
    match place {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

impl Session<'_> {
    /// Answers the challenge of a registry with the value of an `Authorization` header, which is used from now on.
    pub(super) async fn authorize(&self, response: &Response<Incoming>) -> Result<String, ImageError> {
        let headers = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let challenges: Vec<_> = headers.filter_map(|value| Challenge::parse(value.to_str().ok()?)).collect();
        let find = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme));
        let authorization = if let Some(challenge) = find("bearer") {
            self.token(challenge).await?
        } else if find("basic").is_some() {
            let credentials =
                self.credentials.ok_or_else(|| self.denied("the registry wants a name and a password"))?;
            credentials.basic()
        } else {
            return Err(self.denied("the registry wants an unknown kind of authentication"));
        };
        *self.authorization.lock().await = Some(authorization.clone());
        Ok(authorization)
    }

    async fn token(&self, challenge: &Challenge) -> Result<String, ImageError> {
        let realm = challenge.get("realm").ok_or_else(|| self.denied("the registry's challenge has no realm"))?;
        let scope = format!("repository:{}:pull", self.reference.repository());
        let mut uri = format!("{realm}{}scope={}", if realm.contains('?') { '&' } else { '?' }, encode(&scope));
        if let Some(service) = challenge.get("service") {
            let _ = write!(uri, "&service={}", encode(service));
        }
        let uri: Uri =
            uri.parse().map_err(|_| self.denied(format!("the registry's token service {realm:?} is no address")))?;
        // Whoever pretends to be the registry must not get the password in clear text.
        if uri.scheme_str() != Some("https") && !self.plain {
            return Err(self.denied(format!("the registry's token service {realm:?} is not encrypted")));
        }
        let basic = self.credentials.map(Credentials::basic);
        let response = self.follow(&uri, "application/json", basic.as_deref()).await?;
        if !response.status().is_success() {
            return Err(self.unauthorized(response).await);
        }
        let content = self.collect(response, MAX_TOKEN).await?;
        let answer: serde_json::Value = serde_json::from_slice(&content).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|key| answer.get(key)?.as_str());
        let token = token.ok_or_else(|| self.denied("the registry's token service gave no token"))?;
        Ok(format!("Bearer {token}"))
    }
}

/// A `WWW-Authenticate` header.
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = Vec::new();
        while let Some((key, after)) = rest.split_once('=') {
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            parameters.push((key.trim_matches([' ', ',']).to_ascii_lowercase(), value.trim().to_owned()));
            rest = after;
        }
        Some(Self { scheme: scheme.to_owned(), parameters })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => {
                let _ = write!(encoded, "%{other:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_taken_apart() {
        let challenge =
            Challenge::parse(r#"Bearer realm="https://auth.example/token",service="a, b",scope="repository:x:pull""#)
                .unwrap();
        assert_eq!(challenge.scheme, "Bearer");
        assert_eq!(challenge.get("realm"), Some("https://auth.example/token"));
        assert_eq!(challenge.get("service"), Some("a, b"));
        assert_eq!(challenge.get("scope"), Some("repository:x:pull"));
        assert_eq!(Challenge::parse("Basic realm=plain").unwrap().get("realm"), Some("plain"));
        assert_eq!(Challenge::parse("Basic").unwrap().parameters, []);
        assert_eq!(Challenge::parse(r#"Bearer realm="unfinished"#), None);
    }

    #[test]
    fn the_most_specific_credentials_are_used() {
        let config = serde_json::json!({"auths": {
            "https://index.docker.io/v1/": {"auth": STANDARD.encode("hub:secret:with:colons")},
            "quay.io": {"username": "all", "password": "1"},
            "quay.io/team": {"username": "team", "password": "2"},
        }});
        let config = serde_json::to_vec(&config).unwrap();
        let find = |name: &str| {
            let found = Credentials::from_docker_config(&config, &Reference::parse(name).unwrap());
            found.map(|credentials| format!("{}/{}", credentials.username, credentials.password))
        };
        assert_eq!(find("busybox").as_deref(), Some("hub/secret:with:colons"));
        assert_eq!(find("quay.io/other/x").as_deref(), Some("all/1"));
        assert_eq!(find("quay.io/team/x").as_deref(), Some("team/2"));
        assert_eq!(find("quay.io/teammates/x").as_deref(), Some("all/1"));
        assert_eq!(find("ghcr.io/x"), None);
        let shown = format!("{:?}", Credentials { username: "me".into(), password: "hidden".into() });
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
