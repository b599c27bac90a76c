//! What the small containers beside `compute` have in common: what they may do, and what they may use.

use std::collections::BTreeMap;

use ferrovirt_api::kubevirt::SupportContainerType;
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use k8s_openapi::api::core::v1::{Capabilities, ResourceRequirements, SecurityContext, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::LauncherConfig;

/// What a kind of container uses, where the cluster's configuration does not say otherwise.
pub(crate) struct Figures {
    /// Its name in the configuration.
    pub(crate) of: SupportContainerType,
    pub(crate) requests: &'static [(&'static str, &'static str)],
    pub(crate) limits: &'static [(&'static str, &'static str)],
    /// Both, in a pod whose limits equal its requests: it has to stay such a pod.
    pub(crate) guaranteed: &'static [(&'static str, &'static str)],
}

/// What a container asks for and may have, beside a `compute` with these resources.
pub(crate) fn resources(
    figures: &Figures,
    config: &LauncherConfig,
    compute: &ResourceRequirements,
) -> ResourceRequirements {
    let rows = |rows: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        rows.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
    };
    let wanted = config.cluster.support_container_resources.iter().find(|entry| entry.r#type == figures.of);
    let is_guaranteed = is_guaranteed(compute);
    let (mut requests, mut limits) = if is_guaranteed {
        (rows(figures.guaranteed), rows(figures.guaranteed))
    } else {
        (rows(figures.requests), rows(figures.limits))
    };
    if let Some(wanted) = wanted {
        let render =
            |name: &String, amount: &ferrovirt_api::values::Quantity| (name.clone(), Quantity(amount.to_string()));
        requests.extend(wanted.resources.requests.iter().map(|(name, amount)| render(name, amount)));
        limits.extend(wanted.resources.limits.iter().map(|(name, amount)| render(name, amount)));
    }
    if is_guaranteed {
        requests.clone_from(&limits);
    }
    ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None }
}

/// Nothing is allowed that sleeping and reading do not need. virt-handler insists on the read-only root of those that hold images, which it
/// shows to the launcher.
pub(crate) fn security_context() -> SecurityContext {
    let user = i64::from(RUNTIME_USER);
    SecurityContext {
        run_as_user: Some(user),
        run_as_group: Some(user),
        run_as_non_root: Some(true),
        read_only_root_filesystem: Some(true),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        ..SecurityContext::default()
    }
}

/// A volume at a place.
pub(crate) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only).filter(|read_only| *read_only),
        ..VolumeMount::default()
    }
}

/// Whether Kubernetes would call a pod of this container alone `Guaranteed`.
fn is_guaranteed(compute: &ResourceRequirements) -> bool {
    let of = |amounts: &Option<BTreeMap<String, Quantity>>, name: &str| {
        amounts.as_ref()?.get(name)?.0.parse::<ferrovirt_api::values::Quantity>().ok()
    };
    ["cpu", "memory"].iter().all(|name| {
        let limit = of(&compute.limits, name);
        limit.is_some() && limit == of(&compute.requests, name)
    })
}
