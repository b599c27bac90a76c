//! What users have asked of machines: how often each may be started, and which of its guests may be ended.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use serde_json::Value;

use crate::world::World;

/// The ledger of all machines, by name.
#[derive(Default)]
pub struct Ledger(Mutex<BTreeMap<String, Page>>);

#[derive(Default)]
struct Page {
    /// Starts that somebody has asked for, or that follow from the strategy.
    allowed: u64,
    /// Uids of the guests that were made.
    made: BTreeSet<String>,
    /// Uids of guests whose end was asked for.
    ends: BTreeSet<String>,
    strategy: String,
}

impl Ledger {
    /// A machine is created.
    pub(crate) fn open(&self, machine: &str, strategy: &str) {
        let mut pages = self.0.lock();
        let page = pages.entry(machine.to_owned()).or_default();
        strategy.clone_into(&mut page.strategy);
        page.allowed += u64::from(matches!(strategy, "Always" | "RerunOnFailure" | "Once"));
    }

    /// The machine's strategy has changed.
    pub(crate) fn set_strategy(&self, machine: &str, strategy: &str) {
        if let Some(page) = self.0.lock().get_mut(machine) {
            strategy.clone_into(&mut page.strategy);
        }
    }

    /// One more start is in order.
    pub(crate) fn allow_start(&self, machine: &str) {
        if let Some(page) = self.0.lock().get_mut(machine) {
            page.allowed += 1;
        }
    }

    /// The guest may be ended.
    pub(crate) fn allow_end(&self, machine: &str, uid: &str) {
        if let Some(page) = self.0.lock().get_mut(machine) {
            page.ends.insert(uid.to_owned());
        }
    }

    /// A guest has ended without being told to.
    pub(crate) fn ended_by_itself(&self, machine: &str, by_crash: bool) {
        if let Some(page) = self.0.lock().get_mut(machine) {
            let starts_again = page.strategy == "Always" || by_crash && page.strategy == "RerunOnFailure";
            page.allowed += u64::from(starts_again);
        }
    }

    /// Takes note of new guests: each start must have been in order.
    pub(crate) fn note_guests(&self, world: &World) {
        let mut pages = self.0.lock();
        for guest in world.guests() {
            let text = |field: &str| guest["metadata"][field].as_str().unwrap_or_default().to_owned();
            let name = text("name");
            let Some(page) = pages.get_mut(&name) else { continue };
            let (is_new, made, allowed) = (page.made.insert(text("uid")), page.made.len() as u64, page.allowed);
            if is_new && made > allowed {
                world.broken(|| format!("{name} was started {made} times, and {allowed} starts were in order"));
            }
        }
    }

    /// virt-controller has deleted a guest: if it lived, somebody must have asked for that.
    pub(crate) fn deleted(&self, world: &World, guest: &Value) {
        let machine = guest["metadata"]["name"].as_str().unwrap_or_default();
        let pages = self.0.lock();
        let Some(page) = pages.get(machine) else { return };
        let uid = guest["metadata"]["uid"].as_str().unwrap_or_default();
        let has_ended = matches!(guest["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let is_halted = page.strategy == "Halted";
        if !has_ended && !is_halted && !page.ends.contains(uid) {
            world.broken(|| format!("virt-controller deletes the living guest of {machine} without a recorded intent"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ferrovirt_reconcile::Clock;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::user::guest_spec;
    use crate::world::NAMESPACE;

    /// A world with one guest that has a machine's name.
    async fn world() -> (Arc<World>, Value) {
        let keys = tempfile::tempdir().unwrap();
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let server = crate::server::start(keys.path(), 1, clock, CancellationToken::new()).unwrap();
        let world = World::new(server, clock, 1);
        world.make_namespace().await.unwrap();
        let guests = world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
        let guest = json!({"metadata": {"name": "a", "namespace": NAMESPACE}, "spec": guest_spec()});
        let guest = guests.create(guest).await.unwrap();
        (world, guest)
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_nobody_asked_for_is_noticed() {
        let (world, _) = world().await;
        world.ledger.open("a", "Manual");
        world.ledger.note_guests(&world);
        assert!(world.first_broken().unwrap().contains("started 1 times, and 0 starts were in order"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_is_in_order_counts_once() {
        let (world, _) = world().await;
        world.ledger.open("a", "Always");
        world.ledger.note_guests(&world);
        world.ledger.note_guests(&world);
        assert_eq!(world.first_broken(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_living_guest_that_is_deleted_without_intent_is_noticed() {
        let (world, guest) = world().await;
        world.ledger.open("a", "Always");
        world.ledger.allow_end("a", guest["metadata"]["uid"].as_str().unwrap());
        world.ledger.deleted(&world, &guest);
        assert_eq!(world.first_broken(), None, "this one was meant");
        let mut another = guest;
        another["metadata"]["uid"] = json!("b");
        world.ledger.deleted(&world, &another);
        assert!(world.first_broken().unwrap().contains("without a recorded intent"));
    }
}
