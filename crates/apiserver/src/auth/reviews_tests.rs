//! Answers and refusals, word for word as kube-apiserver 1.36 gave them.

use super::super::rbac::{RbacIndex, RbacKind};
use super::super::token::{DEFAULT_ISSUER, ServiceAccountTokens, StaticTokens};
use super::*;

struct Objects;

impl Objects {
    fn find(resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let object = |uid: &str| json!({"metadata": {"name": name, "uid": uid}});
        match (resource, namespace, name) {
            ("serviceaccounts", "default", "default") => Some(object("sa-uid")),
            ("secrets", "default", "s") => Some(object("secret-uid")),
            ("nodes", "", "n") => Some(object("node-uid")),
            ("pods", "default", "p") => {
                let mut pod = object("pod-uid");
                pod["spec"] = json!({"serviceAccountName": "default", "nodeName": "n"});
                Some(pod)
            }
            ("pods", "default", "foreign") => Some(object("other-uid")),
            _ => None,
        }
    }
}

impl Lookup for Objects {
    fn uid(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        Self::find(resource, namespace, name).map(|object| text(&object["metadata"], "uid").to_owned())
    }
}

fn index() -> RbacIndex {
    let mut index = RbacIndex::new();
    let mut apply = |kind, object: Value| index.apply(kind, &object).unwrap();
    let rules = json!([
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]},
        {"verbs": ["get"], "nonResourceURLs": ["/api"]},
    ]);
    apply(RbacKind::ClusterRole, json!({"metadata": {"name": "r"}, "rules": rules}));
    let bind = |name: &str, role: &str| {
        json!({"metadata": {"name": name}, "subjects": [{"kind": "Group", "name": "dev"}],
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
    };
    apply(RbacKind::ClusterRoleBinding, bind("b", "r"));
    apply(RbacKind::ClusterRoleBinding, bind("dangling", "gone"));
    index
}

fn tokens() -> Tokens {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let fixed = StaticTokens::from_csv("jane-token,jane,u1,\"dev,ops\"").unwrap();
    Tokens::new(fixed, ServiceAccountTokens::new(DEFAULT_ISSUER, &key).unwrap())
}

/// Asks one question of a small cluster.
fn ask<T>(question: impl FnOnce(&Reviewer<'_>) -> T) -> T {
    let (index, tokens) = (index(), tokens());
    let now: Timestamp = "2026-11-15T21:57:04.5Z".parse().unwrap();
    question(&Reviewer { authorizer: &index, tokens: &tokens, lookup: &Objects, now })
}

fn jane() -> UserInfo {
    UserInfo::new("jane", ["dev"])
}

fn failure(answer: ApiResult<Value>) -> (u16, String) {
    let error = answer.expect_err("a refusal");
    (error.code().as_u16(), error.message().to_owned())
}

#[test]
fn subject_access_is_decided_with_a_reason() {
    let review = |spec: Value| {
        let body = json!({"kind": "SubjectAccessReview", "metadata": {"managedFields": [{}]}, "spec": spec});
        ask(|r| r.subject_access(body)).unwrap()
    };
    let allowed =
        review(json!({"user": "u", "groups": ["dev"], "nonResourceAttributes": {"verb": "get", "path": "/api"}}));
    assert_eq!(
        allowed["status"],
        json!({"allowed": true, "reason": r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "dev""#})
    );
    assert_eq!(allowed["spec"]["user"], "u");
    assert_eq!(allowed["metadata"], json!({"managedFields": [{}]}));
    let master = review(json!({"groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "x"}}));
    assert_eq!(master["status"], json!({"allowed": true}));
    let pods = |name: &str| json!({"user": "u", "groups": ["dev"], "resourceAttributes": {"verb": "get", "resource": "pods", "name": name}});
    assert_eq!(review(pods("a"))["status"]["allowed"], true);
    assert_eq!(
        review(pods("b"))["status"],
        json!({"allowed": false, "reason": r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#})
    );
    assert_eq!(review(json!({"user": "u", "resourceAttributes": {}}))["status"], json!({"allowed": false}));
}

#[test]
fn unreadable_selectors_are_noted() {
    let attributes =
        json!({"verb": "list", "fieldSelector": {"rawSelector": "a"}, "labelSelector": {"rawSelector": "a in"}});
    let body = json!({"spec": {"user": "u", "resourceAttributes": attributes}});
    assert_eq!(
        ask(|r| r.subject_access(body)).unwrap()["status"]["evaluationError"],
        "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"
    );
}

#[test]
fn access_reviews_are_refused_in_the_references_words() {
    let subject = |body: Value| failure(ask(|r| r.subject_access(body)));
    let cases = [
        (
            json!({"spec": {}}),
            r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]"#,
        ),
        (
            json!({"metadata": {"name": "x"}, "spec": {"user": "u", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/x"}}}),
            r#".authorization.k8s.io "" is invalid: [spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":""}: cannot be specified in combination with resourceAttributes, metadata: Invalid value: {"name":"x"}: must be empty]"#,
        ),
        (
            json!({"spec": {"user": "u", "resourceAttributes": {"fieldSelector": {}, "labelSelector": {"rawSelector": "a", "requirements": [{"key": "a", "operator": "Exists"}]}}}}),
            r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required, spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements]"#,
        ),
        (
            json!({"spec": {"user": "u", "resourceAttributes": {"fieldSelector": {"requirements": [{"operator": "In"}, {"key": "k", "operator": "Exists", "values": ["v"]}]}}}}),
            r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', spec.resourceAttributes.fieldSelector.requirements[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist']"#,
        ),
    ];
    for (body, want) in cases {
        assert_eq!(subject(body), (422, want.to_owned()));
    }
    let error = ask(|r| r.self_subject_access(&jane(), json!({"spec": {}}))).unwrap_err();
    assert_eq!(
        error.message(),
        r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#
    );
    let status = error.to_status();
    assert_eq!((&status["reason"], &status["code"]), (&json!("Invalid"), &json!(422)));
    assert_eq!(status["details"]["group"], AUTHORIZATION);
    assert_eq!(status["details"].get("kind"), None);
}

#[test]
fn local_reviews_stay_in_their_namespace() {
    let local = |body: Value| ask(|r| r.local_subject_access("default", body));
    let other = json!({"metadata": {"name": "n"}, "spec": {"user": "u", "resourceAttributes": {"verb": "get", "namespace": "other"}}});
    assert_eq!(
        failure(local(other)).1,
        r#".authorization.k8s.io "" is invalid: [metadata: Invalid value: {"name":"n","namespace":"default"}: must be empty except for namespace, spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace]"#
    );
    let path = json!({"spec": {"user": "u", "nonResourceAttributes": {"verb": "get", "path": "/x"}}});
    assert_eq!(
        failure(local(path)).1,
        r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request"#
    );
    let good = json!({"spec": {"user": "u", "resourceAttributes": {"verb": "get", "namespace": "default", "resource": "pods"}}});
    let answer = local(good).unwrap();
    assert_eq!((&answer["metadata"]["namespace"], &answer["status"]), (&json!("default"), &json!({"allowed": false})));
}

#[test]
fn own_rules_are_listed() {
    let body = json!({"spec": {"namespace": "default"}});
    let answer = ask(|r| r.self_subject_rules(&jane(), &body)).unwrap();
    let want = json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": {
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}],
            "incomplete": false,
            "evaluationError": r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#,
        },
    });
    assert_eq!(answer, want);
    let missing = failure(ask(|r| r.self_subject_rules(&jane(), &json!({"spec": {}}))));
    assert_eq!(missing, (400, "no namespace on request".to_owned()));
}

#[test]
fn everybody_can_ask_who_they_are() {
    let want = json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "2026-11-15T21:57:04Z"},
        "status": {"userInfo": {"username": "jane", "groups": ["dev"]}},
    });
    assert_eq!(ask(|r| r.self_subject(&jane())), want);
}

#[test]
fn tokens_are_reviewed() {
    let review = |spec: Value| ask(|r| r.token(json!({"metadata": {"name": "q"}, "spec": spec})));
    assert_eq!(failure(review(json!({}))), (400, "token is required for TokenReview in authentication".to_owned()));
    let answer = review(json!({"token": "jane-token"})).unwrap();
    let user = json!({"username": "jane", "uid": "u1", "groups": ["dev", "ops", "system:authenticated"]});
    assert_eq!(answer["status"], json!({"authenticated": true, "user": user, "audiences": [DEFAULT_ISSUER]}));
    assert_eq!(answer["metadata"]["name"], "q");
    for spec in [json!({"token": "nonsense"}), json!({"token": "jane-token", "audiences": ["x"]})] {
        assert_eq!(review(spec).unwrap()["status"], json!({"user": {}, "error": "invalid bearer token"}));
    }
    let wrong = ask(|r| {
        let issued = r.token_request("default", "default", json!({}), &Objects::find).unwrap();
        r.token(json!({"spec": {"token": issued["status"]["token"], "audiences": ["zz"]}}))
    });
    assert_eq!(
        wrong.unwrap()["status"]["error"],
        r#"[invalid bearer token, token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["zz"]]"#
    );
}

fn request(body: Value) -> ApiResult<Value> {
    ask(|r| r.token_request("default", "default", body, &Objects::find))
}

#[test]
fn a_requested_token_works_and_is_described() {
    let answer = request(json!({})).unwrap();
    let mut shown = answer.clone();
    shown["status"]["token"] = json!("…");
    let want = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": "default", "namespace": "default", "uid": "sa-uid", "creationTimestamp": "2026-11-15T21:57:04Z"},
        "spec": {"audiences": [DEFAULT_ISSUER], "expirationSeconds": 3600, "boundObjectRef": null},
        "status": {"token": "…", "expirationTimestamp": "2026-11-15T22:57:04Z"},
    });
    assert_eq!(shown, want);
    let seen = ask(|r| {
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p"});
        let body = json!({"spec": {"boundObjectRef": bound, "expirationSeconds": 3607}});
        let issued = r.token_request("default", "default", body, &Objects::find).unwrap();
        assert_eq!(issued["spec"]["boundObjectRef"], bound);
        assert_eq!(issued["status"]["expirationTimestamp"], "2026-11-15T22:57:11Z");
        // Good for longer than it says, for programs that do not ask for a new one.
        let token = text(&issued["status"], "token").to_owned();
        r.tokens.authenticate(&token, &[], r.lookup, r.now.as_second() + 30 * 24 * 3600).unwrap().user
    });
    assert_eq!(seen.extra["authentication.kubernetes.io/pod-uid"], ["pod-uid"]);
    assert_eq!(seen.extra["authentication.kubernetes.io/node-uid"], ["node-uid"]);
}

