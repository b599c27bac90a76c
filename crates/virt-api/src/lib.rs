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
//! On the local cluster both are code inside the API server's process: the server has authenticated and authorised every request
//! that arrives here, for the resource and subresource in its path. virt-api never starts or stops a guest itself.

pub mod admission;
mod cluster;
mod guest_agent;
mod handlers;
mod roles;
pub mod subresources;
mod websocket;

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::ApiResult;

pub use admission::{HANDLER_GROUP, VirtAdmission};
pub use cluster::{Cluster, Kind, Object};
pub use handlers::{Handlers, LocalHandlers, Stream};
pub use roles::{bindings, roles};
pub use subresources::{Subresources, VERSIONS};

/// Adds admission, subresources and the users' roles to a server.
pub async fn install(server: &Arc<Server>, handlers: impl Handlers + 'static) -> ApiResult<()> {
    server.admission.add(Arc::new(VirtAdmission));
    let subresources = Arc::new(Subresources::new(Arc::new(handlers)));
    for version in VERSIONS {
        server.mounts.mount(groups::SUBRESOURCES, version, subresources.clone());
    }
    roles::install(server).await
}
