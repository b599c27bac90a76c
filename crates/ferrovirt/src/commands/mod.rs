//! One file per command.

pub(crate) mod bench;
pub(crate) mod crds;
pub(crate) mod down;
pub(crate) mod kubeconfig;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod up;
