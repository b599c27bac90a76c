//! What to do about a move that takes long: from samples of its figures to decisions. Pure: no IO, no clock.
//!
//! | what is seen | what follows |
//! |---|---|
//! | memory was sent once, and the rest does not fit into the allowed downtime | the allowed downtime is raised, step by step, up to the most |
//! | memory changes faster than it is sent | it is said (`note`), and it is no progress |
//! | no progress for `stall_timeout` | post-copy if allowed, else the guest is paused if allowed |
//! | no progress for `progress_timeout`, or nothing sent for that time | the same, else the move is called off |
//! | `completion_timeout` is over | the same, else the move is called off |
//!
//! Progress is: the first pass over memory or disks gets on; or memory changes clearly slower than it is sent, so that every pass is
//! shorter than the one before; or the largest rest of a pass gets smaller; or the guest was just slowed down further.

use ferrovirt_launcher_rpc::migration::{Mode, Options};

/// Between two raises of the allowed downtime.
const RAISE_INTERVAL_MS: u64 = 2_000;
/// The most that QEMU takes: 2000 s.
const DOWNTIME_MAX_MS: u64 = 2_000_000;
/// A rest must get smaller by this part to count: less is noise.
const MARGIN_PERCENT: u64 = 4;
/// Memory that changes slower than this part of what is sent makes passes shorter.
const CONVERGING_PERCENT: u64 = 90;
/// Auto-converge slows a guest down to this at most.
const THROTTLE_MAX: u64 = 99;

/// Why a guest is paused that did not have to be.
const NOT_LIVE: &str =
    "the guest is paused: this QEMU would lose changes to the memory of an emulated guest of this kind";

/// The figures of a move at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Milliseconds since the copy began.
    pub elapsed_ms: u64,
    /// Memory is being sent; before that, disks.
    pub is_memory: bool,
    /// Bytes that are left.
    pub remaining: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes per second that are sent.
    pub bandwidth: u64,
    /// Bytes per second that change.
    pub dirty_rate: u64,
    /// Passes over memory that began.
    pub iteration: u64,
    /// How much auto-converge slows the guest down, in percent.
    pub throttle: u64,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The guest may stand still for this many milliseconds at the end.
    AllowDowntime(u64),
    /// The guest goes on at the target.
    StartPostCopy,
    /// The guest is paused until everything is sent.
    Pause,
    /// The move is called off, for this reason.
    Abort(String),
}

/// What is made of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judgement {
    /// What to do now.
    pub decision: Option<Decision>,
    /// For people, when it does not get on.
    pub note: Option<String>,
    /// Milliseconds until the end; `None`: it does not end like this.
    pub remaining_ms: Option<u64>,
}

/// The judgement of one move.
#[derive(Debug, Clone)]
pub struct Policy {
    options: Options,
    allowed_ms: u64,
    raised_at: u64,
    is_live: bool,
    mode: Mode,
    is_aborted: bool,
    last: Sample,
    /// When something was sent last.
    sent_at: u64,
    /// When there was progress last.
    progress_at: u64,
    /// The largest rest of the present pass, and the smallest of those of finished passes.
    peak: u64,
    smallest_peak: u64,
}

impl Policy {
    /// A move with these options begins; while the guest runs, or paused from the beginning.
    pub fn new(options: Options, is_live: bool) -> Self {
        let most = most(&options);
        let first = if options.first_downtime_ms == 0 { most } else { options.first_downtime_ms.min(most) };
        Self {
            options,
            allowed_ms: first,
            raised_at: 0,
            is_live,
            mode: if is_live { Mode::PreCopy } else { Mode::Paused },
            is_aborted: false,
            last: Sample::default(),
            sent_at: 0,
            progress_at: 0,
            peak: 0,
            smallest_peak: u64::MAX,
        }
    }

    /// The downtime that is allowed now.
    pub fn allowed_ms(&self) -> u64 {
        self.allowed_ms
    }

    /// How memory is transferred now.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Judges the next sample.
    pub fn judge(&mut self, sample: Sample) -> Judgement {
        self.follow(&sample);
        let is_stuck = self.is_stuck(&sample);
        let decision = if self.is_aborted || self.mode == Mode::PostCopy { None } else { self.decide(&sample) };
        match &decision {
            Some(Decision::AllowDowntime(milliseconds)) => {
                self.allowed_ms = *milliseconds;
                self.raised_at = sample.elapsed_ms;
            }
            Some(Decision::StartPostCopy) => self.mode = Mode::PostCopy,
            Some(Decision::Pause) => {
                self.mode = Mode::Paused;
                // It has all its time again: nothing changes any more.
                self.progress_at = sample.elapsed_ms;
            }
            Some(Decision::Abort(_)) => self.is_aborted = true,
            None => {}
        }
        let note = match self.mode {
            Mode::PreCopy => is_stuck.then(|| self.note(&sample)),
            Mode::Paused if !self.is_live => Some(NOT_LIVE.to_owned()),
            _ => None,
        };
        Judgement { decision, note, remaining_ms: self.remaining_ms(&sample) }
    }

