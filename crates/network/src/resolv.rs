//! The pod's `resolv.conf`, as far as it goes to the guest.

use std::net::IpAddr;

/// DNS servers and the search list of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvConf {
    /// Servers, in order.
    pub servers: Vec<IpAddr>,
    /// Search list, in order.
    pub search: Vec<String>,
}

impl ResolvConf {
    /// Reads the file's text. Lines that mean nothing to a guest are passed over; so are servers on loopback, which a guest cannot reach.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let server = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    conf.servers.extend(server.filter(|server| !server.is_loopback()));
                }
                // The last of both wins, as in the resolver.
                Some("search") => conf.search = words.map(str::to_owned).collect(),
                Some("domain") => conf.search = words.take(1).map(str::to_owned).collect(),
                _ => {}
            }
        }
        conf
    }

    /// The search list with the guest's own domain first, where a headless service gives it one.
    pub(crate) fn search_for(&self, subdomain: Option<&str>, namespace: &str) -> Vec<String> {
        let services = format!("{namespace}.svc.");
        let own = subdomain.and_then(|subdomain| {
            let parent = self.search.iter().find(|name| name.starts_with(&services))?;
            Some(format!("{subdomain}.{parent}"))
        });
        own.into_iter().chain(self.search.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "# made by the node\nnameserver 10.96.0.10\nnameserver fd00::a\nnameserver 127.0.0.53\nnameserver nonsense\n\
                       search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

    #[test]
    fn servers_and_search_list_are_read() {
        let conf = ResolvConf::parse(POD);
        assert_eq!(conf.servers, ["10.96.0.10".parse::<IpAddr>().unwrap(), "fd00::a".parse().unwrap()]);
        assert_eq!(conf.search, ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
        assert_eq!(ResolvConf::parse("search a b\ndomain c d\n").search, ["c"]);
        assert_eq!(ResolvConf::parse("nameserver\nsearch"), ResolvConf::default());
    }

    #[test]
    fn a_subdomain_comes_first() {
        let conf = ResolvConf::parse(POD);
        assert_eq!(conf.search_for(Some("db"), "shop")[..2], ["db.shop.svc.cluster.local", "shop.svc.cluster.local"]);
        assert_eq!(conf.search_for(Some("db"), "other"), conf.search);
        assert_eq!(conf.search_for(None, "shop"), conf.search);
    }
}
