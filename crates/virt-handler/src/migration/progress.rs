//! How far a move is, as the object shows it.

use std::time::Duration;

use ferrovirt_api::vmi::{MigrationMode, MigrationProgress, MigrationState};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Mode, Progress};

/// Between two writes of nothing but progress. Shorter, and every move writes to the API server all the time; longer, and the bar of
/// whoever watches jumps.
pub(crate) const PAUSE: Duration = Duration::from_secs(3);

/// Takes over how memory is transferred, and if `due` how far that is. The final figures are always due.
pub(crate) fn show(state: &mut MigrationState, report: &MigrationReport, due: bool) {
    state.mode = Some(match report.mode {
        Mode::PreCopy => MigrationMode::PreCopy,
        Mode::PostCopy => MigrationMode::PostCopy,
        Mode::Paused => MigrationMode::Paused,
    });
    if due && let Some(progress) = &report.progress {
        let before = state.progress.as_ref().and_then(|before| before.percent).unwrap_or_default();
        // While it lasts, the downtime is a guess.
        state.progress = Some(MigrationProgress { downtime_ms: None, ..shown(progress, before) });
    }
}

/// Says that the target was told to run the guest, and that nobody here knows whether it does; no longer, once there is no doubt.
pub(crate) fn show_doubt(state: &mut MigrationState, why: Option<&str>) {
    let name = |node: &Option<String>| node.clone().unwrap_or_else(|| "another node".to_owned());
    let (source, target) = (name(&state.source_node), name(&state.target_node));
    let doubt = why.map(|why| {
        format!(
            "{}: {source} has told {target} to run the guest, and has no answer ({}); the guest stands still at {source} until it knows",
            MigrationProgress::IN_DOUBT,
            shortened(why)
        )
    });
    let said = state.progress.as_ref().and_then(|progress| progress.message.as_deref());
    if doubt.is_some() || said.is_some_and(|said| said.starts_with(MigrationProgress::IN_DOUBT)) {
        state.progress.get_or_insert_default().message = doubt;
    }
}

/// Takes over what the target knows at the end: all that was sent, and how long the guest stood still.
pub(crate) fn show_last(state: &mut MigrationState, report: &MigrationReport) {
    if let Some(progress) = &report.progress {
        let before = state.progress.take().unwrap_or_default();
        let last = shown(progress, 100);
        state.progress = Some(MigrationProgress {
            allowed_downtime_ms: before.allowed_downtime_ms,
            message: before.message,
            ..last
        });
    }
}

/// The figures of a move that ended well, as the launcher that has the guest tells them: only then it is known how long the guest stood
/// still. Written once.
pub(crate) fn conclude(state: &mut MigrationState, report: Option<&MigrationReport>) {
    let known = state.progress.as_ref().is_some_and(|progress| progress.downtime_ms.is_some());
    let ours = report.filter(|report| state.migration_uid.as_ref() == Some(&report.id));
    if !state.completed || known {
        return;
    }
    if let Some(progress) = ours.and_then(|report| report.progress.as_ref()) {
        let figures = Progress { remaining_bytes: 0, remaining_ms: Some(0), note: None, ..progress.clone() };
        state.progress = Some(shown(&figures, 100));
    } else if let Some(progress) = &mut state.progress {
        (progress.percent, progress.remaining_bytes, progress.remaining_seconds) = (Some(100), Some(0), Some(0));
    }
}

fn shown(progress: &Progress, before: u32) -> MigrationProgress {
    let amount = |amount: u64| Some(i64::try_from(amount).unwrap_or(i64::MAX));
    MigrationProgress {
        percent: Some(percent(progress).max(before).min(100)),
        total_bytes: amount(progress.total_bytes),
        sent_bytes: amount(progress.sent_bytes),
        remaining_bytes: amount(progress.remaining_bytes),
        bandwidth: amount(progress.bandwidth),
        dirty_rate: amount(progress.dirty_rate),
        iteration: amount(progress.iteration),
        allowed_downtime_ms: amount(progress.allowed_downtime_ms),
        remaining_seconds: progress.remaining_ms.and_then(|left| amount(left.div_ceil(1000))),
        downtime_ms: progress.downtime_ms.and_then(amount),
        message: progress.note.as_deref().map(shortened),
    }
}

/// Words of a launcher: for people, and no longer than they read.
fn shortened(words: &str) -> String {
    words.chars().take(500).collect()
}

fn percent(progress: &Progress) -> u32 {
    let done = u128::from(progress.total_bytes.saturating_sub(progress.remaining_bytes)) * 100;
    let percent = done.checked_div(u128::from(progress.total_bytes)).unwrap_or_default();
    u32::try_from(percent).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use ferrovirt_handover::SourceStage;
    use ferrovirt_launcher_rpc::migration::Stage;

    use super::*;

    fn report(total: u64, left: u64) -> MigrationReport {
        let progress = Progress { total_bytes: total, remaining_bytes: left, ..Progress::default() };
        let stage = Stage::Source(SourceStage::Copying);
        MigrationReport { id: "m".into(), stage, mode: Mode::PreCopy, progress: Some(progress), doubt: None }
    }

    #[test]
    fn percent_never_goes_back() {
        let mut state = MigrationState::default();
        for (total, left, percent) in [(0, 0, 0), (100, 75, 25), (100, 90, 25), (200, 0, 100), (u64::MAX, 0, 100)] {
            show(&mut state, &report(total, left), true);
            assert_eq!(state.progress.as_ref().unwrap().percent, Some(percent), "{left} of {total}");
        }
    }

    #[test]
    fn the_last_figures_are_those_of_the_launcher_that_has_the_guest() {
        let mut state =
            MigrationState { migration_uid: Some("m".into()), completed: true, ..MigrationState::default() };
        let mut last = report(100, 1);
        last.progress.as_mut().unwrap().downtime_ms = Some(35);
        conclude(&mut state, Some(&MigrationReport { id: "another".into(), ..last.clone() }));
        assert_eq!(state.progress, None);
        conclude(&mut state, Some(&last));
        let shown = state.progress.clone().unwrap();
        assert_eq!((shown.percent, shown.downtime_ms, shown.remaining_bytes), (Some(100), Some(35), Some(0)));
        last.progress.as_mut().unwrap().downtime_ms = Some(36);
        conclude(&mut state, Some(&last));
        assert_eq!(state.progress, Some(shown), "once");
    }

    #[test]
    fn a_doubt_is_told_with_its_reason_until_it_is_over() {
        let mut state = MigrationState {
            source_node: Some("node1".into()),
            target_node: Some("node2".into()),
            ..MigrationState::default()
        };
        show_doubt(&mut state, None);
        assert_eq!(state.progress, None, "nothing to take back");
        show_doubt(&mut state, Some("the connection to the target was lost"));
        let said = state.progress.clone().unwrap().message.unwrap();
        assert!(said.starts_with("in doubt: node1 has told node2 to run the guest"), "{said}");
        assert!(said.contains("(the connection to the target was lost)"), "{said}");
        show_doubt(&mut state, None);
        assert_eq!(state.progress.as_ref().unwrap().message, None);
        state.progress.as_mut().unwrap().message = Some("memory changes faster than it is sent".into());
        show_doubt(&mut state, None);
        assert!(state.progress.unwrap().message.is_some(), "another note stays");
    }

    #[test]
    fn the_mode_is_shown_at_once_and_figures_when_they_are_due() {
        let mut state = MigrationState::default();
        show(&mut state, &MigrationReport { mode: Mode::PostCopy, ..report(2, 1) }, false);
        assert_eq!((state.mode, state.progress), (Some(MigrationMode::PostCopy), None));
    }
}
