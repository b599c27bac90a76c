//! Spans of time in the notation that Go made common in Kubernetes: `1h30m`, `168h0m0s`, `1.5s`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::text::text_on_the_wire;

/// A span of time, kept as it was written. Comparison looks at the length, not the spelling.
#[derive(Clone, Debug)]
pub struct Duration {
    nanos: i64,
    written: Box<str>,
}

/// Text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration \"{0}\"")]
pub struct InvalidDuration(pub String);

// Digits and parts are bounded so that whatever matches also fits into 64 bits of nanoseconds.
const PATTERN: &str = concat!(
    r"^[-+]?(0|([0-9]{1,5}(\.[0-9]{0,9})?h|[0-9]{1,6}(\.[0-9]{0,9})?m|[0-9]{1,9}(\.[0-9]{0,9})?s",
    r"|[0-9]{1,9}(\.[0-9]{0,9})?(ms|us|µs|μs|ns)){1,6})$"
);
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Duration {
    /// A span of whole seconds.
    #[must_use]
    pub fn from_secs(seconds: u32) -> Self {
        let nanos = i64::from(seconds) * 1_000_000_000;
        Self { nanos, written: canonical(nanos).into_boxed_str() }
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn nanos(&self) -> i64 {
        self.nanos
    }

    /// The span as the standard library has it; a negative span is zero.
    #[must_use]
    pub fn to_std(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(u64::try_from(self.nanos).unwrap_or(0))
    }

    /// The duration as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

/// Reads one number with its unit from the front; the rest comes back.
fn component(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(*scale)?;
    let mut place = *scale;
    for digit in fraction.bytes() {
        // What is left of a whole unit after each decimal place; beyond nanoseconds it is cut off.
        let exact = i128::from(place) * i128::from(digit - b'0');
        nanos = nanos.checked_add(i64::try_from(exact / 10).ok()?)?;
        place /= 10;
    }
    Some((nanos, rest))
}

fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0_i64;
    while !rest.is_empty() {
        let (more, tail) = component(rest)?;
        nanos = nanos.checked_add(more)?;
        rest = tail;
    }
    Some(sign * nanos)
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = parse(text).ok_or_else(|| InvalidDuration(text.to_owned()))?;
        Ok(Self { nanos, written: text.into() })
    }
}

/// Hours, minutes and seconds; below a second the largest unit that fits.
fn canonical(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let fraction = |unit: u64| {
        let (whole, rest) = (size / unit, size % unit);
        let width = unit.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        let digits = if rest == 0 { "" } else { digits.trim_end_matches('0') };
        let point = if digits.is_empty() { "" } else { "." };
        format!("{whole}{point}{digits}")
    };
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(1_000_000)),
        _ => {
            let (hours, minutes) = (size / 3_600_000_000_000, size / 60_000_000_000 % 60);
            let below = size % 60_000_000_000;
            let seconds = canonical_seconds(below);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{seconds}"),
                (0, _) => format!("{sign}{minutes}m{seconds}"),
                _ => format!("{sign}{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

fn canonical_seconds(nanos: u64) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{whole}s");
    }
    let digits = format!("{rest:09}");
    format!("{whole}.{}s", digits.trim_end_matches('0'))
}

/// Prints hours, minutes and seconds, as Go does.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&canonical(self.nanos))
    }
}

impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Duration {}

impl PartialOrd for Duration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Duration {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

text_on_the_wire!(Duration, expecting: "a duration such as 1h30m", pattern: PATTERN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_as_go_does() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("168h0m0s", 604_800_000_000_000, "168h0m0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            (".5m", 30_000_000_000, "30s"),
            ("-90s", -90_000_000_000, "-1m30s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("1µs5ns", 1_005, "1.005µs"),
            ("12ns", 12, "12ns"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.nanos(), nanos, "{text}");
            assert_eq!(duration.to_string(), printed, "{text}");
            assert_eq!(duration.as_str(), text);
        }
        assert_eq!(Duration::from_secs(61).as_str(), "1m1s");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "-", "1", "h", "1 h", "1.2.3s", ".s", "1d", "9999999999h", "1h-2m"] {
            assert_eq!(text.parse::<Duration>(), Err(InvalidDuration(text.to_owned())), "{text}");
        }
    }
}
