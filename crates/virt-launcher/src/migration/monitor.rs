//! Watches a move while it sends: asks libvirt for its figures about once a second and does what the policy decides.

use std::time::Duration;

use ferrovirt_launcher_rpc::migration::{Mode, Progress};
use ferrovirt_libvirt::{Connection, Domain, TypedParameter, TypedValue};
use tokio::time::{MissedTickBehavior, interval};

use super::policy::{Decision, Policy, Sample};

const INTERVAL: Duration = Duration::from_secs(1);

/// What the monitor tells.
#[derive(Debug)]
pub enum Told {
    /// How far it is.
    Progress(Mode, Box<Progress>),
    /// The move is to be called off.
    GiveUp(String),
}

/// Watches the move of a guest with so many bytes of memory until it is dropped.
pub async fn watch(libvirt: Connection, domain: Domain, mut policy: Policy, memory: u64, tell: impl Fn(Told)) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Before its first figures, after its last ones, and while libvirt is away there is nothing to judge.
        let Ok((_, figures)) = libvirt.job_stats(&domain).await else { continue };
        let Some((sample, mut progress)) = read(&figures) else { continue };
        let judgement = policy.judge(sample);
        if !sample.is_memory {
            expect_memory(&mut progress, memory);
        }
        progress.allowed_downtime_ms = policy.allowed_ms();
        progress.remaining_ms = judgement.remaining_ms;
        progress.note = judgement.note;
        tell(Told::Progress(policy.mode(), Box::new(progress)));
        if let Some(decision) = judgement.decision {
            carry_out(&libvirt, &domain, decision, &tell).await;
        }
    }
}

/// libvirt counts memory only when the disks are there: half of a move would be shown as all of it.
fn expect_memory(progress: &mut Progress, memory: u64) {
    progress.total_bytes = progress.total_bytes.saturating_add(memory);
    progress.remaining_bytes = progress.remaining_bytes.saturating_add(memory);
}

async fn carry_out(libvirt: &Connection, domain: &Domain, decision: Decision, tell: &impl Fn(Told)) {
    tracing::info!(?decision, "the move");
    let done = match decision {
        Decision::AllowDowntime(milliseconds) => libvirt.set_max_downtime(domain, milliseconds).await,
        Decision::StartPostCopy => libvirt.start_post_copy(domain).await,
        Decision::Pause => libvirt.suspend(domain).await,
        Decision::Abort(reason) => {
            tell(Told::GiveUp(reason));
            Ok(())
        }
    };
    if let Err(error) = done {
        // It may have come to its end meanwhile.
        tracing::warn!(%error, "the move goes on as it was");
    }
}

/// libvirt's figures as a sample and as they are told; `None` when there is no move.
pub fn read(figures: &[TypedParameter]) -> Option<(Sample, Progress)> {
    let value = |name: &str| {
        figures.iter().find(|figure| figure.field == name).and_then(|figure| match figure.value {
            TypedValue::Ulong(value) => Some(value),
            TypedValue::Uint(value) => Some(value.into()),
            TypedValue::Int(value) => u64::try_from(value).ok(),
            TypedValue::Long(value) => u64::try_from(value).ok(),
            _ => None,
        })
    };
    let figure = |name: &str| value(name).unwrap_or_default();
    let total_bytes = value("data_total").filter(|total| *total > 0)?;
    let is_memory = figure("memory_total") > 0;
    let bandwidth = if is_memory { figure("memory_bps") } else { figure("disk_bps") };
    let dirty_rate = figure("memory_dirty_rate").saturating_mul(figure("memory_page_size"));
    let sample = Sample {
        elapsed_ms: figure("time_elapsed"),
        is_memory,
        remaining: figure("data_remaining"),
        sent: figure("data_processed"),
        bandwidth,
        dirty_rate,
        iteration: figure("memory_iteration"),
        throttle: figure("auto_converge_throttle"),
    };
    let progress = Progress {
        elapsed_ms: sample.elapsed_ms,
        total_bytes,
        sent_bytes: sample.sent,
        remaining_bytes: sample.remaining,
        bandwidth,
        dirty_rate,
        iteration: sample.iteration,
        downtime_ms: value("downtime"),
        ..Progress::default()
    };
    Some((sample, progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_their_absence_is_no_move() {
        assert_eq!(read(&[]), None);
        let figures = [
            ("data_total", 100),
            ("data_processed", 40),
            ("data_remaining", 60),
            ("memory_total", 100),
            ("memory_bps", 10),
            ("memory_dirty_rate", 2),
            ("memory_page_size", 4096),
            ("memory_iteration", 3),
            ("time_elapsed", 1500),
        ]
        .map(|(name, value)| TypedParameter::new(name, TypedValue::Ulong(value)));
        let (sample, progress) = read(&figures).unwrap();
        assert!(sample.is_memory);
        assert_eq!((sample.dirty_rate, sample.iteration, sample.elapsed_ms), (8192, 3, 1500));
        assert_eq!((progress.total_bytes, progress.sent_bytes, progress.remaining_bytes), (100, 40, 60));
        assert_eq!(progress.downtime_ms, None);
    }

    #[test]
    fn memory_counts_before_libvirt_counts_it() {
        let figures = [("data_total", 100), ("data_processed", 100)]
            .map(|(name, value)| TypedParameter::new(name, TypedValue::Ulong(value)));
        let (sample, mut progress) = read(&figures).unwrap();
        assert!(!sample.is_memory);
        expect_memory(&mut progress, 900);
        assert_eq!((progress.total_bytes, progress.sent_bytes, progress.remaining_bytes), (1000, 100, 900));
    }
}
