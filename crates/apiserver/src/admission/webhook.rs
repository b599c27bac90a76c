//! Admission webhooks of others, called over HTTPS.

use serde_json::Value;

use super::Review;
use crate::status::ApiResult;

/// The configured webhooks.
#[derive(Default)]
pub struct Webhooks {}

impl Webhooks {
    /// Calls mutating webhooks.
    pub async fn mutate(&self, _review: &Review<'_>) -> ApiResult<Option<Value>> {
        Ok(None)
    }

    /// Calls validating webhooks.
    pub async fn validate(&self, _review: &Review<'_>) -> ApiResult<()> {
        Ok(())
    }
}
