//! How much memory processes hold and how long they computed, as the kernel sees it.

use std::time::Duration;

use anyhow::Context;

/// Resident memory of processes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// The most there ever was.
    pub(crate) peak: u64,
    /// What is nobody else's: without the program's own file, which the kernel can drop and share.
    pub(crate) own: u64,
}

/// The sum over `pids`; `None` without any.
pub(crate) fn of(pids: &[i32]) -> anyhow::Result<Option<Memory>> {
    let mut sum = Memory { resident: 0, peak: 0, own: 0 };
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let one = parse(&text).with_context(|| format!("{path} tells no memory"))?;
        sum = Memory { resident: sum.resident + one.resident, peak: sum.peak + one.peak, own: sum.own + one.own };
    }
    Ok((!pids.is_empty()).then_some(sum))
}

/// How long `pids` computed until now; `None` without any.
pub(crate) fn computed(pids: &[i32]) -> anyhow::Result<Option<Duration>> {
    let mut sum = Duration::ZERO;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        sum += parse_computed(&text).with_context(|| format!("{path} tells no time"))?;
    }
    Ok((!pids.is_empty()).then_some(sum))
}

/// Fields 14 and 15, in hundredths of a second; the name before them may hold anything, so fields are counted from its
/// last parenthesis.
fn parse_computed(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis(10 * (user + system)))
}

/// The whole machine's processors until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    busy: Duration,
    all: Duration,
}

impl Processors {
    /// Reads the kernel's counters.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&text).context("/proc/stat tells no times")
    }

    /// Fields 4 and 5 are idle; guests (9 and 10) are counted in the first ones already.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let (all, idle) = (ticks.iter().sum::<u64>(), ticks.get(3)? + ticks.get(4)?);
        Some(Self { busy: Duration::from_millis(10 * (all - idle)), all: Duration::from_millis(10 * all) })
    }

    /// The share of the machine since `before` that was busy with something else than `ours`.
    pub(crate) fn used_by_others(self, before: Self, ours: Duration) -> f64 {
        let others = (self.busy - before.busy).saturating_sub(ours);
        others.as_secs_f64() / (self.all - before.all).as_secs_f64().max(0.01)
    }
}

fn parse(status: &str) -> Option<Memory> {
    let kilobytes = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let bytes = |key: &str| Some(kilobytes(key)? * 1024);
    Some(Memory { resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")?, own: bytes("RssAnon:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_words() {
        let text = "Name:\tx\nVmHWM:\t   20 kB\nVmRSS:\t   10 kB\nRssAnon:\t    4 kB\n";
        assert_eq!(parse(text), Some(Memory { resident: 10 * 1024, peak: 20 * 1024, own: 4 * 1024 }));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn counts_time_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 9";
        assert_eq!(parse_computed(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_computed("7 (a) S 1"), None);
    }

    #[test]
    fn others_are_what_is_busy_without_us() {
        let before = Processors::parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1").unwrap();
        let after = Processors::parse("cpu  300 0 300 1400 0 0 0 0 0 0\n").unwrap();
        assert_eq!(after.used_by_others(before, Duration::from_secs(1)), 0.3);
        assert_eq!(Processors::parse("cpu0 1 2 3"), None);
    }

    #[test]
    fn sums_over_processes() {
        let own = i32::try_from(std::process::id()).unwrap();
        let both = of(&[own, own]).unwrap().unwrap();
        assert!(both.own > 0 && both.resident >= both.own && both.peak >= both.resident);
        assert_eq!(of(&[]).unwrap(), None);
    }
}
