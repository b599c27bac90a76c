//! A move in words: how far it is, for terminals and for logs, and how it ended. Pure.

use serde_json::Value;

use crate::time::human;

/// Characters of the bar.
const BAR: u64 = 24;
/// A log gets a line for each step of so many percent.
const STEP: u64 = 10;

/// Where a move is: the phase of its object, and what the guest's object says about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct View {
    /// Of the migration's object.
    pub(super) phase: String,
    /// `status.migrationState` of the guest, if it is about this move, or the copy that the migration keeps of it.
    pub(super) state: Value,
}

impl View {
    fn number(&self, field: &str) -> Option<u64> {
        self.state["progress"][field].as_u64()
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.state[field].as_str().filter(|text| !text.is_empty())
    }

    /// The note of a move that does not get nearer to its end.
    fn note(&self) -> Option<&str> {
        self.state["progress"]["message"].as_str().filter(|text| !text.is_empty())
    }

    /// The note, and who knows what to do about it.
    fn advice(&self, guest: &str) -> Option<String> {
        self.note().map(|note| format!("; {note} (virtctl why {guest} says what to do)"))
    }

    /// `: Running to node-2`, with what is unusual about it.
    fn place(&self) -> String {
        let target = self.text("targetNode").map(|node| format!(" to {node}")).unwrap_or_default();
        let mode = match self.text("mode") {
            Some("PostCopy") => ", post-copy: the guest already runs there",
            Some("Paused") => ", the guest is paused to get it done",
            _ => "",
        };
        let abort = if self.state["abortRequested"] == true { ", being called off" } else { "" };
        format!("{}{target}{mode}{abort}", self.phase)
    }

    /// `62%, 410 of 650 MiB, 120 MiB/s, 5 MiB/s change, 3s left`; empty before anything was sent.
    fn numbers(&self) -> String {
        let mut parts = Vec::new();
        if let Some(percent) = self.number("percent") {
            parts.push(format!("{percent}%"));
        }
        if let (Some(sent), Some(total)) = (self.number("sentBytes"), self.number("totalBytes")) {
            parts.push(format!("{} sent of {}", bytes(sent), bytes(total)));
        }
        if let Some(rate) = self.number("bandwidth").filter(|rate| *rate > 0) {
            parts.push(format!("{}/s", bytes(rate)));
        }
        if let Some(rate) = self.number("dirtyRate").filter(|rate| *rate > 0) {
            parts.push(format!("{}/s change", bytes(rate)));
        }
        if let Some(left) = self.state["progress"]["remainingSeconds"].as_i64() {
            parts.push(format!("{} left", human(left)));
        }
        parts.join(", ")
    }

    /// One line for a terminal, with a bar.
    pub(super) fn live(&self, guest: &str) -> String {
        let bar = self.number("percent").map(|percent| {
            let full = percent.min(100) * BAR / 100;
            let part = |count: u64, sign: &str| sign.repeat(usize::try_from(count).unwrap_or_default());
            format!(" [{}{}]", part(full, "█"), part(BAR - full, "░"))
        });
        let numbers = Some(self.numbers()).filter(|text| !text.is_empty()).map(|text| format!(" {text}"));
        let note = self.advice(guest);
        let parts = [bar, numbers, note].map(Option::unwrap_or_default).concat();
        format!("{guest}: {}{parts}", self.place())
    }

    /// One line for a log.
    pub(super) fn plain(&self, guest: &str) -> String {
        let numbers = Some(self.numbers()).filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        let note = self.advice(guest);
        format!("{guest}: {}{}", self.place(), [numbers, note].map(Option::unwrap_or_default).concat())
    }

    /// What has to differ for another line in a log: numbers change every second, and nobody reads that.
    pub(super) fn milestone(&self) -> (String, Option<u64>, Option<String>) {
        (self.place(), self.number("percent").map(|percent| percent / STEP), self.note().map(str::to_owned))
    }