    fn follow(&mut self, sample: &Sample) {
        let now = sample.elapsed_ms;
        if sample.sent != self.last.sent {
            self.sent_at = now;
        }
        if sample.is_memory != self.last.is_memory {
            // Another thing is counted now.
            (self.peak, self.smallest_peak) = (sample.remaining, u64::MAX);
            self.progress_at = now;
        } else if sample.iteration != self.last.iteration {
            self.smallest_peak = self.smallest_peak.min(self.peak);
            self.peak = sample.remaining;
        } else {
            self.peak = self.peak.max(sample.remaining);
        }
        let margin = self.smallest_peak / 100 * MARGIN_PERCENT;
        let is_smaller = self.smallest_peak != u64::MAX && self.peak < self.smallest_peak - margin;
        let is_slowed =
            self.options.auto_converge && sample.throttle > self.last.throttle && self.last.throttle < THROTTLE_MAX;
        if is_first_pass(sample) && sample.remaining < self.last.remaining
            || !is_first_pass(sample) && (is_converging(sample) || is_smaller)
            || is_slowed
            || self.mode == Mode::Paused && sample.remaining < self.last.remaining
        {
            self.progress_at = now;
        }
        self.last = *sample;
    }

    /// Passes do not get shorter, and what is left does not fit into the most that is allowed.
    fn is_stuck(&self, sample: &Sample) -> bool {
        let is_over = |since: u64| sample.elapsed_ms.saturating_sub(since) >= RAISE_INTERVAL_MS;
        !is_first_pass(sample)
            && !is_converging(sample)
            && is_over(self.progress_at)
            && !self.fits(sample, most(&self.options))
    }

    fn fits(&self, sample: &Sample, milliseconds: u64) -> bool {
        sample.bandwidth > 0 && self.peak.max(sample.remaining) / sample.bandwidth.div_ceil(1000) <= milliseconds
    }

    fn decide(&self, sample: &Sample) -> Option<Decision> {
        let now = sample.elapsed_ms;
        let is_over = |seconds: u64, since: u64| seconds > 0 && now.saturating_sub(since) >= seconds * 1000;
        let Options { completion_timeout, progress_timeout, stall_timeout, .. } = self.options;
        if is_over(progress_timeout, self.sent_at) {
            let reason = format!("nothing was sent for {progress_timeout} s: is the target's node reachable?");
            return Some(Decision::Abort(reason));
        }
        if is_over(completion_timeout, 0) && self.mode == Mode::PreCopy {
            let why = format!("the move is not done after {completion_timeout} s");
            return Some(self.best().unwrap_or_else(|| Decision::Abort(self.advice(&why, sample))));
        }
        if is_over(progress_timeout, self.progress_at) {
            let why = format!("the move did not get nearer to its end for {progress_timeout} s");
            return Some(self.best().unwrap_or_else(|| Decision::Abort(self.advice(&why, sample))));
        }
        let may_raise = self.allowed_ms < most(&self.options);
        if may_raise && !is_first_pass(sample) && now.saturating_sub(self.raised_at) >= RAISE_INTERVAL_MS {
            return Some(Decision::AllowDowntime(
                (self.allowed_ms.saturating_mul(3) / 2).clamp(1, most(&self.options)),
            ));
        }
        if !may_raise && is_over(stall_timeout, self.progress_at) { self.best() } else { None }
    }

    /// The best that is allowed and was not done yet.
    fn best(&self) -> Option<Decision> {
        match self.mode {
            // Memory has to be on its way before the rest can be fetched.
            Mode::PreCopy if self.options.post_copy && self.last.is_memory => Some(Decision::StartPostCopy),
            Mode::PreCopy if self.options.may_pause => Some(Decision::Pause),
            _ => None,
        }
    }

    fn advice(&self, why: &str, sample: &Sample) -> String {
        let mut wishes = Vec::new();
        if !self.options.auto_converge {
            wishes.push("allowAutoConverge");
        }
        if !self.options.post_copy {
            wishes.push("allowPostCopy");
        }
        if !self.options.may_pause {
            wishes.push("allowWorkloadDisruption");
        }
        let rates = format!("memory changes at {}, {} were sent", rate(sample.dirty_rate), rate(sample.bandwidth));
        match wishes.is_empty() {
            true => format!("{why} ({rates}): give it more bandwidth or time"),
            false => format!(
                "{why} ({rates}): allow one of {} in a migration policy, or more bandwidth or time",
                wishes.join(", ")
            ),
        }
    }

    fn note(&self, sample: &Sample) -> String {
        let next = match self.best() {
            Some(Decision::StartPostCopy) => "the guest will go on at the target before all of its memory is there",
            Some(_) => "the guest will be paused to get it done",
            None if self.options.auto_converge => "the guest is being slowed down",
            None => "nothing that would help is allowed",
        };
        let (changes, sent) = (rate(sample.dirty_rate), rate(sample.bandwidth));
        format!("memory changes at {changes} and is sent at {sent}: the move does not end like this; {next}")
    }

    fn remaining_ms(&self, sample: &Sample) -> Option<u64> {
        let shrinks = match self.mode {
            Mode::PreCopy if !is_first_pass(sample) => sample.bandwidth.saturating_sub(sample.dirty_rate),
            _ => sample.bandwidth,
        };
        // Without a rate of its own the rest is as far away as it was.
        (shrinks > 0).then(|| sample.remaining.saturating_mul(1000) / shrinks)
    }
}

fn most(options: &Options) -> u64 {
    if options.max_downtime_ms == 0 { DOWNTIME_MAX_MS } else { options.max_downtime_ms.min(DOWNTIME_MAX_MS) }
}

/// Disks, or memory that was not sent once.
fn is_first_pass(sample: &Sample) -> bool {
    !sample.is_memory || sample.iteration < 2
}

fn is_converging(sample: &Sample) -> bool {
    sample.bandwidth > 0 && sample.dirty_rate < sample.bandwidth / 100 * CONVERGING_PERCENT
}

fn rate(bytes: u64) -> String {
    format!("{}.{} MB/s", bytes / 1_000_000, bytes / 100_000 % 10)
}
