//! Shared watches: one watch per kind and process, kept as an indexed store in memory.
//!
//! ```text
//!   API server --watch--> kube::runtime::watcher --events--> Cache<K> --+-- get(namespace, name)
//!                                                              |        +-- by(&index, value)
//!                                                              +--> subscribers: changed keys into queues
//! ```
//!
//! A [`Cache`] is declared once with all its indexes, filled by one watch, and read by every controller of the process. Reads
//! never block on the network, and a look-up through an index costs what it returns, not what the cluster holds.
//!
//! What it promises:
//! - The store changes before anybody hears of it: whoever is woken sees at least that state.
//! - Subscribers see the object before **and** after a change, so that an owner that lost a child is woken too.
//! - An object that vanished while the watch was down is reported as deleted after the next listing.
//! - An object deleted and made again under the same name is reported as two changes, a deletion and a creation.
//! - An object that cannot be read keeps the store as it is until it can be: it is never taken for deleted.
//! - An event older than what the store holds is ignored; only a listing can take the store back in time.
//!
//! The store may lag behind the API server at any time. Expectations and derived names are the answer to that, not waiting.

mod cache;
mod document;
mod follow;
mod index;
mod set;
mod store;

pub use self::{
    cache::{Cache, CacheBuilder},
    index::Index,
    set::{DuplicateWatch, Watches},
    store::Change,
};
