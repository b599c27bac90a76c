//! What can go wrong, named after the operation.

use std::{io, path::PathBuf};

/// Why the network of the cluster could not be made, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A file of the cluster's state could not be read or written.
    #[error("cannot {operation} {}", path.display())]
    State {
        /// What was tried.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the cluster's state does not contain what it should.
    #[error("{} is damaged: {reason}; remove it to start with a new network", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A network namespace could not be made, entered or removed.
    #[error("cannot {operation} the network namespace {} (this needs root)", path.display())]
    Namespace {
        /// What was tried.
        operation: &'static str,
        /// Where the namespace is mounted.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel refused a change of links, addresses or routes.
    #[error("cannot {operation}")]
    Link {
        /// What was tried, with the names involved.
        operation: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// A link that was just made or is required does not exist.
    #[error("there is no link {name}")]
    NoLink {
        /// Its name.
        name: String,
    },
    /// `nft` failed.
    #[error("cannot {operation} the nftables table {table}: {reason}")]
    Firewall {
        /// What was tried.
        operation: &'static str,
        /// The table of the cluster.
        table: String,
        /// What nft said, or why it could not be started.
        reason: String,
    },
    /// Every private range is in use.
    #[error(
        "every private /16 range overlaps a route or address of this machine: remove one of them to make room for pods"
    )]
    NoFreeRange,
    /// Something else took the range of this cluster while it was down.
    #[error(
        "the cluster's range {range} now overlaps {other} of this machine: remove that route or address, or delete the cluster and create it anew"
    )]
    RangeTaken {
        /// The remembered range.
        range: String,
        /// What overlaps it.
        other: String,
    },
    /// A name that cannot be part of a namespace's name.
    #[error("{what} {name:?} may contain only letters, digits, '-' and '.', and at most 63 of them")]
    InvalidName {
        /// Whose name it is.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A pod that should have a network has none.
    #[error("pod {uid} has no address of node {node}")]
    NoPod {
        /// The pod.
        uid: String,
        /// The node.
        node: String,
    },
    /// Node indexes are part of addresses.
    #[error("node index {index} is out of range: 1 to {max} are possible")]
    InvalidIndex {
        /// The index that was asked for.
        index: u8,
        /// The largest possible.
        max: u8,
    },
    /// Another node of the cluster has this index.
    #[error("node index {index} belongs to node {owner} already")]
    IndexTaken {
        /// The index that was asked for.
        index: u8,
        /// Who has it.
        owner: String,
    },
    /// All addresses of a node's pods are given out.
    #[error("node {node} has no free pod address: all {capacity} are in use")]
    Exhausted {
        /// The node.
        node: String,
        /// How many there are.
        capacity: usize,
    },
}

impl NetworkError {
    /// The same with what to look at, where nftables refused something.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        if let Self::Firewall { reason, .. } = &mut self {
            *reason = format!("{reason}; {hint}");
        }
        self
    }
}
