//! The end: asking the guest to power off, killing it at the deadline, and the launcher's last words.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_handover::TargetStage;
use ferrovirt_launcher_rpc::messages::{DomainReport, FinalWords, OffReason};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Stage};
use ferrovirt_libvirt::Shutdown;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::guest::Guest;
use crate::life::Life;
use crate::{migration, operations};

/// Between presses of the power button. Guests overlook it while they boot, and some want it twice.
const BUTTON_INTERVAL: Duration = Duration::from_secs(5);
/// How long the handler may take to note the end. Longer than a restart of the handler takes, shorter than a user's patience.
const DONE_PATIENCE: Duration = Duration::from_secs(15);
/// Between tries to kill a QEMU that does not want to.
const KILL_INTERVAL: Duration = Duration::from_secs(1);
/// What Kubernetes shows of a container that ended.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Waits until the end is asked for and brings it about.
pub async fn bring_about(guest: Arc<Guest>) {
    let mut deadlines = guest.deadline();
    let first = deadlines.wait_for(Option::is_some).await.ok().and_then(|deadline| *deadline);
    let Some(mut deadline) = first else { return };
    wait_for_move(&guest, deadline).await;
    while Instant::now() < deadline {
        press_button(&guest).await;
        let next = (Instant::now() + BUTTON_INTERVAL).min(deadline);
        // The deadline may have come nearer.
        if let Ok(Ok(())) = timeout_at(next, deadlines.changed()).await {
            deadline = deadlines.borrow_and_update().unwrap_or(deadline);
        }
    }
    sleep_until(deadline).await;
    loop {
        let life = guest.life();
        if life.ended().is_some() {
            return;
        }
        if life.is_alive() {
            if let Err(error) = operations::kill(&guest).await {
                tracing::error!(%error, "the guest could not be killed");
            }
        } else {
            guest.change(Life::give_up);
        }
        sleep(KILL_INTERVAL).await;
    }
}

/// A guest that is on its way is called back first: libvirt presses no buttons meanwhile.
async fn wait_for_move(guest: &Guest, deadline: Instant) {
    let mut reports = guest.watch();
    let is_settled = reports.wait_for(|report| !migration::is_leaving(report.migration.as_ref()));
    if timeout_at(deadline, is_settled).await.is_err() {
        tracing::warn!("the move could not be called off in time");
    }
}

async fn press_button(guest: &Guest) {
    match guest.alive() {
        Ok((libvirt, domain)) => {
            // A libvirt that hangs must not hold up the deadline.
            match timeout(BUTTON_INTERVAL, libvirt.shutdown(&domain, Shutdown::Acpi)).await {
                Ok(Ok(())) => tracing::info!("the power button was pressed"),
                Ok(Err(error)) => tracing::warn!(%error, "the power button could not be pressed"),
                Err(_) => tracing::warn!("libvirt does not answer"),
            }
        }
        // Nothing will ever power off: there is no guest.
        Err(_) if guest.life().is_absent() => guest.change(Life::give_up),
        Err(reason) => tracing::info!(%reason, "the power button was not pressed"),
    }
}

/// Waits for the guest's end, and then for the handler to note it.
///
/// A copy whose guest may run elsewhere waits for the word about that, whatever became of it, unless the pod is told to end: then it is
/// said that nobody knows, and the word comes from the other side.
pub async fn wait(guest: &Guest) -> OffReason {
    let (mut reports, mut deadlines) = (guest.watch(), guest.deadline());
    let reason = loop {
        let (ended, is_told) = (guest.life().ended(), deadlines.borrow().is_some());
        match ended {
            _ if guest.is_in_doubt() && is_told => return OffReason::Unknown,
            Some(reason) if !guest.is_in_doubt() => break reason,
            _ => {}
        }
        let is_over = tokio::select! {
            changed = reports.changed() => changed.is_err(),
            changed = deadlines.changed() => changed.is_err(),
        };
        if is_over {
            break OffReason::Unknown;
        }
    };
    // Nobody is asked about a guest that lives elsewhere.
    if reason == OffReason::Migrated {
        return reason;
    }
    // A target that is told to end, now or later, has said all that matters.
    let is_dismissed = async {
        let _ = deadlines.wait_for(Option::is_some).await;
        if !has_never_run(guest.report().migration.as_ref()) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = guest.done.notified() => {}
        () = is_dismissed => {}
        () = sleep(DONE_PATIENCE) => tracing::warn!("no handler took note of the guest's end"),
    }
    reason
}

