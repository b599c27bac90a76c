//! API groups that are not in the store: code of this process, or another server behind an `APIService`.
//!
//! virt-api mounts `subresources.kubevirt.io` here, so its requests take the same authentication and authorisation as
//! any other and need no connection of their own. On a real cluster the same code sits behind the aggregation layer.

pub mod nodes;
pub mod proxy;

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::Value;

use crate::http::body::RequestBody;
use crate::http::respond::Answer;
use crate::server::{Call, Server};
use crate::status::ApiResult;

/// Serves every request of one group and version.
pub trait Mount: Send + Sync {
    /// The `APIResourceList` entries of the version.
    fn resources(&self) -> Vec<Value>;

    /// Answers a request that has been authenticated and authorised.
    fn serve<'a>(&'a self, server: &'a Arc<Server>, call: Call, body: RequestBody) -> BoxFuture<'a, ApiResult<Answer>>;
}

/// Group, version and who serves them.
type Mounted = (String, String, Arc<dyn Mount>);

/// The mounted group versions.
#[derive(Default)]
pub struct Mounts {
    mounted: RwLock<Vec<Mounted>>,
    /// Groups that other servers serve.
    pub proxied: proxy::Proxied,
    /// How the nodes of the cluster are reached.
    pub nodes: nodes::Nodes,
}

impl Mounts {
    /// Serves a group version from now on.
    pub fn mount(&self, group: &str, version: &str, mount: Arc<dyn Mount>) {
        self.mounted.write().push((group.to_owned(), version.to_owned(), mount));
    }

    /// Group, version and resources of everything mounted, for discovery.
    pub fn listing(&self) -> Vec<(String, String, Vec<Value>)> {
        self.mounted
            .read()
            .iter()
            .map(|(group, version, mount)| (group.clone(), version.clone(), mount.resources()))
            .collect()
    }

    /// Who serves the request, if it is not the store. Discovery of a mounted version is served by [`crate::discovery`].
    pub fn find(&self, server: &Arc<Server>, call: &Call) -> Option<Arc<dyn Mount>> {
        let (group, version) = group_version(&call.info.path)?;
        if call.info.resource.is_some() {
            let mounted = self.mounted.read();
            let found = mounted
                .iter()
                .find(|(mounted_group, mounted_version, _)| mounted_group == group && mounted_version == version);
            if let Some((_, _, mount)) = found {
                return Some(mount.clone());
            }
        }
        self.proxied.find(server, group, version)
    }
}

/// Group and version of a path below `/apis`.
fn group_version(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
    Some((parts.next()?, parts.next().filter(|version| !version.is_empty())?))
}
