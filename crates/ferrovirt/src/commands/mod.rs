//! One file per command.

pub(crate) mod api;
pub(crate) mod bench;
pub(crate) mod controller;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod down;
pub(crate) mod handler;
pub(crate) mod images;
pub(crate) mod kubeconfig;
pub(crate) mod manifests;
pub(crate) mod node;
pub(crate) mod operator;
mod pod;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod supervise;
pub(crate) mod up;
