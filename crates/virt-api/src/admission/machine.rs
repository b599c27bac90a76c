//! Admission of virtual machines: an identity that lasts, and a template whose guests can start.

use ferrovirt_api::VirtualMachine;
use ferrovirt_api::defaults::default_vm;
use ferrovirt_api::validation;
use serde_json::Value;

use super::hyperv;
use super::review::{Admission, Facts, Judgement, Needs, Operation, Request, Steps, none, read, write};

/// The spec of the machine's guests, as it was sent.
fn template<'a>(request: &Request<'a>) -> &'a Value {
    &request.object["spec"]["template"]["spec"]
}

/// What the machine's author should know.
fn warnings(request: &Request<'_>, facts: &Facts<'_>, machine: &VirtualMachine) -> Vec<String> {
    let mut warnings = validation::vm_warnings(machine, facts.cluster, &facts.inputs);
    warnings.extend(hyperv::warning("spec.template.spec", template(request), facts));
    warnings
}

/// Requests for volumes depend on what their guest does.
pub(super) fn needs<'a>(request: &Request<'a>) -> Needs<'a> {
    let requests = &request.object["status"]["volumeRequests"];
    let changed = *requests != request.old_object["status"]["volumeRequests"];
    match (request.subresource, changed && !requests.is_null()) {
        ("status", true) => Needs::Guest { namespace: request.namespace, name: request.name },
        ("", _) if hyperv::asked_by(template(request)).is_some() => Needs::Nodes,
        _ => Needs::Nothing,
    }
}

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    match (request.operation, request.subresource) {
        (Operation::Create, "") => create(request, facts, steps),
        (Operation::Update, "") => update(request, facts, steps),
        (Operation::Update, "status") if steps.check => status(request, facts),
        _ => Ok(Admission::default()),
    }
}

fn create(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let mut machine: VirtualMachine = read(request.object)?;
    let mut admission = Admission::default();
    if steps.default {
        default_vm(&mut machine, facts.cluster, &facts.inputs, true);
        admission.object = write(&machine, request.object);
    }
    if steps.check {
        check(request, facts, &machine)?;
        admission.warnings = warnings(request, facts, &machine);
    }
    Ok(admission)
}

/// A machine that is being deleted, or whose spec stays, was judged before: whatever rules came since, it can be tidied up.
fn update(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let deleting = !request.object["metadata"]["deletionTimestamp"].is_null();
    if deleting || request.object["spec"] == request.old_object["spec"] {
        return Ok(Admission::default());
    }
    let mut machine: VirtualMachine = read(request.object)?;
    let mut admission = Admission::default();
    if steps.default {
        let sent = machine.clone();
        default_vm(&mut machine, facts.cluster, &facts.inputs, false);
        if machine != sent {
            admission.object = write(&machine, request.object);
        }
    }
    if steps.check {
        check(request, facts, &machine)?;
        none(request, validation::check_vm_update(&read(request.old_object)?, &machine))?;
        admission.warnings = warnings(request, facts, &machine);
    }
    Ok(admission)
}

fn check(request: &Request<'_>, facts: &Facts<'_>, machine: &VirtualMachine) -> Result<(), super::review::Refusal> {
    let component = request.user.is_component();
    none(request, validation::check_vm(machine, facts.cluster, &facts.inputs, component))
}

/// Requests for volumes that are new have to make sense.
fn status(request: &Request<'_>, facts: &Facts<'_>) -> Judgement {
    if request.object["status"]["volumeRequests"] != request.old_object["status"]["volumeRequests"] {
        let machine: VirtualMachine = read(request.object)?;
        none(request, validation::check_vm_status(&machine, facts.others.guest.as_ref()))?;
    }
    Ok(Admission::default())
}
