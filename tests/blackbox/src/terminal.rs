//! A program on a terminal, for those that want one: what it shows is kept, and somebody can type.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::process::{Child, Command};

use crate::console::without_escapes;

/// How often the screen is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// A running program and its terminal. The program ends with it.
pub struct Terminal {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// How much of what was shown is behind us.
    seen: usize,
}

impl Terminal {
    /// Starts the command on a new terminal.
    pub fn start(mut command: Command) -> Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("opening a terminal")?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?.into_string().context("the terminal's name")?;
        let end = || OpenOptions::new().read(true).write(true).open(&name);
        command.stdin(Stdio::from(end()?)).stdout(Stdio::from(end()?)).stderr(Stdio::from(end()?));
        let child = command.kill_on_drop(true).spawn().context("starting the program")?;
        // The command holds the terminal's other end as well: without this, the reader would never see it close.
        drop(command);
        let keyboard = File::from(controller);
        let mut screen = keyboard.try_clone()?;
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = shown.clone();
        // Ends when the program does: reading then fails.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..length]);
            }
        });
        Ok(Self { child, keyboard, shown, seen: 0 })
    }

    /// Types something.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.keyboard.write_all(text.as_bytes()).context("typing")
    }

    /// Everything that was shown, without escape sequences.
    pub fn screen(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        without_escapes(&String::from_utf8_lossy(&shown))
    }

    /// Waits until something is shown that was not waited for before.
    pub async fn expect(&mut self, wanted: &str, seconds: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            let screen = self.screen();
            if let Some(at) = screen.get(self.seen..).and_then(|fresh| fresh.find(wanted)) {
                self.seen += at + wanted.len();
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{wanted:?} was not shown within {seconds} s, but: {screen}");
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Types `text` again and again until something is shown.
    pub async fn nudge(&mut self, text: &str, wanted: &str, seconds: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            match self.expect(wanted, 2).await {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => self.send(text)?,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Waits for the program's end and returns its exit code.
    pub async fn end(&mut self, seconds: u64) -> Result<i32> {
        let ended = tokio::time::timeout(Duration::from_secs(seconds), self.child.wait()).await;
        let status = ended.with_context(|| format!("it did not end within {seconds} s: {}", self.screen()))??;
        Ok(status.code().unwrap_or(-1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_sees_a_terminal_and_is_typed_to() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 0 && read -r word && echo got-$word && exit 3"]);
        let mut terminal = Terminal::start(command)?;
        terminal.send("hello\n")?;
        terminal.expect("got-hello", 10).await?;
        assert_eq!(terminal.end(10).await?, 3);
        Ok(())
    }
}
