//! virt-launcher: pid 1 of a launcher pod. It runs libvirt and one guest, and tells virt-handler what becomes of it.
//!
//! It runs without privileges in the pod's sandbox, knows nothing of Kubernetes, and outlives every restart of its handler.
//!
//! ```text
//!  virt-handler ── launcher-sock ──► server ──► start, operations, streams, migration ◄─ link ─► another launcher
//!                       ▲                              │
//!                       │ reports                      ▼
//!                     guest ◄── life ◄── follow ◄── libvirt ◄── libvirtd ── QEMU
//!                       ▲                                          ▲         │
//!                     agent (polled through libvirt)             daemon      │ orphans
//!                                                                  │         ▼
//!  SIGTERM, shutdown ──► ending                                  reaper ◄────┘
//! ```
//!
//! One thread. [`guest::Guest`] is what all parts share; [`life`], [`archive`], [`description`] and the agent's answers are pure.

pub mod agent;
pub mod archive;
pub mod console_log;
pub mod daemon;
pub mod description;
pub mod disks;
pub mod emulation;
pub mod ending;
pub mod follow;
pub mod guest;
pub mod last_words;
pub mod lease;
pub mod life;
pub mod migration;
pub mod operations;
pub mod reaper;
pub mod refusal;
mod run;
pub mod serial_log;
pub mod server;
pub mod start;
pub mod streams;

pub use run::run;
