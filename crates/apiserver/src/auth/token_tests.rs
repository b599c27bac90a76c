//! Tokens that are good, and every way in which one can be bad.

use super::*;

const NOW: i64 = 1_800_000_000;

/// Objects as `resource/namespace/name` with their uid and the start of their deletion.
#[derive(Default)]
struct Objects(HashMap<String, (String, Option<i64>)>);

impl Objects {
    fn with(mut self, path: &str, uid: &str) -> Self {
        self.0.insert(path.to_owned(), (uid.to_owned(), None));
        self
    }

    fn deleting(mut self, path: &str, since: i64) -> Self {
        self.0.get_mut(path).unwrap().1 = Some(since);
        self
    }

    fn standard() -> Self {
        Self::default()
            .with("serviceaccounts/ns/robot", "sa-uid")
            .with("pods/ns/pod", "pod-uid")
            .with("secrets/ns/secret", "secret-uid")
            .with("nodes//node", "node-uid")
    }
}

impl Lookup for Objects {
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        self.0.get(&format!("{resource}/{namespace}/{name}")).map(|(uid, _)| uid.clone())
    }

    fn deleting_since(&self, resource: &str, namespace: &str, name: &str) -> Option<i64> {
        self.0.get(&format!("{resource}/{namespace}/{name}")).and_then(|(_, since)| *since)
    }
}

fn signer() -> ServiceAccountTokens {
    ServiceAccountTokens::new(DEFAULT_ISSUER, &rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
}

fn tokens() -> Tokens {
    Tokens::new(StaticTokens::from_csv("secret,jane,7,\"dev,ops\"\n").unwrap(), signer())
}

fn spec(binding: Binding) -> TokenSpec {
    TokenSpec {
        namespace: "ns".to_owned(),
        account: ObjectRef::new("robot", "sa-uid"),
        audiences: vec![DEFAULT_ISSUER.to_owned()],
        expiration_seconds: 3600,
        warn_after_seconds: None,
        binding,
    }
}

fn pod() -> Binding {
    Binding::Pod { pod: ObjectRef::new("pod", "pod-uid"), node: Some(ObjectRef::new("node", "node-uid")) }
}

fn payload(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[test]
fn claims_and_user_are_kubernetes_own() {
    let tokens = tokens();
    let mut spec = spec(pod());
    spec.warn_after_seconds = Some(3607);
    let issued = tokens.service_accounts.issue(&spec, NOW).unwrap();
    let want = json!({
        "aud": [DEFAULT_ISSUER], "exp": NOW + 3600, "iat": NOW, "iss": DEFAULT_ISSUER, "jti": issued.id,
        "kubernetes.io": {
            "namespace": "ns", "node": {"name": "node", "uid": "node-uid"}, "pod": {"name": "pod", "uid": "pod-uid"},
            "serviceaccount": {"name": "robot", "uid": "sa-uid"}, "warnafter": NOW + 3607,
        },
        "nbf": NOW, "sub": "system:serviceaccount:ns:robot",
    });
    assert_eq!(payload(&issued.token), want);
    let found = tokens.authenticate(&issued.token, &[], &Objects::standard(), NOW).unwrap();
    let want = json!({
        "username": "system:serviceaccount:ns:robot", "uid": "sa-uid",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:ns"],
        "extra": {
            "authentication.kubernetes.io/credential-id": [format!("JTI={}", issued.id)],
            "authentication.kubernetes.io/node-name": ["node"], "authentication.kubernetes.io/node-uid": ["node-uid"],
            "authentication.kubernetes.io/pod-name": ["pod"], "authentication.kubernetes.io/pod-uid": ["pod-uid"],
        },
    });
    assert_eq!(serde_json::to_value(&found.user).unwrap(), want);
    assert_eq!(found.audiences, [DEFAULT_ISSUER]);
}

#[test]
fn the_header_names_algorithm_and_key() {
    let signer = signer();
    let token = signer.issue(&spec(Binding::None), NOW).unwrap().token;
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap()).unwrap();
    assert_eq!(header, json!({"alg": "ES256", "kid": signer.key_id}));
    assert_eq!(signer.jwks()["keys"][0]["kid"], json!(signer.key_id));
}

#[test]
fn any_changed_byte_breaks_the_token() {
    let tokens = tokens();
    let good = tokens.service_accounts.issue(&spec(Binding::None), NOW).unwrap().token;
    for place in 0..good.len() {
        for replacement in [b'A', b'z', b'.', b'='] {
            let mut bytes = good.clone().into_bytes();
            if bytes[place] == replacement {
                continue;
            }
            bytes[place] = replacement;
            let bad = String::from_utf8(bytes).unwrap();
            assert!(tokens.authenticate(&bad, &[], &Objects::standard(), NOW).is_err(), "byte {place}: {bad}");
        }
    }
    for length in 0..good.len() {
        assert!(tokens.authenticate(&good[..length], &[], &Objects::standard(), NOW).is_err());
    }
}

/// A token with a header and payload of the test's choice, and a signature that fits unless told otherwise.
fn forge(signer: &ServiceAccountTokens, header: &Value, payload: &Value, signature: Option<&[u8]>) -> String {
    let message =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(payload.to_string()));
    let signed = signer.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.unwrap_or(signed.as_ref())))
}

