//! Acting as somebody else: the `Impersonate-*` headers and who may use them.
//!
//! There are two ways to be allowed. The old one is the verb `impersonate` on each part of the wanted identity. The
//! new, constrained one needs the verb `impersonate:<mode>` on the identity *and* `impersonate-on:<mode>:<verb>` on
//! what is done under it, so that one can be allowed to list pods as a user and nothing else. Modes are tried from the
//! narrowest to the widest; the first refusal is the one that is reported.

use http::header::{HeaderMap, HeaderName};

use super::authenticate::{all, extras, first};
use super::quote::quoted;
use super::rbac::{Attributes, Authorizer, forbidden_message};
use super::user::{
    EXTRA_NODE_NAME, GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_NODES, GROUP_UNAUTHENTICATED, USER_ANONYMOUS, UserInfo,
    is_subdomain, parse_service_account_user_name, service_account_groups,
};

const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_UID: &str = "impersonate-uid";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";
/// From this many on, constrained impersonation first asks whether all of them are allowed at once, as `*`.
const MANY: usize = 4;
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// 400: parts of an identity were asked for, but no user name. Holds the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoUserName(String);

/// 403: the requestor may not act as this user. Holds what was refused, for `Status.details`, and the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImpersonationForbidden {
    /// The check that failed.
    pub attributes: Box<Attributes>,
    /// The message of the `Status`.
    pub message: String,
}

/// The identity that the headers ask for, exactly as they say it; `None` if they do not.
pub fn requested(headers: &HeaderMap) -> Result<Option<UserInfo>, NoUserName> {
    let wanted = UserInfo {
        name: first(headers, IMPERSONATE_USER).unwrap_or_default(),
        uid: first(headers, IMPERSONATE_UID),
        groups: all(headers, IMPERSONATE_GROUP),
        extra: extras(headers, IMPERSONATE_EXTRA),
    };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if only_name(&wanted) {
        return Ok(None);
    }
    Err(NoUserName(format!("requested {} without impersonating a user name", go_syntax(&wanted))))
}

