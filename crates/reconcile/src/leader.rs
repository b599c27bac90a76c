//! Leader election on a `coordination.k8s.io` Lease: of many replicas, one works.
//!
//! ```text
//!              lease free or expired, write won            deadline passed, or another holder seen
//!   [waiting] ---------------------------------> [leading] ------------------------------------> [lost]
//!       |                                            |
//!       | stop                                       | work finished (also after stop): lease given back
//!       v                                            v
//!   [never led]                                  [finished]
//! ```
//!
//! Who holds the lease is decided by the API server: every write carries the resource version it was based on, so of two
//! candidates one gets a conflict. *When* a silent holder may be succeeded is judged by the local monotonic clock, from the
//! moment this process **saw** the lease change last; timestamps in the lease are for people to read. Clocks that disagree
//! therefore cannot make two leaders, and neither can a holder that is cut off: it stops `renew_deadline` after the last write
//! known to have worked **began**, and others wait `lease_duration`, which is longer, after they saw that write.
//!
//! What remains is a process that does not run at all for a while (suspended, starved) and then finishes a request that it had
//! already begun. No lease can prevent that; guarded writes (uid and resource version) and derived names make it harmless.

use std::{fmt, time::Duration};

use ferrovirt_kubernetes::{Foreign, Lease};
use k8s_openapi::{
    api::coordination::v1::{self, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{backoff::Backoff, clock::Clock};

/// Which lease to hold, as whom, and how patiently.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who this is. Must differ between all processes that ever compete, restarts included: add something random.
    pub identity: String,
    /// How long others wait for a silent holder.
    pub lease_duration: Duration,
    /// How long a holder goes on without a successful renewal; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry_period: Duration,
    /// Stamps the lease.
    pub clock: Clock,
}

impl LeaderConfig {
    /// KubeVirt's timing: 15 s, 10 s and 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            clock: Clock::System,
        }
    }

    fn check(&self) -> Result<(), InvalidTiming> {
        let ordered = self.retry_period < self.renew_deadline && self.renew_deadline < self.lease_duration;
        // Leases count in whole seconds.
        if ordered && self.lease_duration >= Duration::from_secs(1) && !self.retry_period.is_zero() {
            Ok(())
        } else {
            Err(InvalidTiming { config: Box::new(self.clone()) })
        }
    }
}

/// The timing of a [`LeaderConfig`] cannot keep two leaders apart.
#[derive(Debug, thiserror::Error)]
#[error(
    "leader election needs 0 < retry period < renew deadline < lease duration, but has {:?}, {:?}, {:?}",
    .config.retry_period, .config.renew_deadline, .config.lease_duration
)]
pub struct InvalidTiming {
    config: Box<LeaderConfig>,
}

/// How a candidacy ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Led<T> {
    /// The work ended by itself or after `stop`; the lease was given back.
    Finished(T),
    /// The lease was lost, and the work was dropped where it stood.
    Lost,
    /// `stop` came before the lease was won.
    Never,
}

/// Waits for leadership, then runs `work` for as long as it lasts.
///
/// `work` gets a token that is cancelled with `stop`: it should then finish soon, still as the leader. When the lease is lost, the
/// work's future is dropped at once, so it must keep everything it does inside itself (no detached tasks).
pub async fn run_while_leader<T, F, W>(
    client: Client,
    config: LeaderConfig,
    stop: CancellationToken,
    work: F,
) -> Result<Led<T>, InvalidTiming>
where
    F: FnOnce(CancellationToken) -> W,
    W: Future<Output = T>,
{
    config.check()?;
    let mut candidate = Candidate::new(client, config);
    tokio::select! {
        () = candidate.win() => {}
        () = stop.cancelled() => return Ok(Led::Never),
    }
    let identity = candidate.config.identity.clone();
    info!(lease = candidate.config.name, identity, "became leader");
    let finished = tokio::select! {
        // A loss that is known must not be outrun by one more step of the work.
        biased;
        () = candidate.keep() => None,
        result = work(stop.child_token()) => Some(result),
    };
    match finished {
        Some(result) => {
            candidate.give_back().await;
            Ok(Led::Finished(result))
        }
        None => {
            warn!(lease = candidate.config.name, identity, "leadership lost");
            Ok(Led::Lost)
        }
    }
}

