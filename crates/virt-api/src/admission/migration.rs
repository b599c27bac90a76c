//! Admission of migrations.

use super::review::{Admission, Facts, Judgement, Needs, Request, Steps};

pub(super) fn needs<'a>(_request: &Request<'a>) -> Needs<'a> {
    Needs::Nothing
}

pub(super) fn judge(_request: &Request<'_>, _facts: &Facts<'_>, _steps: Steps) -> Judgement {
    Ok(Admission::default())
}
