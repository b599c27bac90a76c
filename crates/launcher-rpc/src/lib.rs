//! The contract between virt-handler and virt-launcher, and the layout of a launcher pod that both rely on.
//!
//! HTTP/1.1 with JSON on a Unix socket in the pod. The launcher is small on purpose: it knows nothing about
//! `VirtualMachineInstance`s. virt-handler turns the object into a domain and a list of things to prepare; the launcher, which
//! runs without privileges inside the pod's sandbox, prepares them, drives libvirt and reports what becomes of the guest.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `GET /v1/version` | | [`messages::Version`] |
//! | `PUT /v1/capabilities` | a tar of libvirt's capability cache (plain `*.xml` files, directories do not matter), may be empty | 204; libvirt starts now. Repeated: 204, nothing happens |
//! | `GET /v1/capabilities` | | a tar of libvirt's capability cache once libvirt has started; the node keeps it for the next launchers, and asks only before there is a guest |
//! | `PUT /v1/domain` | [`messages::StartRequest`] | [`messages::DomainReport`]; a domain that runs already is left alone |
//! | `GET /v1/domain` | | [`messages::DomainReport`] |
//! | `GET /v1/events` | | one [`messages::DomainReport`] per line: the present one, then one per change; the one that is [`messages::DomainState::Off`] is the last |
//! | `POST /v1/shutdown` | [`messages::ShutdownRequest`] | 204: the guest is asked to power off; asked again, the deadline can only come nearer |
//! | `POST /v1/kill` | | 204 |
//! | `POST /v1/done` | | 204: the final report was taken note of, the launcher may exit |
//! | `POST /v1/pause`, `unpause`, `reset`, `softreboot`, `freeze`, `unfreeze` | `freeze`: [`messages::FreezeRequest`] | 204 |
//! | `GET /v1/guest/info`, `users`, `filesystems` | | what the guest agent said last |
//! | `GET /v1/screenshot` | | `image/png` or the format libvirt gives |
//! | `GET /v1/console`, `/v1/vnc` | with `Upgrade: plain` | 101, then raw bytes; a newer client ends an older one |
//! | `GET /v1/console?log=true`, `watch=true` or both | with `Upgrade: plain` | 101, then what the guest wrote so far, from now on, or both; ends nobody's console |
//! | `/v1/migration/…` | | moving the guest to another launcher: [`migration`] |
//!
//! An error is a JSON [`messages::Refusal`] with a 4xx or 5xx code. Fields that a side does not know are ignored and missing ones
//! take their default, so that a new handler can drive an old launcher.

pub mod bounds;
pub mod disks;
pub mod messages;
pub mod migration;
pub mod network;
pub mod paths;

/// The most that QEMU's translated code takes when instructions are emulated, in MiB: domains say so, and pods pay for it. By default
/// QEMU would take up to an eighth of the host's memory or 1 GiB; a full cache is thrown away and filled again.
pub const TRANSLATION_CACHE_MIB: u64 = 128;
