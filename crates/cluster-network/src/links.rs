//! Links, addresses and routes of one network namespace, over netlink. Everything here may be repeated.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, BorrowedFd},
};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use netlink_packet_route::{
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags},
    link::{InfoData, InfoVeth, LinkAttribute, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteMessage},
};
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder, packet_core::ErrorMessage,
};
use tokio::task::JoinHandle;

use crate::{
    NetworkError,
    addresses::{Mac, Network},
    namespace::Namespace,
};

/// A netlink connection to one namespace.
#[derive(Debug)]
pub(crate) struct Links {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A veth pair that is to be made: this end in the namespace of the connection, the other end elsewhere.
pub(crate) struct VethPair<'a> {
    /// Name of this end.
    pub(crate) name: &'a str,
    /// The bridge that this end becomes a port of.
    pub(crate) bridge: u32,
    /// Name of the other end.
    pub(crate) peer: &'a str,
    /// The namespace of the other end.
    pub(crate) peer_namespace: BorrowedFd<'a>,
    /// The hardware address of the other end.
    pub(crate) peer_mac: Mac,
    /// Largest packet of both.
    pub(crate) mtu: u32,
}

impl Links {
    /// Connects to the namespace that this thread is in.
    pub(crate) fn here() -> Result<Self, NetworkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(|source| NetworkError::Link {
            operation: "open a netlink socket".to_owned(),
            source: rtnetlink::Error::NetlinkError(error_message(&source)),
        })?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// Connects to another namespace.
    pub(crate) fn inside(namespace: &Namespace) -> Result<Self, NetworkError> {
        let runtime = tokio::runtime::Handle::current();
        let (connection, handle, _) = namespace.run(move || {
            let _runtime = runtime.enter();
            rtnetlink::new_connection()
        })?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// The link of that name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<LinkMessage>, NetworkError> {
        match self.handle.link().get().match_name(name).execute().try_next().await {
            Ok(link) => Ok(link),
            Err(error) if is(&error, rustix::io::Errno::NODEV) => Ok(None),
            Err(source) => Err(failed(format!("look for link {name}"), source)),
        }
    }

    /// The index of the link of that name.
    pub(crate) async fn index(&self, name: &str) -> Result<u32, NetworkError> {
        let link = self.find(name).await?;
        link.map(|link| link.header.index).ok_or_else(|| NetworkError::NoLink { name: name.to_owned() })
    }

    /// A bridge that is up and answers its index. Its hardware address is fixed: left alone, it changes with the ports, and neighbours
    /// that remember the old one lose the bridge for a while.
    pub(crate) async fn ensure_bridge(&self, name: &str, mac: Mac, mtu: u32) -> Result<u32, NetworkError> {
        if self.find(name).await?.is_none() {
            // Snooping would drop neighbour solicitations to groups that nobody was heard to join.
            let bridge = LinkBridge::new(name).mcast_snooping(false).address(mac.0.to_vec()).mtu(mtu).build();
            ignore(self.handle.link().add(bridge).execute().await, rustix::io::Errno::EXIST)
                .map_err(|source| failed(format!("create bridge {name}"), source))?;
        }
        let index = self.index(name).await?;
        // Frames of link protocols go past all rules: what they say of their sender must not be believed.
        let deaf = LinkBridge::new(name).index(index).no_linklocal_learn(true).build();
        // `set` would leave what is particular to bridges as it is.
        let result = self.handle.link().change(deaf).execute().await;
        result.map_err(|source| failed(format!("make bridge {name} learn from ordinary frames only"), source))?;
        Ok(index)
    }

    /// Makes a veth pair with both ends where they belong, in one request.
    pub(crate) async fn create_veth(&self, pair: &VethPair<'_>) -> Result<(), NetworkError> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(pair.peer)
            .setns_by_fd(pair.peer_namespace.as_raw_fd())
            .address(pair.peer_mac.0.to_vec())
            .mtu(pair.mtu)
            .build();
        let veth = LinkVeth::new(pair.name, pair.peer)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .mtu(pair.mtu)
            .controller(pair.bridge)
            .up()
            .build();
        let result = self.handle.link().add(veth).execute().await;
        result.map_err(|source| failed(format!("create the link {} with its end {}", pair.name, pair.peer), source))
    }

    /// Sets the link up and answers its index.
    pub(crate) async fn up(&self, name: &str) -> Result<u32, NetworkError> {
        let index = self.index(name).await?;
        let message = LinkUnspec::new_with_index(index).up().build();
        let result = self.handle.link().set(message).execute().await;
        result.map_err(|source| failed(format!("set link {name} up"), source))?;
        Ok(index)
    }

