//! Health checks of a guest.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, TCPSocketAction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Empty;

/// One health check: exactly one way to look, and how often and how patiently.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Runs a command in the guest through its agent.
    pub exec: Option<ExecAction>,
    /// Asks whether the guest agent answers.
    pub guest_agent_ping: Option<Empty>,
    /// Makes an HTTP request to the guest.
    pub http_get: Option<HTTPGetAction>,
    /// Opens a TCP connection to the guest.
    pub tcp_socket: Option<TCPSocketAction>,
    /// Seconds to wait after the start before the first check.
    pub initial_delay_seconds: Option<i32>,
    /// Seconds until a check counts as failed; 1 when unset.
    pub timeout_seconds: Option<i32>,
    /// Seconds between checks; 10 when unset.
    pub period_seconds: Option<i32>,
    /// Successes in a row after a failure that make it pass; 1 when unset.
    pub success_threshold: Option<i32>,
    /// Failures in a row that make it fail; 3 when unset.
    pub failure_threshold: Option<i32>,
}
