//! Who may bring a directory of this machine into a pod. Whoever can do that owns the machine, so a right to create pods is not
//! enough: it takes an administrator, or virt-controller, which does it for `hostDisk` volumes when their feature gate is on.

use ferrovirt_apiserver::admission::{Operation, Plugin, Review};
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;

use super::identities::VIRT_CONTROLLER;

/// The group that may do everything.
const ADMINISTRATORS: &str = "system:masters";

/// The admission plugin.
pub(super) struct HostPaths;

impl Plugin for HostPaths {
    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let is_new_pod = review.operation == Operation::Create
                && review.resource.group.is_empty()
                && &*review.resource.plural == "pods"
                && review.subresource.is_empty();
            if !is_new_pod || may(review.user) {
                return Ok(());
            }
            first_host_path(review.object).map_or(Ok(()), |index| Err(refusal(review.name, index)))
        })
    }
}

fn may(user: &UserInfo) -> bool {
    user.name == VIRT_CONTROLLER || user.groups.iter().any(|group| group == ADMINISTRATORS)
}

fn first_host_path(pod: &Value) -> Option<usize> {
    pod["spec"]["volumes"].as_array()?.iter().position(|volume| !volume["hostPath"].is_null())
}

fn refusal(name: &str, index: usize) -> ApiError {
    let message = format!(
        "pods \"{name}\" is forbidden: spec.volumes[{index}].hostPath: only administrators may mount directories of this machine; use a PersistentVolumeClaim"
    );
    ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_administrators_and_the_controller_mount_the_machine() {
        let authenticated = |name: &str| UserInfo::new(name, ["system:authenticated"]);
        assert!(may(&authenticated(VIRT_CONTROLLER)));
        assert!(may(&UserInfo::new("root", ["system:authenticated", ADMINISTRATORS])));
        assert!(!may(&authenticated("system:serviceaccount:default:virt-controller")));
        assert!(!may(&authenticated("editor")));
    }

    #[test]
    fn the_first_host_path_is_named() {
        let pod = |volumes: Value| json!({"spec": {"volumes": volumes}});
        assert_eq!(first_host_path(&json!({"spec": {}})), None);
        assert_eq!(first_host_path(&pod(json!([{"name": "a", "emptyDir": {}}]))), None);
        let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/etc"}}]);
        assert_eq!(first_host_path(&pod(volumes)), Some(1));
        assert!(refusal("p", 1).to_string().contains("spec.volumes[1].hostPath"));
    }
}