/// One process's view of the lease.
struct Candidate {
    api: Api<Lease>,
    config: LeaderConfig,
    /// The lease as last read or written, and when it was first seen so.
    seen: Option<(Lease, Instant)>,
    /// When the last write known to have worked was begun.
    renewed: Instant,
}

/// What the lease allows this candidate to do now.
#[derive(Debug, PartialEq)]
enum Move {
    /// There is no lease.
    Create,
    /// It is ours.
    Renew,
    /// Nobody holds it, or its holder has been silent for too long.
    Take,
    /// Somebody else holds it.
    Wait,
}

/// Judges by what was seen and for how long.
fn judge(seen: Option<(&Lease, Duration)>, identity: &str) -> Move {
    let Some((lease, unchanged_for)) = seen else { return Move::Create };
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let duration = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    let duration = Duration::from_secs(u64::try_from(duration).unwrap_or_default());
    match holder {
        "" => Move::Take,
        holder if holder == identity => Move::Renew,
        _ if unchanged_for >= duration => Move::Take,
        _ => Move::Wait,
    }
}

/// The outcome of one attempt.
#[derive(Debug)]
enum Attempt {
    Held,
    NotOurs,
}

impl Candidate {
    fn new(client: Client, config: LeaderConfig) -> Self {
        Self { api: Api::namespaced(client, &config.namespace), config, seen: None, renewed: Instant::now() }
    }

    /// Tries until the lease is ours.
    async fn win(&mut self) {
        let mut tries = 0;
        loop {
            let result = timeout_at(Instant::now() + self.config.renew_deadline, self.attempt(Look::Candidate)).await;
            match result {
                Ok(Ok(Attempt::Held)) => return,
                Ok(Ok(Attempt::NotOurs)) => {}
                Ok(Err(error)) => debug!(lease = self.config.name, %error, "cannot acquire"),
                Err(_) => debug!(lease = self.config.name, "acquiring took too long"),
            }
            tries += 1;
            sleep(self.pause(tries)).await;
        }
    }

    /// Renews until that fails for too long or somebody else holds the lease.
    async fn keep(&mut self) {
        let mut tries = 0;
        let mut look = Look::Remembered;
        loop {
            let deadline = self.renewed + self.config.renew_deadline;
            tries += 1;
            tokio::time::sleep_until(deadline.min(Instant::now() + self.pause(tries))).await;
            match timeout_at(deadline, self.attempt(look)).await {
                Ok(Ok(Attempt::Held)) => look = Look::Remembered,
                Ok(Ok(Attempt::NotOurs)) => return,
                Ok(Err(error)) => {
                    debug!(lease = self.config.name, %error, "cannot renew");
                    // What was remembered may be outdated, even by our own write whose answer got lost.
                    look = Look::Fresh;
                }
                Err(_) => return,
            }
            // A client that fails without ever waiting would never let the timeout have its turn.
            if Instant::now() >= self.renewed + self.config.renew_deadline {
                return;
            }
        }
    }

