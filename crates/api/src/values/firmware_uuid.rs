//! The identity that a guest's firmware reports.

use std::fmt;
use std::str::FromStr;

use super::text::text_on_the_wire;

/// A UUID with or without hyphens, as libvirt takes it. Equality looks at the number, not the spelling.
#[derive(Clone, Debug)]
pub struct FirmwareUuid {
    number: u128,
    written: Box<str>,
}

/// Text that is not a UUID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed UUID ({0})")]
pub struct InvalidFirmwareUuid(pub String);

const PATTERN: &str = "^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$";
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl FirmwareUuid {
    /// A UUID from its number, written with hyphens.
    #[must_use]
    pub fn from_u128(number: u128) -> Self {
        Self { number, written: canonical(number).into_boxed_str() }
    }

    /// The number.
    #[must_use]
    pub const fn as_u128(&self) -> u128 {
        self.number
    }

    /// The UUID as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

fn canonical(number: u128) -> String {
    let digits = format!("{number:032x}");
    let mut rest = digits.as_str();
    let groups = GROUPS.map(|length| {
        let (group, tail) = rest.split_at(length);
        rest = tail;
        group
    });
    groups.join("-")
}

fn digits(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let digits = groups.concat();
    let well_formed = (lengths == [32] || lengths == GROUPS) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    well_formed.then_some(digits)
}

impl FromStr for FirmwareUuid {
    type Err = InvalidFirmwareUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = digits(text).and_then(|digits| u128::from_str_radix(&digits, 16).ok());
        let number = number.ok_or_else(|| InvalidFirmwareUuid(text.to_owned()))?;
        Ok(Self { number, written: text.into() })
    }
}

/// Prints the UUID in lower case with hyphens.
impl fmt::Display for FirmwareUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&canonical(self.number))
    }
}

impl PartialEq for FirmwareUuid {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for FirmwareUuid {}

text_on_the_wire!(FirmwareUuid, expecting: "a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223", pattern: PATTERN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_uuid() {
        let plain: FirmwareUuid = "5D307CA9B3EF428C886106E72D69F223".parse().unwrap();
        let hyphens: FirmwareUuid = "5d307ca9-b3ef-428c-8861-06e72d69f223".parse().unwrap();
        assert_eq!(plain, hyphens);
        assert_eq!(plain.as_str(), "5D307CA9B3EF428C886106E72D69F223");
        assert_eq!(plain.to_string(), hyphens.as_str());
        assert_eq!(FirmwareUuid::from_u128(plain.as_u128()).as_str(), hyphens.as_str());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "5d307ca9",
            "5d307ca9-b3ef428c-8861-06e72d69f223",
            "+d307ca9b3ef428c886106e72d69f223",
            "5d307ca9-b3ef-428c-8861-06e72d69f22x",
        ] {
            assert_eq!(text.parse::<FirmwareUuid>(), Err(InvalidFirmwareUuid(text.to_owned())), "{text}");
        }
    }
}
