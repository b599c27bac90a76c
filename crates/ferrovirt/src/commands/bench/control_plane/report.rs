//! What was measured, as a table and as numbers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::burst::Burst;
use super::counters::Write;
use super::process::Costs;

const MIB: f64 = 1024.0 * 1024.0;

/// One run.
pub(super) struct Report {
    /// The guests.
    pub(super) burst: Burst,
    /// What virt-controller had cost before them.
    pub(super) idle: Costs,
    /// What it had cost after them.
    pub(super) loaded: Costs,
    /// The API server's version.
    pub(super) server: String,
}

impl Report {
    /// For people.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "virt-controller alone, with kube-apiserver {}. Not running: virt-api (its defaults were filled in, nothing was checked),\n\
             virt-operator, virt-handler, nodes. Times are counted from the first creation.\n\n",
            self.server
        );
        for (what, value) in self.lines() {
            let _ = writeln!(text, "{what:<58}{value:>12}");
        }
        text.push('\n');
        match self.writes() {
            None => text.push_str("the API server does not count requests: it has no /metrics\n"),
            Some(writes) => {
                let _ = writeln!(text, "{:<58}{:>12}", "writes by everybody, for each guest", "");
                for (write, count) in writes {
                    let _ = writeln!(text, "{:<58}{:>12.2}", format!("  {}", said(write)), self.for_each(count));
                }
            }
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let Burst { count, writers, created, seen, busy, counted } = &self.burst;
        let seconds = |time: std::time::Duration| format!("{:.2} s", time.as_secs_f64());
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB);
        let mut lines = vec![
            ("guests", count.to_string()),
            ("guests being created at the same time", writers.to_string()),
            ("last guest created", seconds(*created)),
            ("last pod seen", seconds(seen.pods)),
            ("from a guest's creation to its pod, p50", seconds(seen.median_to_pod)),
            ("last guest Scheduling", seconds(seen.placed)),
            ("changes of a guest's object, seen by a watch", format!("{:.2}", self.for_each(seen.changes as u64))),
            ("virt-controller, memory at most", mib(self.loaded.memory.peak)),
            ("virt-controller, of that its own, not its program file's", mib(self.loaded.memory.own)),
            ("virt-controller, memory before the guests", mib(self.idle.memory.resident)),
            ("virt-controller, of that its own", mib(self.idle.memory.own)),
            ("virt-controller, CPU for the guests", seconds(self.loaded.computed.saturating_sub(self.idle.computed))),
            ("virt-controller, CPU since its start", seconds(self.loaded.computed)),
            ("this machine's processors, busy until the last pod", format!("{:.0} %", busy * 100.0)),
        ];
        if let Some(counted) = counted {
            lines.push(("API server, CPU until the last guest was Scheduling", format!("{:.2} s", counted.computed)));
        }
        lines
    }

    fn writes(&self) -> Option<impl Iterator<Item = (&Write, u64)>> {
        Some(self.burst.counted.as_ref()?.writes.iter().map(|(write, count)| (write, *count)))
    }

    fn for_each(&self, count: u64) -> f64 {
        count as f64 / self.burst.count.max(1) as f64
    }

    /// Plain numbers.
    pub(super) fn json(&self) -> Value {
        let burst = &self.burst;
        let writes = self.writes().map(|writes| {
            let rows = writes.map(|(write, count)| {
                json!({"resource": write.resource, "verb": write.verb, "accepted": write.accepted, "count": count})
            });
            rows.collect::<Vec<_>>()
        });
        json!({
            "server": self.server,
            "guests": burst.count,
            "writers": burst.writers,
            "createdSeconds": burst.created.as_secs_f64(),
            "podsSeconds": burst.seen.pods.as_secs_f64(),
            "podP50Seconds": burst.seen.median_to_pod.as_secs_f64(),
            "schedulingSeconds": burst.seen.placed.as_secs_f64(),
            "changesSeen": burst.seen.changes,
            "controllerPeakBytes": self.loaded.memory.peak,
            "controllerOwnBytes": self.loaded.memory.own,
            "controllerIdleBytes": self.idle.memory.resident,
            "controllerIdleOwnBytes": self.idle.memory.own,
            "controllerCpuSeconds": self.loaded.computed.saturating_sub(self.idle.computed).as_secs_f64(),
            "controllerCpuSinceStartSeconds": self.loaded.computed.as_secs_f64(),
            "machineBusy": burst.busy,
            "serverCpuSeconds": burst.counted.as_ref().map(|counted| counted.computed),
            "writes": writes,
        })
    }
}

/// `create pods`, and whose it is or that it failed, where that is not plain.
fn said(write: &Write) -> String {
    let Write { resource, verb, accepted } = write;
    let note = match (accepted, resource.as_str(), *verb) {
        (false, ..) => ", refused",
        (_, "virtualmachineinstances", "create") => " (the bench)",
        _ => "",
    };
    format!("{verb} {resource}{note}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_named_with_what_is_not_plain() {
        let write = |resource: &str, verb, accepted| Write { resource: resource.to_owned(), verb, accepted };
        assert_eq!(said(&write("pods", "create", true)), "create pods");
        assert_eq!(said(&write("pods", "create", false)), "create pods, refused");
        assert_eq!(
            said(&write("virtualmachineinstances", "create", true)),
            "create virtualmachineinstances (the bench)"
        );
    }
}
