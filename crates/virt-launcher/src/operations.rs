//! What can be asked of a running guest.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferrovirt_libvirt::{Connection, Destroy, Domain, Reboot, Screenshot};
use tokio::time::{sleep, timeout};

use crate::agent;
use crate::guest::Guest;
use crate::life::Life;
use crate::refusal::Refused;

/// How long a killed QEMU may write its caches.
const GRACEFUL_KILL: Duration = Duration::from_secs(10);
/// How long a guest's clock is tried to be set after a pause, and how often.
const CLOCK_TRIES: u32 = 12;
const CLOCK_PAUSE: Duration = Duration::from_secs(5);
const THAW: &str = "thaw";
const CLOCK: &str = "clock";

/// Stops the guest's processors.
pub async fn pause(guest: &Guest) -> Result<(), Refused> {
    let (libvirt, domain) = staying(guest)?;
    guest.stop(CLOCK);
    libvirt.suspend(&domain).await?;
    observe(guest, &libvirt, &domain).await
}

/// A guest that is on its way is left alone: what is done to it here would be lost, and a copy that stands still because the guest may run
/// elsewhere must never run.
fn staying(guest: &Guest) -> Result<(Connection, Domain), Refused> {
    if guest.is_leaving() {
        Err(Refused::WrongState("moving to another node; try it afterwards"))
    } else {
        guest.alive()
    }
}

/// Lets the guest's processors run, and sets its clock afterwards when it has an agent.
pub async fn unpause(guest: &Arc<Guest>) -> Result<(), Refused> {
    let (libvirt, domain) = staying(guest)?;
    libvirt.resume(&domain).await?;
    observe(guest, &libvirt, &domain).await?;
    if guest.report().agent.connected {
        guest.run(CLOCK, set_clock(libvirt, domain));
    }
    Ok(())
}

/// The event says the same; whoever asked sees the new state in the next report even if it has not come yet.
async fn observe(guest: &Guest, libvirt: &Connection, domain: &Domain) -> Result<(), Refused> {
    let state = libvirt.state(domain).await?;
    guest.change(|life| life.observe(state));
    Ok(())
}

/// A guest that stood still during a move has a clock that is late.
pub fn clock_after_move(guest: &Guest, libvirt: &Connection, domain: &Domain) {
    if guest.report().agent.connected {
        guest.run(CLOCK, set_clock(libvirt.clone(), domain.clone()));
    }
}

async fn set_clock(libvirt: Connection, domain: Domain) {
    for _ in 0..CLOCK_TRIES {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match libvirt.set_time(&domain, now).await {
            Ok(()) => return,
            Err(error) if error.is_agent() => tracing::debug!(%error, "the guest's clock could not be set yet"),
            Err(error) => {
                tracing::warn!(%error, "the guest's clock cannot be set after its pause");
                return;
            }
        }
        sleep(CLOCK_PAUSE).await;
    }
    tracing::warn!("the guest's clock could not be set after its pause: its agent does not answer");
}

/// Presses the reset button.
pub async fn reset(guest: &Guest) -> Result<(), Refused> {
    let (libvirt, domain) = staying(guest)?;
    Ok(libvirt.reset(&domain).await?)
}

/// Asks the guest to reboot: its agent, or else the power button.
pub async fn soft_reboot(guest: &Guest) -> Result<(), Refused> {
    let (libvirt, domain) = staying(guest)?;
    let how = if guest.report().agent.connected { Reboot::Agent } else { Reboot::Acpi };
    Ok(libvirt.reboot(&domain, how).await?)
}

/// Freezes the guest's file systems; they thaw by themselves after `thaw_after`, if that is not zero. What is frozen stays so, until the
/// time that was said first.
pub async fn freeze(guest: &Arc<Guest>, thaw_after: Duration) -> Result<(), Refused> {
    let is_news = freeze_once(&with_agent(guest)?).await?;
    guest.agent(|agent| agent.frozen = true);
    if is_news && !thaw_after.is_zero() {
        let later = guest.clone();
        guest.run(THAW, async move {
            sleep(thaw_after).await;
            if let Err(error) = thaw(&later).await {
                tracing::error!(%error, "the guest's file systems could not be thawed in time");
            }
        });
    }
    Ok(())
}

/// What freezing needs of a guest.
trait Freezer {
    /// Its file systems are frozen, as its agent says now.
    async fn is_frozen(&self) -> bool;
    /// Freezes them. Agents refuse that of a frozen guest.
    async fn freeze(&self) -> Result<(), Refused>;
}

impl Freezer for (Connection, Domain) {
    async fn is_frozen(&self) -> bool {
        agent::is_frozen(&self.0, &self.1).await == Some(true)
    }

    async fn freeze(&self) -> Result<(), Refused> {
        self.0.freeze(&self.1).await?;
        Ok(())
    }
}

/// Freezes what is not frozen yet; whether that was news.
async fn freeze_once(guest: &impl Freezer) -> Result<bool, Refused> {
    if guest.is_frozen().await {
        return Ok(false);
    }
    guest.freeze().await?;
    Ok(true)
}

/// Thaws them.
pub async fn unfreeze(guest: &Guest) -> Result<(), Refused> {
    guest.stop(THAW);
    thaw(guest).await
}

async fn thaw(guest: &Guest) -> Result<(), Refused> {
    let (libvirt, domain) = with_agent(guest)?;
    libvirt.thaw(&domain).await?;
    guest.agent(|agent| agent.frozen = false);
    Ok(())
}

fn with_agent(guest: &Guest) -> Result<(Connection, Domain), Refused> {
    let alive = staying(guest)?;
    if guest.report().agent.connected { Ok(alive) } else { Err(Refused::NoAgent) }
}

/// A picture of the guest's screen.
pub async fn screenshot(guest: &Guest) -> Result<Screenshot, Refused> {
    let (libvirt, domain) = guest.alive()?;
    Ok(libvirt.screenshot(&domain).await?)
}

/// Kills QEMU: politely first, so that it writes its caches.
pub async fn kill(guest: &Guest) -> Result<(), Refused> {
    let (libvirt, domain) = guest.alive()?;
    guest.change(Life::about_to_kill);
    match timeout(GRACEFUL_KILL, libvirt.destroy(&domain, Destroy::Graceful)).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if error.is_no_domain() || error.is_invalid_operation() => return Ok(()),
        Ok(Err(error)) => tracing::warn!(%error, "QEMU does not end by itself; it is killed"),
        Err(_) => tracing::warn!("QEMU takes too long to end; it is killed"),
    }
    match libvirt.destroy(&domain, Destroy::Forced).await {
        Err(error) if !error.is_invalid_operation() => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A guest that refuses to be frozen twice, as its agent does.
    #[derive(Default)]
    struct Agent(AtomicBool);

    impl Freezer for Agent {
        async fn is_frozen(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        async fn freeze(&self) -> Result<(), Refused> {
            match self.0.swap(true, Ordering::SeqCst) {
                true => Err(Refused::WrongState("frozen: the command is not allowed")),
                false => Ok(()),
            }
        }
    }

    #[tokio::test]
    async fn a_frozen_guest_can_be_frozen_again() {
        let guest = Agent::default();
        assert!(freeze_once(&guest).await.unwrap());
        assert!(!freeze_once(&guest).await.unwrap(), "it is frozen already, and its time to thaw stays");
    }
}
