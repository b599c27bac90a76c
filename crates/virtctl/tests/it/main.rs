//! The real program against an API server in this process, with virt-api in front of a virt-handler that is made up.

mod commands;
mod fixture;
mod streams;
mod why;
