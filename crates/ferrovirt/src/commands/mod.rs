//! One file per command.

pub mod bench;
pub mod crds;
pub mod down;
pub mod kubeconfig;
pub mod serve;
pub mod status;
pub mod up;
