//! The policy on moves that are played: a link with a bandwidth, a guest that writes at a rate into so much of its memory.

use ferrovirt_launcher_rpc::migration::{Mode, Options};
use proptest::prelude::*;

use super::policy::{Decision, Judgement, Policy, Sample};

const MB: u64 = 1_000_000;

/// A guest on its way.
#[derive(Debug, Clone)]
struct Play {
    memory: u64,
    bandwidth: u64,
    /// Bytes per second that the guest writes, and into how many.
    writes: u64,
    working_set: u64,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
enum End {
    Done,
    PostCopy,
    Aborted(String),
    Never,
}

/// What was seen on the way.
#[derive(Debug)]
struct Seen {
    end: End,
    seconds: u64,
    /// When it was first said that it does not get on.
    noted: Option<u64>,
    paused: Option<u64>,
    allowed: Vec<u64>,
}

impl Play {
    fn run(&self, options: &Options, patience: u64) -> Seen {
        let mut policy = Policy::new(options.clone(), true);
        let (mut left, mut pass, mut sent, mut spent_ms) = (self.memory, 1, 0, 0);
        let mut seen =
            Seen { end: End::Never, seconds: 0, noted: None, paused: None, allowed: vec![policy.allowed_ms()] };
        for second in 1..=patience {
            seen.seconds = second;
            let mut budget = self.bandwidth;
            // Passes are sent within this second, as many as fit.
            while budget > 0 {
                let part = left.min(budget);
                (left, budget, sent) = (left - part, budget - part, sent + part);
                spent_ms += part * 1000 / self.bandwidth;
                if left == 0 {
                    let writes = if policy.mode() == Mode::Paused { 0 } else { self.writes };
                    left = (writes * spent_ms.max(1) / 1000).min(self.working_set);
                    (pass, spent_ms) = (pass + 1, 0);
                    if left * 1000 / self.bandwidth <= policy.allowed_ms() {
                        seen.end = End::Done;
                        return seen;
                    }
                }
            }
            let judgement = policy.judge(Sample {
                elapsed_ms: second * 1000,
                is_memory: true,
                remaining: left,
                sent,
                bandwidth: self.bandwidth,
                dirty_rate: if pass > 1 && policy.mode() == Mode::PreCopy { self.writes } else { 0 },
                iteration: pass,
                throttle: 0,
            });
            seen.allowed.push(policy.allowed_ms());
            if judgement.note.is_some() {
                seen.noted.get_or_insert(second);
            }
            match judgement.decision {
                Some(Decision::StartPostCopy) => {
                    seen.end = End::PostCopy;
                    return seen;
                }
                Some(Decision::Abort(reason)) => {
                    seen.end = End::Aborted(reason);
                    return seen;
                }
                Some(Decision::Pause) => seen.paused = Some(second),
                Some(Decision::AllowDowntime(_)) | None => {}
            }
        }
        seen
    }
}

/// It writes twice as fast as the link sends, into ten times what fits into the most.
fn restless() -> Play {
    Play { memory: 4000 * MB, bandwidth: 200 * MB, writes: 400 * MB, working_set: 2000 * MB }
}

fn idle() -> Play {
    Play { memory: 4000 * MB, bandwidth: 200 * MB, writes: MB, working_set: 10 * MB }
}

#[test]
fn a_quiet_guest_goes_with_the_first_downtime() {
    let seen = idle().run(&Options::default(), 1000);
    assert_eq!((seen.end, seen.noted), (End::Done, None));
    assert_eq!(seen.allowed.last(), Some(&Options::default().first_downtime_ms));
}

#[test]
fn a_guest_that_needs_a_longer_pause_gets_it_step_by_step() {
    // 600 ms of data: more than the first downtime, less than the most.
    let busy = Play { working_set: 120 * MB, ..restless() };
    let seen = busy.run(&Options::default(), 1000);
    assert_eq!(seen.end, End::Done);
    assert!(seen.allowed.windows(2).all(|pair| pair[1] <= pair[0] * 3 / 2 + 1), "{:?}", seen.allowed);
    assert!(*seen.allowed.last().unwrap() > 100);
}

#[test]
fn the_best_allowed_thing_is_done_when_it_does_not_end() {
    let options = Options::default();
    let first_pass = 20;
    let seen = restless().run(&Options { post_copy: true, may_pause: true, ..options.clone() }, 1000);
    assert_eq!(seen.end, End::PostCopy);
    assert!(seen.noted.unwrap() < first_pass + 15, "{seen:?}");
    let seen = restless().run(&Options { may_pause: true, ..options.clone() }, 1000);
    assert_eq!(seen.end, End::Done);
    assert!(seen.paused.unwrap() >= first_pass + options.stall_timeout, "{seen:?}");
    let seen = restless().run(&options, 1000);
    let End::Aborted(reason) = seen.end else { panic!("{seen:?}") };
    assert!(seen.seconds >= first_pass + options.progress_timeout, "{}", seen.seconds);
    for wish in ["allowAutoConverge", "allowPostCopy", "allowWorkloadDisruption", "400.0 MB/s"] {
        assert!(reason.contains(wish), "{reason}");
    }
}

#[test]
fn the_time_for_the_whole_move_is_kept() {
    let options = Options { completion_timeout: 5, ..Options::default() };
    let seen = idle().run(&options, 1000);
    assert!(matches!(seen.end, End::Aborted(_)) && seen.seconds == 5, "{seen:?}");
    assert_eq!(idle().run(&Options { post_copy: true, ..options.clone() }, 1000).end, End::PostCopy);
    let seen = idle().run(&Options { may_pause: true, ..options }, 1000);
    assert_eq!((seen.end, seen.paused), (End::Done, Some(5)));
}

#[test]
fn a_dead_link_is_given_up_whatever_is_allowed() {
    let options = Options { post_copy: true, may_pause: true, ..Options::default() };
    let mut policy = Policy::new(options.clone(), true);
    let still = Sample { is_memory: true, remaining: 100, sent: 50, iteration: 1, ..Sample::default() };
    let mut judged = (0..=200).map(|second| policy.judge(Sample { elapsed_ms: second * 1000, ..still }).decision);
    let end = judged.find_map(|decision| match decision {
        Some(Decision::Abort(reason)) => Some(reason),
        _ => None,
    });
    assert!(end.unwrap().contains("nothing was sent for 150 s"));
}

#[test]
fn a_guest_that_is_paused_from_the_beginning_is_said_to_be() {
    let mut policy = Policy::new(Options::default(), false);
    let Judgement { note, remaining_ms, .. } =
        policy.judge(Sample { is_memory: true, remaining: 100, bandwidth: 50, iteration: 1, ..Sample::default() });
    assert_eq!((policy.mode(), remaining_ms), (Mode::Paused, Some(2000)));
    assert!(note.unwrap().contains("paused"));
}

fn any_options() -> impl Strategy<Value = Options> {
    (any::<[bool; 3]>(), 0..5000u64, 0..5000u64, 0..300u64, 0..300u64, 0..300u64).prop_map(
        |([auto_converge, post_copy, may_pause], first, most, completion, progress, stall)| Options {
            auto_converge,
            post_copy,
            may_pause,
            first_downtime_ms: first,
            max_downtime_ms: most,
            completion_timeout: completion,
            progress_timeout: progress,
            stall_timeout: stall,
            ..Options::default()
        },
    )
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (0..20_000u64, any::<bool>(), 0..u64::MAX / 4096, 0..u64::MAX, 0..u64::MAX, 0..u64::MAX, 0..50u64, 0..100u64)
        .prop_map(|(elapsed_ms, is_memory, remaining, sent, bandwidth, dirty_rate, iteration, throttle)| Sample {
            elapsed_ms,
            is_memory,
            remaining,
            sent,
            bandwidth,
            dirty_rate,
            iteration,
            throttle,
        })
}

proptest! {
    #[test]
    fn what_converges_is_never_given_up(
        memory in 1..64_000u64, bandwidth in 50..2000u64, share in 0..80u64, set in 1..100u64, allowed: [bool; 3],
    ) {
        let play = Play {
            memory: memory * MB,
            bandwidth: bandwidth * MB,
            writes: bandwidth * MB * share / 100,
            working_set: (memory * MB * set / 100).max(1),
        };
        let [auto_converge, post_copy, may_pause] = allowed;
        let seen = play.run(&Options { auto_converge, post_copy, may_pause, ..Options::default() }, 20_000);
        prop_assert_eq!(&seen.end, &End::Done, "{:?}", seen);
        prop_assert_eq!(seen.paused, None);
    }

    #[test]
    fn what_does_not_converge_is_not_left_alone(
        bandwidth in 50..2000u64, share in 100..400u64, allowed: [bool; 2],
    ) {
        // The first pass takes 20 s, and what is written does not fit into 2 s.
        let play = Play {
            memory: 20 * bandwidth * MB,
            bandwidth: bandwidth * MB,
            writes: bandwidth * MB * share / 100,
            working_set: 2 * bandwidth * MB,
        };
        let [post_copy, may_pause] = allowed;
        let seen = play.run(&Options { post_copy, may_pause, ..Options::default() }, 300);
        match (post_copy, may_pause) {
            (true, _) => prop_assert_eq!(&seen.end, &End::PostCopy, "{:?}", seen),
            (false, true) => prop_assert!(seen.end == End::Done && seen.paused.is_some(), "{:?}", seen),
            (false, false) => prop_assert!(matches!(seen.end, End::Aborted(_)), "{:?}", seen),
        }
        prop_assert!(seen.noted.is_some());
    }

    #[test]
    fn whatever_is_seen_the_downtime_stays_within_its_bounds_and_the_end_is_decided_once(
        options in any_options(), samples in prop::collection::vec(any_sample(), 0..60),
    ) {
        let most = if options.max_downtime_ms == 0 { 2_000_000 } else { options.max_downtime_ms };
        let mut policy = Policy::new(options.clone(), true);
        let (mut elapsed_ms, mut allowed, mut is_over) = (0, policy.allowed_ms(), false);
        for sample in samples {
            elapsed_ms += sample.elapsed_ms;
            let judgement = policy.judge(Sample { elapsed_ms, ..sample });
            prop_assert!(policy.allowed_ms() <= most && policy.allowed_ms() >= allowed);
            allowed = policy.allowed_ms();
            prop_assert!(!is_over || judgement.decision.is_none());
            is_over |= matches!(judgement.decision, Some(Decision::StartPostCopy | Decision::Abort(_)));
            prop_assert!(options.post_copy || judgement.decision != Some(Decision::StartPostCopy));
            prop_assert!(options.may_pause || judgement.decision != Some(Decision::Pause));
        }
    }
}
