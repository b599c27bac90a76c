//! Admission of the `KubeVirt` object: there is one, its settings can work, and it stays while it has to.

use ferrovirt_api::{KubeVirt, validation};

use super::review::{Admission, Facts, Judgement, Needs, Operation, Request, Steps, none, read};

/// What a deletion would leave behind, where that matters.
pub(super) fn needs<'a>(request: &Request<'a>) -> Needs<'a> {
    let blocks = request.old_object["spec"]["uninstallStrategy"] == "BlockUninstallIfWorkloadsExist";
    if blocks { Needs::Workloads } else { Needs::Nothing }
}

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let mut admission = Admission::default();
    if !steps.check || !request.subresource.is_empty() {
        return Ok(admission);
    }
    match request.operation {
        Operation::Create => {
            let installation: KubeVirt = read(request.object)?;
            // One of this very name is the server's matter: that it is there already is what clients know how to go on from.
            let own = format!("{}/{}", request.namespace, request.name);
            let others: Vec<String> = facts.others.installations.iter().filter(|it| **it != own).cloned().collect();
            none(request, validation::check_new_kubevirt(&installation, &others))?;
            admission.warnings = validation::kubevirt_warnings(&installation);
        }
        Operation::Update if request.object["spec"] != request.old_object["spec"] => {
            let installation: KubeVirt = read(request.object)?;
            none(request, validation::check_kubevirt(&installation))?;
            admission.warnings = validation::kubevirt_warnings(&installation);
        }
        Operation::Update => {}
        Operation::Delete => {
            let installation: KubeVirt = read(request.old_object)?;
            none(request, validation::check_kubevirt_delete(&installation, facts.others.workloads))?;
        }
    }
    Ok(admission)
}
