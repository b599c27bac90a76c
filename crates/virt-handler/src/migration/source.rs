//! A guest of this node that moves away: what its controller does about the move.
//!
//! ```text
//!   hand-off ─► target listens: begin ─► progress … ─► the launcher kept the guest: failed, and all is as before
//!                                            │
//!                                            └► the target was told to run it: only words from there count
//! ```

use ferrovirt_api::vmi::{
    MigrationAbortStatus, MigrationState, VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status,
};
use ferrovirt_handover::{
    EndedSourceOrder, Outcome, SourceOrder, SourceStage, SourceWords, Verdict, at_ended_source, at_source,
    at_source_of_older,
};
use ferrovirt_launcher_rpc::messages::{DomainState, OffReason, PauseReason};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Mode};
use ferrovirt_reconcile::Plan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::progress;
use super::record::{Move, source_stage};
use crate::vmi::{Action, View, decide, report};

type Decision = Plan<Action, Status>;

/// A guest that may be on its way from this node.
pub(crate) fn leaving(view: &View, phase: Phase, moving: &Move<'_>) -> Decision {
    let heard = view.report.as_ref().and_then(|report| report.migration.as_ref());
    let stage = source_stage(heard, moving.id);
    if let Some(ending) = ending(view, moving) {
        return ending;
    }
    let plan = match stage {
        None | Some(SourceStage::Over(Outcome::Stayed(_))) => decide::staying(view, phase),
        Some(SourceStage::Connecting | SourceStage::Copying) if !stands_still(view) => decide::shown(view),
        // What stands still because of the move, or is gone, has nothing to say about the guest.
        Some(_) => Plan::nothing(),
    };
    if !view.reachable || view.report.is_none() {
        return plan;
    }
    if let Some((id, verdict)) = older_word(heard, moving.id) {
        return Plan::nothing().then(Action::TellVerdict(id, verdict));
    }
    follow(plan, view, moving, at_source(&moving.record, stage), stage)
}

/// The word for a launcher that is not done with a move before this one.
fn older_word(heard: Option<&MigrationReport>, newest: &str) -> Option<(String, Verdict)> {
    let heard = heard.filter(|heard| heard.id != newest)?;
    let stage = source_stage(Some(heard), &heard.id)?;
    Some((heard.id.clone(), at_source_of_older(stage)?))
}

/// Stopped for the switch: within moments it runs again, here or there.
fn stands_still(view: &View) -> bool {
    view.report.as_ref().is_some_and(|report| {
        let is_paused = matches!(report.state, DomainState::Paused(PauseReason::Migration | PauseReason::Other));
        is_paused && report.migration.as_ref().is_some_and(|migration| migration.mode != Mode::Paused)
    })
}

/// Adds what the judgement orders.
fn follow(
    mut plan: Decision,
    view: &View,
    moving: &Move<'_>,
    order: SourceOrder,
    stage: Option<&SourceStage>,
) -> Decision {
    let now = Time(view.now);
    match order {
        SourceOrder::Nothing if stage == Some(&SourceStage::Doubtful) => {
            plan = plan.then(Action::Carry);
            let heard = view.report.as_ref().and_then(|report| report.migration.as_ref());
            if let Some(why) = heard.and_then(|heard| heard.doubt.as_deref()) {
                edit(&mut plan, view, |state| progress::show_doubt(state, Some(why)));
            }
        }
        SourceOrder::Nothing => {}
        SourceOrder::Begin => {
            plan = plan.then(Action::BeginMove);
            edit(&mut plan, view, |state| state.start_timestamp = Some(now));
        }
        SourceOrder::Cancel => {
            plan = plan.then(Action::CancelMove(wish(view, moving)));
            // The target may have said already how it ended.
            if moving.state.abort_requested && !moving.state.failed {
                edit(&mut plan, view, |state| state.abort_status = Some(MigrationAbortStatus::Aborting));
            }
        }
        SourceOrder::Tell(verdict) => plan = plan.then(Action::TellVerdict(moving.id.to_owned(), verdict)),
        SourceOrder::Progress => {
            let heard = view.report.as_ref().and_then(|report| report.migration.as_ref());
            let wait = view.since_progress.and_then(|since| progress::PAUSE.checked_sub(since));
            let is_due = wait.is_none_or(|wait| wait.is_zero());
            plan = plan.then(Action::Carry);
            edit(&mut plan, view, |state| {
                state.start_timestamp.get_or_insert(now);
                if let Some(heard) = heard {
                    progress::show(state, heard, is_due);
                }
            });
            if let Some(wait) = wait.filter(|_| !is_due) {
                plan = plan.look_again_after(wait);
            }
        }
        SourceOrder::Fail(reason) => edit(&mut plan, view, |state| {
            fail(state, &reason, now);
            state.source_may_resume = true;
        }),
        SourceOrder::Lose => plan = lose(view, moving),
    }
    plan
}

