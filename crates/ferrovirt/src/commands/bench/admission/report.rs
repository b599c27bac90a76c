//! What was measured, as a table and as numbers.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

/// Calls of one kind.
pub(super) struct Calls {
    /// The time of each, sorted.
    times: Vec<Duration>,
    /// The time of all.
    elapsed: Duration,
}

impl Calls {
    /// From the time of each call and of all together.
    pub(super) fn new(mut times: Vec<Duration>, elapsed: Duration) -> Self {
        times.sort_unstable();
        Self { times, elapsed }
    }

    fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn mean(&self) -> Duration {
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX).max(1);
        self.times.iter().sum::<Duration>() / count
    }

    /// The time that so many of a hundred calls stay below.
    fn percentile(&self, percent: usize) -> Duration {
        let index = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(index).copied().unwrap_or_default()
    }

    fn json(&self) -> Value {
        json!({
            "calls": self.times.len(), "callsPerSecond": self.per_second(), "meanSeconds": self.mean().as_secs_f64(),
            "p50Seconds": self.percentile(50).as_secs_f64(), "p99Seconds": self.percentile(99).as_secs_f64(),
        })
    }
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// What it holds, with its share of what others hold too.
    proportional: u64,
    /// What it holds, shared or not.
    resident: u64,
}

impl Memory {
    /// Of a running process.
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("{path} tells no memory"))
    }

    fn parse(rollup: &str) -> Option<Self> {
        let kilobytes = |key: &str| -> Option<u64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        Some(Self { proportional: kilobytes("Pss:")? * 1024, resident: kilobytes("Rss:")? * 1024 })
    }

    fn json(self) -> Value {
        json!({"pssBytes": self.proportional, "rssBytes": self.resident})
    }
}

/// What was seen of webhooks.
pub(super) struct Webhooks {
    /// As many calls as it takes.
    pub(super) fastest: Calls,
    /// Calls at a fixed rate.
    pub(super) paced: Calls,
    /// virt-api before the first call.
    pub(super) idle: Memory,
    /// virt-api after the last.
    pub(super) loaded: Memory,
}

/// Everything.
pub(super) struct Report {
    /// Defaulting and checking as a function call.
    pub(super) judgement: Calls,
    /// The same as webhooks.
    pub(super) webhooks: Webhooks,
    /// The fixed rate.
    pub(super) rate: u32,
    /// Connections that were used.
    pub(super) connections: u32,
}

impl Report {
    /// For people.
    pub(super) fn table(&self) -> String {
        let microseconds = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
        let milliseconds = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0);
        let (fastest, paced) = (&self.webhooks.fastest, &self.webhooks.paced);
        let memory =
            |memory: Memory| format!("{} PSS, {} RSS", mebibytes(memory.proportional), mebibytes(memory.resident));
        let judged = &self.judgement;
        let rows = [
            ("default and check a machine, mean", microseconds(judged.mean())),
            ("default and check a machine, p99", microseconds(judged.percentile(99))),
            ("webhook calls at most", format!("{:.0} per second", fastest.per_second())),
            (
                "  p50, p99",
                format!("{}, {}", milliseconds(fastest.percentile(50)), milliseconds(fastest.percentile(99))),
            ),
            ("webhook calls at a fixed rate", format!("{:.0} per second ({} asked)", paced.per_second(), self.rate)),
            ("  p50, p99", format!("{}, {}", milliseconds(paced.percentile(50)), milliseconds(paced.percentile(99)))),
            ("virt-api before calls", memory(self.webhooks.idle)),
            ("virt-api after calls", memory(self.webhooks.loaded)),
        ];
        let mut out = format!("{} connections, TLS\n", self.connections);
        for (name, value) in rows {
            let _ = writeln!(out, "{name:<36} {value}");
        }
        out
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "connections": self.connections, "rate": self.rate, "judgement": self.judgement.json(),
            "webhooksFastest": self.webhooks.fastest.json(), "webhooksPaced": self.webhooks.paced.json(),
            "memoryBefore": self.webhooks.idle.json(), "memoryAfter": self.webhooks.loaded.json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let calls = Calls::new((1..=100).rev().map(Duration::from_millis).collect(), Duration::from_secs(2));
        assert_eq!(calls.percentile(50), Duration::from_millis(50));
        assert_eq!(calls.percentile(99), Duration::from_millis(99));
        assert_eq!(calls.mean(), Duration::from_micros(50_500));
        assert_eq!(calls.per_second(), 50.0);
        assert_eq!(Calls::new(Vec::new(), Duration::ZERO).percentile(99), Duration::ZERO);
    }

    #[test]
    fn memory_is_the_kernel_s_word() {
        let text = "55 [rollup]\nRss:    2048 kB\nPss:    1024 kB\nPss_Dirty: 8 kB\n";
        assert_eq!(Memory::parse(text), Some(Memory { proportional: 1 << 20, resident: 2 << 20 }));
        assert_eq!(Memory::parse("Rss: 1 kB"), None);
    }
}
