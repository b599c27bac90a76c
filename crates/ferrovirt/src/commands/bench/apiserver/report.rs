//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Creates per second with all writers.
    Creates,
    /// Latency of those.
    CreateP50,
    /// Latency of those.
    CreateP99,
    /// Processor time of the server for one of those.
    CreateComputed,
    /// Updates per second with all writers.
    Updates,
    /// Latency of those.
    UpdateP50,
    /// Latency of those.
    UpdateP99,
    /// Processor time of the server for one of those.
    UpdateComputed,
    /// Latency of one update at a time.
    LoneUpdateP50,
    /// Latency of one update at a time.
    LoneUpdateP99,
    /// From sending one update to its event.
    WatchP50,
    /// From sending one update to its event.
    WatchP99,
    /// The same while all writers write.
    BusyWatchP50,
    /// The same while all writers write.
    BusyWatchP99,
    /// One object.
    GetP50,
    /// One object.
    GetP99,
    /// All objects in one answer.
    ListFull,
    /// All objects in pages of 500.
    ListPages,
    /// All objects, from the server's cache.
    ListCached,
    /// Size of the full list.
    ListBytes,
    /// Memory now.
    Resident,
    /// The most memory there was.
    Peak,
    /// Share of the machine that neither the server nor this client used.
    Others,
}

/// Every metric in the order of the table: key in JSON, name in the table, unit.
const METRICS: &[(Metric, &str, &str, Unit)] = &[
    (Metric::Creates, "createsPerSecond", "creates/s", Unit::PerSecond),
    (Metric::CreateP50, "createP50", "create p50", Unit::Seconds),
    (Metric::CreateP99, "createP99", "create p99", Unit::Seconds),
    (Metric::CreateComputed, "createComputed", "processor per create", Unit::Seconds),
    (Metric::Updates, "updatesPerSecond", "updates/s", Unit::PerSecond),
    (Metric::UpdateP50, "updateP50", "update p50", Unit::Seconds),
    (Metric::UpdateP99, "updateP99", "update p99", Unit::Seconds),
    (Metric::UpdateComputed, "updateComputed", "processor per update", Unit::Seconds),
    (Metric::LoneUpdateP50, "loneUpdateP50", "lone update p50", Unit::Seconds),
    (Metric::LoneUpdateP99, "loneUpdateP99", "lone update p99", Unit::Seconds),
    (Metric::WatchP50, "watchP50", "send to watch p50", Unit::Seconds),
    (Metric::WatchP99, "watchP99", "send to watch p99", Unit::Seconds),
    (Metric::BusyWatchP50, "busyWatchP50", "  under load p50", Unit::Seconds),
    (Metric::BusyWatchP99, "busyWatchP99", "  under load p99", Unit::Seconds),
    (Metric::GetP50, "getP50", "get p50", Unit::Seconds),
    (Metric::GetP99, "getP99", "get p99", Unit::Seconds),
    (Metric::ListFull, "listFull", "list", Unit::Seconds),
    (Metric::ListPages, "listPages", "list, pages of 500", Unit::Seconds),
    (Metric::ListCached, "listCached", "list, version 0", Unit::Seconds),
    (Metric::ListBytes, "listBytes", "size of the list", Unit::Bytes),
    (Metric::Resident, "residentBytes", "memory (RSS)", Unit::Bytes),
    (Metric::Peak, "peakBytes", "memory, peak", Unit::Bytes),
    (Metric::Others, "othersShare", "machine used by others", Unit::Share),
];

/// With a larger share of others, wall-clock figures say more about them than about the server.
const NOISE: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Seconds,
    Bytes,
    Share,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{value:.0}"),
            Self::Share => format!("{:.0}%", value * 100.0),
            Self::Seconds if value < 0.001 => format!("{:.0} us", value * 1e6),
            Self::Seconds if value < 0.1 => format!("{:.2} ms", value * 1e3),
            Self::Seconds => format!("{:.0} ms", value * 1e3),
            Self::Bytes if value.abs() < 1024.0 * 1024.0 => format!("{:.1} KiB", value / 1024.0),
            Self::Bytes => format!("{:.1} MiB", value / (1024.0 * 1024.0)),
        }
    }

    /// How many times better `ours` is: more is better for rates, less for everything else.
    fn times_better(self, ours: f64, other: f64) -> f64 {
        match self {
            Self::PerSecond => ours / other,
            _ => other / ours,
        }
    }
}

