//! The guest agent: asked regularly while it holds its end of the channel.
//!
//! Each question has its own rhythm. After a connect everything is asked at once, then after 10 s, then at twice the distance until
//! the question's own interval is reached: a guest that has just booted changes fast.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::AgentReport;
use ferrovirt_libvirt::{Connection, Domain};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::guest::{AgentDetails, Guest};

const TASK: &str = "agent";
const FIRST_INTERVAL: Duration = Duration::from_secs(10);
/// How long an agent may take to answer. It runs in the guest: a busy guest is slow, a hostile one silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers longer than this are not read: a guest with a hundred interfaces has 60 KiB.
const ANSWER_MAX: usize = 512 * 1024;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Interfaces, operating system, host name, time zone.
    System,
    Users,
    Filesystems,
    Version,
    Frozen,
}

/// Every question with its interval in seconds.
const QUESTIONS: [(Question, u64); 5] = [
    (Question::Version, 300),
    (Question::System, 120),
    (Question::Users, 10),
    (Question::Filesystems, 300),
    (Question::Frozen, 5),
];

/// When a question is due.
#[derive(Debug, Clone, Copy)]
struct Turn {
    question: Question,
    due: Instant,
    wait: Duration,
    longest: Duration,
}

impl Turn {
    fn all(now: Instant) -> [Self; 5] {
        QUESTIONS.map(|(question, seconds)| {
            let longest = Duration::from_secs(seconds);
            Self { question, due: now, wait: FIRST_INTERVAL.min(longest), longest }
        })
    }

    fn asked(&mut self, now: Instant) {
        self.due = now + self.wait;
        self.wait = (self.wait * 2).min(self.longest);
    }
}

/// The agent came or went.
pub fn connected(guest: &Arc<Guest>, is_connected: bool) {
    if !is_connected {
        guest.stop(TASK);
        guest.agent(|agent| *agent = AgentReport::default());
        guest.change_details(|details| *details = AgentDetails::default());
    } else if !guest.runs(TASK) {
        guest.agent(|agent| agent.connected = true);
        guest.run(TASK, poll(guest.clone()));
    }
}

/// Whether the guest's file systems are frozen, as its agent says now; `None` where it does not say.
pub async fn is_frozen(libvirt: &Connection, domain: &Domain) -> Option<bool> {
    Agent { libvirt: libvirt.clone(), domain: domain.clone() }.is_frozen().await
}

async fn poll(guest: Arc<Guest>) {
    let mut turns = Turn::all(Instant::now());
    loop {
        for turn in turns.iter_mut().filter(|turn| turn.due <= Instant::now()) {
            if let (Ok(libvirt), Some(domain)) = (guest.libvirt(), guest.domain()) {
                let agent = Agent { libvirt, domain };
                agent.ask(turn.question, &guest).await;
            }
            turn.asked(Instant::now());
        }
        let next = turns.iter().map(|turn| turn.due).min().unwrap_or_else(Instant::now);
        sleep_until(next).await;
    }
}

/// The agent of a running guest.
struct Agent {
    libvirt: Connection,
    domain: Domain,
}

impl Agent {
    /// Asks, and keeps what was known where there is no good answer.
    async fn ask(&self, question: Question, guest: &Guest) {
        match question {
            Question::System => self.system(guest).await,
            Question::Users => {
                if let Some(users) = self.answer("guest-get-users").await {
                    guest.change_details(|details| details.users = answers::users(users));
                }
            }
            Question::Filesystems => {
                if let Some(filesystems) = self.answer("guest-get-fsinfo").await {
                    guest.change_details(|details| details.filesystems = answers::filesystems(filesystems));
                }
            }
            Question::Version => {
                if let Some(info) = self.answer::<answers::Info>("guest-info").await {
                    guest.agent(|agent| agent.version = Some(answers::clean(&info.version)));
                }
            }
            Question::Frozen => {
                if let Some(frozen) = self.is_frozen().await {
                    guest.agent(|agent| agent.frozen = frozen);
                }
            }
        }
    }

    async fn is_frozen(&self) -> Option<bool> {
        Some(self.answer::<String>("guest-fsfreeze-status").await? == "frozen")
    }

    async fn system(&self, guest: &Guest) {
        let interfaces = self.answer("guest-network-get-interfaces").await.map(answers::interfaces);
        let os = self.answer("guest-get-osinfo").await.map(|os| answers::os(&os));
        let hostname = self.answer::<answers::HostName>("guest-get-host-name").await;
        let timezone = self.answer::<answers::Timezone>("guest-get-timezone").await;
        guest.agent(|agent| {
            agent.interfaces = interfaces.unwrap_or_else(|| std::mem::take(&mut agent.interfaces));
            agent.os = os.or(agent.os.take());
            agent.hostname = hostname.map(|name| answers::clean(&name.host_name)).or(agent.hostname.take());
            agent.timezone = timezone.map(|zone| answers::timezone(&zone)).or(agent.timezone.take());
        });
    }

    async fn answer<T: DeserializeOwned>(&self, command: &str) -> Option<T> {
        let json = format!("{{\"execute\":\"{command}\"}}");
        let answer = match self.libvirt.agent_command(&self.domain, &json, ANSWER_TIMEOUT).await {
            Ok(answer) if answer.len() <= ANSWER_MAX => answer,
            Ok(answer) => {
                tracing::warn!(command, bytes = answer.len(), "the guest agent's answer is too long");
                return None;
            }
            Err(error) => {
                tracing::debug!(command, %error, "the guest agent does not answer");
                return None;
            }
        };
        match serde_json::from_str::<answers::Answer<T>>(&answer) {
            Ok(answer) => Some(answer.value),
            Err(error) => {
                tracing::warn!(command, %error, "the guest agent's answer cannot be read");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn questions_are_asked_at_once_then_less_and_less() {
        let start = Instant::now();
        let mut turns = Turn::all(start);
        let mut asked: Vec<u64> = Vec::new();
        for turn in turns.iter_mut().filter(|turn| turn.question == Question::System) {
            for _ in 0..7 {
                asked.push((turn.due - start).as_secs());
                turn.asked(turn.due);
            }
        }
        assert_eq!(asked, [0, 10, 30, 70, 150, 270, 390]);
    }

    #[tokio::test]
    async fn what_an_agent_said_goes_with_it() {
        let guest = crate::guest::for_tests();
        connected(&guest, true);
        guest.agent(|agent| agent.hostname = Some("a".to_owned()));
        assert!(guest.report().agent.connected && guest.runs(TASK));
        connected(&guest, false);
        assert_eq!(guest.report().agent, AgentReport::default());
        assert!(!guest.runs(TASK));
    }
}
