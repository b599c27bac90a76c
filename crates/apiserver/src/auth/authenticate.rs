//! From a connection and a request's headers to a user.
//!
//! Credentials are tried in kube-apiserver's order: what the front proxy says, the client certificate, the bearer
//! token, the bearer token hidden in a websocket protocol. The first that works counts. With none at all the user is
//! anonymous; with only bad ones the answer is 401, never anonymous.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

use super::tls::Peer;
use super::token::{Lookup, TokenError, Tokens};
use super::user::UserInfo;

const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";
const REMOTE_USER: &str = "x-remote-user";
const REMOTE_UID: &str = "x-remote-uid";
const REMOTE_GROUP: &str = "x-remote-group";
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// Credentials were shown and none was good. The client is told nothing but "Unauthorized"; this is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthorized {
    /// The certificate is of an unknown authority, out of time, or not for clients.
    #[error("the client certificate is not valid here")]
    Certificate,
    /// The token is not accepted.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Two websocket protocols carry a token.
    #[error("multiple base64.bearer.authorization tokens specified")]
    SeveralProtocolTokens,
    /// The token in the websocket protocol cannot be decoded.
    #[error("invalid base64.bearer.authorization token encoding")]
    ProtocolTokenEncoding,
    /// The token in the websocket protocol is no text.
    #[error("invalid base64.bearer.authorization token")]
    ProtocolTokenText,
    /// There is nothing left to answer the websocket handshake with.
    #[error("missing additional subprotocol")]
    NoOtherProtocol,
}

/// Whose request this is; impersonation comes after, in [`super::impersonate`]. `now` in Unix seconds.
pub fn authenticate(
    peer: &Peer,
    headers: &HeaderMap,
    tokens: &Tokens,
    lookup: &dyn Lookup,
    now: i64,
) -> Result<UserInfo, Unauthorized> {
    let mut failure = None;
    match peer {
        Peer::User(user) => return Ok(user.clone().with_authenticated_group()),
        Peer::FrontProxy => match proxied_user(headers) {
            Some(user) => return Ok(user.with_authenticated_group()),
            // For the proxy itself its certificate is as good as a stranger's.
            None => failure = Some(Unauthorized::Certificate),
        },
        Peer::Unknown => failure = Some(Unauthorized::Certificate),
        Peer::Nobody => {}
    }
    for token in [Ok(bearer_token(headers)), protocol_token(headers)] {
        let checked = match token {
            Ok(None) => continue,
            Ok(Some(token)) => tokens.authenticate(&token, &[], lookup, now).map_err(Unauthorized::Token),
            Err(error) => Err(error),
        };
        match checked {
            Ok(found) => return Ok(found.user.with_authenticated_group()),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or_else(|| Ok(UserInfo::anonymous()), Err)
}

/// Removes all credentials from a request that passed, so that nothing behind can use or leak them.
pub fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let identity: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            [REMOTE_USER, REMOTE_UID, REMOTE_GROUP].contains(&name) || name.starts_with(REMOTE_EXTRA)
        })
        .cloned()
        .collect();
    for name in identity {
        headers.remove(name);
    }
    let protocols = websocket_protocols(headers);
    let kept: Vec<&str> =
        protocols.iter().map(String::as_str).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL)).collect();
    if kept.len() != protocols.len() {
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
        if let Ok(value) = HeaderValue::from_str(&kept.join(",")) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
        }
    }
}

/// The user for whom the front proxy speaks.
fn proxied_user(headers: &HeaderMap) -> Option<UserInfo> {
    let name = first(headers, REMOTE_USER)?;
    let uid = first(headers, REMOTE_UID);
    Some(UserInfo { name, uid, groups: all(headers, REMOTE_GROUP), extra: extras(headers, REMOTE_EXTRA) })
}

fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let header = first(headers, AUTHORIZATION.as_str())?;
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// Browsers cannot set headers on a websocket, so the token may come as a made-up protocol name.
fn protocol_token(headers: &HeaderMap) -> Result<Option<String>, Unauthorized> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let protocols = websocket_protocols(headers);
    let mut encoded = protocols.iter().filter_map(|protocol| protocol.strip_prefix(BEARER_PROTOCOL));
    let Some(token) = encoded.next() else { return Ok(None) };
    if encoded.next().is_some() {
        return Err(Unauthorized::SeveralProtocolTokens);
    }
    let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| Unauthorized::ProtocolTokenEncoding)?;
    let token = String::from_utf8(token).map_err(|_| Unauthorized::ProtocolTokenText)?;
    if token.is_empty() {
        return Ok(None);
    }
    if protocols.len() == 1 {
        return Err(Unauthorized::NoOtherProtocol);
    }
    Ok(Some(token))
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name: &str, wanted: &str| {
        all(headers, name).iter().flat_map(|v| v.split(',')).any(|v| v.trim().eq_ignore_ascii_case(wanted))
    };
    has(UPGRADE.as_str(), "websocket") && has(CONNECTION.as_str(), "upgrade")
}

fn websocket_protocols(headers: &HeaderMap) -> Vec<String> {
    let values = all(headers, SEC_WEBSOCKET_PROTOCOL.as_str());
    values.iter().flat_map(|value| value.split(',')).map(|protocol| protocol.trim().to_owned()).collect()
}

/// The first value of a header, unless it is empty.
pub(super) fn first(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(text).filter(|value| !value.is_empty())
}

/// All values of a header.
pub(super) fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
    headers.get_all(name).iter().map(text).collect()
}

