//! QEMU's own languages: the monitor (QMP) and the guest agent.

use std::time::Duration;

use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Error;
use crate::procedures::{AGENT_COMMAND, MONITOR_COMMAND};
use crate::xdr::Decoder;

impl Connection {
    /// Sends a QMP command; its answer as JSON.
    pub async fn monitor_command(&self, domain: &Domain, json: &str) -> Result<String, Error> {
        self.call(MONITOR_COMMAND, domain.arguments().string(json).u32(0), Decoder::string).await
    }

    /// Sends a command to the guest agent; its answer as JSON, which the guest wrote: do not trust it.
    pub async fn agent_command(&self, domain: &Domain, json: &str, timeout: Duration) -> Result<String, Error> {
        let seconds = i32::try_from(timeout.as_secs().max(1)).unwrap_or(i32::MAX);
        let arguments = domain.arguments().string(json).i32(seconds).u32(0);
        let answer = self.call(AGENT_COMMAND, arguments, |reply| reply.optional(Decoder::string)).await?;
        Ok(answer.unwrap_or_default())
    }
}