fn has_never_run(newest: Option<&MigrationReport>) -> bool {
    matches!(newest.map(|report| &report.stage), Some(Stage::Target(TargetStage::Never(_))))
}

/// The last words about this end.
pub fn final_words(reason: OffReason, report: DomainReport) -> FinalWords {
    let newest = report.migration;
    let mut message = match reason {
        _ if migration::is_in_doubt(newest.as_ref()) => "the launcher was told to end while the guest changed hands",
        _ if has_never_run(newest.as_ref()) => "the guest did not move here",
        OffReason::Shutdown => "the guest powered off",
        OffReason::Destroyed => "the guest was killed on request, or because it did not power off in time",
        OffReason::Crashed => "QEMU ended unexpectedly or was killed",
        OffReason::Panicked => "the guest's kernel panicked: see its serial console",
        OffReason::Migrated => "the guest moved to another node",
        OffReason::Saved => "the guest was saved",
        OffReason::Failed => "the launcher was told to end before the guest was started",
        OffReason::Unknown => "the guest ended and libvirt does not say why",
    }
    .to_owned();
    if let Some(ending) = report.ending {
        message = format!("{message}: {ending}");
    }
    FinalWords { reason, message, migration: newest }
}

/// Leaves the last words where Kubernetes shows them; without such a file, in the log only.
pub fn speak(words: &FinalWords) {
    tracing::info!(reason = ?words.reason, "{}", words.message);
    let file = std::fs::OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG);
    if let (Ok(mut file), Ok(text)) = (file, serde_json::to_vec(words))
        && let Err(error) = file.write_all(&text)
    {
        tracing::warn!(%error, "{TERMINATION_LOG} cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use ferrovirt_launcher_rpc::migration::Mode;

    use super::*;
    use crate::guest::for_tests;

    #[tokio::test(start_paused = true)]
    async fn a_launcher_without_a_guest_ends_at_once() {
        let guest = for_tests();
        tokio::spawn(bring_about(guest.clone()));
        guest.ask_to_end(Duration::from_secs(3600));
        let start = Instant::now();
        assert_eq!(wait(&guest).await, OffReason::Failed);
        assert!(start.elapsed() <= DONE_PATIENCE + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_never_finishes_starting_is_given_up_at_the_deadline() {
        let guest = for_tests();
        guest.change(Life::begin_start);
        tokio::spawn(bring_about(guest.clone()));
        guest.ask_to_end(Duration::from_secs(60));
        guest.done.notify_one();
        let start = Instant::now();
        assert_eq!(wait(&guest).await, OffReason::Failed);
        assert!(start.elapsed() >= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_never_ran_its_guest_ends_when_it_is_told_to() {
        let guest = for_tests();
        guest.set_move(MigrationReport {
            id: "a".to_owned(),
            stage: Stage::Target(TargetStage::Never("the connection to the source was lost".to_owned())),
            mode: Mode::default(),
            progress: None,
            doubt: None,
        });
        guest.change(Life::give_up);
        let start = Instant::now();
        let told = async {
            sleep(Duration::from_secs(1)).await;
            guest.ask_to_end(Duration::from_secs(3600));
        };
        tokio::join!(wait(&guest), told);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_handlers_note_ends_the_wait() {
        let guest = for_tests();
        guest.change(Life::give_up);
        guest.done.notify_one();
        let start = Instant::now();
        wait(&guest).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
