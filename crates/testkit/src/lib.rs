//! The simulation: the API server, the controllers and simulated nodes in one process, on a virtual clock and a seed.
//!
//! ```text
//!   scenario (creates and deletes guests)      chaos (kills components, disturbs watches and requests)
//!        │                                         │
//!        ▼                                         ▼
//!   ┌─ API server in memory ─────────────────────────────────────────────┐
//!   └──▲──────────────▲─────────────────▲──────────────────▲─────────────┘
//!      │ real         │ real            │ simulated        │ real
//!   virt-controller  scheduler        kubelet ──starts──► launcher ◄── virt-handler
//!                                        └────── machine: survives everything ──────┘
//! ```
//!
//! What is under test is the real code of virt-controller, the scheduler and virt-handler; around it everything is simulated, and whatever happens
//! follows from the seed: latencies, the moments at which components die, what watches do. The [`machine`] has the last word about
//! guests, so it is where the promises are checked: never two live copies of a guest, no guest ended without a recorded intent, no
//! second pod for a guest. The [`ledger`] knows what users have asked for, so that no machine is started or stopped otherwise. At the end everything must have converged, whatever happened in between.
//!
//! Guests [move](moves) between the nodes with the real machines of a move, over a [network] that delays, breaks and can be cut; then a
//! guest may have a second pod, made for that move, and a copy that stands still or is being received does not count as live. Only a
//! killed launcher or a fenced node may cost a guest: no death of a handler, kubelet, scheduler or controller, and no cut.
//!
//! [`simulate`] plays one [`Course`] to its end. A course that fails says how it went, and how to play it again.

pub mod chaos;
pub mod component;
pub mod course;
mod drain;
pub mod kubelet;
pub mod launcher;
pub mod ledger;
pub mod machine;
mod mover;
pub mod moves;
pub mod network;
pub mod server;
pub mod simulation;
mod told;
pub mod user;
pub mod world;

pub use course::{Course, Deed, Farewell, Fate, Kill, MachineCourse, MoveDeed, NodeFate};
pub use simulation::{Outcome, Wrong, simulate};