/// Changes the record in the planned status, or in the present one.
fn edit(plan: &mut Decision, view: &View, change: impl FnOnce(&mut MigrationState)) {
    let status = plan.status.get_or_insert_with(|| view.vmi.status.clone().unwrap_or_default());
    if let Some(state) = &mut status.migration_state {
        change(state);
    }
}

/// The move failed and the guest is, or ended, here.
fn fail(state: &mut MigrationState, reason: &str, now: Time) {
    state.failed = true;
    progress::show_doubt(state, None);
    state.failure_reason.get_or_insert_with(|| reason.to_owned());
    state.end_timestamp.get_or_insert(now);
    if state.abort_requested {
        state.abort_status = Some(MigrationAbortStatus::Succeeded);
    }
}

/// Why the move is called off.
fn wish(view: &View, moving: &Move<'_>) -> String {
    match moving.state {
        state if state.failed => state.failure_reason.clone().unwrap_or_else(|| "the target gave up".to_owned()),
        state if state.abort_requested => "it was aborted".to_owned(),
        _ if view.vmi.metadata.deletion_timestamp.is_some() => "the guest is being deleted".to_owned(),
        _ => "the guest has ended".to_owned(),
    }
}

/// What follows when the launcher says that its guest is off, or its pod has ended; `None`: neither. The end of what runs here is the
/// guest's end only if it does not run on the target.
fn ending(view: &View, moving: &Move<'_>) -> Option<Decision> {
    let report = view.report.as_ref();
    let words = view.pod.as_deref().and_then(report::last_words);
    let (told, reason, message) = match (report.map(|report| &report.state), words) {
        (Some(DomainState::Off(reason)), _) => {
            let stage = source_stage(report.and_then(|report| report.migration.as_ref()), moving.id);
            // It speaks, and knows nothing of a move: there was none.
            (stage.map_or(SourceWords::NeverFinished, told), *reason, None)
        }
        (_, Some(words)) => {
            let stage = source_stage(words.migration.as_ref(), moving.id);
            (stage.map_or(SourceWords::Unknown, told), words.reason, Some(words.message))
        }
        _ => return None,
    };
    Some(match at_ended_source(&moving.record, told) {
        // The target's handler writes that it moved, in a moment.
        EndedSourceOrder::Abort if reason == OffReason::Migrated => Plan::nothing(),
        EndedSourceOrder::Nothing => Plan::nothing(),
        EndedSourceOrder::Abort => {
            let mut plan = Plan::nothing();
            edit(&mut plan, view, |state| state.abort_requested = true);
            plan
        }
        EndedSourceOrder::End if reason == OffReason::Migrated => lose(view, moving),
        EndedSourceOrder::End => {
            let mut plan = decide::ended(view, reason, message);
            if !moving.record.failed && plan.status.is_some() {
                edit(&mut plan, view, |state| fail(state, "the guest ended", Time(view.now)));
            }
            plan
        }
    })
}

/// Whether a launcher at this stage can have told the target to run the guest.
fn told(stage: &SourceStage) -> SourceWords {
    match stage {
        SourceStage::Connecting | SourceStage::Copying | SourceStage::Over(Outcome::Stayed(_)) => {
            SourceWords::NeverFinished
        }
        SourceStage::Doubtful | SourceStage::Over(Outcome::Moved | Outcome::Lost) => SourceWords::Unknown,
    }
}

/// The guest is neither here nor there.
fn lose(view: &View, moving: &Move<'_>) -> Decision {
    let target = moving.state.target_node.as_deref().unwrap_or("the target");
    let message = format!(
        "The VirtualMachineInstance was lost on its way to node {target}: it was told to run there, and nobody can say whether it did."
    );
    let mut plan = Plan::nothing()
        .then(Action::Tell { warning: true, reason: "Stopped", message })
        .report(report::ended(&view.vmi, Phase::Failed, view.now));
    if !moving.record.failed {
        edit(&mut plan, view, |state| fail(state, "the target is gone without a word", Time(view.now)));
    }
    plan
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
