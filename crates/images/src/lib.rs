//! The machine's store of container images.
//!
//! ```text
//!   registry ───────┐
//!   docker archive ─┤→ manifest → blobs (digests checked) → layers unpacked, one on another → rootfs/<image id>
//!   OCI layout ─────┘                                        (paths confined, limits)          shared, read only
//! ```
//!
//! [`Store::resolve`] answers a pod's image, pulling it when the policy says so; [`Store::import`] takes an image from a file. All
//! processes of the machine may use one store at the same time. Images are foreign bytes: whatever is in their archives, nothing outside
//! of the image's own directory is read or written, nothing in it is a device or has a set-user-id bit, and its size is bounded.
//!
//! In the directory:
//! - `images/<hash of the reference>.json`: what a reference stands for;
//! - `rootfs/<image id>`: the files of an image;
//! - `leases/<image id>/<holder>`: who needs it, also across restarts;
//! - `staging/`: what is being made, emptied when nobody works in it; `locks/`: one file for each thing that only one may do.

mod archive;
pub mod build;
mod digest;
mod error;
mod manifest;
mod record;
mod reference;
mod registry;
mod store;
mod tape;
mod tree;
mod unpack;

pub use digest::Digest;
pub use error::ImageError;
pub use manifest::ImageConfig;
pub use record::Image;
pub use reference::Reference;
pub use registry::Credentials;
pub use store::{Options, PullPolicy, Store};
pub use unpack::Limits;
