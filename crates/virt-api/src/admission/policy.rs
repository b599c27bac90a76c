//! Admission of migration policies.

use super::review::{Admission, Facts, Judgement, Request, Steps};

pub(super) fn judge(_request: &Request<'_>, _facts: &Facts<'_>, _steps: Steps) -> Judgement {
    Ok(Admission::default())
}
