//! Who gets which certificate.

use std::time::Duration;

use ferrovirt_install::names;
use ferrovirt_kubernetes::CertificateSigningRequest;
use ferrovirt_reconcile::Plan;
use jiff::SignedDuration;
use rcgen::SanType;
use serde_json::Value;

use super::{View, age};
use crate::certificates::Request;

/// What a bound token says about the node of its pod.
const NODE_EXTRA: &str = "authentication.kubernetes.io/node-name";
/// What a certificate of a virt-handler is for.
const USAGES: [&str; 3] = ["client auth", "digital signature", "server auth"];
/// How long an answered request stays, for whoever asked to see the answer.
const KEPT: SignedDuration = SignedDuration::from_mins(10);
/// How soon to look again for an authority.
const SOON: Duration = Duration::from_secs(1);

/// What is done about a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It is a virt-handler's.
    Approve,
    /// It is not.
    Deny(String),
    /// Issue the certificate.
    Sign {
        /// The request.
        pem: String,
        /// The node that it is for.
        node: String,
        /// The authority's Secret.
        authority: Box<Value>,
        /// How long it is valid.
        lifetime: SignedDuration,
    },
    /// It was answered long ago.
    Delete,
}

/// The node that a request may have a certificate for, or why not.
pub fn judge(request: &CertificateSigningRequest, namespace: &str) -> Result<String, String> {
    let spec = &request.spec;
    let expected = names::user(namespace, names::HANDLER_ACCOUNT);
    let user = spec.username.as_deref().unwrap_or_default();
    if user != expected {
        return Err(format!("spec.username is '{user}': only {expected} gets certificates of this signer"));
    }
    let claimed = spec.extra.as_ref().and_then(|extra| extra.get(NODE_EXTRA));
    let Some([node]) = claimed.map(Vec::as_slice) else {
        return Err(format!("spec.extra has no {NODE_EXTRA}: ask with a token that is bound to a pod"));
    };
    let mut usages = spec.usages.clone().unwrap_or_default();
    usages.sort();
    if usages != USAGES {
        return Err(format!("spec.usages are {}: ask for {}", usages.join(", "), USAGES.join(", ")));
    }
    let unreadable = |error: &dyn std::fmt::Display| format!("spec.request cannot be used: {error}");
    let pem = std::str::from_utf8(&spec.request.0).map_err(|error| unreadable(&error))?;
    let asked = Request::parse(pem).map_err(|error| unreadable(&error))?;
    let certified = format!("{node}{}", names::NODE_CERTIFICATE_SUFFIX);
    match asked.names.as_slice() {
        [SanType::DnsName(name)] if name.as_str() == certified => Ok(node.clone()),
        _ => Err(format!("spec.request has to have exactly one name, {certified}")),
    }
}

