//! Whose word about callers is taken: the aggregation layer's, when its certificate is of the right authority and has an allowed
//! name. Everybody else's `X-Remote-*` headers are just text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::http::info;
use http::HeaderMap;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a configuration of the aggregation layer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The authority is no certificate.
    #[error("requestheader-client-ca-file holds no usable certificate: {0}")]
    Authority(String),
    /// A list is no list of words.
    #[error("{field} is no JSON list of words: {source}")]
    List {
        /// Which.
        field: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// How the aggregation layer is recognised, and where it says who asks.
#[derive(Debug, Default)]
pub struct Trust {
    /// Nobody is trusted without an authority.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Names that its certificate may have; any when empty.
    names: Vec<String>,
    user_headers: Vec<String>,
    uid_headers: Vec<String>,
    group_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl Trust {
    /// Nobody speaks for others.
    #[must_use]
    pub fn nobody() -> Self {
        Self::default()
    }

    /// Reads `kube-system/extension-apiserver-authentication`.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, TrustError> {
        let list = |field: &'static str| -> Result<Vec<String>, TrustError> {
            let text = data.get(field).map_or("[]", String::as_str);
            serde_json::from_str(text).map_err(|source| TrustError::List { field, source })
        };
        let lower = |words: Vec<String>| words.into_iter().map(|word| word.to_ascii_lowercase()).collect();
        let authority = data.get("requestheader-client-ca-file").filter(|pem| !pem.trim().is_empty());
        Ok(Self {
            verifier: authority.map(|pem| verifier(pem)).transpose()?,
            names: list("requestheader-allowed-names")?,
            user_headers: lower(list("requestheader-username-headers")?),
            uid_headers: lower(list("requestheader-uid-headers")?),
            group_headers: lower(list("requestheader-group-headers")?),
            extra_prefixes: lower(list("requestheader-extra-headers-prefix")?),
        })
    }

    /// Whether these are the aggregation layer's certificates. Whoever shows them has proved to own the first one's key.
    #[must_use]
    pub fn believes(&self, certificates: &[CertificateDer<'_>], now: SystemTime) -> bool {
        let (Some(verifier), Some((leaf, intermediates))) = (&self.verifier, certificates.split_first()) else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        if verifier.verify_client_cert(leaf, intermediates, now).is_err() {
            return false;
        }
        self.names.is_empty() || common_name(leaf).is_some_and(|name| self.names.contains(&name))
    }

    /// Who asks, by the headers of a request from the aggregation layer.
    #[must_use]
    pub fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let name = self.user_headers.iter().find_map(|name| values(headers, name).next())?;
        let groups = self.group_headers.iter().flat_map(|name| values(headers, name)).collect();
        let uid = self.uid_headers.iter().find_map(|name| values(headers, name).next());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            let key = self.extra_prefixes.iter().find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
            if let Some(key) = key {
                extra.entry(info::decode(key)).or_default().extend(values(headers, name.as_str()));
            }
        }
        Some(UserInfo { name, uid, groups, extra })
    }
}

fn values(headers: &HeaderMap, name: &str) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.filter(|value| !value.is_empty()).map(str::to_owned)
}

fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, TrustError> {
    let failed = |error: &dyn std::fmt::Display| TrustError::Authority(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| failed(&error))?;
    Ok(verifier)
}

/// The name in a certificate; the last where there are several, as Go takes it.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().last()?.as_str().ok()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use ferrovirt_apiserver::auth::{Identity, Pki};

    use super::*;

    fn data(pki: &Pki, names: &str) -> BTreeMap<String, String> {
        let entries = [
            ("requestheader-client-ca-file", pki.front_proxy_ca_certificate()),
            ("requestheader-allowed-names", names),
            ("requestheader-username-headers", "[\"X-Remote-User\"]"),
            ("requestheader-uid-headers", "[\"X-Remote-Uid\"]"),
            ("requestheader-group-headers", "[\"X-Remote-Group\"]"),
            ("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]"),
        ];
        entries.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pki() -> (tempfile::TempDir, Pki) {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(directory.path(), &[], SystemTime::now()).unwrap();
        (directory, pki)
    }

    fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect()
    }

    #[test]
    fn only_the_right_authority_with_an_allowed_name_is_believed() {
        let (_directory, pki) = pki();
        let proxy = chain(pki.front_proxy_client());
        let jane = chain(&pki.client_identity("front-proxy-client", &[], SystemTime::now()).unwrap());
        let believes = |names: &str, certificates: &[CertificateDer<'_>]| {
            Trust::parse(&data(&pki, names)).unwrap().believes(certificates, SystemTime::now())
        };
        assert!(believes("[\"front-proxy-client\"]", &proxy));
        assert!(believes("[]", &proxy), "any name will do");
        assert!(!believes("[\"aggregator\"]", &proxy));
        assert!(!believes("[\"front-proxy-client\"]", &jane), "the right name of the wrong authority");
        assert!(!believes("[]", &[]));
        assert!(!Trust::nobody().believes(&proxy, SystemTime::now()));
        let later = SystemTime::now() + std::time::Duration::from_secs(20 * 365 * 24 * 3600);
        assert!(!Trust::parse(&data(&pki, "[]")).unwrap().believes(&proxy, later), "out of time");
    }

    #[test]
    fn headers_say_who_asks() {
        let (_directory, pki) = pki();
        let trust = Trust::parse(&data(&pki, "[]")).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(trust.user(&headers), None);
        for (name, value) in [
            ("X-Remote-User", "jane"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Extra-example.com%2fx", "y"),
            ("X-Other", "z"),
        ] {
            headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let user = trust.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_deref()), ("jane", Some("7")));
        assert_eq!(user.groups, ["dev", "ops"]);
        assert_eq!(user.extra, [("example.com/x".to_owned(), vec!["y".to_owned()])].into());
        assert_eq!(Trust::nobody().user(&headers), None);
    }

    #[test]
    fn nonsense_is_told_apart_from_nothing() {
        let (_directory, pki) = pki();
        assert!(Trust::parse(&BTreeMap::new()).unwrap().verifier.is_none());
        let mut wrong = data(&pki, "front-proxy-client");
        assert!(matches!(Trust::parse(&wrong), Err(TrustError::List { field: "requestheader-allowed-names", .. })));
        wrong.insert("requestheader-client-ca-file".to_owned(), "no certificate".to_owned());
        assert!(matches!(Trust::parse(&wrong), Err(TrustError::Authority(_))));
    }
}
