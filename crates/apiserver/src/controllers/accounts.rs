//! Service accounts: secrets that hold a token of one are filled, and pods of a new namespace find the default one.

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
use crate::status::ApiResult;
use crate::store::{Event, Key};

const MANAGER: &str = "kube-controller-manager";
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
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

/// Lets the first pods of a new namespace wait for the account that is on its way there. Everything else about a pod's
/// account is in the strategy of pods.
pub(super) struct AwaitDefaultAccount;

impl Plugin for AwaitDefaultAccount {
    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async move {
            if needs_default_account(review) {
                let key = Key::new("/serviceaccounts", review.namespace, "default");
                for _ in 0..DEFAULT_TRIES {
                    if review.server.store.current(&key).is_some() {
                        break;
                    }
                    tokio::time::sleep(DEFAULT_WAIT).await;
                }
            }
            Ok(None)
        })
    }
}

fn needs_default_account(review: &Review<'_>) -> bool {
    review.operation == Operation::Create
        && review.resource.group.is_empty()
        && &*review.resource.plural == "pods"
        && review.subresource.is_empty()
        && matches!(review.object["spec"]["serviceAccountName"].as_str(), None | Some("" | "default"))
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
}
