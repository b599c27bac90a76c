//! Pods: one task owns one pod, from its first sight to the last trace of it.
//!
//! ```text
//!   watch (spec.nodeName = us) --> supervisor --> one worker per uid
//!                                                   |  lifecycle: what to do next      (pure)
//!                                                   |  status:    what to tell         (pure)
//!                                                   +- container: start, adopt, collect the end
//! ```
//!
//! A worker is level-triggered: it looks at the pod and at what is on disk, does what is missing and reports. Nothing that matters is
//! in memory only, so a worker that starts over, also in a new process, goes on where the old one was.

pub mod container;
mod etc;
pub mod images;
pub mod lifecycle;
pub mod probes;
mod program;
pub mod record;
mod report;
pub mod status;
pub mod supervisor;
pub mod worker;
