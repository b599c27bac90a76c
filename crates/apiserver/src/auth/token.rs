//! Bearer tokens: the ones that were written down in a file, and the signed ones of service accounts.
//!
//! A service account token is a JWT signed with ES256. It is good while its times hold, its service account exists
//! under the same uid, and so does the object that it was bound to; deleting a pod thereby ends its tokens.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::quote::{quoted, quoted_list};
use super::user::{
    EXTRA_CREDENTIAL_ID, EXTRA_NODE_NAME, EXTRA_NODE_UID, EXTRA_POD_NAME, EXTRA_POD_UID, UserInfo,
    service_account_user_name,
};

/// The audience and issuer that clusters have unless told otherwise.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";
/// How far clocks may be apart, in seconds.
const LEEWAY: i64 = 60;
const ALGORITHM: &str = "ES256";
/// DER of a `SubjectPublicKeyInfo` for P-256 up to the point itself.
const P256_SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// What tokens need to know about stored objects.
pub trait Lookup {
    /// The uid of an object of the core group, if it exists. `namespace` is empty for nodes.
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String>;

    /// When deletion of that object began (Unix seconds), if it did.
    fn deleting_since(&self, _resource: &str, _namespace: &str, _name: &str) -> Option<i64> {
        None
    }
}

/// Why a token is not accepted. The texts are the ones that a TokenReview shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nobody knows this token.
    #[error("invalid bearer token")]
    Unknown,
    /// It names a key that we do not have.
    #[error("invalid signature, no keys found")]
    UnknownKey,
    /// The signature does not fit, or is of a kind that we do not make.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    BadSignature,
    /// The signature is good and the content still makes no sense.
    #[error("service account token claims could not be validated due to unexpected validation error")]
    BadClaims,
    /// It is meant for somebody else.
    #[error("token audiences {} is invalid for the target audiences {}", quoted_list(.token), quoted_list(.wanted))]
    WrongAudience {
        /// Whom it is for.
        token: Vec<String>,
        /// Whom it was shown to.
        wanted: Vec<String>,
    },
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time has not come.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It claims to be made later than now.
    #[error("service account token is issued in the future")]
    IssuedInTheFuture,
    /// Its service account is gone.
    #[error("serviceaccounts {} not found", quoted(.0))]
    NoServiceAccount(String),
    /// Another object has the name of one that the token is about.
    #[error("{what} UID ({actual}) does not match {claim} ({claimed})")]
    OtherUid {
        /// What kind of object.
        what: &'static str,
        /// The uid that is stored.
        actual: String,
        /// Which claim.
        claim: &'static str,
        /// The uid in the claim.
        claimed: String,
    },
    /// Its service account is being deleted.
    #[error("service account {namespace}/{name} has been deleted")]
    ServiceAccountDeleted {
        /// Namespace of the account.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The object that it was bound to is gone.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// A token file that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A line has fewer than the three columns token, user, uid.
    #[error("token file line {line}: expected at least 3 columns (token, user name, user uid), found {columns}")]
    TooFewColumns {
        /// Counted from one.
        line: usize,
        /// What it has.
        columns: usize,
    },
    /// A quote is not closed, or something follows it.
    #[error("token file line {0}: misplaced quote")]
    BadQuote(usize),
}

/// Tokens that an administrator wrote down.
#[derive(Debug, Default)]
pub struct StaticTokens {
    /// By digest, so that looking one up takes no longer the more of it was guessed.
    users: HashMap<Vec<u8>, UserInfo>,
}

impl StaticTokens {
    /// No tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the format of `--token-auth-file`: `token,user,uid,"group1,group2"`.
    pub fn from_csv(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                continue;
            }
            let columns = csv_columns(line).ok_or(TokenFileError::BadQuote(number + 1))?;
            let [token, user, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::TooFewColumns { line: number + 1, columns: columns.len() });
            };
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map_or("", String::as_str).split(',').filter(|group| !group.is_empty());
            let mut user = UserInfo::new(user.as_str(), groups);
            user.uid = (!uid.is_empty()).then(|| uid.clone());
            tokens.insert(token, user);
        }
        Ok(tokens)
    }

    /// Makes `token` a password of `user`.
    pub fn insert(&mut self, token: &str, user: UserInfo) {
        self.users.insert(sha256(token.as_bytes()), user);
    }

    fn find(&self, token: &str) -> Option<&UserInfo> {
        self.users.get(&sha256(token.as_bytes()))
    }
}

