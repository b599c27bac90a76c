//! Whose turn it is: moves that wait, moves that run, and how many may. Pure.
//!
//! A move holds a slot from the moment its target pod is asked for until it is over. Of those that wait the most urgent goes first,
//! then the oldest; one whose node has no slot left does not stand in the way of the others.

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstanceMigration;
use ferrovirt_api::kubevirt::MigrationOptions;
use ferrovirt_api::migration::MigrationPriority;
use jiff::Timestamp;

use super::policy::{PER_CLUSTER, PER_NODE};

/// One unfinished move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its uid.
    pub uid: String,
    /// The node that its guest leaves.
    pub node: String,
    /// What it does.
    pub standing: Standing,
    /// The larger goes first.
    pub priority: i32,
    /// When it was asked for.
    pub created: Timestamp,
}

/// What an unfinished move does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a slot.
    Holding,
    /// It wants one.
    Ready,
    /// It waits for something else.
    Blocked,
}

/// How many moves may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In the cluster.
    pub per_cluster: usize,
    /// From one node.
    pub per_node: usize,
}

impl Limits {
    /// The limits of a cluster.
    pub fn of(options: &MigrationOptions) -> Self {
        let count = |limit: Option<u32>, default| usize::try_from(limit.unwrap_or(default)).unwrap_or(usize::MAX);
        Self {
            per_cluster: count(options.parallel_migrations_per_cluster, PER_CLUSTER),
            per_node: count(options.parallel_outbound_migrations_per_node, PER_NODE),
        }
    }
}

/// Slots that are free.
#[derive(Clone, Debug)]
pub struct Free {
    limits: Limits,
    used: usize,
    by_node: BTreeMap<String, usize>,
}

impl Free {
    /// What the moves that hold slots leave.
    pub fn of(entries: &[Entry], limits: Limits) -> Self {
        let mut free = Self { limits, used: 0, by_node: BTreeMap::new() };
        for entry in entries.iter().filter(|entry| entry.standing == Standing::Holding) {
            free.used += 1;
            *free.by_node.entry(entry.node.clone()).or_default() += 1;
        }
        free
    }

    /// Takes a slot for a move away from `node`, if there is one.
    pub fn take(&mut self, node: &str) -> bool {
        let outbound = self.by_node.get(node).copied().unwrap_or_default();
        if self.used >= self.limits.per_cluster || outbound >= self.limits.per_node {
            return false;
        }
        self.used += 1;
        *self.by_node.entry(node.to_owned()).or_default() += 1;
        true
    }
}

/// Whether the move with this uid may go on now.
pub fn is_next(entries: &[Entry], limits: Limits, uid: &str) -> bool {
    if entries.iter().any(|entry| entry.uid == uid && entry.standing == Standing::Holding) {
        return true;
    }
    let mut waiting: Vec<_> = entries.iter().filter(|entry| entry.standing == Standing::Ready).collect();
    waiting.sort_by(|one, two| {
        let place = |entry: &Entry| (entry.created, entry.uid.clone());
        two.priority.cmp(&one.priority).then_with(|| place(one).cmp(&place(two)))
    });
    let mut free = Free::of(entries, limits);
    waiting.into_iter().find(|entry| free.take(&entry.node) && entry.uid == uid).is_some()
}

