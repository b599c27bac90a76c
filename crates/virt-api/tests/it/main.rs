//! virt-api inside an API server in memory, with a virt-handler that is a socket of this test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod commands;
mod evictions;
mod fixture;
mod installation;
mod machines;
mod review;
mod rights;
mod standalone;
mod streams;
