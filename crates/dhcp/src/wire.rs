//! What both protocols' formats are made of: reading without running over the end, and lists of options.

/// Splits the first `count` bytes off.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(count)?;
    *bytes = tail;
    Some(head)
}

/// Splits an array off.
pub(crate) fn array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    take(bytes, N)?.try_into().ok()
}

/// The only value that a list of options may hold for a code. An option that comes twice is taken as the first.
pub(crate) fn exactly<const N: usize>(value: Option<&[u8]>) -> Option<[u8; N]> {
    value?.try_into().ok()
}

/// A domain name in labels, or nothing where it cannot be one.
pub(crate) fn domain_name(name: &str) -> Option<Vec<u8>> {
    /// What DNS allows for a name in labels, the last empty one included.
    const LONGEST: usize = 255;

    let mut labels = Vec::with_capacity(name.len() + 2);
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        labels.push(length);
        labels.extend_from_slice(label.as_bytes());
    }
    labels.push(0);
    (labels.len() <= LONGEST).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_or_nothing() {
        assert_eq!(domain_name("svc.local").unwrap(), b"\x03svc\x05local\x00");
        assert_eq!(domain_name("local.").unwrap(), b"\x05local\x00");
        for wrong in ["", ".", "a..b", ".a", &"x".repeat(64), &["abcdefg"; 40].join(".")] {
            assert_eq!(domain_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut bytes = &[1, 2, 3][..];
        assert_eq!(array::<2>(&mut bytes), Some([1, 2]));
        assert_eq!(array::<2>(&mut bytes), None);
        assert_eq!(take(&mut bytes, usize::MAX), None);
    }
}
