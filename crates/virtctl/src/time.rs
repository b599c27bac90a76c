//! Spans of time as kubectl writes them: `90s`, `1m30s`, `5m`.

use std::time::Duration;

/// Reads a span. A number without a unit is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is no span of time: use for example 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        let seconds = match &rest[digits..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        sum += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        rest = &rest[unit..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

/// A span for people: two units at most.
pub(crate) fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600, seconds / 60);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10800 => format!("{minutes}m"),
        10800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        for (text, millis) in
            [("0", 0), ("45", 45_000), ("90s", 90_000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("250ms", 250)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for wrong in ["", "s", "1x", "1m-3s", "soon", "1m3"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_are_short_to_read() {
        let shown = [5, 119, 125, 600, 7300, 90_000, 500_000].map(human);
        assert_eq!(shown, ["5s", "119s", "2m5s", "10m", "121m", "25h", "5d"]);
    }
}
