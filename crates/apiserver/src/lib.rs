//! The embedded API server: a Kubernetes-compatible control plane in one process, on one directory.
//!
//! | folder | what it knows |
//! |---|---|
//! | [`http`] | the wire: paths, options, bodies, content negotiation |
//! | [`registry`] | which kinds exist, as data |
//! | [`strategy`] | what a kind does beyond its data |
//! | [`handlers`] | one set of verbs for every kind |
//! | [`admission`] | who is asked before a write |
//! | [`auth`], [`identity`] | who is asking, and may they |
//! | [`store`] | objects, revisions, watches, durability |
//! | [`controllers`] | what a cluster does by itself |
//! | [`mounts`] | API groups served by other code or other servers |
//! | [`outgoing`] | connections to webhooks and extension servers |
//!
//! [`cluster::start`] puts it together on a directory and a socket; [`Server::handle`](server::Server::handle) is the
//! same without either.

pub mod admission;
pub mod auth;
pub mod bootstrap;
pub mod cluster;
pub mod controllers;
pub mod discovery;
pub mod handlers;
pub mod http;
pub mod identity;
pub mod internal;
pub mod lease;
pub mod listing;
pub mod mounts;
pub mod openapi;
pub mod outgoing;
pub mod registry;
pub mod select;
pub mod serve;
pub mod server;
pub mod stalled;
pub mod status;
pub mod store;
pub mod strategy;
pub mod view;
