//! Starts the guest: disks, DHCP, definition, start. Repeating it is harmless, and a failed start may be tried again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{DomainReport, StartRequest};
use ferrovirt_launcher_rpc::network::DhcpServer;
use ferrovirt_launcher_rpc::paths;
use ferrovirt_libvirt::{Connection, Domain, Start, State};
use tokio::sync::Mutex;

use crate::follow::refresh;
use crate::guest::Guest;
use crate::life::Life;
use crate::reaper::Children;
use crate::refusal::Refused;
use crate::{disks, emulation, lease};

/// Between tries of a DHCP server whose bridge is not there yet.
const DHCP_PAUSE: Duration = Duration::from_secs(1);

/// One start at a time.
#[derive(Debug)]
pub struct Starter {
    guest: Arc<Guest>,
    children: Children,
    turn: Mutex<()>,
}

impl Starter {
    /// Starts `guest` when asked.
    pub fn new(guest: Arc<Guest>, children: Children) -> Self {
        Self { guest, children, turn: Mutex::new(()) }
    }

    /// Starts the guest, unless it was started already.
    pub async fn start(&self, request: &StartRequest) -> Result<DomainReport, Refused> {
        let guest = &self.guest;
        if request.uid != guest.identity.uid {
            return Err(Refused::WrongGuest { ours: guest.identity.uid.clone(), theirs: request.uid.clone() });
        }
        let _turn = self.turn.lock().await;
        guest.publish(|report| report.uid = Some(request.uid.clone()));
        if guest.change(Life::begin_start) {
            // A handler that calls without the cache gets a libvirt that makes its own.
            guest.libvirt_wanted.notify_one();
            if let Err(error) = self.attempt(request).await {
                tracing::error!(%error, "the guest was not started");
                guest.change(Life::start_failed);
                return Err(error);
            }
        }
        Ok(guest.report())
    }

    async fn attempt(&self, request: &StartRequest) -> Result<(), Refused> {
        let guest = &self.guest;
        make_directories(&request.uid, &request.name)?;
        // libvirt starts while disks are made.
        let (prepared, libvirt) =
            tokio::join!(disks::prepare(&self.children, &request.disks), guest.wait_for_libvirt());
        prepared?;
        let libvirt = libvirt?;
        request.dhcp.iter().for_each(|server| serve_dhcp(guest, server));
        let qemu = libvirt.hypervisor_version().await.map_err(Refused::Start)?;
        let countable = emulation::counted_by_page(&request.domain_xml, qemu);
        let xml = countable.as_ref().unwrap_or(&request.domain_xml);
        let leases = lease::acquire(xml).await.map_err(Refused::Disk)?;
        let domain = libvirt.define(xml).await.map_err(Refused::Define)?;
        guest.set_domain(domain.clone());
        // A start that libvirt's death interrupted may have succeeded: that guest is taken over, never started twice.
        match libvirt.state(&domain).await.map_err(Refused::Start)? {
            State::Running | State::Paused(_) => self.take_over(&libvirt, &domain).await?,
            _ => self.create(&libvirt, domain, request.paused).await?,
        }
        lease::keep(guest, leases);
        Ok(())
    }

    async fn take_over(&self, libvirt: &Connection, domain: &Domain) -> Result<(), Refused> {
        tracing::warn!(name = domain.name, "the guest runs already");
        let domain = libvirt.lookup_uuid(&domain.uuid).await.map_err(Refused::Start)?;
        let state = libvirt.state(&domain).await.map_err(Refused::Start)?;
        self.created(libvirt, domain, false).await;
        self.guest.change(|life| life.observe_after_gap(state));
        Ok(())
    }

    async fn create(&self, libvirt: &Connection, domain: Domain, paused: bool) -> Result<(), Refused> {
        let start = if paused { Start::Paused } else { Start::Running };
        match libvirt.create(&domain, start).await {
            Ok(domain) => {
                self.created(libvirt, domain, paused).await;
                Ok(())
            }
            Err(error) => {
                // The next try may come with another uuid, which libvirt would refuse for the same name.
                if let Err(error) = libvirt.undefine(&domain).await {
                    tracing::warn!(%error, "the domain that did not start is still defined");
                }
                Err(Refused::Start(error))
            }
        }
    }

    async fn created(&self, libvirt: &Connection, domain: Domain, paused: bool) {
        self.guest.set_domain(domain.clone());
        self.guest.change(|life| life.created(paused));
        tracing::info!(name = domain.name, paused, "the guest was started");
        // The guest runs: from here on a failure is told by events, not by this start.
        if let Err(error) = refresh(&self.guest, libvirt, &domain).await {
            tracing::warn!(%error, "the domain's XML could not be read");
        }
    }
}

/// Makes the directories of the guest's sockets and EFI variables.
pub fn make_directories(uid: &str, name: &str) -> Result<(), Refused> {
    let nvram = paths::nvram(name);
    let nvram = Path::new(&nvram).parent().map(|path| path.to_string_lossy().into_owned());
    for path in [Some(paths::guest_directory(uid)), nvram].into_iter().flatten() {
        std::fs::create_dir_all(&path).map_err(|source| Refused::Directory { path, source })?;
    }
    Ok(())
}

/// A server that fails is tried again: its bridge may come later, and a guest without DHCP is better than none.
pub fn serve_dhcp(guest: &Guest, server: &DhcpServer) {
    let server = server.clone();
    guest.run(format!("dhcp {}", server.device), async move {
        loop {
            let Err(error) = ferrovirt_dhcp::serve(server.clone()).await;
            tracing::error!(%error, device = server.device, "DHCP is not served");
            tokio::time::sleep(DHCP_PAUSE).await;
        }
    });
}