    /// Empties the lease so that the next leader need not wait. Failing to is no harm: it expires.
    async fn give_back(&mut self) {
        let Some((mut lease, _)) = self.seen.take() else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.config.clock.now()));
        }
        let deadline = Instant::now() + self.config.retry_period;
        match timeout_at(deadline, self.api.replace(&self.config.name, &PostParams::default(), &lease)).await {
            Ok(Ok(_)) => info!(lease = self.config.name, "leadership given back"),
            Ok(Err(error)) => debug!(lease = self.config.name, %error, "cannot give leadership back"),
            Err(_) => debug!(lease = self.config.name, "giving leadership back took too long"),
        }
    }

    /// Looks at the lease and, if it allows, writes it once.
    async fn attempt(&mut self, look: Look) -> kube::Result<Attempt> {
        let began = Instant::now();
        if look != Look::Remembered || self.seen.is_none() {
            let lease = self.api.get_opt(&self.config.name).await?;
            self.see(lease);
        }
        let seen = self.seen.as_ref().map(|(lease, since)| (lease, since.elapsed()));
        let next = judge(seen, &self.config.identity);
        let written = match next {
            Move::Wait => return Ok(Attempt::NotOurs),
            // A leader that finds somebody else's lease has been succeeded, even if the successor is gone again.
            Move::Take if look != Look::Candidate => return Ok(Attempt::NotOurs),
            Move::Create => self.api.create(&PostParams::default(), &self.next_lease(&next)).await,
            Move::Renew | Move::Take => {
                self.api.replace(&self.config.name, &PostParams::default(), &self.next_lease(&next)).await
            }
        };
        let lease = written?;
        self.see(Some(lease));
        self.renewed = began;
        Ok(Attempt::Held)
    }

    /// The lease as this candidate would have it.
    fn next_lease(&self, next: &Move) -> Lease {
        let now = MicroTime(self.config.clock.now());
        let mut lease = match &self.seen {
            Some((lease, _)) => lease.clone(),
            None => Foreign(v1::Lease {
                metadata: ObjectMeta {
                    name: Some(self.config.name.clone()),
                    namespace: Some(self.config.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: None,
            }),
        };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if *next != Move::Renew {
            // Counts changes of the holder; the first one is no change.
            let transitions = spec.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(if *next == Move::Create { 0 } else { transitions.saturating_add(1) });
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = Some(i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(i32::MAX));
        spec.renew_time = Some(now);
        lease
    }

    /// Remembers the lease, and since when it has been like this.
    fn see(&mut self, lease: Option<Lease>) {
        let Some(lease) = lease else {
            self.seen = None;
            return;
        };
        let since = match &self.seen {
            Some((before, since)) if before.spec == lease.spec => *since,
            _ => Instant::now(),
        };
        self.seen = Some((lease, since));
    }

    /// Spread, so that candidates who started together do not collide for ever.
    fn pause(&self, tries: u32) -> Duration {
        let period = self.config.retry_period;
        Backoff { base: period, max: period, jitter: 0.2, seed: 0 }.delay(self.config.identity.as_str(), tries)
    }
}

/// Where an attempt starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Not the leader: reads, and takes what is free.
    Candidate,
    /// The leader: writes on top of what it wrote last, which saves a read.
    Remembered,
    /// The leader, unsure after a failure: reads first.
    Fresh,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        Foreign(v1::Lease { spec: Some(spec), ..v1::Lease::default() })
    }

    #[test]
    fn only_silence_that_was_watched_makes_a_holder_replaceable() {
        let second = Duration::from_secs(1);
        assert_eq!(judge(None, "me"), Move::Create);
        assert_eq!(judge(Some((&lease("me"), second)), "me"), Move::Renew);
        assert_eq!(judge(Some((&lease(""), second)), "me"), Move::Take);
        assert_eq!(judge(Some((&lease("you"), 14 * second)), "me"), Move::Wait);
        assert_eq!(judge(Some((&lease("you"), 15 * second)), "me"), Move::Take);
        assert_eq!(judge(Some((&Lease::default(), Duration::ZERO)), "me"), Move::Take);
    }

    #[test]
    fn a_timing_that_allows_two_leaders_is_refused() {
        let good = LeaderConfig::new("kubevirt", "virt-controller", "me");
        assert!(good.check().is_ok());
        let bad = LeaderConfig { renew_deadline: Duration::from_secs(20), ..good };
        assert!(bad.check().unwrap_err().to_string().contains("20s"));
    }
}
