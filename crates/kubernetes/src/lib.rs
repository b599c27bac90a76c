//! Kubernetes' own kinds, as clients of the API read and write them.
//!
//! The types are those of `k8s-openapi`: a [`Pod`] here is one there in a thin wrapper, and whatever takes a
//! `&k8s_openapi::…::Pod` takes a `&Pod` too. What the wrapper adds is that a kind is read and written by code that is
//! compiled once, in this crate. The types' own implementations of serde are generic: each crate that lists or watches pods
//! would compile them again, a hundred and fifty structs for each of the three ways in which a client reads JSON.
//!
//! So clients are an `Api<Pod>` or a `Cache<Pod>` of this `Pod`. A kind that somebody needs is one line in [`kinds`].

mod foreign;
pub mod json;
mod kinds;

pub use foreign::{Foreign, Writable};
pub use kinds::*;
