//! The way from one node's handler to another's: what carries a guest from node to node.
//!
//! Every connection is of one kind and proves who is at its other end, so that a node can take part in the moves that concern it and in
//! no other. The real ones are TLS with a certificate for each node; a simulation cuts, delays and loses them.

pub(crate) mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use futures::FutureExt;
use futures::future::BoxFuture;

pub use self::tls::{Identities, Identity, IdentityError, Sockets, TlsPeers, certified_name, plain_sockets};
use crate::launcher::Stream;

/// A connection with a node that has proven its name.
pub struct Peer {
    /// The node's name.
    pub node: String,
    /// The connection.
    pub stream: Box<dyn Stream>,
}

/// Connections with handlers of other nodes.
pub trait Peers: Send + Sync {
    /// Where other nodes reach this one.
    fn address(&self) -> (IpAddr, u16);
    /// Connects to a node; fails if whoever answers cannot prove that it is that node.
    fn dial<'a>(&'a self, node: &'a str, address: (IpAddr, u16)) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
    /// The next connection from another node. An error means that there will be none any more.
    fn accept(&self) -> BoxFuture<'_, io::Result<Peer>>;
}

/// A node without others: nobody is reached, nobody calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Peers for Alone {
    fn address(&self) -> (IpAddr, u16) {
        (Ipv4Addr::LOCALHOST.into(), 0)
    }

    fn dial<'a>(&'a self, node: &'a str, _: (IpAddr, u16)) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move { Err(io::Error::new(io::ErrorKind::HostUnreachable, format!("there is no way to {node}"))) }.boxed()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Peer>> {
        std::future::pending().boxed()
    }
}
