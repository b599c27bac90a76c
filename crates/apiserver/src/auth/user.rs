//! The identity behind a request, and the names that have a meaning of their own.

use std::collections::BTreeMap;

use ferrovirt_machinery::names;
use serde::{Deserialize, Serialize};

/// Members may do everything, whatever RBAC says.
pub const GROUP_MASTERS: &str = "system:masters";
/// Everybody whose credentials were accepted.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Everybody who showed no credentials.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// All service accounts.
pub const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Kubelets.
pub const GROUP_NODES: &str = "system:nodes";
/// Bearers of service account monitoring rights.
pub const GROUP_MONITORING: &str = "system:monitoring";
/// The user of a request without credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";
/// The API server itself, when it calls its own API.
pub const USER_APISERVER: &str = "system:apiserver";
/// The garbage collector, namespace controller and the other built-in controllers.
pub const USER_CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The scheduler.
pub const USER_SCHEDULER: &str = "system:kube-scheduler";

/// Extra: the id of the credential that was used (a token's `jti`, a certificate's fingerprint).
pub const EXTRA_CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Extra: the pod that a service account token is bound to.
pub const EXTRA_POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// Extra: the uid of that pod.
pub const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// Extra: the node that a token is bound to, or on which its pod runs.
pub const EXTRA_NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Extra: the uid of that node.
pub const EXTRA_NODE_UID: &str = "authentication.kubernetes.io/node-uid";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const SERVICE_ACCOUNT_GROUP_PREFIX: &str = "system:serviceaccounts:";

/// A user as `authentication.k8s.io` describes one; its serde form is the API's `UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserInfo {
    /// The name that uniquely identifies the user.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Tells apart two users that had the same name at different times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Groups that the user belongs to, in the order in which authentication found them.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub groups: Vec<String>,
    /// What the authenticator knows beyond that.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl UserInfo {
    /// A user with a name and groups, nothing else.
    pub fn new<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        Self { name: name.into(), groups: groups.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The user of requests that show no credentials.
    pub fn anonymous() -> Self {
        Self::new(USER_ANONYMOUS, [GROUP_UNAUTHENTICATED])
    }

    /// The API server's own identity, for writes that it makes itself.
    pub fn apiserver() -> Self {
        Self::new(USER_APISERVER, [GROUP_MASTERS, GROUP_AUTHENTICATED])
    }

    /// A service account, with the groups that every one has.
    pub fn service_account(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            name: service_account_user_name(namespace, name),
            uid: uid.map(str::to_owned),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        }
    }

    /// Whether the user belongs to `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Whether nothing is forbidden to this user.
    pub fn is_master(&self) -> bool {
        self.in_group(GROUP_MASTERS)
    }

    /// Adds `system:authenticated`, which whoever passed an authenticator is, unless they are there already or the
    /// user is the anonymous one.
    pub fn with_authenticated_group(mut self) -> Self {
        if self.name != USER_ANONYMOUS && !self.in_group(GROUP_AUTHENTICATED) && !self.in_group(GROUP_UNAUTHENTICATED) {
            self.groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        self
    }

    /// Records one more fact about the user.
    pub fn with_extra(mut self, key: &str, value: impl Into<String>) -> Self {
        self.extra.entry(key.to_owned()).or_default().push(value.into());
        self
    }
}

/// The user name of a service account.
pub fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups of a service account in `namespace`, without `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![GROUP_SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNT_GROUP_PREFIX}{namespace}")]
}

/// Namespace and name, when `user` is the user name of a service account.
pub fn parse_service_account_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// Whether `text` can name a namespace.
fn is_label(text: &str) -> bool {
    names::dns_label(text).is_empty()
}

/// Whether `text` can name most objects, nodes and service accounts among them.
pub(super) fn is_subdomain(text: &str) -> bool {
    names::dns_subdomain(text).is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_the_apis_user_info() {
        let user = UserInfo::service_account("ns", "robot", Some("u1")).with_extra(EXTRA_POD_NAME, "pod");
        let want = json!({
            "username": "system:serviceaccount:ns:robot",
            "uid": "u1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ns"],
            "extra": {"authentication.kubernetes.io/pod-name": ["pod"]},
        });
        assert_eq!(serde_json::to_value(&user).unwrap(), want);
        assert_eq!(serde_json::from_value::<UserInfo>(want).unwrap(), user);
        assert_eq!(serde_json::to_value(UserInfo::default()).unwrap(), json!({}));
        let nulls = json!({"username": "x", "groups": null, "extra": null});
        assert_eq!(serde_json::from_value::<UserInfo>(nulls).unwrap(), UserInfo::new::<&str>("x", []));
    }

    #[test]
    fn authenticated_group_is_added_once_and_never_to_anonymous() {
        let user = UserInfo::new("a", ["g"]).with_authenticated_group().with_authenticated_group();
        assert_eq!(user.groups, ["g", GROUP_AUTHENTICATED]);
        assert_eq!(UserInfo::anonymous().with_authenticated_group(), UserInfo::anonymous());
    }

    #[test]
    fn service_account_names_parse_only_when_valid() {
        assert_eq!(parse_service_account_user_name("system:serviceaccount:ns:a.b"), Some(("ns", "a.b")));
        for bad in [
            "x",
            "system:serviceaccount:ns",
            "system:serviceaccount::a",
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount:n.s:a",
        ] {
            assert_eq!(parse_service_account_user_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn masters_are_found_by_group() {
        assert!(UserInfo::apiserver().is_master());
        assert!(!UserInfo::anonymous().is_master());
    }
}
