//! Follows libvirt's events and keeps the guest's report true.

use std::sync::Arc;

use ferrovirt_libvirt::{AgentState, Connection, Destroy, Domain, Error, Event, EventKind, Lifecycle, NoEvent};

use crate::agent;
use crate::description::Description;
use crate::guest::Guest;
use crate::life::Life;

const KINDS: [EventKind; 7] = [
    EventKind::Lifecycle,
    EventKind::Reboot,
    EventKind::IoErrorReason,
    EventKind::ControlError,
    EventKind::AgentLifecycle,
    EventKind::DeviceAdded,
    EventKind::DeviceRemoved,
];

/// Announces the connection and follows it until it ends.
pub async fn follow(guest: &Arc<Guest>, connection: Connection) -> Result<(), Error> {
    let mut events = connection.events();
    for kind in KINDS {
        connection.register(kind).await?;
    }
    if guest.report().qemu_version.is_none() {
        let version = connection.hypervisor_version().await?;
        guest.publish(|report| report.qemu_version = Some(version_text(version)));
    }
    // What happened while nobody listened is asked for; what happens from now on is in `events`.
    catch_up(guest, &connection).await?;
    guest.set_libvirt(Ok(connection.clone()));
    loop {
        match events.next().await {
            Ok(event) => handle(guest, &connection, event).await?,
            Err(NoEvent::Lost(count)) => {
                tracing::warn!(count, "events of libvirt were lost");
                catch_up(guest, &connection).await?;
            }
            Err(NoEvent::Closed) => return Ok(()),
        }
    }
}

/// libvirt packs `7.2.22` as 7002022.
fn version_text(packed: u64) -> String {
    format!("{}.{}.{}", packed / 1_000_000, packed / 1_000 % 1_000, packed % 1_000)
}

async fn catch_up(guest: &Arc<Guest>, connection: &Connection) -> Result<(), Error> {
    let Some(domain) = guest.domain() else { return Ok(()) };
    match connection.lookup_uuid(&domain.uuid).await {
        Ok(found) => guest.set_domain(found),
        Err(error) if error.is_no_domain() => {
            guest.change(Life::vanished);
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let state = connection.state(&domain).await?;
    guest.change(|life| life.observe_after_gap(state));
    refresh(guest, connection, &domain).await
}

async fn handle(guest: &Arc<Guest>, connection: &Connection, event: Event) -> Result<(), Error> {
    let Some(ours) = guest.domain() else { return Ok(()) };
    match event {
        Event::Lifecycle(domain, step) if domain.uuid == ours.uuid => lifecycle(guest, connection, &ours, step).await,
        Event::Agent(domain, state) if domain.uuid == ours.uuid => {
            agent::connected(guest, state == AgentState::Connected);
            Ok(())
        }
        Event::DeviceAdded(domain, alias) | Event::DeviceRemoved(domain, alias) if domain.uuid == ours.uuid => {
            tracing::info!(alias, "a device was added or removed");
            refresh(guest, connection, &ours).await
        }
        Event::IoError { path, alias, reason, action, .. } => {
            tracing::warn!(path, alias, reason, ?action, "a disk failed");
            Ok(())
        }
        Event::Reboot(_) => {
            tracing::info!("the guest rebooted");
            Ok(())
        }
        Event::ControlError(_) => {
            tracing::error!("libvirt lost QEMU's monitor");
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn lifecycle(guest: &Arc<Guest>, connection: &Connection, domain: &Domain, step: Lifecycle) -> Result<(), Error> {
    tracing::info!(?step, "the guest");
    guest.change(|life| life.happened(step));
    if !guest.life().is_alive() {
        return Ok(());
    }
    match connection.state(domain).await {
        Ok(state) => guest.change(|life| life.observe(state)),
        Err(error) if error.is_no_domain() => {}
        Err(error) => return Err(error),
    }
    if guest.life().is_wreck() {
        // Where a domain says that QEMU is kept after a panic. libvirt may be killing it as well: then this is refused.
        if let Err(error) = connection.destroy(domain, Destroy::Forced).await {
            tracing::debug!(%error, "the wreck is gone already");
        }
    }
    Ok(())
}

/// Reads the running domain's XML again.
pub async fn refresh(guest: &Arc<Guest>, connection: &Connection, domain: &Domain) -> Result<(), Error> {
    let xml = match connection.xml(domain).await {
        Ok(xml) => xml,
        Err(error) if error.is_no_domain() => return Ok(()),
        Err(error) => return Err(error),
    };
    match Description::parse(&xml) {
        Ok(description) => {
            let is_connected = description.agent_connected && guest.life().is_alive();
            guest.describe(description);
            agent::connected(guest, is_connected);
        }
        Err(error) => tracing::error!(%error, "the domain's XML cannot be read"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_unpacked() {
        assert_eq!(super::version_text(7_002_022), "7.2.22");
        assert_eq!(super::version_text(10_000_002), "10.0.2");
    }
}
