//! What the pod's link was before a guest took it over, and where that is remembered.
//!
//! With the bridge binding the pod's address moves to the guest: afterwards the kernel no longer knows it. So before anything is taken away it
//! is written into the link's alias, which lives exactly as long as the link, survives every crash of ours, and is shown by `ip link`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ferrovirt_launcher_rpc::network::Route;

use crate::mac_text;

/// Longest alias that the kernel takes.
const LONGEST_ALIAS: usize = 255;
/// Begins an alias that is ours.
const MARK: &str = "ferrovirt";

/// A link of a pod as the pod's network made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodLink {
    pub(crate) mac: [u8; 6],
    /// Addresses with more than link scope.
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// IPv4 routes besides the link's own network.
    pub(crate) routes: Vec<Route>,
}

impl PodLink {
    /// The first IPv4 address.
    pub(crate) fn v4(&self) -> Option<(Ipv4Addr, u8)> {
        self.addresses.iter().find_map(|(address, prefix)| match address {
            IpAddr::V4(address) => Some((*address, *prefix)),
            IpAddr::V6(_) => None,
        })
    }

    /// The text to remember, if there is room for it.
    pub(crate) fn alias(&self) -> Option<String> {
        Some(self.to_string()).filter(|text| text.len() <= LONGEST_ALIAS)
    }
}

impl fmt::Display for PodLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK} {}", mac_text(self.mac))?;
        for (address, prefix) in &self.addresses {
            write!(f, " {address}/{prefix}")?;
        }
        for Route { destination, prefix, gateway } in &self.routes {
            write!(f, " {destination}/{prefix}>{gateway}")?;
        }
        Ok(())
    }
}

/// Reads an alias; one that somebody else wrote is none.
impl FromStr for PodLink {
    type Err = ();

    fn from_str(alias: &str) -> Result<Self, ()> {
        let mut words = alias.split(' ');
        if words.next() != Some(MARK) {
            return Err(());
        }
        let mac: ferrovirt_api::values::MacAddress = words.next().ok_or(())?.parse().map_err(|_| ())?;
        let mut link = Self { mac: mac.octets(), addresses: Vec::new(), routes: Vec::new() };
        for word in words {
            let (network, gateway) = word.split_once('>').map_or((word, None), |(it, gateway)| (it, Some(gateway)));
            let (address, prefix) = network.split_once('/').ok_or(())?;
            let prefix = prefix.parse().map_err(|_| ())?;
            match gateway {
                None => link.addresses.push((address.parse().map_err(|_| ())?, prefix)),
                Some(gateway) => link.routes.push(Route {
                    destination: address.parse().map_err(|_| ())?,
                    prefix,
                    gateway: gateway.parse().map_err(|_| ())?,
                }),
            }
        }
        Ok(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> PodLink {
        let route = |destination: [u8; 4], prefix, gateway: [u8; 4]| Route {
            destination: destination.into(),
            prefix,
            gateway: gateway.into(),
        };
        PodLink {
            mac: [2, 0, 0, 0xab, 0xcd, 0xef],
            addresses: vec![("10.244.1.7".parse().unwrap(), 24), ("fd00:10:244::7".parse().unwrap(), 64)],
            routes: vec![route([169, 254, 1, 1], 32, [0; 4]), route([0; 4], 0, [169, 254, 1, 1])],
        }
    }

    #[test]
    fn an_alias_tells_everything_again() {
        let alias = link().alias().unwrap();
        assert_eq!(
            alias,
            "ferrovirt 02:00:00:ab:cd:ef 10.244.1.7/24 fd00:10:244::7/64 169.254.1.1/32>0.0.0.0 0.0.0.0/0>169.254.1.1"
        );
        assert_eq!(alias.parse(), Ok(link()));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_not_an_alias() {
        let mut link = link();
        link.routes = vec![link.routes[0].clone(); 12];
        assert_eq!(link.alias(), None);
    }

    #[test]
    fn foreign_aliases_are_none() {
        for alias in ["", "uplink", "ferrovirt", "ferrovirt x", "ferrovirt 02:00:00:ab:cd:ef 10.0.0.1"] {
            assert_eq!(alias.parse::<PodLink>(), Err(()), "{alias}");
        }
    }
}
