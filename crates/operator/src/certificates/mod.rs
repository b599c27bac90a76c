//! Certificates that nobody has to handle: which to issue, renew and hand over, as a function of what is there and of the time.
//!
//! ```text
//!                 near its end                    published for a while
//!   [authority] ───────────────► [with successor] ─────────────────────► [authority], the old one among the earlier
//! ```
//!
//! The authority's Secret holds the one that signs, its successor when there is one, and the certificates of earlier ones for as long
//! as they are valid. The published bundle follows from that Secret alone, so whatever somebody puts into it is repaired. A successor
//! signs nothing before everybody had time to read the bundle that has it.

mod issue;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub use issue::{IssueError, Request, authority_data, leaf_data, promoted_data, sign_request, successor_data};

/// How long a successor is in the bundle before it signs. Kubelets bring a changed ConfigMap into pods within two minutes.
pub const OVERLAP: SignedDuration = SignedDuration::from_mins(10);
/// Certificates begin a little in the past, for clocks that are behind.
pub(crate) const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const NEXT_CERTIFICATE: &str = "next.crt";
pub(crate) const NEXT_KEY: &str = "next.key";
pub(crate) const EARLIER: &str = "earlier.crt";

/// How long certificates live, and how long before their end they are renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// The authority's.
    pub authority: SignedDuration,
    /// Time left at which it gets a successor.
    pub authority_renewal: SignedDuration,
    /// All others'.
    pub leaf: SignedDuration,
    /// Time left at which they are renewed.
    pub leaf_renewal: SignedDuration,
}

impl Default for Lifetimes {
    /// A week and a day; renewed when a fifth is left.
    fn default() -> Self {
        let (authority, leaf) = (SignedDuration::from_hours(168), SignedDuration::from_hours(24));
        Self { authority, authority_renewal: authority / 5, leaf, leaf_renewal: leaf / 5 }
    }
}

/// What is known about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As text.
    pub pem: String,
    /// Who it is.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// DNS names.
    pub names: Vec<String>,
    /// From when it is valid.
    pub begin: Timestamp,
    /// Until when.
    pub end: Timestamp,
}

impl Facts {
    /// Reads one certificate; nothing comes of what is none.
    #[must_use]
    pub fn parse(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        Self::of(&der, pem.to_owned())
    }

    fn of(der: &CertificateDer<'_>, pem: String) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = certificate.subject_alternative_name().ok()?.map(|names| {
            let dns = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                _ => None,
            };
            names.value.general_names.iter().filter_map(dns).collect()
        });
        let time = |at: i64| Timestamp::from_second(at).ok();
        Some(Self {
            pem,
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names: names.unwrap_or_default(),
            begin: time(certificate.validity().not_before.timestamp())?,
            end: time(certificate.validity().not_after.timestamp())?,
        })
    }
}

/// The authorities of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// The one that signs.
    pub current: Facts,
    /// The one that will.
    pub next: Option<Facts>,
    /// Those that did.
    pub earlier: Vec<Facts>,
}

impl Authorities {
    /// Reads a Secret. One that cannot sign is nothing.
    #[must_use]
    pub fn of(secret: &Value) -> Option<Self> {
        let key = text(secret, KEY)?;
        rcgen::KeyPair::from_pem(&key).ok()?;
        let next = text(secret, NEXT_KEY).and(text(secret, NEXT_CERTIFICATE));
        let earlier = text(secret, EARLIER).unwrap_or_default();
        Some(Self {
            current: Facts::parse(&text(secret, CERTIFICATE)?)?,
            next: next.as_deref().and_then(Facts::parse),
            earlier: split(&earlier).iter().filter_map(|pem| Facts::parse(pem)).collect(),
        })
    }

    /// All certificates that are still valid, as one text.
    #[must_use]
    pub fn bundle(&self, now: Timestamp) -> String {
        let all = [Some(&self.current), self.next.as_ref()].into_iter().flatten().chain(&self.earlier);
        all.filter(|facts| facts.end > now).map(|facts| facts.pem.as_str()).collect()
    }
}

