//! Which node a pod goes to: the local cluster's scheduler, in the words of kube-scheduler.
//!
//! ```text
//!   watches: pods, nodes, claims, volumes, classes, namespaces
//!        |                 totals of each node are kept up to date with every change
//!        v
//!   cluster::Cluster --> decide::decide (pure) --> bind | wait for volumes | PodScheduled=False, FailedScheduling
//! ```
//!
//! Looked at are: readiness, `unschedulable`, taints and tolerations, node selector and affinity, resources with extended ones, claims
//! with the node affinity of their volumes, affinity and anti-affinity between pods. Preferences and the least used node decide among
//! those that fit. There is no preemption, and host ports and topology spread constraints are not looked at.
//!
//! One process schedules at a time, one pod after another, so that each decision knows the one before: a pod that was just bound counts
//! before any watch shows it.

mod claims;
mod cluster;
mod controller;
pub mod decide;
mod matching;
mod model;

pub use cluster::Cluster;
pub use controller::{SCHEDULER_NAME, SchedulerError, run};
pub use decide::{Unschedulable, Verdict, decide};
