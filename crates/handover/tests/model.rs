//! Every way in which a move can go: two launchers, two handlers, a controller and the object, with one crash and one cut of the network
//! at every possible moment. The machines and judgements are the real ones.
//!
//! In every state: never two copies that run or may run, and no copy at the source runs after one at the target did. From every state,
//! without more trouble, an end is reached in which the guest runs once and its object says where, or does not run and its object says so.
//!
//! Launchers die with their copy, handlers and the controller come back without a memory, and everybody acts on what they last saw of
//! the object and of their launcher, however old; only writes on an old revision are refused. Words on a link keep their order, and those
//! that were not read when it broke may be lost. Calls from handlers to launchers arrive late, again, or never.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "model/search.rs"]
mod search;
#[path = "model/state.rs"]
mod state;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/tables.rs"]
mod tables;

use ferrovirt_handover::{
    EndedSourceOrder, SourceInput, SourceOrder, SourceStage, SourceWords, TargetInput, TargetSeen, TargetStage,
    ToSource, ToTarget, Verdict, at_ended_source, at_source, at_target,
};
use search::search;
use tables::Rules;

#[test]
fn whatever_happens_one_copy_runs_or_none_and_the_object_says_so() {
    let found = search(Rules::default());
    println!("{} states, {} ends (source, target, lost: {:?})", found.states, found.ends, found.outcomes);
    if let Some(mistake) = found.mistake {
        panic!("{mistake}");
    }
    assert!(found.outcomes.iter().all(|count| *count > 0), "every kind of end is reached: {:?}", found.outcomes);
}

/// A variant with a mistake is found out, by a promise of which this is a part. So the search can fail.
#[track_caller]
fn is_found_out(rules: Rules, promise: &str) {
    let mistake = search(rules).mistake.expect("this is a mistake");
    assert!(mistake.lines().next().unwrap().contains(promise), "{mistake}");
}

/// What libvirt's managed migration does.
#[test]
fn a_source_that_goes_on_when_it_hears_nothing_is_found_out() {
    let source = |machine: &mut ferrovirt_handover::Source, input| match (machine.stage(), input) {
        (SourceStage::Doubtful, SourceInput::LinkLost) => machine.on(SourceInput::Told(Verdict::Never)),
        (_, input) => machine.on(input),
    };
    is_found_out(Rules { source, ..Rules::default() }, "two copies run, or may");
}

#[test]
fn a_source_that_can_be_cancelled_too_late_is_found_out() {
    let source = |machine: &mut ferrovirt_handover::Source, input| match (machine.stage(), input) {
        (SourceStage::Doubtful, SourceInput::Cancel(_)) => machine.on(SourceInput::Told(Verdict::Never)),
        (_, input) => machine.on(input),
    };
    let at_source = |record: &_, stage: Option<&_>| match (at_source(record, stage), stage) {
        (SourceOrder::Nothing, Some(SourceStage::Doubtful)) if record.abort => SourceOrder::Cancel,
        (order, _) => order,
    };
    is_found_out(Rules { source, at_source, ..Rules::default() }, "two copies run, or may");
}

#[test]
fn a_target_that_says_never_and_does_not_keep_it_is_found_out() {
    let target = |machine: &mut ferrovirt_handover::Target, input| match (machine.stage(), input) {
        (TargetStage::Receiving, TargetInput::Heard(ToTarget::Query)) => {
            vec![ferrovirt_handover::TargetAction::Say(ToSource::Never("not now".to_owned()))]
        }
        (_, input) => machine.on(input),
    };
    is_found_out(Rules { target, ..Rules::default() }, "two copies run, or may");
}

#[test]
fn a_target_that_gives_up_while_it_starts_is_found_out() {
    let target = |machine: &mut ferrovirt_handover::Target, input| match (machine.stage(), input) {
        (TargetStage::Starting, TargetInput::Discard(reason)) => machine.on(TargetInput::Failed(reason)),
        (_, input) => machine.on(input),
    };
    let at_target = |record: &_, seen: &TargetSeen<'_>| match seen {
        TargetSeen::At(TargetStage::Starting) => at_target(record, &TargetSeen::At(&TargetStage::Receiving)),
        seen => at_target(record, seen),
    };
    is_found_out(Rules { target, at_target, ..Rules::default() }, "two copies run, or may");
}

/// It stays where it is for ever when the source's launcher dies.
#[test]
fn a_target_that_does_not_mind_a_lost_link_is_found_out() {
    let target = |machine: &mut ferrovirt_handover::Target, input| match input {
        TargetInput::LinkLost => Vec::new(),
        input => machine.on(input),
    };
    is_found_out(Rules { target, ..Rules::default() }, "the guest does not run, and its object does not say so");
}

#[test]
fn a_handler_that_takes_silence_for_an_end_is_found_out() {
    let at_target = |record: &_, seen: &TargetSeen<'_>| match seen {
        TargetSeen::Silence => at_target(record, &TargetSeen::EndedUnstarted),
        seen => at_target(record, seen),
    };
    is_found_out(Rules { at_target, ..Rules::default() }, "deletes a target that runs the guest");
}

#[test]
fn a_handler_that_takes_an_end_without_a_word_for_a_vow_is_found_out() {
    let at_target = |record: &_, seen: &TargetSeen<'_>| match seen {
        TargetSeen::EndedUnknown => at_target(record, &TargetSeen::EndedUnstarted),
        seen => at_target(record, seen),
    };
    is_found_out(Rules { at_target, ..Rules::default() }, "after it ran at the target");
}

#[test]
fn a_handler_that_ends_a_guest_with_its_source_is_found_out() {
    let at_ended_source = |record: &_, words| match at_ended_source(record, words) {
        EndedSourceOrder::Nothing | EndedSourceOrder::Abort => EndedSourceOrder::End,
        order => order,
    };
    is_found_out(Rules { at_ended_source, ..Rules::default() }, "its object says that it has ended");
}

/// A target that waits for a call that will not come keeps everybody waiting.
#[test]
fn a_handler_that_only_waits_after_its_launcher_died_is_found_out() {
    let at_ended_source = |record: &_, words: SourceWords| match at_ended_source(record, words) {
        EndedSourceOrder::Abort => EndedSourceOrder::Nothing,
        order => order,
    };
    is_found_out(
        Rules { at_ended_source, ..Rules::default() },
        "the guest does not run, and its object does not say so",
    );
}

#[test]
fn a_controller_that_does_not_wait_is_found_out() {
    is_found_out(Rules { hasty_controller: true, ..Rules::default() }, "deletes a target that runs the guest");
}

#[test]
fn handlers_that_write_on_old_revisions_are_found_out() {
    is_found_out(Rules { blind_writes: true, ..Rules::default() }, "its object says that it has ended");
}
