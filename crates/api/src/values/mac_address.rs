//! Hardware addresses of network cards.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use super::text::text_on_the_wire;

/// A 48-bit hardware address in one of the spellings that users know: `de:ad:00:00:be:af`, `DE-AD-00-00-BE-AF` or
/// `dead.0000.beaf`. Equality looks at the address, not the spelling.
#[derive(Clone, Debug)]
pub struct MacAddress {
    octets: [u8; 6],
    written: Box<str>,
}

/// Text that is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed MAC address ({0})")]
pub struct InvalidMacAddress(pub String);

const PATTERN: &str = concat!(
    r"^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}",
    r"|[0-9A-Fa-f]{2}(-[0-9A-Fa-f]{2}){5}",
    r"|[0-9A-Fa-f]{4}(\.[0-9A-Fa-f]{4}){2})$"
);

impl MacAddress {
    /// An address from its octets, written with colons.
    #[must_use]
    pub fn from_octets(octets: [u8; 6]) -> Self {
        let written = canonical(octets).into_boxed_str();
        Self { octets, written }
    }

    /// The six octets.
    #[must_use]
    pub const fn octets(&self) -> [u8; 6] {
        self.octets
    }

    /// The address as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }
}

fn canonical(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

/// The hexadecimal digits of a spelling whose separators are all in place.
fn digits(text: &str) -> Option<String> {
    let (separator, group, groups) = match text.len() {
        17 if text.as_bytes()[2] == b'-' => ('-', 2, 6),
        17 => (':', 2, 6),
        14 => ('.', 4, 3),
        _ => return None,
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let well_formed = parts.len() == groups
        && parts.iter().all(|part| part.len() == group && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    well_formed.then(|| parts.concat())
}

impl FromStr for MacAddress {
    type Err = InvalidMacAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = digits(text).and_then(|digits| u64::from_str_radix(&digits, 16).ok());
        let [_, _, octets @ ..] = number.ok_or_else(|| InvalidMacAddress(text.to_owned()))?.to_be_bytes();
        Ok(Self { octets, written: text.into() })
    }
}

/// Prints the address in lower case with colons.
impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&canonical(self.octets))
    }
}

impl PartialEq for MacAddress {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl Eq for MacAddress {}

impl Hash for MacAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.octets.hash(state);
    }
}

text_on_the_wire!(MacAddress, expecting: "a MAC address such as de:ad:00:00:be:af", pattern: PATTERN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_spellings_of_one_address() {
        let expected = MacAddress::from_octets([0xde, 0xad, 0, 0, 0xbe, 0xaf]);
        for text in ["de:ad:00:00:be:af", "DE-AD-00-00-BE-AF", "dead.0000.beaf"] {
            let address: MacAddress = text.parse().unwrap();
            assert_eq!(address, expected);
            assert_eq!(address.as_str(), text, "the spelling is kept");
            assert_eq!(address.to_string(), "de:ad:00:00:be:af");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "de:ad:00:00:be",
            "de:ad:00:00:be:af:01",
            "de:ad:00:00:be:ag",
            "de:ad-00:00:be:af",
            "dead.0000.bea",
            "+e:ad:00:00:be:af",
            "dé:ad:00:00:be:a",
            "00:00:00:00:00:00:00:00:00:00:fe:80:00:00:00:00:00:00:00:01",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(InvalidMacAddress(text.to_owned())), "{text}");
        }
    }
}