/// Judges.
pub(super) fn decide(view: &View) -> Plan<Action, ()> {
    let (request, plan) = (&*view.request, Plan::nothing());
    let status = request.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind);
    let issued = status.and_then(|status| status.certificate.as_ref()).is_some_and(|it| !it.0.is_empty());
    if issued || is("Denied") || is("Failed") {
        let left = KEPT - age(request, view.now);
        return match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => plan.look_again_after(left),
            _ => plan.then(Action::Delete),
        };
    }
    let node = match judge(request, &view.namespace) {
        Ok(node) => node,
        // Somebody with more rights may have approved it; that does not make it a virt-handler's.
        Err(_) if is("Approved") => return plan,
        Err(why) => return plan.then(Action::Deny(why)),
    };
    if !is("Approved") {
        return plan.then(Action::Approve);
    }
    let Some(authority) = &view.authority else { return plan.look_again_after(SOON) };
    let asked = request.spec.expiration_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
    let lifetime = asked.map_or(view.lifetimes.leaf, |asked| asked.min(view.lifetimes.leaf));
    let pem = String::from_utf8_lossy(&request.spec.request.0).into_owned();
    plan.then(Action::Sign { pem, node, authority: Box::new(authority.clone()), lifetime })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition as Condition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::certificates::{Facts, Lifetimes, authority_data, sign_request};

    const NODE: &str = "node-1";

    fn pem(names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn good() -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.metadata.creation_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        request.spec.signer_name = "ferrovirt.io/virt-handler".to_owned();
        request.spec.username = Some("system:serviceaccount:kubevirt:kubevirt-handler".to_owned());
        request.spec.extra = Some(BTreeMap::from([(NODE_EXTRA.to_owned(), vec![NODE.to_owned()])]));
        request.spec.usages = Some(["digital signature", "server auth", "client auth"].map(str::to_owned).to_vec());
        request.spec.request = ByteString(pem(&["node-1.node.migration.kubevirt.io"]).into_bytes());
        request
    }

    fn view(request: CertificateSigningRequest) -> View {
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        let authority = serde_json::json!({"data": authority_data(&Lifetimes::default(), now).unwrap()});
        View {
            request: Arc::new(request),
            namespace: "kubevirt".to_owned(),
            authority: Some(authority),
            lifetimes: Lifetimes::default(),
            now,
        }
    }

    fn with(mut request: CertificateSigningRequest, kind: &str) -> CertificateSigningRequest {
        let condition = Condition { type_: kind.to_owned(), status: "True".to_owned(), ..Condition::default() };
        request.status.get_or_insert_default().conditions = Some(vec![condition]);
        request
    }

    #[test]
    fn a_virt_handler_gets_a_certificate_for_its_node_and_nothing_else() {
        assert_eq!(decide(&view(good())).actions, [Action::Approve]);
        let view = view(with(good(), "Approved"));
        let [Action::Sign { pem, node, authority, lifetime }] = &decide(&view).actions[..] else {
            panic!("not signed")
        };
        assert_eq!((node.as_str(), *lifetime), (NODE, SignedDuration::from_hours(24)));
        let name = "node-1.node.migration.kubevirt.io";
        let made = sign_request(authority, &Request::parse(pem).unwrap(), name, *lifetime, view.now).unwrap();
        let facts = Facts::parse(&made).unwrap();
        assert_eq!(facts.names, [name]);
        assert_eq!(facts.end, view.now + SignedDuration::from_hours(24));
    }

    #[test]
    fn whoever_is_no_virt_handler_is_told_why() {
        type Change = fn(&mut CertificateSigningRequest);
        let cases: &[(Change, &str)] = &[
            (
                |it| it.spec.username = Some("system:serviceaccount:default:kubevirt-handler".to_owned()),
                "spec.username",
            ),
            (|it| it.spec.username = None, "spec.username"),
            (|it| it.spec.extra = None, "spec.extra"),
            (|it| it.spec.extra.as_mut().unwrap().get_mut(NODE_EXTRA).unwrap().push("node-2".to_owned()), "spec.extra"),
            (|it| it.spec.usages = Some(vec!["client auth".to_owned()]), "spec.usages"),
            (|it| it.spec.usages.as_mut().unwrap().push("cert sign".to_owned()), "spec.usages"),
            (|it| it.spec.request = ByteString(b"no request".to_vec()), "spec.request cannot be used"),
            (|it| it.spec.request = ByteString(vec![0xff]), "spec.request cannot be used"),
            (
                |it| it.spec.request = ByteString(pem(&["node-2.node.migration.kubevirt.io"]).into_bytes()),
                "exactly one name",
            ),
            (
                |it| {
                    let names = ["node-1.node.migration.kubevirt.io", "virt-api.kubevirt.svc"];
                    it.spec.request = ByteString(pem(&names).into_bytes());
                },
                "exactly one name",
            ),
            (|it| it.spec.request = ByteString(pem(&[]).into_bytes()), "exactly one name"),
        ];
        for (change, word) in cases {
            let mut request = good();
            change(&mut request);
            let [Action::Deny(why)] = &decide(&view(request.clone())).actions[..] else { panic!("not denied: {word}") };
            assert!(why.contains(word), "{why}");
            assert!(decide(&view(with(request, "Approved"))).is_idle(), "approved by others, signed by nobody: {word}");
        }
    }

    #[test]
    fn a_request_waits_for_an_authority_and_an_answer_stays_a_while() {
        let mut waiting = view(with(good(), "Approved"));
        waiting.authority = None;
        assert!(decide(&waiting).is_idle() && decide(&waiting).requeue.is_some());
        for kind in ["Denied", "Failed"] {
            let mut answered = view(with(good(), kind));
            assert!(decide(&answered).is_idle());
            answered.now += KEPT;
            assert_eq!(decide(&answered).actions, [Action::Delete]);
        }
    }
}
