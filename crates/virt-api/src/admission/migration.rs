//! Admission of moves: only a guest that can move, once at a time.

use ferrovirt_api::defaults::default_migration;
use ferrovirt_api::{VirtualMachineInstanceMigration, validation};

use super::review::{Admission, Facts, Judgement, Needs, Operation, Request, Steps, none, read, write};

/// The guest, and its other moves.
pub(super) fn needs<'a>(request: &Request<'a>) -> Needs<'a> {
    let name = request.object["spec"]["vmiName"].as_str();
    name.map_or(Needs::Nothing, |name| Needs::Guest { namespace: request.namespace, name })
}

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let mut admission = Admission::default();
    match (request.operation, request.subresource) {
        (Operation::Create, "") => {
            let mut migration: VirtualMachineInstanceMigration = read(request.object)?;
            if steps.default {
                default_migration(&mut migration);
                admission.object = write(&migration, request.object);
            }
            if steps.check {
                let (others, controller) = (&facts.others, request.user.is_controller());
                let guest = others.guest.as_ref();
                let causes = validation::check_new_migration(&migration, guest, &others.migrations, controller);
                none(request, causes)?;
            }
        }
        (Operation::Update, "") if steps.check => {
            none(request, validation::check_migration_update(&read(request.old_object)?, &read(request.object)?))?;
        }
        _ => {}
    }
    Ok(admission)
}