    /// Removes the link, if it is there.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), NetworkError> {
        let Some(link) = self.find(name).await? else { return Ok(()) };
        ignore(self.handle.link().del(link.header.index).execute().await, rustix::io::Errno::NODEV)
            .map_err(|source| failed(format!("remove link {name}"), source))
    }

    /// Gives a link its addresses, usable at once: the cluster hands out addresses, so there is nobody to detect a duplicate of.
    pub(crate) async fn ensure_addresses(&self, link: u32, addresses: &[Network]) -> Result<(), NetworkError> {
        for network in addresses {
            let mut request = self.handle.address().add(link, network.address, network.prefix);
            if network.address.is_ipv6() {
                let message = request.message_mut();
                message.header.flags |= AddressHeaderFlags::Nodad;
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
            ignore(request.execute().await, rustix::io::Errno::EXIST)
                .map_err(|source| failed(format!("add address {network}"), source))?;
        }
        Ok(())
    }

    /// Routes `destination` to `gateway`, in place of an older route to it.
    pub(crate) async fn ensure_route(
        &self,
        destination: Network,
        gateway: IpAddr,
        link: u32,
    ) -> Result<(), NetworkError> {
        let message = route(destination, gateway, link)?;
        let result = self.handle.route().add(message).replace().execute().await;
        result.map_err(|source| failed(format!("add the route to {destination} via {gateway}"), source))
    }

    /// Removes a route, if it is there.
    pub(crate) async fn delete_route(
        &self,
        destination: Network,
        gateway: IpAddr,
        link: u32,
    ) -> Result<(), NetworkError> {
        let message = route(destination, gateway, link)?;
        ignore(self.handle.route().del(message).execute().await, rustix::io::Errno::SRCH)
            .map_err(|source| failed(format!("remove the route to {destination} via {gateway}"), source))
    }

    /// Every network that an address or route of this namespace uses.
    pub(crate) async fn used_networks(&self) -> Result<Vec<Network>, NetworkError> {
        let mut used = Vec::new();
        let mut addresses = self.handle.address().get().execute();
        while let Some(message) = next(&mut addresses, "list addresses").await? {
            let address = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            used.extend(address.map(|address| Network::new(address, message.header.prefix_len)));
        }
        let mut routes = self.routes();
        while let Some(message) = next(&mut routes, "list routes").await? {
            used.extend(destination(&message));
        }
        Ok(used)
    }

    /// The largest packet that fits the link of the default route, which is what pods should send.
    pub(crate) async fn default_mtu(&self) -> Result<Option<u32>, NetworkError> {
        let mut link = None;
        let mut routes = self.routes();
        while let Some(message) = next(&mut routes, "list routes").await? {
            if message.header.destination_prefix_length == 0 {
                link = link.or(message.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                }));
            }
        }
        let Some(link) = link else { return Ok(None) };
        let found = self.handle.link().get().match_index(link).execute().try_next().await;
        let found = found.map_err(|source| failed("look at the link of the default route".to_owned(), source))?;
        Ok(found.and_then(|link| {
            link.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            })
        }))
    }

    fn routes(&self) -> BoxStream<'_, Result<RouteMessage, rtnetlink::Error>> {
        self.handle.route().get(RouteMessageBuilder::<Ipv4Addr>::new().build()).execute().boxed()
    }
}

async fn next<T>(
    stream: &mut (impl futures::Stream<Item = Result<T, rtnetlink::Error>> + Unpin),
    operation: &str,
) -> Result<Option<T>, NetworkError> {
    stream.try_next().await.map_err(|source| failed(operation.to_owned(), source))
}

fn route(destination: Network, gateway: IpAddr, link: u32) -> Result<RouteMessage, NetworkError> {
    let route = match (destination.address, gateway) {
        (IpAddr::V4(address), IpAddr::V4(gateway)) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, destination.prefix)
            .gateway(gateway)
            .output_interface(link)
            .build(),
        (IpAddr::V6(address), IpAddr::V6(gateway)) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, destination.prefix)
            .gateway(gateway)
            .output_interface(link)
            .build(),
        (address, gateway) => {
            let operation = format!("route {address} via {gateway}, which is of the other address family");
            return Err(failed(operation, rtnetlink::Error::RequestFailed));
        }
    };
    Ok(route)
}

fn destination(message: &RouteMessage) -> Option<Network> {
    let prefix = message.header.destination_prefix_length;
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(Network::new(*address, prefix)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(Network::new(*address, prefix)),
        _ => None,
    })
}

fn failed(operation: String, source: rtnetlink::Error) -> NetworkError {
    NetworkError::Link { operation, source }
}

/// Turns one expected refusal into success.
fn ignore(result: Result<(), rtnetlink::Error>, expected: rustix::io::Errno) -> Result<(), rtnetlink::Error> {
    match result {
        Err(error) if is(&error, expected) => Ok(()),
        other => other,
    }
}

fn is(error: &rtnetlink::Error, errno: rustix::io::Errno) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -errno.raw_os_error())
}

fn error_message(error: &std::io::Error) -> ErrorMessage {
    let mut message = ErrorMessage::default();
    message.code = error.raw_os_error().and_then(|code| std::num::NonZeroI32::new(-code));
    message
}