fn csv_columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let column;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut value = String::new();
            let mut tail = quoted;
            loop {
                let (before, after) = tail.split_once('"')?;
                value.push_str(before);
                match after.strip_prefix('"') {
                    Some(after) => {
                        value.push('"');
                        tail = after;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
            column = value;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            column = rest[..end].to_owned();
            rest = &rest[end..];
            if column.contains('"') {
                return None;
            }
        }
        columns.push(column);
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start_matches(' '),
            None => return rest.is_empty().then_some(columns),
        }
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

/// Name and uid of an object that a token is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl ObjectRef {
    /// A reference.
    pub fn new(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { name: name.into(), uid: uid.into() }
    }
}

/// What a token lives and dies with, besides its service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Nothing.
    #[default]
    None,
    /// A pod; the node is only recorded.
    Pod {
        /// The pod.
        pod: ObjectRef,
        /// Where it runs.
        node: Option<ObjectRef>,
    },
    /// A secret.
    Secret(ObjectRef),
    /// A node.
    Node(ObjectRef),
}

/// What to put into a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSpec {
    /// The service account's namespace.
    pub namespace: String,
    /// The service account.
    pub account: ObjectRef,
    /// Whom the token is for.
    pub audiences: Vec<String>,
    /// Seconds until it ends.
    pub expiration_seconds: i64,
    /// Seconds after which its use is noted as stale.
    pub warn_after_seconds: Option<i64>,
    /// What it is bound to.
    pub binding: Binding,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Claims {
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    aud: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iat: Option<i64>,
    iss: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: KubernetesClaims,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<i64>,
    sub: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct KubernetesClaims {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<ObjectRef>,
    serviceaccount: ObjectRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnafter: Option<i64>,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token itself.
    pub token: String,
    /// Its id, `jti`.
    pub id: String,
}

/// Signing or reading the key failed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The key is not a P-256 key in PKCS #8 PEM.
    #[error("the service account key cannot be used: {0}")]
    Key(String),
    /// The system gave no randomness.
    #[error("failed to generate token: no randomness")]
    Sign,
}

/// Makes and checks the tokens of service accounts.
pub struct ServiceAccountTokens {
    issuer: String,
    key: EcdsaKeyPair,
    key_id: String,
}

impl std::fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccountTokens").field("issuer", &self.issuer).field("key_id", &self.key_id).finish()
    }
}

