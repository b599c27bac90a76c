//! How the API server reaches the nodes of this machine: through their sockets.

use std::io;
use std::path::PathBuf;

use ferrovirt_apiserver::mounts::nodes::NodeCalls;
use futures::future::BoxFuture;
use tokio::net::UnixStream;

use crate::layout::Layout;

/// Nodes whose directories are all in one.
#[derive(Debug, Clone)]
pub struct LocalNodes {
    directory: PathBuf,
}

impl LocalNodes {
    /// The node `a` lives in `<directory>/a`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }
}

impl NodeCalls for LocalNodes {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<UnixStream>> {
        Box::pin(async move {
            // The name comes from a pod and becomes part of a path.
            if node.is_empty() || node.starts_with('.') || node.contains('/') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a node"));
            }
            UnixStream::connect(Layout::new(self.directory.join(node)).socket()).await
        })
    }
}
