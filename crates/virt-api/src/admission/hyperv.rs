//! Guests that count on Hyper-V's features, where nothing can give them: KVM does, emulation does not. They are let in, since a node with
//! KVM may come, and their author is told. Without one, virt-handler refuses them before QEMU starts.

use serde_json::Value;

use super::review::Facts;

/// The field below a guest's spec that asks for them.
pub(super) fn asked_by(spec: &Value) -> Option<&'static str> {
    let features = &spec["domain"]["features"];
    let passthrough = &features["hypervPassthrough"];
    if passthrough.is_object() && passthrough["enabled"] != false {
        return Some("domain.features.hypervPassthrough");
    }
    let single = features["hyperv"].as_object()?;
    single.values().any(|feature| !feature.is_null()).then_some("domain.features.hyperv")
}

/// What the author of a guest should know; `path` leads to the guest's spec.
pub(super) fn warning(path: &str, spec: &Value, facts: &Facts<'_>) -> Option<String> {
    let field = asked_by(spec)?;
    let developer = facts.cluster.developer_configuration.as_ref();
    let why = match developer.is_some_and(|developer| developer.use_emulation) {
        true => "this cluster emulates all guests (developerConfiguration.useEmulation)",
        false if facts.others.lacks_kvm => "no node of this cluster has it",
        false => return None,
    };
    Some(format!("{path}.{field} needs KVM, and {why}: the guest will not start; remove the field"))
}
