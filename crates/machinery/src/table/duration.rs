//! Ages as kubectl prints them: two or three significant figures.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A duration in words: `45s`, `5m3s`, `3h12m`, `2d4h`, `3y20d`. A clock may be one second behind before the answer is
/// `<invalid>`.
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => pair(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// The time since an RFC 3339 text; `<unknown>` if there is none, `<invalid>` if it is not one.
pub fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str() {
        None | Some("" | "null" | "0001-01-01T00:00:00Z") => "<unknown>".to_owned(),
        Some(text) => match text.parse::<Timestamp>() {
            Ok(then) => human_duration(now.duration_since(then)),
            Err(_) => "<invalid>".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_like_kubectl() {
        let minute = 60;
        let hour = 60 * minute;
        let day = 24 * hour;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (123, "2m3s"),
            (10 * minute, "10m"),
            (3 * hour - 1, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 59 * minute, "7h59m"),
            (8 * hour + minute, "8h"),
            (47 * hour, "47h"),
            (48 * hour, "2d"),
            (2 * day + hour, "2d1h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (730 * day, "2y"),
            (731 * day, "2y1d"),
            (8 * 365 * day + day, "8y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn measures_from_texts() {
        let now: Timestamp = "2026-01-01T00:05:03Z".parse().expect("a time");
        assert_eq!(since(&json!("2026-01-01T00:00:00Z"), now), "5m3s");
        assert_eq!(since(&json!("2026-01-01T01:00:00+01:00"), now), "5m3s");
        assert_eq!(since(&json!("yesterday"), now), "<invalid>");
        assert_eq!(since(&Value::Null, now), "<unknown>");
    }
}
