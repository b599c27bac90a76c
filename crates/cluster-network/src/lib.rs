//! Addresses and links of the local cluster's nodes and pods.
//!
//! ```text
//!   host namespace        bridge fv<id> 10.x.255.1, <ula>:ffff::1   ── masquerade ── the world
//!                           │                     │
//!   node namespace        eth0 10.x.255.2       eth0 10.x.255.3     (index 1, index 2)
//!                           │ routes              │ routes
//!                         fvbr0 10.x.1.1        fvbr0 10.x.2.1
//!                           │       │             │
//!   pod namespace         eth0     eth0          eth0
//!                         10.x.1.2 10.x.1.3      10.x.2.2
//! ```
//!
//! [`Cluster::open`] chooses a range that nothing on the machine uses and remembers it, [`Cluster::node`] makes the namespace of a
//! node, [`Node::attach_pod`] gives a pod its namespace and addresses. All of them may be repeated, also after a crash in their middle
//! or a restart of the machine: they find what is there and make what is missing. [`Cluster::remove`] leaves nothing.
//!
//! Each port of a node's bridge passes on only what has the addresses that its pod was given (`ports.rs`).
//!
//! What it changes on the host itself, besides links and routes of its own:
//! - an nftables table named after the bridge, which masquerades pods that leave the cluster;
//! - `net.ipv4.ip_forward` becomes 1. Where it was 0 before, the last cluster to be removed sets it back.
//!
//! IPv6 works between pods, nodes and the host. Pods reach the outside over IPv6 only when the host already forwards IPv6: switching
//! that on makes a host forget the default route that a router announced to it.
//! A firewall of the host that drops forwarded packets (Docker's does) also drops those of pods to the outside; traffic between nodes
//! is switched by the bridge and is not forwarded by the host.

mod addresses;
mod allocation;
mod cluster;
mod error;
mod firewall;
mod host;
mod links;
mod namespace;
mod node;
mod ports;
mod state;

pub use addresses::{Mac, Network, Range};
pub use cluster::Cluster;
pub use error::NetworkError;
pub use namespace::run_in;
pub use node::{AttachedPod, Node, POD_INTERFACE, PodNetwork};