/// Headers that start with `prefix`, by the rest of their name, in which `%` escapes are allowed.
pub(super) fn extras(headers: &HeaderMap, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let mut extras = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(prefix) {
            extras.entry(unescape(key)).or_insert_with(Vec::new).extend(all(headers, name.as_str()));
        }
    }
    extras
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Undoes percent-encoding; a text with a broken escape stays as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let digit = |index: usize| tail.get(index).and_then(|&b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return text.to_owned() };
        bytes.extend(u8::try_from(high * 16 + low));
        rest = tail.get(2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::token::{DEFAULT_ISSUER, ServiceAccountTokens, StaticTokens};
    use super::*;

    struct NoObjects;

    impl Lookup for NoObjects {
        fn uid(&self, _: &str, _: &str, _: &str) -> Option<String> {
            None
        }
    }

    fn tokens() -> Tokens {
        let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let fixed = StaticTokens::from_csv("good,jane,1,dev").unwrap();
        Tokens::new(fixed, ServiceAccountTokens::new(DEFAULT_ISSUER, &key).unwrap())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn who(peer: &Peer, pairs: &[(&'static str, &str)]) -> Result<UserInfo, Unauthorized> {
        authenticate(peer, &headers(pairs), &tokens(), &NoObjects, 0)
    }

    fn name(peer: &Peer, pairs: &[(&'static str, &str)]) -> Result<String, Unauthorized> {
        who(peer, pairs).map(|user| user.name)
    }

    fn websocket(protocols: &str) -> Vec<(&'static str, &str)> {
        vec![("upgrade", "websocket"), ("connection", "keep-alive, Upgrade"), ("sec-websocket-protocol", protocols)]
    }

    #[test]
    fn nothing_is_anonymous_and_bad_is_unauthorized() {
        let bad = Err(Unauthorized::Token(TokenError::Unknown));
        for (authorization, want) in [
            ("Bearer good", Ok("jane".to_owned())),
            ("bEARER good", Ok("jane".to_owned())),
            ("  Bearer good trailing", Ok("jane".to_owned())),
            ("Bearer bad", bad.clone()),
            // What is no bearer token is no credential at all.
            ("Bearer", Ok("system:anonymous".to_owned())),
            ("Bearer  good", Ok("system:anonymous".to_owned())),
            ("Basic Z29vZA==", Ok("system:anonymous".to_owned())),
        ] {
            assert_eq!(name(&Peer::Nobody, &[("authorization", authorization)]), want, "{authorization}");
        }
        assert_eq!(who(&Peer::Nobody, &[]), Ok(UserInfo::anonymous()));
        assert_eq!(
            who(&Peer::Nobody, &[("authorization", "Bearer good")]).unwrap().groups,
            ["dev", "system:authenticated"]
        );
    }

    #[test]
    fn a_good_certificate_wins_over_tokens_and_a_bad_one_needs_a_good_token() {
        let admin = Peer::User(UserInfo::new("admin", ["system:masters"]));
        assert_eq!(
            who(&admin, &[("authorization", "Bearer bad")]).unwrap().groups,
            ["system:masters", "system:authenticated"]
        );
        assert_eq!(name(&Peer::Unknown, &[("authorization", "Bearer good")]), Ok("jane".to_owned()));
        assert_eq!(name(&Peer::Unknown, &[]), Err(Unauthorized::Certificate));
    }

    #[test]
    fn only_the_front_proxy_can_speak_for_others() {
        let said = [
            ("x-remote-user", "bob"),
            ("x-remote-uid", "9"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-acme.io%2fproject", "p1"),
            ("x-remote-extra-acme.io%2fproject", "p2"),
            ("x-remote-extra-odd%zz", "v"),
        ];
        let user = who(&Peer::FrontProxy, &said).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_deref()), ("bob", Some("9")));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["acme.io/project"], ["p1", "p2"]);
        assert_eq!(user.extra["odd%zz"], ["v"]);
        assert_eq!(name(&Peer::Nobody, &said), Ok("system:anonymous".to_owned()));
        assert_eq!(name(&Peer::FrontProxy, &[]), Err(Unauthorized::Certificate));
        assert_eq!(name(&Peer::FrontProxy, &[("authorization", "Bearer good")]), Ok("jane".to_owned()));
    }

    #[test]
    fn websockets_may_carry_the_token_as_a_protocol() {
        let good = format!("{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("good"));
        let binary = format!("{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode([0xff]));
        let cases = [
            (format!("v5.channel.k8s.io, {good}"), Ok("jane".to_owned())),
            ("v5.channel.k8s.io".to_owned(), Ok("system:anonymous".to_owned())),
            (format!("x,{BEARER_PROTOCOL}"), Ok("system:anonymous".to_owned())),
            (good.clone(), Err(Unauthorized::NoOtherProtocol)),
            (format!("x,{good},{good}"), Err(Unauthorized::SeveralProtocolTokens)),
            (format!("x,{BEARER_PROTOCOL}???"), Err(Unauthorized::ProtocolTokenEncoding)),
            (format!("x,{binary}"), Err(Unauthorized::ProtocolTokenText)),
            (
                format!("x,{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("bad")),
                Err(Unauthorized::Token(TokenError::Unknown)),
            ),
        ];
        for (protocols, want) in cases {
            assert_eq!(name(&Peer::Nobody, &websocket(&protocols)), want, "{protocols}");
        }
        let plain = format!("x,{good}");
        assert_eq!(
            name(&Peer::Nobody, &[("sec-websocket-protocol", plain.as_str())]),
            Ok("system:anonymous".to_owned()),
            "not a websocket"
        );
    }

    #[test]
    fn credentials_do_not_travel_on() {
        let protocols = format!("x, {BEARER_PROTOCOL}Z29vZA, y");
        let mut pairs = websocket(&protocols);
        pairs.extend([
            ("authorization", "Bearer good"),
            ("x-remote-user", "a"),
            ("x-remote-extra-k", "v"),
            ("accept", "*/*"),
        ]);
        let mut headers = headers(&pairs);
        strip_credentials(&mut headers);
        assert_eq!(headers["sec-websocket-protocol"], "x,y");
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "connection", "sec-websocket-protocol", "upgrade"]);
    }
}
