//! The kernel as this crate sees it: links, addresses, sysctls, taps and rules of the network namespace that the calling thread is in.
//!
//! Every change goes through [`Kernel::change`], which names it for errors and lets tests stop after any of them.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ferrovirt_launcher_rpc::network::Route;
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoBridgePort, InfoPortData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::{Handle, LinkMessageBuilder, RouteMessageBuilder};

/// Why a guest's network is not there.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No thread, or none in the namespace.
    #[error("cannot work in the pod's network namespace")]
    Enter(#[source] io::Error),
    /// The work ended without an answer.
    #[error("the thread that sets up the pod's network died; the log of this process says why")]
    Died,
    /// Reading from the kernel failed.
    #[error("cannot list {what} of the pod")]
    Read {
        /// What.
        what: &'static str,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// A change failed.
    #[error("cannot {what} in the pod")]
    Change {
        /// The change.
        what: String,
        /// Why.
        source: ChangeError,
    },
    /// The pod's link is missing.
    #[error("the pod has no network link {0}; has its network (CNI) been set up?")]
    NoLink(String),
    /// The pod's link has no address.
    #[error(
        "the pod's link {0} has no IP address, so masquerade has nothing to hide behind; use the bridge binding or give pods addresses"
    )]
    NoAddress(String),
    /// Pod and guest would be in one network.
    #[error(
        "the pod's address {pod} is in the guest's network {guest}; set vmNetworkCIDR or vmIPv6NetworkCIDR to a network that pods do not use"
    )]
    Overlap {
        /// The pod's address.
        pod: IpAddr,
        /// The guest's network.
        guest: String,
    },
    /// The link's addresses and routes do not fit into its alias.
    #[error("the pod's link {0} has more addresses and routes than can be handed to a guest; use masquerade")]
    TooMuchToRemember(String),
}

/// Why a change failed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Over netlink.
    #[error(transparent)]
    Netlink(#[from] rtnetlink::Error),
    /// A file of `/proc/sys`, or a program that does not start.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A program said no.
    #[error("{program} said: {message}")]
    Program {
        /// The program.
        program: &'static str,
        /// Its words.
        message: String,
    },
    /// A test wants to know what happens when nothing happens any more.
    #[cfg(test)]
    #[error("stopped by the test")]
    Stopped,
}

/// A link as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    /// Index of the bridge that it is a port of.
    pub(crate) master: Option<u32>,
    /// As a port: the bridge believes that whoever sends through it is behind it.
    pub(crate) learns: bool,
    pub(crate) alias: Option<String>,
}

/// Asked before each change, with the number of changes so far. Tests say no.
pub(crate) type Permission = Box<dyn Fn(usize) -> Result<(), ChangeError> + Send>;

/// A connection to the kernel.
pub(crate) struct Kernel {
    netlink: Handle,
    /// Changes so far.
    pub(crate) changes: Cell<usize>,
    permission: Permission,
}

