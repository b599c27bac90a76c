//! How much memory a server's processes hold, as the kernel sees it.

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
    fn sums_over_processes() {
        let own = i32::try_from(std::process::id()).unwrap();
        let both = of(&[own, own]).unwrap().unwrap();
        assert!(both.resident > 0 && both.peak >= both.resident);
        assert_eq!(of(&[]).unwrap(), None);
    }
}
