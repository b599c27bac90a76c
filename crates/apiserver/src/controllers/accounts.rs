//! Service accounts: secrets that hold a token of one are filled, and pods get the account that they run as.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Housekeeper;
use super::queue::{self, Queue};
use crate::admission::{Operation, Plugin, Review};
use crate::http::options::DeleteOptions;
use crate::internal::Place;
use crate::server::Server;
use crate::status::{ApiError, ApiResult};
use crate::store::Event;

const MANAGER: &str = "kube-controller-manager";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How often and how long a pod waits for the account that every namespace gets.
const DEFAULT_TRIES: usize = 10;
const DEFAULT_WAIT: Duration = Duration::from_millis(100);

/// What may need a look.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Item {
    Secret(Place),
    /// All token secrets of a namespace: an account came or went.
    Namespace(String),
}

/// The secrets that may need a token.
#[derive(Default)]
pub(super) struct TokenSecrets {
    queue: Queue<Item>,
}

impl TokenSecrets {
    /// Notes what needs a look.
    pub(super) fn observe(&self, event: &Event) {
        let namespace = &*event.key.namespace;
        match &*event.key.resource {
            "/secrets" if event.object.as_ref().is_some_and(|secret| secret.body.value()["type"] == TOKEN_TYPE) => {
                self.queue.add(Item::Secret(Place::new(namespace, &event.key.name)));
            }
            "/serviceaccounts" if event.object.is_none() || event.previous.is_none() => {
                self.queue.add(Item::Namespace(namespace.to_owned()));
            }
            _ => {}
        }
    }
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    queue::work(
        keeper,
        "token secrets",
        |keeper| &keeper.token_secrets.queue,
        |keeper, item| Box::pin(reconcile(keeper, item)),
    )
    .await;
}

async fn reconcile(keeper: &Arc<Housekeeper>, item: &Item) -> ApiResult<()> {
    let server = &keeper.server;
    let secrets = server.internal("", "v1", "secrets", MANAGER)?;
    let place = match item {
        Item::Secret(place) => place,
        Item::Namespace(namespace) => {
            for secret in secrets.list(Some(namespace)).iter().filter(|secret| secret["type"] == TOKEN_TYPE) {
                let name = secret["metadata"]["name"].as_str().unwrap_or_default();
                keeper.token_secrets.queue.add(Item::Secret(Place::new(namespace, name)));
            }
            return Ok(());
        }
    };
    let Some(secret) = secrets.get(&place.namespace, &place.name) else { return Ok(()) };
    if secret["type"] != TOKEN_TYPE || secret["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let Some(account) = account_of(server, &secret)? else {
        let uid = secret["metadata"]["uid"].as_str().map(str::to_owned);
        secrets.delete(place, &DeleteOptions { uid, ..DeleteOptions::default() }).await?;
        return Ok(());
    };
    let certificate = STANDARD.encode(server.identity.ca_certificate());
    if is_complete(&secret, &account, &certificate) {
        return Ok(());
    }
    let token = server.identity.token_for_secret(server, &account, &secret)?;
    secrets.change(place, "", |secret| fill(secret, &account, &certificate, &token)).await?;
    Ok(())
}

/// The account that a secret is for; one that was made again under the same name is another.
fn account_of(server: &Arc<Server>, secret: &Value) -> ApiResult<Option<Value>> {
    let accounts = server.internal("", "v1", "serviceaccounts", MANAGER)?;
    let metadata = &secret["metadata"];
    let name = metadata["annotations"][ACCOUNT_NAME].as_str().unwrap_or_default();
    let account = accounts.get(metadata["namespace"].as_str().unwrap_or_default(), name);
    let uid = metadata["annotations"][ACCOUNT_UID].as_str().unwrap_or_default();
    Ok(account.filter(|account| uid.is_empty() || account["metadata"]["uid"] == uid))
}

fn is_complete(secret: &Value, account: &Value, certificate: &str) -> bool {
    let data = &secret["data"];
    let has_token = data["token"].as_str().is_some_and(|token| !token.is_empty());
    let named = secret["metadata"]["annotations"][ACCOUNT_UID] == account["metadata"]["uid"];
    has_token && named && data["ca.crt"] == certificate && data["namespace"].is_string()
}