/// The figures of one server at one size.
pub(crate) struct Measured {
    /// How many objects there were.
    pub(crate) size: usize,
    values: Vec<(Metric, f64)>,
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, values: Vec::new() }
    }

    /// Notes a value.
    pub(crate) fn add(&mut self, metric: Metric, value: f64) {
        self.values.push((metric, value));
    }

    /// Notes a value in place of an earlier one.
    pub(crate) fn set(&mut self, metric: Metric, value: f64) {
        self.values.retain(|(other, _)| *other != metric);
        self.add(metric, value);
    }

    /// Notes how many per second.
    pub(crate) fn rate(&mut self, metric: Metric, count: usize, took: Duration) {
        if count > 0 {
            self.add(metric, count as f64 / took.as_secs_f64());
        }
    }

    /// Notes the processor time of each of `count` writes; less noisy than wall-clock time where others use the machine.
    pub(crate) fn computed(&mut self, metric: Metric, count: usize, before: Option<Duration>, after: Option<Duration>) {
        if let (Some(before), Some(after), 1..) = (before, after, count) {
            self.add(metric, after.saturating_sub(before).as_secs_f64() / count as f64);
        }
    }

    /// Notes the median and the 99th percentile.
    pub(crate) fn latencies(&mut self, p50: Metric, p99: Metric, mut all: Vec<Duration>) {
        all.sort_unstable();
        for (metric, share) in [(p50, 0.5), (p99, 0.99)] {
            if let Some(value) = percentile(&all, share) {
                self.add(metric, value.as_secs_f64());
            }
        }
    }

    /// Notes the median.
    pub(crate) fn median(&mut self, metric: Metric, mut all: Vec<Duration>) {
        all.sort_unstable();
        if let Some(value) = percentile(&all, 0.5) {
            self.add(metric, value.as_secs_f64());
        }
    }

    fn get(&self, metric: Metric) -> Option<f64> {
        self.values.iter().find(|(other, _)| *other == metric).map(|(_, value)| *value)
    }
}

/// The nearest rank in a sorted list.
fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// One server's figures.
pub(crate) struct Results {
    /// Heading of its columns.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) url: String,
    /// By size.
    pub(crate) sizes: Vec<Measured>,
}

impl Results {
    /// Memory for one more object, between the smallest and the largest size.
    fn bytes_per_object(&self) -> Option<f64> {
        let (small, large) = (self.sizes.first()?, self.sizes.last()?);
        let objects = large.size.checked_sub(small.size).filter(|&objects| objects > 0)?;
        Some((large.get(Metric::Resident)? - small.get(Metric::Resident)?) / objects as f64)
    }
}

/// JSON: plain numbers, in seconds and bytes.
pub(crate) fn json(results: &[Results]) -> Value {
    let servers = results.iter().map(|server| {
        let sizes = server.sizes.iter().map(|measured| {
            let known = METRICS
                .iter()
                .filter_map(|(metric, key, _, _)| Some(((*key).to_owned(), measured.get(*metric)?.into())));
            json!({"objects": measured.size, "values": known.collect::<serde_json::Map<_, _>>()})
        });
        json!({
            "name": server.name, "url": server.url, "sizes": sizes.collect::<Vec<_>>(),
            "residentBytesPerObject": server.bytes_per_object(),
        })
    });
    json!({"servers": servers.collect::<Vec<_>>()})
}