/// Removes the headers, so that nothing behind sees that this is not the user in person.
pub fn strip_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            [IMPERSONATE_USER, IMPERSONATE_UID, IMPERSONATE_GROUP].contains(&name)
                || name.starts_with(IMPERSONATE_EXTRA)
        })
        .cloned()
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// The user to go on as, when `requestor` may do `request` as `wanted`.
pub fn authorize(
    authorizer: &dyn Authorizer,
    requestor: &UserInfo,
    wanted: &UserInfo,
    request: &Attributes,
) -> Result<UserInfo, ImpersonationForbidden> {
    let mut refusal = None;
    for mode in Mode::ALL {
        if !mode.applies(requestor, wanted) {
            continue;
        }
        match (Check { authorizer, requestor, mode }).run(wanted, request) {
            Ok(user) => return Ok(user),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    // The legacy mode applies to everybody, so there is a refusal by now.
    Err(refusal.unwrap_or_else(|| ImpersonationForbidden {
        attributes: Box::new(request.clone()),
        message: "all impersonation modes failed".to_owned(),
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account as the node that its pod runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Any user that is neither.
    UserInfo,
    /// The old way.
    Legacy,
}

impl Mode {
    const ALL: [Mode; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    /// The mode's name in verbs; `None` for the old way.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::AssociatedNode => Some("associated-node"),
            Self::ArbitraryNode => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::UserInfo => Some("user-info"),
            Self::Legacy => None,
        }
    }

    fn applies(self, requestor: &UserInfo, wanted: &UserInfo) -> bool {
        let node = node_name(&wanted.name);
        let account = parse_service_account_user_name(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own_node = requestor.extra.get(EXTRA_NODE_NAME).map(Vec::as_slice);
                only_name(wanted)
                    && parse_service_account_user_name(&requestor.name).is_some()
                    && node.is_some_and(|node| matches!(own_node, Some([own]) if own == node))
            }
            Self::ArbitraryNode => only_name(wanted) && node.is_some(),
            Self::ServiceAccount => only_name(wanted) && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

struct Check<'a> {
    authorizer: &'a dyn Authorizer,
    requestor: &'a UserInfo,
    mode: Mode,
}

impl Check<'_> {
    fn run(&self, wanted: &UserInfo, request: &Attributes) -> Result<UserInfo, ImpersonationForbidden> {
        if let Some(mode) = self.mode.name() {
            let verb = format!("impersonate-on:{mode}:{}", request.verb);
            self.allowed(Attributes { verb, ..request.clone() })?;
        }
        let mut user = wanted.clone();
        self.user_name(wanted, &mut user)?;
        if let Some(uid) = &wanted.uid {
            self.allowed(self.on(AUTHENTICATION_GROUP, "uids").named(uid))?;
        }
        self.groups(&wanted.groups)?;
        self.extras(wanted)?;
        let everyone = match user.name == USER_ANONYMOUS {
            true => Some(GROUP_UNAUTHENTICATED),
            false => (!user.in_group(GROUP_UNAUTHENTICATED)).then_some(GROUP_AUTHENTICATED),
        };
        if let Some(everyone) = everyone.filter(|group| !user.in_group(group)) {
            user.groups.push(everyone.to_owned());
        }
        Ok(user)
    }

    fn user_name(&self, wanted: &UserInfo, user: &mut UserInfo) -> Result<(), ImpersonationForbidden> {
        let group = self.names_group();
        let mut check = self.on(group, "users").named(&wanted.name);
        if let Some(node) = node_name(&wanted.name).filter(|_| self.mode != Mode::Legacy) {
            // What a service account may do on its own node it may do on whatever node it runs.
            let node = if self.mode == Mode::AssociatedNode { "*" } else { node };
            check = self.on(group, "nodes").named(node);
            user.groups = vec![GROUP_NODES.to_owned()];
        }
        if let Some((namespace, name)) = parse_service_account_user_name(&wanted.name) {
            check = self.on(group, "serviceaccounts").named(name);
            namespace.clone_into(&mut check.namespace);
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.allowed(check)
    }

    fn groups(&self, groups: &[String]) -> Result<(), ImpersonationForbidden> {
        let check = self.on(self.names_group(), "groups");
        if self.mode != Mode::Legacy {
            let has = |wanted: &str| groups.iter().any(|group| group == wanted);
            if has("") {
                return Err(self.refuse(check, "impersonating the empty string group is not allowed"));
            }
            if has(GROUP_MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refuse(check.named(GROUP_MASTERS), why));
            }
            if groups.len() >= MANY && self.allowed(check.clone().named("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.allowed(check.clone().named(group)))
    }

    fn extras(&self, wanted: &UserInfo) -> Result<(), ImpersonationForbidden> {
        let extras = self.on(AUTHENTICATION_GROUP, "userextras");
        if self.mode != Mode::Legacy
            && let Some(reason) = wanted.extra.iter().find_map(|(key, values)| unfit_extra(key, values))
        {
            return Err(self.refuse(extras, &reason));
        }
        let count = wanted.extra.values().map(Vec::len).sum::<usize>().max(wanted.extra.len());
        let any = extras.clone().on_subresource("*").named("*");
        if self.mode != Mode::Legacy && count >= MANY && self.allowed(any).is_ok() {
            return Ok(());
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.allowed(extras.clone().on_subresource(key).named(value))?;
            }
        }
        Ok(())
    }

    /// Where user names live as resources: constrained impersonation has its own group for them.
    fn names_group(&self) -> &'static str {
        if self.mode == Mode::Legacy { "" } else { AUTHENTICATION_GROUP }
    }

    fn on(&self, group: &str, resource: &str) -> Attributes {
        let verb = self.mode.name().map_or_else(|| "impersonate".to_owned(), |mode| format!("impersonate:{mode}"));
        let version = "v1".to_owned();
        Attributes { version, ..Attributes::resource(&verb, group, resource, "") }
    }

    fn allowed(&self, attributes: Attributes) -> Result<(), ImpersonationForbidden> {
        let decision = self.authorizer.authorize(self.requestor, &attributes);
        if decision.allowed {
            return Ok(());
        }
        Err(self.refuse(attributes, &decision.reason))
    }

    fn refuse(&self, attributes: Attributes, reason: &str) -> ImpersonationForbidden {
        let message = forbidden_message(self.requestor, &attributes, reason);
        ImpersonationForbidden { attributes: Box::new(attributes), message }
    }
}

fn only_name(user: &UserInfo) -> bool {
    user.uid.is_none() && user.groups.is_empty() && user.extra.is_empty()
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| is_subdomain(name))
}

/// Why constrained impersonation will not have this extra; the old way takes anything.
fn unfit_extra(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let prefixed = key.split_once('/').is_some_and(|(domain, path)| is_subdomain(domain) && !path.is_empty());
    if !prefixed {
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: must be a \
             domain-prefixed path (such as \"acme.io/foo\")",
            quoted(key)
        ));
    }
    if key.to_lowercase() != key {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quoted(key)));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// A user as Go's `%#v` prints it, which is what the reference puts into its message.
fn go_syntax(user: &UserInfo) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        let entries: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", quoted(key), list(values))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quoted(&user.name),
        quoted(user.uid.as_deref().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::rbac::{Decision, PolicyRule, ResolvedRules};
    use super::*;

    /// Allows what is listed as `verb group/resource[/sub] namespace name`.
    struct Listed(&'static [&'static str]);

    impl Authorizer for Listed {
        fn authorize(&self, user: &UserInfo, a: &Attributes) -> Decision {
            let asked = format!("{} {}/{} {} {}", a.verb, a.group, a.combined_resource(), a.namespace, a.name);
            Decision { allowed: user.is_master() || self.0.contains(&asked.as_str()), reason: String::new() }
        }

        fn rules_for(&self, _: &UserInfo, _: &str) -> ResolvedRules {
            ResolvedRules { rules: vec![PolicyRule::default()], errors: vec![] }
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn wanted(pairs: &[(&'static str, &'static str)]) -> UserInfo {
        requested(&headers(pairs)).unwrap().unwrap()
    }

    fn act(allowed: &'static [&'static str], pairs: &[(&'static str, &'static str)]) -> Result<UserInfo, String> {
        let request = Attributes::resource("list", "", "pods", "");
        let requestor = UserInfo::new::<&str>("jane", []);
        authorize(&Listed(allowed), &requestor, &wanted(pairs), &request).map_err(|refused| refused.message)
    }

    #[test]
    fn an_identity_needs_a_name() {
        assert_eq!(requested(&headers(&[])), Ok(None));
        assert_eq!(
            requested(&headers(&[("impersonate-group", "bob")])).unwrap_err().to_string(),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"bob"}, Extra:map[string][]string(nil)} without impersonating a user name"#
        );
        let parts = [("impersonate-group", "bob"), ("impersonate-extra-some%2fkey", "v"), ("impersonate-uid", "4")];
        assert_eq!(
            requested(&headers(&parts)).unwrap_err().to_string(),
            r#"requested &user.DefaultInfo{Name:"", UID:"4", Groups:[]string{"bob"}, Extra:map[string][]string{"some/key":[]string{"v"}}} without impersonating a user name"#
        );
        let uid = [("impersonate-uid", "4")];
        assert!(requested(&headers(&uid)).unwrap_err().to_string().contains("Groups:[]string(nil)"));
    }

    #[test]
    fn refusals_name_the_narrowest_mode() {
        assert_eq!(
            act(&[], &[("impersonate-user", "bob")]).unwrap_err(),
            r#"pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope"#
        );
        assert_eq!(
            act(&[], &[("impersonate-user", "system:serviceaccount:ns:bob")]).unwrap_err(),
            r#"pods is forbidden: User "jane" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" at the cluster scope"#
        );
        assert!(
            act(&[], &[("impersonate-user", "system:node:n")])
                .unwrap_err()
                .contains("impersonate-on:arbitrary-node:list")
        );
    }

    #[test]
    fn the_old_verb_still_works_for_each_part() {
        let all = &[
            "impersonate /users  bob",
            "impersonate /groups  dev",
            "impersonate authentication.k8s.io/uids  4",
            "impersonate authentication.k8s.io/userextras/scopes  view",
        ];
        let parts = [
            ("impersonate-user", "bob"),
            ("impersonate-group", "dev"),
            ("impersonate-uid", "4"),
            ("impersonate-extra-scopes", "view"),
        ];
        let user = act(all, &parts).unwrap();
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        assert_eq!((user.uid.as_deref(), &user.extra["scopes"]), (Some("4"), &vec!["view".to_owned()]));
        assert!(act(&["impersonate /users  bob"], &parts).is_err());
        let account =
            act(&["impersonate /serviceaccounts ns robot"], &[("impersonate-user", "system:serviceaccount:ns:robot")]);
        assert_eq!(
            account.unwrap().groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
    }

    #[test]
    fn constrained_impersonation_needs_identity_and_action() {
        let bob = [("impersonate-user", "bob")];
        assert!(act(&["impersonate:user-info authentication.k8s.io/users  bob"], &bob).is_err());
        assert_eq!(
            act(&["impersonate-on:user-info:list /pods  "], &bob).unwrap_err(),
            r#"users.authentication.k8s.io "bob" is forbidden: User "jane" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope"#,
        );
        let both = &["impersonate-on:user-info:list /pods  ", "impersonate:user-info authentication.k8s.io/users  bob"];
        assert_eq!(act(both, &bob).unwrap().groups, ["system:authenticated"]);
        let odd_extra = [("impersonate-user", "bob"), ("impersonate-extra-scopes", "v")];
        assert!(act(both, &odd_extra).unwrap_err().contains("must be a domain-prefixed path"));
        let node = &[
            "impersonate-on:arbitrary-node:list /pods  ",
            "impersonate:arbitrary-node authentication.k8s.io/nodes  n",
        ];
        assert_eq!(
            act(node, &[("impersonate-user", "system:node:n")]).unwrap().groups,
            ["system:nodes", "system:authenticated"]
        );
    }

    #[test]
    fn constrained_impersonation_never_gives_everything() {
        let both = &[
            "impersonate-on:user-info:list /pods  ",
            "impersonate:user-info authentication.k8s.io/users  bob",
            "impersonate:user-info authentication.k8s.io/groups  system:masters",
            "impersonate:user-info authentication.k8s.io/groups  *",
        ];
        let with =
            |group: &'static str| act(both, &[("impersonate-user", "bob"), ("impersonate-group", group)]).unwrap_err();
        assert_eq!(
            with("system:masters"),
            r#"groups.authentication.k8s.io "system:masters" is forbidden: User "jane" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#
        );
        assert!(with("").ends_with("impersonating the empty string group is not allowed"));
        assert!(with("dev").contains(r#"groups.authentication.k8s.io "dev" is forbidden"#));
        let many = ["a", "b", "c", "d"].map(|group| ("impersonate-group", group));
        let many: Vec<_> = many.into_iter().chain([("impersonate-user", "bob")]).collect();
        assert_eq!(act(both, &many).unwrap().groups, ["a", "b", "c", "d", "system:authenticated"]);
    }

    #[test]
    fn a_service_account_may_be_let_act_as_its_own_node() {
        let allowed = Listed(&[
            "impersonate-on:associated-node:get /pods ns p",
            "impersonate:associated-node authentication.k8s.io/nodes  *",
        ]);
        let request = Attributes::resource("get", "", "pods", "ns").named("p");
        let agent = UserInfo::service_account("ns", "agent", None).with_extra(EXTRA_NODE_NAME, "n1");
        let own = UserInfo::new::<&str>("system:node:n1", []);
        assert_eq!(
            authorize(&allowed, &agent, &own, &request).unwrap().groups,
            ["system:nodes", "system:authenticated"]
        );
        let other = UserInfo::new::<&str>("system:node:n2", []);
        assert!(authorize(&allowed, &agent, &other, &request).is_err());
    }

    #[test]
    fn everybody_and_nobody_keep_their_groups() {
        let request = Attributes::path("get", "/version");
        let root = UserInfo::new("root", ["system:masters"]);
        let act = |pairs: &[(&'static str, &'static str)]| {
            authorize(&Listed(&[]), &root, &wanted(pairs), &request).unwrap().groups
        };
        assert_eq!(act(&[("impersonate-user", "system:anonymous")]), ["system:unauthenticated"]);
        assert_eq!(
            act(&[("impersonate-user", "x"), ("impersonate-group", "system:unauthenticated")]),
            ["system:unauthenticated"]
        );
    }

    #[test]
    fn the_headers_do_not_travel_on() {
        let mut headers = headers(&[("impersonate-user", "a"), ("impersonate-extra-k", "v"), ("accept", "x")]);
        strip_headers(&mut headers);
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn extras_must_be_fit_for_constrained_impersonation() {
        let values = |values: &[&str]| values.iter().map(|&v| v.to_owned()).collect::<Vec<_>>();
        for (key, given, part) in [
            ("", &["v"][..], "empty string key"),
            ("plain", &["v"], "invalid key"),
            ("acme.io/Key", &["v"], "non-lowercase"),
            ("acme.io/key", &[""], "empty string value"),
        ] {
            assert!(unfit_extra(key, &values(given)).unwrap().contains(part), "{key}");
        }
        assert_eq!(unfit_extra("acme.io/key", &values(&["v"])), None);
    }
}
