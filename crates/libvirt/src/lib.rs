//! An async client of libvirt's RPC protocol on a Unix socket: no C library, no threads, no memory to speak of.
//!
//! ```text
//! Connection ── call ──► serial, packet ──► socket ──► libvirtd
//!      ▲                                       │
//!      ├── reply with the same serial ◄────────┤
//!      └── Events (lifecycle, agent, …) ◄──────┘
//! ```
//!
//! Calls run concurrently; each waits for the reply with its own serial. A call that is dropped is forgotten, not cancelled:
//! libvirt finishes what it was asked. There are no timeouts here, because only the caller knows what is long: a guest agent
//! may be silent for ever, and a start takes as long as it takes.
//!
//! | module | what |
//! |---|---|
//! | [`xdr`] | the encoding of values |
//! | [`packet`] | the frame around them |
//! | [`Connection`] | the socket, calls, replies, keep-alive |
//! | [`Domain`], [`State`] and the methods of [`Connection`] | domains |
//! | [`migration`] | moving a domain, step by step |
//! | [`Event`], [`Events`] | what libvirt tells unasked |
//! | [`TypedParameter`] | lists of named values |
//!
//! ```no_run
//! # async fn example() -> Result<(), ferrovirt_libvirt::Error> {
//! let libvirt = ferrovirt_libvirt::Connection::open("/run/user/0/libvirt/libvirt-sock", "qemu:///session").await?;
//! let domain = libvirt.define("<domain type='qemu'>…</domain>").await?;
//! let domain = libvirt.create(&domain, ferrovirt_libvirt::Start::Paused).await?;
//! libvirt.resume(&domain).await?;
//! # Ok(())
//! # }
//! ```

mod connection;
mod domain;
mod error;
mod events;
pub mod migration;
pub mod packet;
mod parameters;
mod procedures;
mod qemu;
mod streams;
mod types;
pub mod xdr;

pub use connection::Connection;
pub use domain::{Destroy, Domain, InterfaceAddresses, Reboot, Shutdown, Start, State};
pub use error::{Error, ErrorCode, RemoteError};
pub use events::{Event, EventKind, Events, NoEvent};
pub use parameters::{TypedParameter, TypedValue};
pub use streams::Screenshot;
pub use types::{
    AgentState, CrashedDetail, IoErrorAction, Lifecycle, PausedReason, ShutdownDetail, ShutoffReason, StoppedDetail,
    SuspendedDetail,
};
