//! What the black-box suites share: a cluster that a kubeconfig names, real guests on it, and how cases are run.
//!
//! | file | holds |
//! |---|---|
//! | `suite` | a suite's arguments, its cases, and how they are run and cleaned up |
//! | `scene` | what one case uses, and what is shown when it fails |
//! | `cluster` | requests, and waiting for objects to become something |
//! | `guest` | a guest under test: its object, its pod, how it ends |
//! | `manifest` | objects of guests |
//! | `migration` | a move of a guest, and how it ends |
//! | `workload` | work that a guest does meanwhile, and the proof that nothing of it was lost |
//! | `records` | what a guest has written to a disk, judged |
//! | `console` | a login on a guest's serial console |
//! | `machine` | what a guest could leave behind on this machine |
//! | `program`, `terminal` | kubectl, virtctl: programs that users run, some of them only on a terminal |
//! | `web` | web requests from where the suite runs |

pub mod cluster;
pub mod console;
pub mod guest;
pub mod machine;
pub mod manifest;
pub mod migration;
pub mod program;
pub mod records;
pub mod scene;
pub mod suite;
pub mod terminal;
pub mod web;
pub mod workload;
