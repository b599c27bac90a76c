//! Admission of guests: defaults when one is created, causes when one is wrong, a status that only components write, and agents that
//! write about their own node's guests only.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::defaults::default_vmi;
use ferrovirt_api::gates;
use ferrovirt_api::validation;

use super::review::{Admission, Facts, Failure, Judgement, Operation, Refusal, Request, Steps, none, read, write};

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    match request.operation {
        Operation::Create => create(request, facts, steps),
        Operation::Update if request.subresource.is_empty() => update(request, facts, steps),
        Operation::Update | Operation::Delete => Ok(Admission::default()),
    }
}

fn create(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let mut guest: VirtualMachineInstance = read(request.object)?;
    let mut admission = Admission::default();
    if steps.default {
        default_vmi(&mut guest, facts.cluster, &facts.inputs);
        admission.object = write(&guest, request.object);
    }
    if steps.check {
        none(request, validation::check_vmi(&guest, facts.cluster, request.user.is_component()))?;
        admission.warnings = validation::vmi_warnings(&guest, facts.cluster);
    }
    Ok(admission)
}

fn update(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let component = request.user.is_component();
    let mut admission = Admission::default();
    if steps.default && !component {
        admission.object = with_old_status(request);
    }
    if steps.check {
        restrict_to_node(request, facts)?;
        if !component || request.object["spec"] != request.old_object["spec"] {
            let (old, new) = (read(request.old_object)?, read(request.object)?);
            none(request, validation::check_vmi_update(&old, &new, component))?;
        }
    }
    Ok(admission)
}

/// What a user writes into the status is dropped without a word, as on any Kubernetes object with a status of its own.
fn with_old_status(request: &Request<'_>) -> Option<serde_json::Value> {
    let old = &request.old_object["status"];
    if request.object["status"] == *old {
        return None;
    }
    let mut object = request.object.clone();
    let fields = object.as_object_mut()?;
    if old.is_null() {
        fields.remove("status")
    } else {
        fields.insert("status".to_owned(), old.clone())
    };
    Some(object)
}

/// A virt-handler writes about guests of its own node, and about those that move to it. Where a guest moves is not its decision.
fn restrict_to_node(request: &Request<'_>, facts: &Facts<'_>) -> Result<(), Failure> {
    if !request.user.is_handler() || !gates::is_on(facts.cluster, gates::NODE_RESTRICTION) {
        return Ok(());
    }
    let Some(node) = request.user.node() else {
        let message = format!("{} has no node in its identity: it may not write guests", request.user.name);
        return Err(Refusal::forbidden(message).into());
    };
    let status = &request.old_object["status"];
    let target = &status["migrationState"]["targetNode"];
    if status["nodeName"] != *node && *target != *node {
        let message = format!(
            "virt-handler of node {node} may only write guests of its node; {}/{} is not on it and does not move to it",
            request.namespace, request.name
        );
        return Err(Refusal::forbidden(message).into());
    }
    if request.object["status"]["migrationState"]["targetNode"] != *target {
        let message = format!("virt-handler of node {node} may not choose the target of a migration");
        return Err(Refusal::forbidden(message).into());
    }
    Ok(())
}
