//! The network that a guest behind masquerade sees: the gateway is its first address, the guest its second.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ferrovirt_api::values::ipv4;

/// A network with room for a gateway and a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet<A> {
    /// The pod's side.
    pub gateway: A,
    /// The guest.
    pub guest: A,
    /// Length of the prefix.
    pub prefix: u8,
}

/// Text that is no such network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no network with room for a gateway and a guest, like {example}")]
pub struct SubnetError {
    text: String,
    example: &'static str,
}

impl Subnet<Ipv4Addr> {
    /// Whether an address is in the network.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let host_bits = 32 - u32::from(self.prefix);
        let network = |address: Ipv4Addr| u64::from(u32::from(address)) >> host_bits;
        network(address) == network(self.gateway)
    }
}

impl Subnet<Ipv6Addr> {
    /// Whether an address is in the network.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let host_bits = 128 - u32::from(self.prefix);
        let network = |address: Ipv6Addr| u128::from(address).checked_shr(host_bits).unwrap_or(0);
        network(address) == network(self.gateway)
    }
}

/// Address and prefix length, with room for three addresses and the network itself.
fn split<A>(text: &str, bits: u8, read: fn(&str) -> Option<A>) -> Option<(A, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=bits - 2).contains(prefix))?;
    Some((read(address)?, prefix))
}

impl FromStr for Subnet<Ipv4Addr> {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let error = || SubnetError { text: text.to_owned(), example: "10.0.2.0/24" };
        let (address, prefix) = split(text, 32, ipv4).ok_or_else(error)?;
        let network = u32::from(address) & (u32::MAX << (32 - prefix));
        Ok(Self { gateway: (network + 1).into(), guest: (network + 2).into(), prefix })
    }
}

impl FromStr for Subnet<Ipv6Addr> {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let error = || SubnetError { text: text.to_owned(), example: "fd10:0:2::/120" };
        let (address, prefix) = split(text, 128, |address| address.parse::<Ipv6Addr>().ok()).ok_or_else(error)?;
        let network = u128::from(address) & (u128::MAX << (128 - prefix));
        Ok(Self { gateway: (network + 1).into(), guest: (network + 2).into(), prefix })
    }
}

impl<A: fmt::Display> fmt::Display for Subnet<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.gateway, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_the_first_address_and_the_guest_the_second() {
        let v4: Subnet<Ipv4Addr> = "192.168.7.77/30".parse().unwrap();
        assert_eq!((v4.to_string().as_str(), v4.guest.to_string().as_str()), ("192.168.7.77/30", "192.168.7.78"));
        let v6: Subnet<Ipv6Addr> = "fd10:0:2::/120".parse().unwrap();
        assert_eq!((v6.to_string().as_str(), v6.guest.to_string().as_str()), ("fd10:0:2::1/120", "fd10:0:2::2"));
    }

    #[test]
    fn leading_zeros_mean_nothing() {
        assert_eq!("010.000.002.0/24".parse::<Subnet<Ipv4Addr>>(), "10.0.2.0/24".parse());
    }

    #[test]
    fn a_network_contains_its_own_and_no_other() {
        let v4: Subnet<Ipv4Addr> = "10.0.2.0/24".parse().unwrap();
        assert!(v4.contains([10, 0, 2, 255].into()) && !v4.contains([10, 0, 3, 0].into()));
        let v6: Subnet<Ipv6Addr> = "fd10:0:2::/120".parse().unwrap();
        assert!(v6.contains("fd10:0:2::ff".parse().unwrap()) && !v6.contains("fd10:0:2::100".parse().unwrap()));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "10.0.2.0", "10.0.2.0/31", "10.0.2.0/0", "10.0.2/24", "10.0.2.0/x", "fd10::/120"] {
            let error = text.parse::<Subnet<Ipv4Addr>>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10.0.2.0/24"), "{error}");
        }
        for text in ["10.0.2.0/24", "fd10::/127", "fd10::/129"] {
            assert!(text.parse::<Subnet<Ipv6Addr>>().unwrap_err().to_string().contains(text));
        }
    }
}
