//! What was measured, as a table and as numbers.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::ticks::Silence;

/// One move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    /// From the request until it was reported as done.
    pub(super) took: Duration,
    /// As its serial port shows it.
    pub(super) silence: Silence,
    /// What was sent, as QEMU counts it.
    pub(super) sent: Option<u64>,
}

impl Move {
    /// The longest silence, less the time between two ticks, which would have been silent anyway.
    fn downtime(&self) -> Duration {
        self.silence.longest.saturating_sub(self.silence.usual)
    }
}

struct Figures {
    took: Option<Duration>,
    took_worst: Option<Duration>,
    downtime: Option<Duration>,
    downtime_worst: Option<Duration>,
    sent: Option<u64>,
}

impl Figures {
    fn of(moves: &[Move]) -> Self {
        let took = sorted(moves.iter().map(|one| one.took));
        let downtime = sorted(moves.iter().map(Move::downtime));
        let sent = sorted(moves.iter().filter_map(|one| one.sent));
        Self {
            took: middle(&took),
            took_worst: took.last().copied(),
            downtime: middle(&downtime),
            downtime_worst: downtime.last().copied(),
            sent: middle(&sent),
        }
    }
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values
}

fn middle<T: Copy>(sorted: &[T]) -> Option<T> {
    sorted.get(sorted.len() / 2).copied()
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other.filter(|other| *other > 0.0)?)
}

/// One column for each way.
pub(super) fn table(ours: &[Move], bare: &[Move]) -> String {
    let (us, them) = (Figures::of(ours), Figures::of(bare));
    let seconds = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()));
    let millis = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()));
    let mebibytes = |bytes: Option<u64>| {
        bytes.map_or("-".to_owned(), |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
    };
    let times =
        |one: Option<f64>, other: Option<f64>| ratio(one, other).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let float = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let rows = [
        ("moves", ours.len().to_string(), bare.len().to_string(), String::new()),
        ("request to done, median", seconds(us.took), seconds(them.took), times(float(us.took), float(them.took))),
        ("request to done, worst", seconds(us.took_worst), seconds(them.took_worst), String::new()),
        ("added by us, median", seconds(added(&us, &them)), String::new(), String::new()),
        (
            "downtime, median",
            millis(us.downtime),
            millis(them.downtime),
            times(float(us.downtime), float(them.downtime)),
        ),
        ("downtime, worst", millis(us.downtime_worst), millis(them.downtime_worst), String::new()),
        ("bytes sent, median", mebibytes(us.sent), mebibytes(them.sent), String::new()),
    ];
    let mut text = format!("{:<28}{:>14}{:>14}{:>10}\n", "", "ferrovirt", "virsh", "ratio");
    for (label, us, them, ratio) in rows {
        let _ = writeln!(text, "{}", format!("{label:<28}{us:>14}{them:>14}{ratio:>10}").trim_end());
    }
    text
}

fn added(us: &Figures, them: &Figures) -> Option<Duration> {
    Some(us.took?.saturating_sub(them.took?))
}

/// Plain numbers.
pub(super) fn json(ours: &[Move], bare: &[Move]) -> Value {
    let moves = |moves: &[Move]| -> Vec<Value> {
        let one = |one: &Move| {
            json!({
                "seconds": one.took.as_secs_f64(), "downtimeSeconds": one.downtime().as_secs_f64(),
                "tickSeconds": one.silence.usual.as_secs_f64(), "bytes": one.sent,
            })
        };
        moves.iter().map(one).collect()
    };
    let (us, them) = (Figures::of(ours), Figures::of(bare));
    let float = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    json!({
        "ferrovirt": moves(ours), "virsh": moves(bare), "addedSeconds": float(added(&us, &them)),
        "downtimeRatio": ratio(float(us.downtime), float(them.downtime)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(took: u64, longest: u64) -> Move {
        let silence = Silence { longest: Duration::from_millis(longest), usual: Duration::from_millis(10) };
        Move { took: Duration::from_millis(took), silence, sent: Some(64 << 20) }
    }

    #[test]
    fn medians_and_their_ratio() {
        let ours = [one(2500, 260), one(2000, 210), one(9000, 1010)];
        let bare = [one(1000, 210), one(1100, 200), one(1200, 220)];
        let table = table(&ours, &bare);
        for line in [
            "added by us, median                 1.40 s",
            "downtime, median                    250 ms        200 ms      1.25",
        ] {
            assert!(table.contains(line), "{table}");
        }
        assert_eq!(json(&ours, &bare)["downtimeRatio"], 1.25);
        assert!(super::table(&[], &[]).contains('-'));
    }
}