#[test]
fn each_way_to_be_bad_has_its_error() {
    let tokens = tokens();
    let signer = &tokens.service_accounts;
    let claims = payload(&signer.issue(&spec(Binding::None), NOW).unwrap().token);
    let with = |key: &str, value: Value| {
        let mut claims = claims.clone();
        claims[key] = value;
        forge(signer, &json!({"alg": "ES256"}), &claims, None)
    };
    let header = |header: Value| forge(signer, &header, &claims, None);
    let cases = [
        ("nonsense".to_owned(), TokenError::Unknown),
        ("a.b.c".to_owned(), TokenError::Unknown),
        ("a.b.c.d".to_owned(), TokenError::Unknown),
        (with("iss", json!("https://elsewhere")), TokenError::Unknown),
        (header(json!({"alg": "ES256", "kid": "other"})), TokenError::UnknownKey),
        (header(json!({"alg": "none"})), TokenError::BadSignature),
        (header(json!({"alg": "HS256"})), TokenError::BadSignature),
        (header(json!({"alg": "es256"})), TokenError::BadSignature),
        (forge(signer, &json!({"alg": "none"}), &claims, Some(b"")), TokenError::BadSignature),
        (forge(signer, &json!({"alg": "ES256"}), &claims, Some(&[0; 64])), TokenError::BadSignature),
        (with("exp", json!("soon")), TokenError::BadClaims),
        (with("exp", json!(NOW - 61)), TokenError::Expired),
        (with("nbf", json!(NOW + 61)), TokenError::NotYetValid),
        (with("iat", json!(NOW + 61)), TokenError::IssuedInTheFuture),
        (
            with("aud", json!("vault")),
            TokenError::WrongAudience { token: vec!["vault".to_owned()], wanted: vec![DEFAULT_ISSUER.to_owned()] },
        ),
    ];
    for (token, want) in cases {
        assert_eq!(tokens.authenticate(&token, &[], &Objects::standard(), NOW), Err(want), "{token}");
    }
    // Within the leeway, and without an audience (which old tokens have not), a token is good.
    for good in [with("exp", json!(NOW - 60)), with("nbf", json!(NOW + 60)), with("aud", json!([]))] {
        assert!(tokens.authenticate(&good, &[], &Objects::standard(), NOW).is_ok());
    }
}

#[test]
fn a_token_ends_with_what_it_is_bound_to() {
    let tokens = tokens();
    let long_ago = NOW - 61;
    let other = |what, claim, claimed: &str| TokenError::OtherUid {
        what,
        actual: "new".to_owned(),
        claim,
        claimed: claimed.to_owned(),
    };
    let all = Objects::standard;
    let secret = || Binding::Secret(ObjectRef::new("secret", "secret-uid"));
    let node = || Binding::Node(ObjectRef::new("node", "node-uid"));
    let account_deleted = TokenError::ServiceAccountDeleted { namespace: "ns".to_owned(), name: "robot".to_owned() };
    let cases = [
        (Binding::None, all(), None),
        (pod(), all(), None),
        (secret(), all(), None),
        (node(), all(), None),
        (Binding::None, Objects::default(), Some(TokenError::NoServiceAccount("robot".to_owned()))),
        (
            Binding::None,
            all().with("serviceaccounts/ns/robot", "new"),
            Some(other("service account", "claim", "sa-uid")),
        ),
        (Binding::None, all().deleting("serviceaccounts/ns/robot", long_ago), Some(account_deleted)),
        (Binding::None, all().deleting("serviceaccounts/ns/robot", NOW), None),
        (pod(), Objects::default().with("serviceaccounts/ns/robot", "sa-uid"), Some(TokenError::Invalidated)),
        (pod(), all().with("pods/ns/pod", "new"), Some(other("pod", "service account pod ref claim", "pod-uid"))),
        (pod(), all().deleting("pods/ns/pod", long_ago), Some(TokenError::Invalidated)),
        (pod(), all().with("nodes//node", "new"), None),
        (
            secret(),
            all().with("secrets/ns/secret", "new"),
            Some(other("secret", "service account secret ref claim", "secret-uid")),
        ),
        (node(), all().with("nodes//node", "new"), Some(other("node", "service account node ref claim", "node-uid"))),
        (node(), all().deleting("nodes//node", long_ago), Some(TokenError::Invalidated)),
    ];
    for (number, (binding, objects, want)) in cases.into_iter().enumerate() {
        let token = tokens.service_accounts.issue(&spec(binding), NOW).unwrap().token;
        assert_eq!(tokens.authenticate(&token, &[], &objects, NOW).err(), want, "case {number}");
    }
}