impl Kernel {
    /// Connects to the namespace of the calling thread; needs a runtime of that same thread.
    pub(crate) fn connect(permission: Permission) -> io::Result<Self> {
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self { netlink, changes: Cell::new(0), permission })
    }

    /// Does one change.
    async fn change(
        &self,
        what: impl Display,
        change: impl Future<Output = Result<(), ChangeError>>,
    ) -> Result<(), NetworkError> {
        let failed = |source| NetworkError::Change { what: what.to_string(), source };
        (self.permission)(self.changes.get()).map_err(failed)?;
        tracing::debug!("{what}");
        self.changes.set(self.changes.get() + 1);
        change.await.map_err(failed)
    }

    /// A link by name.
    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, NetworkError> {
        let links: Vec<LinkMessage> = self.netlink.link().get().execute().try_collect().await.map_err(read("links"))?;
        let has_name =
            |link: &&LinkMessage| link.attributes.iter().any(|it| matches!(it, LinkAttribute::IfName(n) if n == name));
        Ok(links.iter().find(has_name).map(Link::from))
    }

    /// A link that has to be there.
    pub(crate) async fn existing(&self, name: &str) -> Result<Link, NetworkError> {
        self.link(name).await?.ok_or_else(|| NetworkError::NoLink(name.to_owned()))
    }

    /// Changes a link.
    pub(crate) async fn set<T>(&self, what: impl Display, change: LinkMessageBuilder<T>) -> Result<(), NetworkError> {
        let request = self.netlink.link().change(change.build());
        self.change(what, async { Ok(request.execute().await?) }).await
    }

    /// Makes a bridge that has this address and MTU; it is not up yet.
    pub(crate) async fn bridge(&self, name: &str, mac: [u8; 6], mtu: u32) -> Result<Link, NetworkError> {
        if let Some(bridge) = self.link(name).await? {
            return Ok(bridge);
        }
        let message = LinkMessageBuilder::<rtnetlink::LinkBridge>::new(name).address(mac.to_vec()).mtu(mtu);
        let request = self.netlink.link().add(message.build());
        self.change(format_args!("make the bridge {name}"), async { Ok(request.execute().await?) }).await?;
        self.existing(name).await
    }

    /// Makes a tap device of the runtime user. Only iproute2 knows how without system calls that Rust calls unsafe.
    pub(crate) async fn tap(&self, name: &str, queues: u32) -> Result<Link, NetworkError> {
        if let Some(tap) = self.link(name).await? {
            return Ok(tap);
        }
        let owner = RUNTIME_USER.to_string();
        let mut arguments =
            vec!["tuntap", "add", "dev", name, "mode", "tap", "user", &owner, "group", &owner, "vnet_hdr"];
        if queues > 1 {
            arguments.push("multi_queue");
        }
        self.change(format_args!("make the tap device {name}"), async { run("ip", &arguments, "") }).await?;
        self.existing(name).await
    }

    /// Applies rules at once or not at all.
    pub(crate) async fn rules(&self, text: &str) -> Result<(), NetworkError> {
        self.change("set the nftables rules", async { run("nft", &["-f", "-"], text) }).await
    }

    /// Gives a sysctl below `net` a value.
    pub(crate) async fn sysctl(&self, key: &str, value: &str) -> Result<(), NetworkError> {
        // The kernel shows each thread the sysctls of its own network namespace.
        let path = PathBuf::from("/proc/sys/net").join(key);
        if std::fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
            return Ok(());
        }
        self.change(format_args!("set net/{key} to {value}"), async { Ok(std::fs::write(&path, value)?) }).await
    }

    /// All addresses of a link.
    pub(crate) async fn addresses(&self, index: u32) -> Result<Vec<AddressMessage>, NetworkError> {
        let all = self.netlink.address().get().execute();
        let all: Vec<AddressMessage> = all.try_collect().await.map_err(read("addresses"))?;
        Ok(all.into_iter().filter(|address| address.header.index == index).collect())
    }

    /// Gives a link an address. Nobody else can have it, so it is not probed for.
    pub(crate) async fn add_address(&self, link: &Link, address: IpAddr, prefix: u8) -> Result<(), NetworkError> {
        if self.addresses(link.index).await?.iter().any(|it| of(it) == Some((address, prefix))) {
            return Ok(());
        }
        let mut request = self.netlink.address().add(link.index, address, prefix);
        if address.is_ipv6() {
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        self.change(format_args!("add the address {address}/{prefix}"), async { Ok(request.execute().await?) }).await
    }

    /// Takes an address away.
    pub(crate) async fn remove_address(&self, address: AddressMessage) -> Result<(), NetworkError> {
        let what = of(&address).map(|(address, prefix)| format!("remove the address {address}/{prefix}"));
        let request = self.netlink.address().del(address);
        self.change(what.unwrap_or_default(), async { Ok(request.execute().await?) }).await
    }

    /// IPv4 routes through a link that somebody configured: not the one that comes with an address.
    pub(crate) async fn routes(&self, index: u32) -> Result<Vec<Route>, NetworkError> {
        let wanted = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let all: Vec<RouteMessage> =
            self.netlink.route().get(wanted).execute().try_collect().await.map_err(read("routes"))?;
        Ok(all.iter().filter_map(|message| route(message, index)).collect())
    }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let up = message.header.flags.contains(LinkFlags::Up);
        let mut link =
            Self { index: message.header.index, mac: [0; 6], mtu: 0, up, master: None, learns: false, alias: None };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Address(mac) => link.mac = mac.as_slice().try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(index) => link.master = Some(*index),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::LinkInfo(info) => link.learns = info.iter().any(learns),
                _ => {}
            }
        }
        link
    }
}

fn learns(info: &LinkInfo) -> bool {
    let LinkInfo::PortData(InfoPortData::BridgePort(port)) = info else { return false };
    port.contains(&InfoBridgePort::Learning(true))
}

/// Address and prefix length of a message.
pub(crate) fn of(message: &AddressMessage) -> Option<(IpAddr, u8)> {
    let address = |local: bool| {
        message.attributes.iter().find_map(move |attribute| match attribute {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    Some((address(true).or(address(false))?, message.header.prefix_len))
}

/// Whether an address is good beyond its link.
pub(crate) fn is_global(message: &AddressMessage) -> bool {
    message.header.scope == AddressScope::Universe
}

fn route(message: &RouteMessage, index: u32) -> Option<Route> {
    let header = &message.header;
    let configured = header.address_family == AddressFamily::Inet
        && header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast
        && header.protocol != RouteProtocol::Kernel;
    let through = message.attributes.iter().any(|it| matches!(it, RouteAttribute::Oif(oif) if *oif == index));
    let mut route = Route {
        destination: Ipv4Addr::UNSPECIFIED,
        prefix: header.destination_prefix_length,
        gateway: Ipv4Addr::UNSPECIFIED,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => route.destination = *address,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => route.gateway = *address,
            _ => {}
        }
    }
    (configured && through).then_some(route)
}

fn read(what: &'static str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    move |source| NetworkError::Read { what, source }
}

/// Runs a program to its end; it inherits this thread's network namespace.
fn run(program: &'static str, arguments: &[&str], input: &str) -> Result<(), ChangeError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| ChangeError::Program {
        program,
        message: format!("{error}; is the package that holds it installed?"),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early says why on its way out.
        if let Err(error) = stdin.write_all(input.as_bytes()) {
            tracing::debug!(program, %error, "did not read all of its input");
        }
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ChangeError::Program { program, message: format!("{message} ({})", output.status) })
}
