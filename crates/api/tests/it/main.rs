//! The objects seen from outside: samples, round trips, errors, CRDs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod crds;
mod defaults;
mod errors;
mod generate;
mod round_trip;
mod rules;
mod same;
mod samples;
