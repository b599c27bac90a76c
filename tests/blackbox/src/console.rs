//! A login on a guest's serial console, through the API.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::cluster::{Cluster, SUBRESOURCES};
use crate::scene::Transcript;

/// Long enough for a guest that boots from EFI without KVM beside others.
const BOOT: Duration = Duration::from_secs(120);
/// For a command that only answers.
const COMMAND: Duration = Duration::from_secs(120);
/// How long to wait for a prompt before asking for it again.
const NUDGE: Duration = Duration::from_secs(2);

/// An open console.
pub struct Console {
    stream: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    transcript: Transcript,
    /// What came and was not matched yet, without escape sequences.
    pending: String,
    commands: u32,
}

impl Console {
    /// Connects to the guest's first serial port.
    pub async fn open(cluster: &Cluster, namespace: &str, name: &str, transcript: Transcript) -> Result<Self> {
        let path = format!("{SUBRESOURCES}/namespaces/{namespace}/virtualmachineinstances/{name}/console");
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "ZmVycm92aXJ0IHN1aXRlIQ=="),
            ("sec-websocket-protocol", "plain.kubevirt.io"),
        ];
        let upgraded = cluster.upgrade(&path, &headers).await?;
        let stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        Ok(Self { stream, transcript, pending: String::new(), commands: 0 })
    }

    /// Waits for the prompt and logs in as root, who needs no password.
    pub async fn login(&mut self) -> Result<()> {
        self.prompt("login: ", BOOT).await.context("waiting for the login prompt")?;
        self.send("root\n").await?;
        self.expect("# ", COMMAND).await.context("waiting for root's shell")?;
        Ok(())
    }

    /// Finds the shell that somebody logged in to before, on a console that was open elsewhere.
    pub async fn resume(&mut self) -> Result<()> {
        self.prompt("# ", COMMAND).await.context("waiting for root's shell")
    }

    /// Tries a password login and says whether it was accepted; afterwards nobody is logged in.
    pub async fn try_password(&mut self, user: &str, password: &str) -> Result<bool> {
        self.prompt("login: ", BOOT).await.context("waiting for the login prompt")?;
        self.send(&format!("{user}\n")).await?;
        self.expect("assword: ", COMMAND).await?;
        self.send(&format!("{password}\n")).await?;
        match self.expect_either("$ ", "Login incorrect", COMMAND).await? {
            true => {
                self.send("exit\n").await?;
                Ok(true)
            }
            false => Ok(false),
        }
    }

    /// Runs a command and returns its output; a command that fails is an error.
    pub async fn run(&mut self, command: &str) -> Result<String> {
        let (output, code) = self.attempt(command).await?;
        if code != 0 {
            bail!("in the guest, `{command}` ended with {code}: {output}");
        }
        Ok(output)
    }

    /// Runs a command and returns its output and its exit code.
    pub async fn attempt(&mut self, command: &str) -> Result<(String, i32)> {
        self.commands += 1;
        let number = self.commands;
        // The marks are written so that the echo of the command does not contain them.
        self.send(&format!("echo \"<\"\"{number}>\"; {command}; echo \"=\"\"={number}:$?=\"\n")).await?;
        let work = async {
            self.expect(&format!("<{number}>\n"), COMMAND).await?;
            let output = self.expect(&format!("=={number}:"), COMMAND).await?;
            let code = self.expect("=", COMMAND).await?;
            anyhow::Ok((output.trim_end().to_owned(), code.trim().parse()?))
        };
        work.await.with_context(|| format!("in the guest: {command}"))
    }

    /// Runs a command until its output contains `wanted`.
    pub async fn run_until(&mut self, command: &str, wanted: &str, seconds: u64) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            let (output, _) = self.attempt(command).await?;
            if output.contains(wanted) {
                return Ok(output);
            }
            if Instant::now() > deadline {
                bail!("in the guest, `{command}` did not say {wanted:?} within {seconds} s, but: {output}");
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Types something.
    pub async fn send(&mut self, text: &str) -> Result<()> {
        self.stream.send(Message::Binary(text.as_bytes().to_vec().into())).await.context("writing to the console")
    }

    /// Everything up to `wanted`, which has to come in time.
    pub async fn expect(&mut self, wanted: &str, patience: Duration) -> Result<String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(at) = self.pending.find(wanted) {
                let before = self.pending[..at].to_owned();
                self.pending.drain(..at + wanted.len());
                return Ok(before);
            }
            self.read(deadline).await.with_context(|| format!("waiting for {wanted:?} on the console"))?;
        }
    }

    /// Whether `yes` comes before `no`.
    async fn expect_either(&mut self, yes: &str, no: &str, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let (yes_at, no_at) = (self.pending.find(yes), self.pending.find(no));
            if let Some(at) = yes_at.into_iter().chain(no_at).min() {
                self.pending.drain(..=at);
                return Ok(yes_at == Some(at));
            }
            self.read(deadline).await.with_context(|| format!("waiting for {yes:?} or {no:?} on the console"))?;
        }
    }

    /// A prompt that may have been shown before the console was open: asks for another one.
    async fn prompt(&mut self, prompt: &str, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.expect(prompt, NUDGE).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(error) if error.downcast_ref::<Ended>().is_some() => return Err(error),
                Err(_) => self.send("\n").await?,
            }
        }
    }

    /// Whatever comes within `time`, for counting.
    pub async fn listen(&mut self, time: Duration) -> Result<String> {
        let deadline = Instant::now() + time;
        loop {
            match self.read(deadline).await {
                Ok(()) => {}
                Err(error) if error.downcast_ref::<Ended>().is_some() => return Err(error),
                Err(_) => return Ok(std::mem::take(&mut self.pending)),
            }
        }
    }

    async fn read(&mut self, deadline: Instant) -> Result<()> {
        let next = tokio::time::timeout_at(deadline.into(), self.stream.next()).await;
        match next.map_err(|_| Late)? {
            Some(Ok(Message::Binary(bytes))) => self.take(&String::from_utf8_lossy(&bytes)),
            Some(Ok(Message::Text(text))) => self.take(&text),
            Some(Ok(Message::Close(frame))) => return Err(Ended(format!("{frame:?}")).into()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(Ended(error.to_string()).into()),
            None => return Err(Ended("end of stream".into()).into()),
        }
        Ok(())
    }

    fn take(&mut self, text: &str) {
        self.transcript.add(text);
        self.pending.push_str(text);
        self.pending = without_escapes(&self.pending).replace("\r\n", "\n");
    }
}

/// The console was closed.
#[derive(Debug)]
struct Ended(String);

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the console ended: {}", self.0)
    }
}

impl std::error::Error for Ended {}

/// Nothing came in time.
#[derive(Debug)]
struct Late;

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nothing came in time")
    }
}

impl std::error::Error for Late {}

/// Drops complete control sequences (`ESC [ … letter`) and lone escapes with their letter; an incomplete one stays until the rest is there.
pub(crate) fn without_escapes(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        clean.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let end = match after.strip_prefix('[') {
            Some(sequence) => sequence.find(|c: char| ('@'..='~').contains(&c)).map(|end| end + 2),
            None => after.chars().next().map(char::len_utf8),
        };
        let Some(end) = end else {
            clean.push_str(&rest[at..]);
            return clean;
        };
        rest = &after[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::without_escapes;

    #[test]
    fn control_sequences_go_and_unfinished_ones_wait() {
        assert_eq!(without_escapes("a\x1b[6nb\x1b[2J\x1b[01;01Hc\x1bcd"), "abcd");
        assert_eq!(without_escapes("a\x1b[01;"), "a\x1b[01;");
        assert_eq!(without_escapes("a\x1b"), "a\x1b");
    }
}
