//! IPv4 addresses as KubeVirt's users write them.

use std::net::Ipv4Addr;

/// Digits of the longest part that is read.
const LONGEST_PART: usize = 10;

/// Reads an address whose parts may have leading zeros. They are decimal all the same, as in Kubernetes: `010` is ten.
#[must_use]
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(|part| {
        let is_number = (1..=LONGEST_PART).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<u8>().ok()).flatten()
    });
    let mut next = || parts.next().flatten();
    let octets = [next()?, next()?, next()?, next()?];
    parts.next().is_none().then(|| octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_decimal() {
        assert_eq!(ipv4("010.000.02.0"), Some(Ipv4Addr::new(10, 0, 2, 0)));
        assert_eq!(ipv4("255.255.255.255"), Some(Ipv4Addr::BROADCAST));
        for wrong in ["", "10.0.2", "10.0.2.0.0", "10.0.2.", "10.0.2.256", "10.0.2.+1", "10.0.2.a", "0x0a.0.2.0"] {
            assert_eq!(ipv4(wrong), None, "{wrong}");
        }
    }
}