fn fill(secret: &mut Value, account: &Value, certificate: &str, token: &str) {
    let namespace = secret["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    secret["metadata"]["annotations"][ACCOUNT_UID] = account["metadata"]["uid"].clone();
    let data = &mut secret["data"];
    if !data.is_object() {
        *data = json!({});
    }
    data["ca.crt"] = certificate.into();
    if !data["namespace"].is_string() {
        data["namespace"] = STANDARD.encode(namespace).into();
    }
    if data["token"].as_str().is_none_or(str::is_empty) {
        data["token"] = STANDARD.encode(token).into();
    }
}

/// Gives pods the service account that they run as, and refuses those whose account is missing.
pub(super) struct PodAccount;

impl Plugin for PodAccount {
    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async move {
            if !is_new_pod(review) || review.object["metadata"]["annotations"].get(MIRROR).is_some() {
                return Ok(None);
            }
            let mut pod = review.object.clone();
            if name_in(&pod).is_empty() {
                pod["spec"]["serviceAccountName"] = "default".into();
                pod["spec"]["serviceAccount"] = "default".into();
            }
            let account = find_account(review, name_in(&pod)).await?;
            take_pull_secrets(&mut pod, &account);
            Ok(Some(pod))
        })
    }

    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            if !is_new_pod(review) || review.object["metadata"]["annotations"].get(MIRROR).is_some() {
                return Ok(());
            }
            // Once more: a webhook may have named another one.
            find_account(review, name_in(review.object)).await.map(|_| ())
        })
    }
}

fn is_new_pod(review: &Review<'_>) -> bool {
    review.operation == Operation::Create
        && review.resource.group.is_empty()
        && &*review.resource.plural == "pods"
        && review.subresource.is_empty()
}

fn name_in(pod: &Value) -> &str {
    pod["spec"]["serviceAccountName"].as_str().unwrap_or_default()
}

async fn find_account(review: &Review<'_>, name: &str) -> ApiResult<Value> {
    let accounts = review.server.internal("", "v1", "serviceaccounts", MANAGER)?;
    // The default account of a new namespace is on its way.
    let tries = if name == "default" { DEFAULT_TRIES } else { 1 };
    for attempt in 0..tries {
        if let Some(account) = accounts.get(review.namespace, name) {
            return Ok(account);
        }
        if attempt + 1 < tries {
            tokio::time::sleep(DEFAULT_WAIT).await;
        }
    }
    let why =
        format!("error looking up service account {}/{name}: serviceaccount \"{name}\" not found", review.namespace);
    Err(ApiError::forbidden(review.resource.subject(), review.name, &why))
}

fn take_pull_secrets(pod: &mut Value, account: &Value) {
    let has_own = pod["spec"]["imagePullSecrets"].as_array().is_some_and(|list| !list.is_empty());
    if let Some(secrets) = account["imagePullSecrets"].as_array().filter(|list| !list.is_empty() && !has_own) {
        pod["spec"]["imagePullSecrets"] = secrets.clone().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_filled_once_and_mended_when_the_certificate_changes() {
        let account = json!({"metadata": {"name": "robot", "uid": "u"}});
        let mut secret = json!({"type": TOKEN_TYPE, "metadata": {"name": "s", "namespace": "ns", "annotations": {ACCOUNT_NAME: "robot"}}});
        assert!(!is_complete(&secret, &account, "ca"));
        fill(&mut secret, &account, "ca", "first");
        assert!(is_complete(&secret, &account, "ca"));
        assert_eq!(secret["data"], json!({"ca.crt": "ca", "namespace": "bnM=", "token": "Zmlyc3Q="}));
        assert!(!is_complete(&secret, &account, "other"));
        fill(&mut secret, &account, "other", "second");
        assert_eq!(secret["data"]["token"], "Zmlyc3Q=", "a token that is there stays");
    }

    #[test]
    fn pull_secrets_are_copied_unless_the_pod_has_its_own() {
        let account = json!({"imagePullSecrets": [{"name": "s"}]});
        let mut pod = json!({"spec": {}});
        take_pull_secrets(&mut pod, &account);
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
        let mut own = json!({"spec": {"imagePullSecrets": [{"name": "mine"}]}});
        take_pull_secrets(&mut own, &account);
        assert_eq!(own["spec"]["imagePullSecrets"], json!([{"name": "mine"}]));
        let mut none = json!({"spec": {}});
        take_pull_secrets(&mut none, &json!({}));
        assert!(none["spec"].get("imagePullSecrets").is_none());
    }
}
