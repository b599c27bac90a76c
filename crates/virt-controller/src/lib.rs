//! virt-controller: turns machines into guests, guests into launcher pods, and hands them to the nodes.
//!
//! One folder for each controller, each with `observe.rs`, `decide.rs` and `act.rs`; they share one set of [caches](caches).
//!
//! | folder | controller |
//! |---|---|
//! | [`vm`] | `VirtualMachine` → `VirtualMachineInstance`, as its run strategy and its users want |
//! | [`evacuation`] | guests that have to leave a node → `VirtualMachineInstanceMigration` |
//! | [`node`] | nodes that are silent, and guests of nodes that are out of service |
//! | [`disruption`] | budgets that earlier versions left behind |
//! | [`migration`] | `VirtualMachineInstanceMigration` → target pod → hand-off to two nodes |
//! | [`vmi`] | `VirtualMachineInstance` → launcher pod → hand-over to virt-handler |
//!
//! [`run`] starts them all and ends when told to, or when another process has taken the lease.

pub mod caches;
mod conditions;
pub mod disruption;
pub mod ended;
pub mod evacuation;
pub mod image_volumes;
pub mod launcher;
pub mod migration;
pub mod node;
mod patch;
pub mod vm;
pub mod vmi;

use ferrovirt_reconcile::component::{self, RunError};
use ferrovirt_reconcile::{Clock, LeaderConfig, Recorder};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;

/// What this component calls itself in events.
const COMPONENT: &str = "virtualmachine-controller";
/// The pseudo image of a local cluster: the machine's own `/usr`.
const LOCAL_LAUNCHER_IMAGE: &str = "host.ferrovirt.io/usr";

/// How virt-controller is started.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Image of launcher pods.
    pub launcher_image: String,
    /// The lease to hold while working; without one this must be the only process.
    pub leader: Option<LeaderConfig>,
    /// Who this is in events: the name of its pod or machine.
    pub instance: String,
    /// How many guests are worked on at the same time.
    pub workers: usize,
    /// Where timestamps come from.
    pub clock: Clock,
    /// The namespace in which the API server is asked what it does with image volumes; without one everything here knows them.
    pub ask_in_namespace: Option<String>,
}

impl Default for ControllerConfig {
    /// The only virt-controller of a local cluster.
    fn default() -> Self {
        Self {
            launcher_image: LOCAL_LAUNCHER_IMAGE.to_owned(),
            leader: None,
            instance: "virt-controller".to_owned(),
            workers: 10,
            clock: Clock::System,
            ask_in_namespace: None,
        }
    }
}

/// Runs every controller until `stop`, then finishes what has begun.
pub async fn run(client: Client, config: ControllerConfig, stop: CancellationToken) -> Result<(), RunError> {
    component::run(client.clone(), config.leader.clone(), stop, |stop| work(client, config, stop)).await
}

async fn work(client: Client, config: ControllerConfig, stop: CancellationToken) -> Result<(), RunError> {
    let caches = Caches::new();
    let watches = caches.watches(&client)?;
    let recorder = Recorder::new(client.clone(), COMPONENT, &config.instance, config.clock);
    let machines = vm::runner(client.clone(), caches.clone(), recorder.clone(), &config);
    let guests = vmi::runner(client.clone(), caches.clone(), recorder.clone(), &config);
    let started = migration::Started::default();
    let moves = migration::runner(client.clone(), caches.clone(), recorder.clone(), started.clone(), &config);
    let evacuations = evacuation::runner(client.clone(), caches.clone(), recorder.clone(), started, &config);
    let nodes = node::runner(client.clone(), caches.clone(), recorder, &config);
    let budgets = disruption::runner(client.clone(), caches.clone());
    let asked = &caches.image_volumes;
    let controllers = async {
        if let Some(namespace) = &config.ask_in_namespace {
            // A server that never answers must not keep this from ending.
            stop.run_until_cancelled(asked.ask(&client, namespace, &config.launcher_image)).await;
        }
        let around =
            async { tokio::join!(evacuations.run(stop.clone()), nodes.run(stop.clone()), budgets.run(stop.clone())) };
        tokio::join!(machines.run(stop.clone()), guests.run(stop.clone()), moves.run(stop.clone()), around);
    };
    let asking_again = async {
        if let Some(namespace) = &config.ask_in_namespace {
            asked.keep_asking(&client, namespace, &config.launcher_image).await;
        }
        std::future::pending::<()>().await;
    };
    // What watches bring is taken in before anybody acts.
    tokio::select! {
        biased;
        () = caches.watch_data_volumes(&client) => {}
        () = asking_again => {}
        () = component::run_controllers(watches, &stop, controllers) => {}
    }
    Ok(())
}
