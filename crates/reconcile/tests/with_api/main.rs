//! Everything that speaks to an API server, against a small one in memory and on a paused clock.

#![expect(clippy::unwrap_used, reason = "a test ends at whatever it did not expect")]

mod fake;

mod actions;
mod elections;
mod example;
mod recording;
mod watching;

#[expect(dead_code, unreachable_pub, reason = "written as a program of its own, whose main is for a real cluster")]
#[path = "../../examples/one_pod_per_job.rs"]
mod one_pod_per_job;
