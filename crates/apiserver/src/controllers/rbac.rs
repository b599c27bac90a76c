//! Roles: cluster roles that gather the rules of others are kept up to date, and nobody grants what they do not have.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::Housekeeper;
use super::queue::{self, Queue};
use crate::admission::{Operation, Plugin, Review};
use crate::auth::rbac::RbacKind;
use crate::auth::rbac::aggregation::aggregated_rules;
use crate::internal::Place;
use crate::status::ApiResult;
use crate::store::Event;

const GROUP: &str = "rbac.authorization.k8s.io";
const MANAGER: &str = "clusterrole-aggregation-controller";

/// Whether any cluster role changed: whoever gathers may be concerned, and there are few of those.
#[derive(Default)]
pub(super) struct Aggregation {
    queue: Queue<()>,
}

impl Aggregation {
    pub(super) fn observe(&self, event: &Event) {
        if &*event.key.resource == "rbac.authorization.k8s.io/clusterroles" {
            self.queue.add(());
        }
    }
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    queue::work(keeper, "aggregation", |keeper| &keeper.aggregation.queue, |keeper, ()| Box::pin(aggregate(keeper)))
        .await;
}

async fn aggregate(keeper: &Arc<Housekeeper>) -> ApiResult<()> {
    let roles = keeper.server.internal(GROUP, "v1", "clusterroles", MANAGER)?;
    let all = roles.list(None);
    for role in &all {
        if let Some(rules) = stale_rules(role, &all) {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            roles.apply(&Place::new("", name), json!({"metadata": {"name": name}, "rules": rules})).await?;
        }
    }
    Ok(())
}

/// The rules that a role should have, when it has others.
fn stale_rules(role: &Value, all: &[Value]) -> Option<Value> {
    let wanted = json!(aggregated_rules(role, all)?);
    let same = match &role["rules"] {
        Value::Null => wanted == json!([]),
        rules => *rules == wanted,
    };
    (!same).then_some(wanted)
}

/// Refuses roles and bindings that would give more than their writer has.
pub(super) struct NoEscalation;

impl Plugin for NoEscalation {
    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let writes = matches!(review.operation, Operation::Create | Operation::Update);
            if !writes || &*review.resource.group != GROUP || !review.subresource.is_empty() {
                return Ok(());
            }
            let Some(kind) = RbacKind::from_resource(&review.resource.plural) else { return Ok(()) };
            let old = (!review.old_object.is_null()).then_some(review.old_object);
            review.server.identity.check_grant(
                &review.server.store,
                review.user,
                kind,
                review.namespace,
                review.object,
                old,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_roles_with_other_rules_are_written() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let part = json!({"metadata": {"name": "part", "labels": {"to": "x"}}, "rules": [rule]});
        let mut whole = json!({
            "metadata": {"name": "whole"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "x"}}]}, "rules": null,
        });
        let all = [part.clone(), whole.clone()];
        assert_eq!(stale_rules(&part, &all), None);
        assert_eq!(stale_rules(&whole, &all), Some(json!([rule])));
        assert_eq!(stale_rules(&whole, &[]), None, "nothing to gather and nothing there");
        whole["rules"] = json!([rule]);
        assert_eq!(stale_rules(&whole, &all), None);
        assert_eq!(stale_rules(&whole, &[]), Some(json!([])));
    }
}