#[test]
fn messages_are_the_references() {
    let error = TokenError::WrongAudience { token: vec![DEFAULT_ISSUER.to_owned()], wanted: vec!["zz".to_owned()] };
    assert_eq!(
        error.to_string(),
        r#"token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["zz"]"#
    );
    let error = TokenError::OtherUid {
        what: "pod",
        actual: "a".to_owned(),
        claim: "service account pod ref claim",
        claimed: "b".to_owned(),
    };
    assert_eq!(error.to_string(), "pod UID (a) does not match service account pod ref claim (b)");
    assert_eq!(TokenError::NoServiceAccount("x".to_owned()).to_string(), r#"serviceaccounts "x" not found"#);
}

#[test]
fn audiences_are_the_common_ones() {
    let tokens = tokens();
    let mut spec = spec(Binding::None);
    spec.audiences = ["a", "b"].map(str::to_owned).to_vec();
    let token = tokens.service_accounts.issue(&spec, NOW).unwrap().token;
    let wanted = ["c", "b"].map(str::to_owned);
    assert_eq!(tokens.authenticate(&token, &wanted, &Objects::standard(), NOW).unwrap().audiences, ["b"]);
    assert!(tokens.authenticate(&token, &[], &Objects::standard(), NOW).is_err());
}

#[test]
fn another_clusters_key_does_not_sign_for_us() {
    let (ours, theirs) = (tokens(), signer());
    let token = theirs.issue(&spec(Binding::None), NOW).unwrap().token;
    assert_eq!(ours.authenticate(&token, &[], &Objects::standard(), NOW), Err(TokenError::UnknownKey));
    let without_key = forge(&theirs, &json!({"alg": "ES256"}), &payload(&token), None);
    assert_eq!(ours.authenticate(&without_key, &[], &Objects::standard(), NOW), Err(TokenError::BadSignature));
}

#[test]
fn written_down_tokens_are_good_for_this_server_only() {
    let tokens = tokens();
    let found = tokens.authenticate("secret", &[], &Objects::default(), NOW).unwrap();
    assert_eq!(found.user, UserInfo { uid: Some("7".to_owned()), ..UserInfo::new("jane", ["dev", "ops"]) });
    assert_eq!(found.audiences, [DEFAULT_ISSUER]);
    let elsewhere = ["x".to_owned()];
    assert_eq!(tokens.authenticate("secret", &elsewhere, &Objects::default(), NOW), Err(TokenError::Unknown));
    assert_eq!(tokens.authenticate("secre", &[], &Objects::default(), NOW), Err(TokenError::Unknown));
}

#[test]
fn token_files_are_read_or_refused_by_line() {
    let tokens = StaticTokens::from_csv("a,u,1\n\n\"b\",\"u \"\"2\"\"\",2, \"g\"\n,nobody,3\n").unwrap();
    assert_eq!(tokens.users.len(), 2);
    assert_eq!(tokens.find("b").unwrap().name, "u \"2\"");
    assert_eq!(tokens.find("b").unwrap().groups, ["g"]);
    let error = StaticTokens::from_csv("a,u,1\nb,u\n").unwrap_err();
    assert_eq!(error, TokenFileError::TooFewColumns { line: 2, columns: 2 });
    for bad in ["\"a,u,1", "\"a\"x,u,1", "a\"b,u,1"] {
        assert_eq!(StaticTokens::from_csv(bad).unwrap_err(), TokenFileError::BadQuote(1), "{bad}");
    }
}

#[test]
fn discovery_documents_have_the_references_shape() {
    let signer = signer();
    let key = &signer.jwks()["keys"][0];
    assert_eq!((&key["kty"], &key["crv"], &key["alg"]), (&json!("EC"), &json!("P-256"), &json!("ES256")));
    for coordinate in ["x", "y"] {
        assert_eq!(URL_SAFE_NO_PAD.decode(key[coordinate].as_str().unwrap()).unwrap().len(), 32);
    }
    let document = signer.openid_configuration("https://127.0.0.1/openid/v1/jwks");
    assert_eq!(document["issuer"], DEFAULT_ISSUER);
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
}

#[test]
fn only_p256_keys_are_taken() {
    for bad in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        assert!(matches!(ServiceAccountTokens::new("x", bad), Err(SigningError::Key(_))), "{bad}");
    }
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    assert!(matches!(ServiceAccountTokens::new("x", &other), Err(SigningError::Key(_))));
}