/// The place of a move in the queue.
pub fn priority(migration: &VirtualMachineInstanceMigration) -> i32 {
    match migration.spec.priority {
        Some(MigrationPriority::SystemCritical) => 100,
        Some(MigrationPriority::UserTriggered) => 50,
        Some(MigrationPriority::SystemMaintenance) => 20,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { per_cluster: 5, per_node: 2 };

    fn entry(uid: &str, node: &str, standing: Standing, priority: i32, second: i64) -> Entry {
        let created = Timestamp::from_second(second).unwrap();
        Entry { uid: uid.to_owned(), node: node.to_owned(), standing, priority, created }
    }

    #[test]
    fn the_most_urgent_goes_first_then_the_oldest() {
        use Standing::{Blocked, Holding, Ready};
        let one_slot = Limits { per_cluster: 2, per_node: 2 };
        let entries = [
            entry("running", "n1", Holding, 0, 1),
            entry("old", "n1", Ready, 0, 2),
            entry("urgent", "n2", Ready, 100, 3),
            entry("blocked", "n3", Blocked, 1000, 1),
        ];
        let next = |uid: &str| is_next(&entries, one_slot, uid);
        assert!(next("running"), "who has a slot keeps it");
        assert!(next("urgent"));
        assert!(!next("old") && !next("blocked") && !next("unknown"));
        assert!(is_next(&entries, LIMITS, "old"));
    }

    #[test]
    fn a_full_node_does_not_stand_in_the_way_of_others() {
        use Standing::{Holding, Ready};
        let entries = [
            entry("a", "n1", Holding, 0, 1),
            entry("b", "n1", Holding, 0, 1),
            entry("c", "n1", Ready, 100, 1),
            entry("d", "n2", Ready, 0, 2),
        ];
        assert!(!is_next(&entries, LIMITS, "c"));
        assert!(is_next(&entries, LIMITS, "d"));
    }

    #[derive(Clone, Debug)]
    enum Event {
        /// This one looks whether it may go on, and does.
        Look(usize),
        /// This one ends.
        End(usize),
        /// This one has to wait for something, or not any more.
        Toggle(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let index = 0..12_usize;
        prop_oneof![
            3 => index.clone().prop_map(Event::Look),
            1 => index.clone().prop_map(Event::End),
            1 => index.prop_map(Event::Toggle),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_allowed_and_never_a_slot_left_unused(
            nodes in prop::collection::vec(0..4_usize, 12),
            priorities in prop::collection::vec(prop::sample::select(vec![0, 20, 50, 100]), 12),
            events in prop::collection::vec(event(), 1..120),
        ) {
            let names = ["n0", "n1", "n2", "n3"];
            let mut entries: Vec<_> = (0..12)
                .map(|index| entry(&format!("m{index}"), names[nodes[index]], Standing::Ready, priorities[index], index as i64))
                .collect();
            for event in events {
                match event {
                    Event::Look(index) => {
                        let uid = format!("m{index}");
                        let next = is_next(&entries, LIMITS, &uid);
                        let found = entries.iter_mut().find(|entry| entry.uid == uid);
                        if let Some(entry) = found.filter(|_| next) {
                            entry.standing = Standing::Holding;
                        }
                    }
                    Event::End(index) => entries.retain(|entry| entry.uid != format!("m{index}")),
                    Event::Toggle(index) => {
                        let found = entries.iter_mut().find(|entry| entry.uid == format!("m{index}"));
                        if let Some(entry) = found.filter(|entry| entry.standing != Standing::Holding) {
                            let blocked = entry.standing == Standing::Blocked;
                            entry.standing = if blocked { Standing::Ready } else { Standing::Blocked };
                        }
                    }
                }
                let holding: Vec<_> = entries.iter().filter(|entry| entry.standing == Standing::Holding).collect();
                prop_assert!(holding.len() <= LIMITS.per_cluster);
                for name in names {
                    let outbound = holding.iter().filter(|entry| entry.node == name).count();
                    prop_assert!(outbound <= LIMITS.per_node);
                    let waits = entries.iter().any(|entry| entry.standing == Standing::Ready && entry.node == name);
                    if waits && outbound < LIMITS.per_node && holding.len() < LIMITS.per_cluster {
                        let somebody = entries.iter().any(|entry| entry.standing == Standing::Ready && is_next(&entries, LIMITS, &entry.uid));
                        prop_assert!(somebody, "a slot is free and nobody may take it");
                    }
                }
            }
        }
    }
}
