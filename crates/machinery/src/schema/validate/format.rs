//! The string formats that Kubernetes enforces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use regex::Regex;

use crate::schema::pattern;

/// Whether a format is one that strings are checked against; others are ignored.
pub(crate) fn is_known(format: &str) -> bool {
    check_of(format).is_some()
}

/// Whether a string has the format; unknown formats fit everything.
pub(crate) fn fits(format: &str, text: &str) -> bool {
    check_of(format).is_none_or(|check| check(text))
}

fn check_of(format: &str) -> Option<fn(&str) -> bool> {
    // Dashes do not count in the names of formats: date-time and datetime are one.
    Some(match format.replace('-', "").as_str() {
        "bsonobjectid" => |text| matches(r"^[0-9a-f]{24}$", text),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| parse_ip(text).is_some() && text.contains('.'),
        "ipv6" => |text| parse_ip(text).is_some() && text.contains(':'),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| matches(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$", text),
        "uuid3" => |text| matches(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$", text),
        "uuid4" => {
            |text| matches(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$", text)
        }
        "uuid5" => {
            |text| matches(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$", text)
        }
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text),
        "hexcolor" => |text| matches(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", text),
        "rgbcolor" => is_rgb_color,
        "byte" => |text| !text.is_empty() && STANDARD.decode(text).is_ok(),
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| crate::names::dns_label(text).is_empty(),
        "k8slongname" => |text| crate::names::dns_subdomain(text).is_empty(),
        _ => return None,
    })
}

fn matches(expression: &str, text: &str) -> bool {
    pattern::compiled(expression).is_ok_and(|regex| regex.is_match(text))
}

/// An absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    let scheme_ok = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let absolute = text.starts_with('/') || text.split_once(':').is_some_and(|(scheme, _)| scheme_ok(scheme));
    absolute && percent_escapes_are_whole(text)
}

fn percent_escapes_are_whole(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit) && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit)
    })
}

/// `local@domain`, alone or as `Name <local@domain>`.
fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => match rest.trim_end().strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
    };
    let local_ok = (local.len() > 2 && local.starts_with('"') && local.ends_with('"')) || local.split('.').all(atom);
    let domain_ok = (domain.starts_with('[') && domain.ends_with(']')) || domain.split('.').all(atom);
    local_ok && domain_ok
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let (first, any) = (r"[a-zA-Z0-9\p{S}\p{L}]", r"[a-zA-Z0-9\-\p{S}\p{L}]");
        let single = format!(r"{first}((-?{first}{{0,62}})?)");
        let qualified = format!(r"({first}(({any}{{0,61}}{first})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}");
        Regex::new(&format!("^({single}|{qualified})$")).ok()
    });
    text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
        && HOSTNAME.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// An address as Go's sloppy parser takes it: decimal octets may have leading zeros.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 16 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse::<u64>().ok()?.try_into().ok()?;
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let Some(address) = parse_ip(address) else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    prefix.len() <= 3
        && prefix.bytes().all(|byte| byte.is_ascii_digit())
        && prefix.parse().is_ok_and(|bits: u8| bits <= most)
}

/// Six, eight or twenty octets, in pairs with `:` or `-`, or in fours with `.`.
fn is_mac(text: &str) -> bool {
    let Some(separator) = text.chars().find(|c| matches!(c, ':' | '-' | '.')) else { return false };
    let groups: Vec<&str> = text.split(separator).collect();
    let width = if separator == '.' { 4 } else { 2 };
    groups.iter().all(|group| group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
        && matches!(groups.len() * width / 2, 6 | 8 | 20)
}

fn digits_without_dashes(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits_without_dashes(text);
    let value = |(at, byte): (usize, u8)| match byte {
        b'0'..=b'9' => Some(u32::from(byte - b'0')),
        b'X' if at == 9 => Some(10),
        _ => None,
    };
    let values: Option<Vec<u32>> = text.bytes().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10 && values.iter().zip(1u32..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let text = digits_without_dashes(text);
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits.iter().enumerate().map(|(at, digit)| digit * if at % 2 == 0 { 1 } else { 3 }).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_credit_card(text: &str) -> bool {
    const NETWORKS: &str = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$";
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(at, digit)| if at % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 })
        .sum();
    matches(NETWORKS, &digits) && luhn.is_multiple_of(10)
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inside) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u8>().is_ok())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.as_bytes()[4] == b'-' && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    const TIME: &str = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Ok(regex) = pattern::compiled(TIME) else { return false };
    is_date(date)
        && regex.captures(time).is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// A duration of Go (`1h30m`), or one in words as Scala writes it (`2 days`).
fn is_duration(text: &str) -> bool {
    if is_go_duration(text) {
        return true;
    }
    let Ok(regex) = pattern::compiled(r"(\d+)\s*([A-Za-zµ]+)") else { return false };
    regex.captures_iter(text).any(|found| {
        let unit = found[2].to_lowercase();
        const EXACT: [&str; 13] = ["ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "m", "h", "d", "w", "min"];
        const STARTS: [&str; 8] =
            ["nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day", "week"];
        found[1].parse::<i64>().is_ok()
            && (EXACT.contains(&unit.as_str())
                || STARTS.iter().any(|start| unit.starts_with(start))
                || unit.starts_with("sec")
                || unit.starts_with("hr")
                || unit.starts_with("wk"))
    })
}

fn is_go_duration(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    unsigned == "0" || matches(r"^((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$", unsigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_takes_and_refuses() {
        for (format, good, bad) in [
            ("uri", "http://a.b/c?d", "no uri"),
            ("email", "a.b@example.com", "a.b"),
            ("hostname", "a-b.example.com", "-a"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "fd00::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "02:00:00:aa:bb:cc", "02:00:00:aa:bb"),
            ("uuid", "123e4567-E89B-12d3-a456-426614174000", "123e4567"),
            ("uuid3", "123e4567-e89b-32d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174000"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("uuid5", "123e4567-e89b-52d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "0321751043"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "111-22-3333", "111-22-333"),
            ("hexcolor", "#FFF", "#FFFFF"),
            ("rgbcolor", "rgb(1, 2, 255)", "rgb(1,2,256)"),
            ("byte", "aGVsbG8=", "aGVsbG8"),
            ("date", "2026-11-15", "2026-13-15"),
            ("date-time", "2026-11-15T10:00:00.5Z", "2026-11-15 10:00:00"),
            ("datetime", "2026-11-15T10:00:00+01:00", "2026-11-15T24:00:00Z"),
            ("duration", "1h30m", "soon"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            assert!(is_known(format), "{format}");
            assert!(fits(format, good), "{format}: {good}");
            assert!(!fits(format, bad), "{format}: {bad}");
        }
        assert!(fits("duration", "2 days") && fits("duration", "0") && fits("password", ""));
        assert!(!is_known("int-or-string") && fits("whatever", "anything"));
    }
}