    /// How a move ended well: ` to node-2 in 12s; the guest stood still for 84 ms`.
    pub(super) fn moved(&self) -> String {
        let target = self.text("targetNode").map(|node| format!(" to {node}")).unwrap_or_default();
        let time = |field: &str| self.text(field)?.parse::<jiff::Timestamp>().ok();
        let span = time("startTimestamp").zip(time("endTimestamp"));
        let span = span.map(|(begin, end)| format!(" in {}", human(end.as_second() - begin.as_second())));
        let downtime = self.number("downtimeMs").map(|ms| format!("; the guest stood still for {ms} ms"));
        format!("{target}{}{}", span.unwrap_or_default(), downtime.unwrap_or_default())
    }

    /// Why a move failed.
    pub(super) fn failure(&self) -> Option<&str> {
        self.text("failureReason")
    }
}

/// Bytes for people: three digits at most.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1024 && unit + 1 < units.len() {
        (value, unit) = (value >> 10, unit + 1);
    }
    let below = (count >> (10 * unit.saturating_sub(1))) & 1023;
    match (value, unit) {
        (0..10, 1..) => format!("{value}.{} {}", below * 10 / 1024, units[unit]),
        _ => format!("{value} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn running(progress: &Value) -> View {
        View { phase: "Running".to_owned(), state: json!({"targetNode": "node-2", "progress": progress}) }
    }

    #[test]
    fn a_move_is_a_bar_on_a_terminal_and_a_line_elsewhere() {
        let view = running(&json!({
            "percent": 50, "totalBytes": 681_574_400, "sentBytes": 340_787_200, "bandwidth": 125_829_120,
            "dirtyRate": 5_242_880, "remainingSeconds": 3,
        }));
        let numbers = "50%, 325 MiB sent of 650 MiB, 120 MiB/s, 5.0 MiB/s change, 3s left";
        let bar = "[████████████░░░░░░░░░░░░]";
        assert_eq!(view.live("web"), format!("web: Running to node-2 {bar} {numbers}"));
        assert_eq!(view.plain("web"), format!("web: Running to node-2: {numbers}"));
    }

    #[test]
    fn before_anything_is_sent_the_phase_is_all() {
        let view = View { phase: "Scheduling".to_owned(), state: Value::Null };
        assert_eq!(view.live("web"), "web: Scheduling");
        assert_eq!(view.plain("web"), "web: Scheduling");
    }

    #[test]
    fn a_move_that_does_not_converge_says_so_once() {
        let mut view = running(&json!({"percent": 51, "message": "memory changes faster than it is sent"}));
        let advice = "51%; memory changes faster than it is sent (virtctl why web says what to do)";
        assert!(view.plain("web").ends_with(advice) && view.live("web").ends_with(advice));
        let before = view.milestone();
        view.state["progress"]["percent"] = json!(58);
        assert_eq!(view.milestone(), before);
        view.state["progress"]["percent"] = json!(60);
        assert_ne!(view.milestone(), before);
        view.state["mode"] = json!("PostCopy");
        assert_eq!(view.plain("web").matches("post-copy").count(), 1);
    }

    #[test]
    fn the_end_names_node_time_and_downtime() {
        let mut view = running(&json!({"downtimeMs": 84}));
        view.state["startTimestamp"] = json!("2026-05-01T12:00:00Z");
        view.state["endTimestamp"] = json!("2026-05-01T12:00:12Z");
        assert_eq!(view.moved(), " to node-2 in 12s; the guest stood still for 84 ms");
        assert_eq!(View::default().moved(), "");
        assert_eq!(View::default().failure(), None);
    }

    #[test]
    fn bytes_are_short() {
        let shown = [0, 1023, 1536, 10 << 20, 650 << 20, 3 << 30].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.5 KiB", "10 MiB", "650 MiB", "3.0 GiB"]);
    }
}
