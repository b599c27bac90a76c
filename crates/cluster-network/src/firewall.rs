//! Feeding nftables: a script is one transaction, so there is no moment with half of it.

use std::{
    io::{self, Write},
    process::{Command, Output, Stdio},
};

use crate::{NetworkError, namespace::Namespace};

/// What a script is for, in words for an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    /// What is done to the table.
    pub(crate) operation: &'static str,
    /// The table.
    pub(crate) table: &'a str,
}

/// Runs a script in a namespace, or on the host itself.
pub(crate) async fn apply(
    namespace: Option<&Namespace>,
    purpose: Purpose<'_>,
    script: String,
) -> Result<(), NetworkError> {
    let Purpose { operation, table } = purpose;
    let failed = |reason: String| NetworkError::Firewall { operation, table: table.to_owned(), reason };
    let namespace = namespace.cloned();
    let run = move || match namespace {
        Some(namespace) => namespace.run(move || Ok(feed(&script))),
        None => Ok(feed(&script)),
    };
    let output = tokio::task::spawn_blocking(run).await.map_err(|panic| failed(panic.to_string()))??;
    let output = output.map_err(|error| failed(format!("{error}; is the package nftables installed?")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// nft works in the network namespace of the thread that starts it.
fn feed(script: &str) -> io::Result<Output> {
    let mut command = Command::new("nft");
    let mut child = command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(script.as_bytes()));
    let output = child.wait_with_output()?;
    // What nft says about a script that it did not read to its end is more than that the pipe broke.
    if output.status.success() {
        written?;
    }
    Ok(output)
}