impl ServiceAccountTokens {
    /// Uses a P-256 key (PKCS #8, PEM) in the name of `issuer`.
    pub fn new(issuer: impl Into<String>, key_pem: &str) -> Result<Self, SigningError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|error| SigningError::Key(error.to_string()))?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random)
            .map_err(|error| SigningError::Key(error.to_string()))?;
        let mut spki = P256_SPKI_PREFIX.to_vec();
        spki.extend_from_slice(key.public_key().as_ref());
        Ok(Self { issuer: issuer.into(), key, key_id: URL_SAFE_NO_PAD.encode(sha256(&spki)) })
    }

    /// Who signs.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Makes a token; `now` in Unix seconds.
    pub fn issue(&self, spec: &TokenSpec, now: i64) -> Result<IssuedToken, SigningError> {
        let id = uuid::Uuid::new_v4().to_string();
        let (mut pod, mut node, mut secret) = (None, None, None);
        match spec.binding.clone() {
            Binding::None => {}
            Binding::Pod { pod: bound, node: on } => (pod, node) = (Some(bound), on),
            Binding::Secret(bound) => secret = Some(bound),
            Binding::Node(bound) => node = Some(bound),
        }
        let claims = Claims {
            aud: spec.audiences.clone(),
            exp: Some(now.saturating_add(spec.expiration_seconds)),
            iat: Some(now),
            iss: self.issuer.clone(),
            jti: id.clone(),
            kubernetes: KubernetesClaims {
                namespace: spec.namespace.clone(),
                node,
                pod,
                secret,
                serviceaccount: spec.account.clone(),
                warnafter: spec.warn_after_seconds.map(|seconds| now.saturating_add(seconds)),
            },
            nbf: Some(now),
            sub: service_account_user_name(&spec.namespace, &spec.account.name),
        };
        Ok(IssuedToken { token: self.sign(&claims)?, id })
    }

    fn sign(&self, claims: &Claims) -> Result<String, SigningError> {
        let header = Header { alg: ALGORITHM.to_owned(), kid: Some(self.key_id.clone()) };
        let encode = |json: serde_json::Result<Vec<u8>>| json.map(|json| URL_SAFE_NO_PAD.encode(json));
        let (Ok(header), Ok(claims)) = (encode(serde_json::to_vec(&header)), encode(serde_json::to_vec(claims))) else {
            return Err(SigningError::Sign);
        };
        let message = format!("{header}.{claims}");
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).map_err(|_| SigningError::Sign)?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Whose token this is, and for which of the `wanted` audiences. [`TokenError::Unknown`] means that it is none of
    /// ours; any other error that it is, and bad.
    fn verify(
        &self,
        token: &str,
        own_audiences: &[String],
        wanted: &[String],
        lookup: &dyn Lookup,
        now: i64,
    ) -> Result<TokenUser, TokenError> {
        let claims = self.verify_signature(token)?;
        let meant_for = if claims.aud.is_empty() { own_audiences } else { &claims.aud };
        let audiences: Vec<String> = meant_for.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if audiences.is_empty() {
            return Err(TokenError::WrongAudience { token: meant_for.to_vec(), wanted: wanted.to_vec() });
        }
        check_times(&claims, now)?;
        check_objects(&claims.kubernetes, lookup, now)?;
        Ok(TokenUser { user: user_of(&claims), audiences })
    }

    fn verify_signature(&self, token: &str) -> Result<Claims, TokenError> {
        let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Unknown)?;
        let (header, payload) = message.split_once('.').ok_or(TokenError::Unknown)?;
        if payload.contains('.') {
            return Err(TokenError::Unknown);
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Unknown);
        let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
        // Only the issuer is looked at before the signature is checked, to tell whose token this is.
        let unverified: Value = serde_json::from_slice(&payload).map_err(|_| TokenError::Unknown)?;
        if unverified["iss"] != self.issuer.as_str() {
            return Err(TokenError::Unknown);
        }
        let header: Header = serde_json::from_slice(&header).map_err(|_| TokenError::Unknown)?;
        if header.kid.as_deref().is_some_and(|kid| !kid.is_empty() && kid != self.key_id) {
            return Err(TokenError::UnknownKey);
        }
        // One algorithm, ours: what the token says about itself never chooses how it is checked.
        if header.alg != ALGORITHM {
            return Err(TokenError::BadSignature);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(message.as_bytes(), &signature)
            .map_err(|_| TokenError::BadSignature)?;
        serde_json::from_value(unverified).map_err(|_| TokenError::BadClaims)
    }

    /// `/openid/v1/jwks`: the public key.
    pub fn jwks(&self) -> Value {
        let point = self.key.public_key().as_ref();
        // An uncompressed point: a marker, then both coordinates.
        let (x, y) = point.get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
        json!({"keys": [{
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": ALGORITHM,
            "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }

    /// `/.well-known/openid-configuration`; `jwks_uri` is where clients find [`ServiceAccountTokens::jwks`].
    pub fn openid_configuration(&self, jwks_uri: &str) -> Value {
        json!({
            "issuer": self.issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        })
    }
}

fn check_times(claims: &Claims, now: i64) -> Result<(), TokenError> {
    if claims.nbf.is_some_and(|nbf| now.saturating_add(LEEWAY) < nbf) {
        return Err(TokenError::NotYetValid);
    }
    if claims.exp.is_some_and(|exp| now.saturating_sub(LEEWAY) > exp) {
        return Err(TokenError::Expired);
    }
    if claims.iat.is_some_and(|iat| now.saturating_add(LEEWAY) < iat) {
        return Err(TokenError::IssuedInTheFuture);
    }
    Ok(())
}

fn check_objects(claims: &KubernetesClaims, lookup: &dyn Lookup, now: i64) -> Result<(), TokenError> {
    let (namespace, account) = (&claims.namespace, &claims.serviceaccount);
    let gone = |resource: &str, namespace: &str, name: &str| {
        lookup.deleting_since(resource, namespace, name).is_some_and(|since| since < now.saturating_sub(LEEWAY))
    };
    let uid = lookup
        .uid("serviceaccounts", namespace, &account.name)
        .ok_or_else(|| TokenError::NoServiceAccount(account.name.clone()))?;
    same_uid("service account", uid, "claim", &account.uid)?;
    if gone("serviceaccounts", namespace, &account.name) {
        return Err(TokenError::ServiceAccountDeleted { namespace: namespace.clone(), name: account.name.clone() });
    }
    // The node of a pod's token is only information; the token ends with the pod.
    let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
    let bound = [
        ("secret", "secrets", namespace.as_str(), claims.secret.as_ref(), "service account secret ref claim"),
        ("pod", "pods", namespace.as_str(), claims.pod.as_ref(), "service account pod ref claim"),
        ("node", "nodes", "", node, "service account node ref claim"),
    ];
    for (what, resource, namespace, object, claim) in bound {
        let Some(object) = object else { continue };
        let uid = lookup.uid(resource, namespace, &object.name).ok_or(TokenError::Invalidated)?;
        same_uid(what, uid, claim, &object.uid)?;
        if gone(resource, namespace, &object.name) {
            return Err(TokenError::Invalidated);
        }
    }
    Ok(())
}

fn same_uid(what: &'static str, actual: String, claim: &'static str, claimed: &str) -> Result<(), TokenError> {
    if actual == claimed {
        return Ok(());
    }
    Err(TokenError::OtherUid { what, actual, claim, claimed: claimed.to_owned() })
}

fn user_of(claims: &Claims) -> UserInfo {
    let own = &claims.kubernetes;
    let mut user = UserInfo::service_account(&own.namespace, &own.serviceaccount.name, Some(&own.serviceaccount.uid));
    let mut extra = BTreeMap::new();
    let mut note = |key: &str, value: &str| extra.insert(key.to_owned(), vec![value.to_owned()]);
    if !claims.jti.is_empty() {
        note(EXTRA_CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = &own.pod {
        note(EXTRA_POD_NAME, &pod.name);
        note(EXTRA_POD_UID, &pod.uid);
    }
    if let Some(node) = &own.node {
        note(EXTRA_NODE_NAME, &node.name);
        if !node.uid.is_empty() {
            note(EXTRA_NODE_UID, &node.uid);
        }
    }
    user.extra = extra;
    user
}

/// Whom a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    /// The user, without `system:authenticated`.
    pub user: UserInfo,
    /// For which of the audiences that were asked for.
    pub audiences: Vec<String>,
}

/// Everything that knows bearer tokens.
#[derive(Debug)]
pub struct Tokens {
    /// Tokens from a file.
    pub fixed: StaticTokens,
    /// Tokens of service accounts.
    pub service_accounts: ServiceAccountTokens,
    /// Whom tokens must be meant for, to be good for this server.
    pub audiences: Vec<String>,
}

impl Tokens {
    /// Tokens for one server, whose only audience is its issuer name.
    pub fn new(fixed: StaticTokens, service_accounts: ServiceAccountTokens) -> Self {
        let audiences = vec![service_accounts.issuer.clone()];
        Self { fixed, service_accounts, audiences }
    }

    /// Whose token this is. `wanted` are the audiences that would do; empty means this server's own.
    pub fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        lookup: &dyn Lookup,
        now: i64,
    ) -> Result<TokenUser, TokenError> {
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        if let Some(user) = self.fixed.find(token) {
            // A written-down token says nothing about audiences, so it is good for this server and nobody else.
            let audiences: Vec<String> = self.audiences.iter().filter(|a| wanted.contains(a)).cloned().collect();
            return match audiences.is_empty() {
                true => Err(TokenError::Unknown),
                false => Ok(TokenUser { user: user.clone(), audiences }),
            };
        }
        self.service_accounts.verify(token, &self.audiences, wanted, lookup, now)
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