/// The table: a column per size and server, and with two servers a ratio of how many times better the first is.
pub(crate) fn table(results: &[Results]) -> String {
    let mut rows = vec![heading(results)];
    for (metric, _, label, unit) in METRICS {
        let mut row = vec![(*label).to_owned()];
        for index in 0..size_count(results) {
            let values: Vec<Option<f64>> = results.iter().map(|server| server.sizes.get(index)?.get(*metric)).collect();
            row.extend(values.iter().map(|value| value.map_or("-".to_owned(), |value| unit.show(value))));
            if let [Some(ours), Some(other)] = values.as_slice()
                && !matches!(metric, Metric::ListBytes | Metric::Others)
            {
                row.push(format!("{:.1}x", unit.times_better(*ours, *other)));
            } else if values.len() == 2 {
                row.push(String::new());
            }
        }
        rows.push(row);
    }
    rows.push(list_time_per_object(results));
    let mut text = align(&rows);
    for server in results {
        if let Some(bytes) = server.bytes_per_object() {
            let _ = writeln!(text, "{}: {} of memory for each further object", server.name, Unit::Bytes.show(bytes));
        }
    }
    if results.iter().flat_map(|server| &server.sizes).any(|measured| measured.get(Metric::Others) > Some(NOISE)) {
        let _ =
            writeln!(text, "Others used the machine: times and rates are not comparable, processor times roughly are.");
    }
    text
}

fn size_count(results: &[Results]) -> usize {
    results.iter().map(|server| server.sizes.len()).max().unwrap_or(0)
}

fn heading(results: &[Results]) -> Vec<String> {
    let mut row = vec![String::new()];
    for index in 0..size_count(results) {
        for server in results {
            let size = server.sizes.get(index).map_or(0, |measured| measured.size);
            row.push(format!("{} {}", server.name, thousands(size)));
        }
        if results.len() == 2 {
            row.push("better".to_owned());
        }
    }
    row
}

/// Flat when a longer list costs only what its objects cost.
fn list_time_per_object(results: &[Results]) -> Vec<String> {
    let mut row = vec!["list, per object".to_owned()];
    for index in 0..size_count(results) {
        let times: Vec<Option<f64>> = results
            .iter()
            .map(|server| server.sizes.get(index))
            .map(|measured| Some(measured?.get(Metric::ListFull)? / measured?.size as f64))
            .collect();
        row.extend(times.iter().map(|time| time.map_or("-".to_owned(), |time| format!("{:.1} us", time * 1e6))));
        if let [Some(ours), Some(other)] = times.as_slice() {
            row.push(format!("{:.1}x", other / ours));
        }
    }
    row
}

fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column == 0 { write!(line, "{cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, creates: f64, resident: [f64; 2]) -> Results {
        let sizes = [1000, 10000].into_iter().zip(resident).map(|(size, resident)| {
            let mut measured = Measured::new(size);
            measured.add(Metric::Creates, creates);
            measured.add(Metric::Resident, resident);
            measured.median(Metric::ListFull, vec![Duration::from_micros(size as u64)]);
            measured
        });
        Results { name: name.to_owned(), url: String::new(), sizes: sizes.collect() }
    }

    #[test]
    fn more_is_better_for_rates_and_less_for_the_rest() {
        let mib = 1024.0 * 1024.0;
        let text =
            table(&[server("a", 3000.0, [10.0 * mib, 100.0 * mib]), server("b", 1000.0, [40.0 * mib, 400.0 * mib])]);
        let line = |start: &str| {
            text.lines().find(|line| line.starts_with(start)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("creates/s"), ["creates/s", "3000", "1000", "3.0x", "3000", "1000", "3.0x"]);
        assert_eq!(
            line("memory (RSS)")[2..],
            ["10.0", "MiB", "40.0", "MiB", "4.0x", "100.0", "MiB", "400.0", "MiB", "4.0x"]
        );
        assert!(text.contains("a: 10.2 KiB of memory for each further object"), "{text}");
    }

    #[test]
    fn json_has_only_what_was_measured() {
        let value = json(&[server("a", 3000.0, [1.0, 9001.0])]);
        assert_eq!(value["servers"][0]["sizes"][1]["objects"], 10000);
        assert_eq!(value["servers"][0]["sizes"][0]["values"]["createsPerSecond"], 3000.0);
        assert!(value["servers"][0]["sizes"][0]["values"].get("getP50").is_none());
        assert_eq!(value["servers"][0]["residentBytesPerObject"], 1.0);
    }

    #[test]
    fn percentiles_and_numbers() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 0.99), Some(Duration::from_millis(99)));
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(100), "100");
    }
}
