//! Disks, seeds and media of one guest, made inside its pod.
//!
//! virt-launcher runs this without privileges: what an image, a claim or a secret holds is hostile, and nothing in here can reach
//! further than the pod. Every task is a blocking call of [`prepare`], and calling it again is harmless: what is there already stays,
//! because a guest may have written to it.
//!
//! ```text
//! DiskTask ─┬─ container disk, ephemeral claim ─ tree ─ image (inspect) ─ qemu-img ─→ overlay
//!           ├─ claim, host disk, block device ── tree ─ image (inspect)
//!           ├─ empty disk ─────────────────────────────────────────────── qemu-img ─→ qcow2
//!           ├─ cloud-init ──── seed ───────────┐
//!           ├─ config media ── tree ───────────┴─ iso ─────────────────────────────→ ISO 9660
//!           └─ kernel boot ─── tree
//! ```

mod error;
pub mod image;
pub mod iso;
mod prepare;
mod qemu_img;
mod seed;
mod tree;

pub use error::StorageError;
pub use prepare::{Prepared, prepare};