/// One field of a Secret, as text.
pub(crate) fn text(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

/// The certificates of a text, one by one.
pub(crate) fn split(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = text.split_inclusive(END).filter(|part| part.contains("-----BEGIN CERTIFICATE-----"));
    parts.map(|part| format!("{}\n", part.trim())).collect()
}

/// What to do about certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make an authority: there is none, or it is of no use any more.
    MakeAuthority,
    /// Make its successor.
    MakeSuccessor,
    /// Let the successor sign from now on.
    Promote,
    /// Issue virt-api's certificate.
    IssueApi,
}

/// What follows from the present secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to do now.
    pub step: Option<Step>,
    /// The bundle to publish; empty as long as there is no authority.
    pub bundle: String,
    /// virt-api has a certificate.
    pub ready: bool,
    /// When something is due again.
    pub due: Option<Timestamp>,
}

/// What certificates are judged by.
#[derive(Debug)]
pub struct Situation<'a> {
    /// The authority's Secret.
    pub authority: Option<&'a Value>,
    /// The published bundle.
    pub published: &'a str,
    /// virt-api's Secret.
    pub api: Option<&'a Value>,
    /// The names that virt-api's certificate must have.
    pub names: &'a [String],
    /// Lifetimes.
    pub lifetimes: Lifetimes,
    /// The time.
    pub now: Timestamp,
}

/// Judges. One step at a time: the next follows from what the step has made.
#[must_use]
pub fn decide(situation: &Situation<'_>) -> Decision {
    let Situation { now, lifetimes, .. } = *situation;
    let authorities = situation.authority.and_then(Authorities::of).filter(|it| it.current.end > now);
    let Some(authorities) = authorities else {
        return Decision { step: Some(Step::MakeAuthority), bundle: String::new(), ready: false, due: None };
    };
    let (mut step, mut due) = (None, authorities.current.end - lifetimes.authority_renewal);
    match &authorities.next {
        None if due <= now => step = Some(Step::MakeSuccessor),
        None => {}
        Some(next) => {
            due = next.begin + BACKDATE + OVERLAP;
            if due <= now && situation.published.contains(&next.pem) {
                step = Some(Step::Promote);
            }
        }
    }
    let leaf = situation.api.and_then(|secret| usable(secret, situation.names));
    let known = |leaf: &Facts| {
        let all = [Some(&authorities.current), authorities.next.as_ref()].into_iter().flatten();
        all.chain(&authorities.earlier).any(|authority| authority.subject == leaf.issuer && authority.end > now)
    };
    let leaf = leaf.filter(|leaf| leaf.end > now && known(leaf));
    // A certificate ends with its authority: the next one lives longer only when another authority signs it.
    let is_last = leaf.as_ref().is_some_and(|leaf| leaf.end >= authorities.current.end);
    let renewal = leaf.as_ref().filter(|_| !is_last).map(|leaf| leaf.end - lifetimes.leaf_renewal);
    if !is_last
        && renewal.is_none_or(|renewal| renewal <= now)
        && step.is_none()
        && situation.published.contains(&authorities.current.pem)
    {
        step = Some(Step::IssueApi);
    }
    let ends = authorities.earlier.iter().map(|facts| facts.end).filter(|end| *end > now);
    let due = ends.chain(renewal).fold(due, Timestamp::min);
    Decision { step, bundle: authorities.bundle(now), ready: leaf.is_some(), due: Some(due) }
}

/// The certificate of a Secret with a key, if it has these names.
fn usable(secret: &Value, names: &[String]) -> Option<Facts> {
    rcgen::KeyPair::from_pem(&text(secret, KEY)?).ok()?;
    Facts::parse(&text(secret, CERTIFICATE)?).filter(|facts| facts.names == names)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
