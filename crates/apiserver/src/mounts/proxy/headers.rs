//! Headers on their way through the proxy: who asks goes in, what belongs to one connection stays behind.

use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

use crate::auth::UserInfo;
use crate::auth::authenticate::strip_credentials;

/// Headers that mean something to one connection only.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The protocol that the sender wants to go on with.
pub(in crate::mounts) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let tokens = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = tokens.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// Leaves out what belongs to the connection, named or not; an upgrade stays where it is wanted.
pub(in crate::mounts) fn end_to_end(mut headers: HeaderMap, upgrade: Option<HeaderValue>) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    headers
}

/// The headers of a request as the extension server gets them: without credentials, with who it is from.
pub(in crate::mounts) fn request(mut headers: HeaderMap, user: &UserInfo, upgrade: Option<HeaderValue>) -> HeaderMap {
    strip_credentials(&mut headers);
    headers.remove(HOST);
    let mut headers = end_to_end(headers, upgrade);
    let mut put = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    put("x-remote-user", &user.name);
    if let Some(uid) = user.uid.as_deref().filter(|uid| !uid.is_empty()) {
        put("x-remote-uid", uid);
    }
    for group in &user.groups {
        put("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        for value in values {
            put(&format!("x-remote-extra-{}", escape(key)), value);
        }
    }
    headers
}

/// Percent-encodes what cannot stand in a header's name.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                out.push(byte.into());
            }
            _ if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in pairs {
            out.append(*name, HeaderValue::from_static(value));
        }
        out
    }

    #[test]
    fn nobody_can_claim_to_be_somebody_else() {
        let sent = headers(&[
            ("authorization", "Bearer secret"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("accept", "application/json"),
        ]);
        let user = UserInfo::new("jane", ["dev", "ops"]).with_extra("example.com/key%", "v");
        let passed = request(sent, &user, None);
        let all = |name: &str| passed.get_all(name).iter().map(|v| v.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (all("x-remote-user"), all("x-remote-group")),
            (vec!["jane".into()], vec!["dev".into(), "ops".into()])
        );
        assert_eq!(all("x-remote-extra-example.com%2fkey%25"), ["v"]);
        assert!(all("x-remote-extra-scopes").is_empty() && all("authorization").is_empty());
        assert_eq!(all("accept"), ["application/json"]);
    }

    #[test]
    fn what_belongs_to_the_connection_stays_behind() {
        let sent = headers(&[("connection", "close, X-Private"), ("x-private", "1"), ("te", "trailers"), ("a", "b")]);
        assert_eq!(end_to_end(sent, None), headers(&[("a", "b")]));
        let sent = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        let upgrade = upgrade_of(&sent);
        let expected = headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(end_to_end(sent, upgrade), expected);
        assert_eq!(upgrade_of(&headers(&[("upgrade", "h2c")])), None);
    }
}