#[test]
fn bad_token_requests_are_refused_in_the_references_words() {
    let bound = |kind: &str, version: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": version, "name": name, "uid": uid}}});
    let cases = [
        (
            json!({"spec": {"expirationSeconds": 5}}),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"#,
        ),
        (
            json!({"spec": {"expirationSeconds": 5_000_000_000_i64}}),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5000000000: may not specify a duration larger than 2^32 seconds"#,
        ),
        (
            json!({"metadata": {"name": "o"}}),
            422,
            r#"TokenRequest.authentication.k8s.io "default" is invalid: metadata.name: Invalid value: "o": must match the service account name if specified"#,
        ),
        (
            json!({"metadata": {"namespace": "o"}}),
            422,
            r#"TokenRequest.authentication.k8s.io "default" is invalid: metadata.namespace: Invalid value: "o": must match the service account namespace if specified"#,
        ),
        (
            json!({"metadata": {"uid": "o"}}),
            409,
            r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "default": the UID in the token request (o) does not match the UID of the service account (sa-uid)"#,
        ),
        (bound("ConfigMap", "v1", "x", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        (bound("Deployment", "apps/v1", "x", ""), 400, "cannot bind token to object of type apps/v1, Kind=Deployment"),
        (bound("Pod", "v1", "x", ""), 404, r#"pods "x" not found"#),
        (
            bound("Pod", "v1", "foreign", ""),
            400,
            r#"cannot bind token for serviceaccount "default" to pod running with different serviceaccount name."#,
        ),
        (
            bound("Secret", "v1", "s", "q"),
            409,
            r#"Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (q) does not match the UID in record. The object might have been deleted and then recreated"#,
        ),
    ];
    for (body, code, want) in cases {
        assert_eq!(failure(request(body)), (code, want.to_owned()));
    }
    let missing = ask(|r| r.token_request("default", "gone", json!({}), &Objects::find));
    assert_eq!(failure(missing), (404, r#"serviceaccounts "gone" not found"#.to_owned()));
}

#[test]
fn each_kind_has_its_review() {
    for kind in [
        "SubjectAccessReview",
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SelfSubjectReview",
        "TokenReview",
    ] {
        assert!(ask(|r| r.review(kind, &jane(), "default", json!({})).is_some()), "{kind}");
    }
    assert!(ask(|r| r.review("Pod", &jane(), "", json!({})).is_none()));
}
