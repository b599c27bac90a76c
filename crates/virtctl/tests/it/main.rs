//! The real program against an API server in this process, with virt-api in front of a virt-handler that is made up.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod commands;
mod fixture;
mod migrate;
mod objects;
mod offline;
mod streams;
mod why;
