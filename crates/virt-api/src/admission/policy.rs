//! Admission of migration policies.

use ferrovirt_api::{MigrationPolicy, validation};

use super::review::{Admission, Facts, Judgement, Operation, Request, Steps, none, read};

pub(super) fn judge(request: &Request<'_>, facts: &Facts<'_>, steps: Steps) -> Judgement {
    let writes = request.operation != Operation::Delete && request.subresource.is_empty();
    if steps.check && writes && request.object["spec"] != request.old_object["spec"] {
        let policy: MigrationPolicy = read(request.object)?;
        none(request, validation::check_migration_policy(&policy, facts.cluster))?;
    }
    Ok(Admission::default())
}
