//! Work that a guest does while it is moved about, and the proof that nothing of it was lost: it counts on its serial port and writes
//! numbered records to its disks, and a web server in it tells how far it is. Whoever ran a second copy, or an old one, would be seen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::cluster::{SUBRESOURCES, wait};
use crate::guest::Guest;
use crate::manifest::Manifest;
use crate::{records, web};

/// The port of the guest's web server.
const PORT: u16 = 80;
/// A guest boots, asks for its address and starts its work.
const START: u64 = 120;
/// Until a guest that can be reached answers: the first connection may wait for its neighbours.
const ANSWER: u64 = 20;
/// For a whole disk of records, sent by an emulated guest that also works, on a busy machine.
const READ: Duration = Duration::from_secs(60);

/// How far a guest is, in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Beats on the serial port.
    pub beat: u64,
    /// Records on its first disk that the disk has acknowledged.
    pub written: u64,
    /// Rounds over its memory.
    pub dirtied: u64,
    /// Seconds since it booted.
    pub uptime: u64,
}

impl Manifest {
    /// A guest that works: its first disk is `data`, which holds the records. Commands are run at its boot.
    pub fn working(name: &str, data: serde_json::Value, commands: &[&str]) -> Self {
        let mut all = vec!["serve 80", "heartbeat 100 > /dev/ttyS0 &", "write-records /dev/vda &"];
        all.extend(commands);
        let commands: String = all.iter().map(|command| format!("- {}\n", json!(command))).collect();
        Self::kernel(name).volume("data", data).user_data(&format!("#cloud-config\nruncmd:\n{commands}"))
    }
}

impl Guest {
    /// Waits until it works.
    pub async fn working(&self) -> Result<Count> {
        self.running().await?;
        wait(&format!("guest {} to work", self.name), START, || async {
            Ok(self.ask_count().await.ok().filter(|count| count.beat > 0 && count.written > 0))
        })
        .await
    }

    /// How far it is. It has to answer, and soon.
    pub async fn count(&self) -> Result<Count> {
        let mut last = String::new();
        let deadline = Instant::now() + Duration::from_secs(ANSWER);
        while Instant::now() < deadline {
            match self.ask_count().await {
                Ok(count) => return Ok(count),
                Err(error) => last = format!("{error:#}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("guest {} did not answer within {ANSWER} s: {last}", self.name)
    }

    async fn ask_count(&self) -> Result<Count> {
        let text = web::ask(&self.address().await?, PORT, "/cgi-bin/count").await?;
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim().parse::<u64>().with_context(|| format!("no {key} in {text:?}"))
        };
        let written = number("written.vda")?;
        Ok(Count { beat: number("beat ")?, written, dirtied: number("dirtied ")?, uptime: number("uptime ")? })
    }

    /// Waits until it has counted and written on from there; a number that went back is a failure.
    pub async fn goes_on(&self, from: Count) -> Result<Count> {
        wait(&format!("guest {} to go on from {from:?}", self.name), ANSWER, || async {
            let now = self.count().await?;
            if now.beat < from.beat || now.written < from.written || now.uptime < from.uptime {
                bail!("guest {} went back: it was at {from:?} and is at {now:?}", self.name);
            }
            Ok((now.beat > from.beat && now.written > from.written).then_some(now))
        })
        .await
    }

    /// Reads back what is on a disk; every acknowledged record has to be there.
    pub async fn records(&self, disk: &str) -> Result<u64> {
        self.read_records(disk).await
    }

    /// Reads back what another guest has left on a disk: so many records have to be there.
    pub async fn records_of_another(&self, disk: &str, count: u64) -> Result<u64> {
        self.read_records(&format!("{disk}+{count}")).await
    }

    async fn read_records(&self, query: &str) -> Result<u64> {
        let sent = web::fetch(&self.address().await?, PORT, &format!("/cgi-bin/read?{query}"), READ).await?;
        records::judge(&sent).with_context(|| format!("records of guest {} on {query}", self.name))
    }
}

/// Somebody who listens to a guest's serial port wherever it is.
pub struct Listener {
    heard: Arc<Mutex<Vec<Vec<u64>>>>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// Begins to listen. When a stream ends, because the guest has moved, the next is opened.
    pub fn new(guest: &Guest) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (guest, kept) = (guest.clone(), heard.clone());
        let task = tokio::spawn(async move {
            loop {
                // A guest that moves has no console for a moment.
                let _ = listen(&guest, &kept).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { heard, task }
    }

    /// What was heard: no number twice, none left out but at the moment of a move. Returns the last one.
    pub fn judge(&self) -> Result<u64> {
        judge(&self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Each stream begins with all that was written in its pod.
async fn listen(guest: &Guest, heard: &Mutex<Vec<Vec<u64>>>) -> Result<()> {
    let path = guest.scene.path(SUBRESOURCES, &format!("virtualmachineinstances/{}/console", guest.name));
    let headers = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "ZmVycm92aXJ0IHN1aXRlIQ=="),
        ("sec-websocket-protocol", "plain.kubevirt.io"),
    ];
    let upgraded = guest.scene.cluster.upgrade(&format!("{path}?log=true&watch=true"), &headers).await?;
    let mut stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
    heard.lock().unwrap_or_else(PoisonError::into_inner).push(Vec::new());
    let mut pending = String::new();
    while let Some(message) = stream.next().await {
        pending += &String::from_utf8_lossy(&message?.into_data());
        while let Some(end) = pending.find('\n') {
            let line: String = pending.drain(..=end).collect();
            if let Some(beat) = line.trim().strip_prefix("beat ").and_then(|beat| beat.parse().ok())
                && let Some(last) = heard.lock().unwrap_or_else(PoisonError::into_inner).last_mut()
            {
                last.push(beat);
            }
        }
    }
    Ok(())
}

/// Streams of one pod repeat each other from the beginning; one of another pod goes on after the last.
fn judge(streams: &[Vec<u64>]) -> Result<u64> {
    let mut last = 0;
    let mut first = None;
    for stream in streams.iter().filter(|stream| !stream.is_empty()) {
        if let Some(pair) = stream.windows(2).find(|pair| pair[1] != pair[0] + 1) {
            bail!("on the serial port, beat {} came after beat {}", pair[1], pair[0]);
        }
        let (begin, end) = (stream[0], stream[stream.len() - 1]);
        if first != Some(begin) && begin <= last {
            bail!("on the serial port, beat {begin} came again after beat {last}");
        }
        first = Some(begin);
        last = last.max(end);
    }
    if last == 0 {
        bail!("nothing was heard on the serial port");
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_count_may_be_cut_by_a_move_and_never_goes_back() {
        // The second stream is of the same pod, the third of the next, where a line was cut.
        assert_eq!(judge(&[vec![1, 2, 3], vec![1, 2, 3, 4], vec![], vec![6, 7]]).unwrap(), 7);
        assert!(judge(&[vec![1, 2, 3], vec![3, 4]]).is_err(), "twice");
        assert!(judge(&[vec![1, 2, 4]]).is_err(), "a gap within one pod");
        assert!(judge(&[]).is_err(), "silence");
    }
}
