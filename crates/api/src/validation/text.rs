//! What text may look like: names, paths, words, addresses.

/// Kubernetes' longest label.
const LONGEST_LABEL: usize = 63;
/// Kubernetes' longest name of an object.
const LONGEST_NAME: usize = 253;

/// A label as DNS knows it.
pub(super) fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].iter().all(|byte| byte.is_some_and(|byte| plain(*byte)));
    ends && bytes.len() <= LONGEST_LABEL && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

/// DNS labels with dots between: the name of an object.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_NAME && text.split('.').all(is_dns_label)
}

/// The second half of a label's key, or its value.
pub(super) fn is_label_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].iter().all(|byte| byte.is_some_and(u8::is_ascii_alphanumeric));
    ends && bytes.len() <= LONGEST_LABEL
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A name within a guest, such as a network's: letters of either case, digits, `-` and `_`, as KubeVirt has it.
pub(super) fn is_inner_name(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    is_word && (1..=LONGEST_LABEL).contains(&text.len())
}

/// An absolute path in which nothing leads elsewhere.
pub(super) fn is_clean_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or("..");
    !path.contains('\0') && parts.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// A serial number that every guest can read.
pub(super) fn is_serial(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte))
}

/// A name that IANA would give to a port: up to 15 lower case letters, digits and single dashes, with a letter among them.
pub(super) fn is_port_name(text: &str) -> bool {
    is_dns_label(text) && text.len() <= 15 && text.bytes().any(|byte| byte.is_ascii_lowercase()) && !text.contains("--")
}

/// Characters that XML cannot hold, not even escaped.
pub(super) fn unprintable(text: &str) -> Option<char> {
    let broken = |character: &char| {
        (character.is_control() && !['\n', '\t', '\r'].contains(character))
            || ['\u{fffe}', '\u{ffff}'].contains(character)
    };
    text.chars().find(broken)
}

/// What base64 stands for, or `None` when it is none. Only the standard alphabet with its padding.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().as_bytes();
    let body = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let padding = text.len() - body.len();
    if !text.len().is_multiple_of(4) || body.len() % 4 != (4 - padding) % 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in body.chunks(4) {
        let mut bits = 0_u32;
        for byte in chunk {
            bits = bits << 6 | u32::from(sextet(*byte)?);
        }
        let missing = 4 - chunk.len();
        bits <<= 6 * missing;
        let [_, a, b, c] = bits.to_be_bytes();
        let whole = [a, b, c];
        // Bits that the padding cuts off must be zero, or two texts would stand for the same bytes.
        if whole[3 - missing..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&whole[..3 - missing]);
    }
    Some(bytes)
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_in_full_or_not_at_all() {
        let cases = [
            ("", Some("")),
            ("YQ==", Some("a")),
            ("YWI=", Some("ab")),
            ("YWJj", Some("abc")),
            (" YWJj\n", Some("abc")),
        ];
        for (text, meant) in cases {
            assert_eq!(base64(text).as_deref(), meant.map(str::as_bytes), "{text}");
        }
        for text in ["?", "YQ", "YQ=", "YR==", "YWJjYQ=", "=", "====", "Y===", "YWJj\u{e9}"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }

    #[test]
    fn names_and_paths() {
        assert!(is_dns_label("a-1") && !is_dns_label("-a") && !is_dns_label("") && !is_dns_label(&"a".repeat(64)));
        assert!(is_dns_subdomain("a.b-c") && !is_dns_subdomain("a..b"));
        assert!(is_inner_name("Net_1") && is_inner_name("-") && !is_inner_name("a.b") && !is_inner_name(""));
        assert!(!is_inner_name("a b") && !is_inner_name(&"a".repeat(64)));
        assert!(is_label_word("pc-q35_7.2") && !is_label_word("_a") && !is_label_word("a b"));
        assert!(is_clean_path("/a/b.img") && !is_clean_path("/") && !is_clean_path("/a/../b") && !is_clean_path("a"));
        assert!(
            is_port_name("http-2") && !is_port_name("12") && !is_port_name("a--b") && !is_port_name(&"a".repeat(16))
        );
    }
}
