//! How much memory a server's processes hold and how long they computed, as the kernel sees it.

use std::time::Duration;

use anyhow::Context;

/// Resident memory of processes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) resident: u64,
    /// The most there ever was.
    pub(crate) peak: u64,
}

/// The sum over `pids`; `None` without any.
pub(crate) fn of(pids: &[i32]) -> anyhow::Result<Option<Memory>> {
    let mut sum = Memory { resident: 0, peak: 0 };
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let one = parse(&text).with_context(|| format!("{path} tells no memory"))?;
        sum = Memory { resident: sum.resident + one.resident, peak: sum.peak + one.peak };
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

fn parse(status: &str) -> Option<Memory> {
    let kilobytes = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(Memory { resident: kilobytes("VmRSS:")? * 1024, peak: kilobytes("VmHWM:")? * 1024 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_words() {
        let text = "Name:\tx\nVmHWM:\t   20 kB\nVmRSS:\t   10 kB\n";
        assert_eq!(parse(text), Some(Memory { resident: 10 * 1024, peak: 20 * 1024 }));
        assert_eq!(parse("Name:\tx\n"), None);
    }

    #[test]
    fn counts_time_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 9";
        assert_eq!(parse_computed(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_computed("7 (a) S 1"), None);
    }

    #[test]
    fn sums_over_processes() {
        let own = i32::try_from(std::process::id()).unwrap();
        let both = of(&[own, own]).unwrap().unwrap();
        assert!(both.resident > 0 && both.peak >= both.resident);
        assert_eq!(of(&[]).unwrap(), None);
    }
}
