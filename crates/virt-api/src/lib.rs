//! virt-api: what guests are when they are created, and what can be done to one that runs.
//!
//! ```text
//!                       create, update                     console, vnc, pause, …
//!  user ──► API server ───────────────► admission   user ─────────────────────────► subresources
//!                                       defaults                                    preconditions
//!                                       validation                                    │        │
//!                                                             virt-handler of its node┘        └its pod's address
//! ```
//!
//! On the local cluster both are code inside the API server's process ([`install`]); on Kubernetes they are behind webhooks and the
//! aggregation layer ([`server`]). Callers are known, and may do what they ask for, before anything happens. virt-api never starts
//! or stops a guest itself.

pub mod admission;
mod cluster;
pub mod eviction;
mod guest_agent;
mod handlers;
pub mod local;
mod nodes;
mod roles;
pub mod server;
pub mod subresources;
mod websocket;

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::ApiResult;

pub use admission::{HANDLER_GROUP, VirtAdmission};
pub use cluster::{Cluster, Kind, Kubernetes, Object};
pub use handlers::{Handlers, LocalHandlers, Stream};
pub use nodes::NodeHandlers;
pub use roles::{bindings, roles};
pub use subresources::{Subresources, VERSIONS};

/// Adds admission, subresources and the users' roles to a server.
pub async fn install(server: &Arc<Server>, handlers: impl Handlers + 'static) -> ApiResult<()> {
    server.admission.add(Arc::new(VirtAdmission));
    server.admission.add(Arc::new(eviction::EvictionAdmission));
    let subresources = Arc::new(Subresources::new(Arc::new(handlers)));
    for version in VERSIONS {
        server.mounts.mount(groups::SUBRESOURCES, version, subresources.clone());
    }
    roles::install(server).await
}
