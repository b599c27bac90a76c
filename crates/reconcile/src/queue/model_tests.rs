//! The queue against a naive model: a list that is scanned for every question.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::{Priority, QueueCore, Time};
use crate::backoff::Backoff;

/// One wish in the model. `seq` numbers wishes, so that equals can be told apart.
#[derive(Clone, Debug)]
struct Wish {
    key: u8,
    priority: i32,
    due: Time,
    /// False once its time had come when it was (re)placed: it queues behind what became due by waiting.
    by_waiting: bool,
    seq: u64,
}

#[derive(Default, Debug)]
struct Model {
    waiting: Vec<Wish>,
    running: Vec<(u8, Option<(Time, i32)>)>,
    seq: u64,
}

impl Model {
    fn add(&mut self, key: u8, priority: i32, due: Time, now: Time) {
        if let Some((_, again)) = self.running.iter_mut().find(|(running, _)| *running == key) {
            *again = Some(again.map_or((due, priority), |(d, p)| (d.min(due), p.max(priority))));
            return;
        }
        if let Some(index) = self.waiting.iter().position(|wish| wish.key == key) {
            if self.waiting[index].due <= now {
                self.waiting[index].priority = self.waiting[index].priority.max(priority);
                return;
            }
            let old = self.waiting.remove(index);
            return self.insert(key, priority.max(old.priority), due.min(old.due), now);
        }
        self.insert(key, priority, due, now);
    }

    fn insert(&mut self, key: u8, priority: i32, due: Time, now: Time) {
        self.seq += 1;
        // What is overdue when it is placed joins the line now.
        let by_waiting = due > now;
        self.waiting.push(Wish { key, priority, due: due.max(now), by_waiting, seq: self.seq });
    }

    fn take(&mut self, now: Time) -> Option<u8> {
        let first = self
            .waiting
            .iter()
            .filter(|wish| wish.due <= now)
            .min_by_key(|wish| (-wish.priority, wish.due, !wish.by_waiting, wish.seq))?
            .key;
        self.waiting.retain(|wish| wish.key != first);
        self.running.push((first, None));
        Some(first)
    }

    fn done(&mut self, key: u8, now: Time) {
        let index = self.running.iter().position(|(running, _)| *running == key).unwrap();
        if let (_, Some((due, priority))) = self.running.remove(index) {
            self.insert(key, priority, due, now);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add { key: u8, priority: i32, delay: u64 },
    Take,
    Done { nth: usize, retry: bool },
    Forget { key: u8 },
    Advance { by: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..6u8, 0..3i32, prop_oneof![Just(0), 0..8u64])
            .prop_map(|(key, priority, delay)| Op::Add { key, priority, delay }),
        3 => Just(Op::Take),
        3 => (0..6usize, any::<bool>()).prop_map(|(nth, retry)| Op::Done { nth, retry }),
        1 => (0..6u8).prop_map(|key| Op::Forget { key }),
        2 => (1..5u64).prop_map(|by| Op::Advance { by }),
    ]
}

/// Checks what must hold after every step, whatever happened.
fn check(queue: &QueueCore<u8>, model: &Model, now: Time) {
    let unique: BTreeSet<_> = model.running.iter().map(|(key, _)| key).collect();
    assert_eq!(unique.len(), model.running.len(), "two in flight for one key");
    assert_eq!(queue.running(), model.running.len());
    assert_eq!(queue.depth() + queue.delayed(), model.waiting.len());
    let next = model.waiting.iter().map(|wish| wish.due).filter(|due| *due > now).min();
    if let Some(due) = queue.next_due().filter(|due| *due > now) {
        assert_eq!(Some(due), next, "the earliest due time wins");
    }
}

proptest! {
    #[test]
    fn behaves_like_the_model(ops in proptest::collection::vec(op(), 1..120)) {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(20), ..Backoff::default() };
        let mut queue = QueueCore::<u8>::new(backoff, Box::new(()));
        let mut model = Model::default();
        let mut now = Time::ZERO;
        for op in ops {
            match op {
                Op::Add { key, priority, delay } => {
                    let due = now + Duration::from_secs(delay);
                    queue.add(&key, Priority(priority), due, now);
                    model.add(key, priority, due, now);
                }
                Op::Take => prop_assert_eq!(queue.take(now).map(|taken| taken.key), model.take(now)),
                Op::Done { nth, retry } => {
                    if let Some((key, _)) = model.running.get(nth).copied() {
                        if retry {
                            let before = queue.failures(&key);
                            let pause = queue.retry(&key, Priority(0), now);
                            prop_assert_eq!(queue.failures(&key), before + 1);
                            prop_assert!(pause <= backoff.max);
                            model.add(key, 0, now + pause, now);
                        }
                        queue.done(&key, now);
                        model.done(key, now);
                    }
                }
                Op::Forget { key } => {
                    queue.forget(&key);
                    prop_assert_eq!(queue.failures(&key), 0);
                }
                Op::Advance { by } => now += Duration::from_secs(by),
            }
            check(&queue, &model, now);
        }

        // Nothing is lost: with time passing and every run ending, everything asked for comes out, in the model's order.
        now += Duration::from_secs(1000);
        for (key, _) in model.running.clone() {
            queue.done(&key, now);
            model.done(key, now);
        }
        while let Some(expected) = model.take(now) {
            prop_assert_eq!(queue.take(now).map(|taken| taken.key), Some(expected));
        }
        prop_assert_eq!(queue.take(now), None);
    }
}
