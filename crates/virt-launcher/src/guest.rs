//! The one guest of this launcher: what is known about it, shared by everything that looks after it.
//!
//! All knowledge flows into one [`DomainReport`], which is published whenever it changes. No lock is held while anything is awaited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{
    AgentFilesystem, AgentReport, AgentUser, DomainReport, DomainState, OffReason, PauseReason,
};
use ferrovirt_launcher_rpc::migration::MigrationReport;
use ferrovirt_libvirt::{Connection, Domain};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::description::Description;
use crate::last_words;
use crate::life::Life;
use crate::migration;
use crate::reaper::Children;
use crate::refusal::Refused;

/// How long a start waits for libvirt. It takes a second, or ten on a busy node without a capability cache.
const LIBVIRT_PATIENCE: Duration = Duration::from_secs(60);
/// The time to end is what the guest's owner has chosen, and instants do not reach as far as numbers.
const LONGEST_GRACE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Whom a launcher is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The VMI's uid.
    pub uid: String,
    /// The VMI's name.
    pub name: String,
    /// The VMI's namespace.
    pub namespace: String,
    /// How long the guest may take to power off when the pod is told to end.
    pub grace: Duration,
}

/// The guest and what is known about it.
#[derive(Debug)]
pub struct Guest {
    /// Whom this is about.
    pub identity: Identity,
    children: Children,
    life: Mutex<Life>,
    report: watch::Sender<DomainReport>,
    /// The connection to libvirt, or why there is none.
    libvirt: watch::Sender<Result<Connection, String>>,
    domain: Mutex<Option<Domain>>,
    details: Mutex<AgentDetails>,
    /// When the guest is killed, once it was asked to power off.
    deadline: watch::Sender<Option<Instant>>,
    /// Tasks that live as long as a condition: the agent's poller, a thaw, DHCP servers.
    tasks: Mutex<HashMap<String, AbortHandle>>,
    /// The handler took note of the end.
    pub done: Notify,
    /// libvirt may start.
    pub libvirt_wanted: Notify,
}

/// What the agent told that is only handed out when asked for.
#[derive(Debug, Clone, Default)]
pub struct AgentDetails {
    /// Who is logged in.
    pub users: Vec<AgentUser>,
    /// What is mounted.
    pub filesystems: Vec<AgentFilesystem>,
}

impl Guest {
    /// A guest that was not started yet.
    pub fn new(identity: Identity, children: Children) -> Arc<Self> {
        Arc::new(Self {
            identity,
            children,
            life: Mutex::default(),
            report: watch::channel(DomainReport::default()).0,
            libvirt: watch::channel(Err("it was not started yet".to_owned())).0,
            domain: Mutex::default(),
            details: Mutex::default(),
            deadline: watch::channel(None).0,
            tasks: Mutex::default(),
            done: Notify::new(),
            libvirt_wanted: Notify::new(),
        })
    }

    /// Changes the life and publishes what follows from it.
    pub fn change<T>(&self, change: impl FnOnce(&mut Life) -> T) -> T {
        let mut life = self.life.lock();
        let answer = change(&mut life);
        // Published under the lock, so that reports appear in the order of changes.
        self.publish(|report| {
            report.state = told(&life, report.migration.as_ref());
            self.explain(report);
        });
        answer
    }

    /// Where the newest move is.
    pub fn set_move(&self, newest: MigrationReport) {
        self.change_with_move(newest, |_| ());
    }

    /// Where the newest move is, and what that means for the life, in one report.
    pub fn change_with_move(&self, newest: MigrationReport, change: impl FnOnce(&mut Life)) {
        let mut life = self.life.lock();
        change(&mut life);
        self.publish(|report| {
            report.state = told(&life, Some(&newest));
            report.migration = Some(newest);
            self.explain(report);
        });
    }

    /// An end that nobody wished for is told with all that is known about it.
    fn explain(&self, report: &mut DomainReport) {
        let is_strange = matches!(report.state, DomainState::Off(OffReason::Crashed | OffReason::Unknown));
        if is_strange && report.ending.is_none() {
            report.ending = last_words::of_qemu(self.children.end_of_qemu(), &last_words::log_directory());
        }
    }

    /// The guest is on its way to another launcher, or may be there already.
    pub fn is_leaving(&self) -> bool {
        migration::is_leaving(self.report.borrow().migration.as_ref())
    }

    /// The guest may run somewhere else by now.
    pub fn is_in_doubt(&self) -> bool {
        migration::is_in_doubt(self.report.borrow().migration.as_ref())
    }

    /// Looks at the life.
    pub fn life(&self) -> Life {
        self.life.lock().clone()
    }

    /// Changes the report; who waits for changes hears of real ones only.
    pub fn publish(&self, change: impl FnOnce(&mut DomainReport)) {
        self.report.send_if_modified(|report| {
            let before = report.clone();
            change(report);
            *report != before
        });
    }

    /// The report as it is now.
    pub fn report(&self) -> DomainReport {
        self.report.borrow().clone()
    }

    /// The report and its changes.
    pub fn watch(&self) -> watch::Receiver<DomainReport> {
        self.report.subscribe()
    }

    /// Takes over what the domain's XML tells.
    pub fn describe(&self, description: Description) {
        self.publish(|report| {
            report.machine_type = description.machine_type;
            report.emulated = description.emulated;
            report.memory = description.memory;
            report.interfaces = description.interfaces;
            report.disks = description.disks;
        });
    }

    /// Takes over what the agent told.
    pub fn agent(&self, change: impl FnOnce(&mut AgentReport)) {
        self.publish(|report| change(&mut report.agent));
    }

    /// What the agent told that is not in the report.
    pub fn details(&self) -> AgentDetails {
        self.details.lock().clone()
    }

    /// Changes what the agent told that is not in the report.
    pub fn change_details(&self, change: impl FnOnce(&mut AgentDetails)) {
        change(&mut self.details.lock());
    }

    /// libvirt is there, or is not for a reason.
    pub fn set_libvirt(&self, libvirt: Result<Connection, String>) {
        drop(self.libvirt.send_replace(libvirt));
    }

    /// The connection to libvirt, if there is one now.
    pub fn libvirt(&self) -> Result<Connection, Refused> {
        self.libvirt.borrow().clone().map_err(Refused::NoLibvirt)
    }

    /// Waits for libvirt, for a while.
    pub async fn wait_for_libvirt(&self) -> Result<Connection, Refused> {
        let mut receiver = self.libvirt.subscribe();
        // Both ways of giving up leave the reason in place.
        let _ = timeout(LIBVIRT_PATIENCE, receiver.wait_for(Result::is_ok)).await;
        self.libvirt()
    }

    /// The domain, once libvirt knows it.
    pub fn domain(&self) -> Option<Domain> {
        self.domain.lock().clone()
    }

    /// libvirt knows the domain.
    pub fn set_domain(&self, domain: Domain) {
        *self.domain.lock() = Some(domain);
    }

    /// libvirt and the domain, if the guest lives.
    pub fn alive(&self) -> Result<(Connection, Domain), Refused> {
        if !self.life().is_alive() {
            return Err(Refused::NotRunning);
        }
        let domain = self.domain().ok_or(Refused::NotRunning)?;
        Ok((self.libvirt()?, domain))
    }

    /// Asks for the end after `grace`. Asked again, the deadline can only come nearer.
    pub fn ask_to_end(&self, grace: Duration) {
        self.change(|life| life.ask_to_end(!grace.is_zero()));
        let wanted = Instant::now() + grace.min(LONGEST_GRACE);
        self.deadline.send_if_modified(|deadline| {
            let nearer = deadline.is_none_or(|deadline| wanted < deadline);
            if nearer {
                *deadline = Some(wanted);
            }
            nearer
        });
    }

    /// The deadline and its changes.
    pub fn deadline(&self) -> watch::Receiver<Option<Instant>> {
        self.deadline.subscribe()
    }

    /// Runs a task under a name; one that had this name ends.
    pub fn run(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        if let Some(old) = self.tasks.lock().insert(name.into(), handle) {
            old.abort();
        }
    }

    /// Ends the task of this name.
    pub fn stop(&self, name: &str) {
        if let Some(old) = self.tasks.lock().remove(name) {
            old.abort();
        }
    }

    /// A task of this name runs.
    pub fn runs(&self, name: &str) -> bool {
        self.tasks.lock().get(name).is_some_and(|task| !task.is_finished())
    }
}

/// The state for the handler. The end of a copy that stands still is not the guest's end while it may run elsewhere.
fn told(life: &Life, newest: Option<&MigrationReport>) -> DomainState {
    match life.state() {
        DomainState::Off(_) if migration::is_in_doubt(newest) => DomainState::Paused(PauseReason::Migration),
        state => state,
    }
}

#[cfg(test)]
pub(crate) fn for_tests() -> Arc<Guest> {
    let identity = Identity {
        uid: "u".to_owned(),
        name: "guest".to_owned(),
        namespace: "default".to_owned(),
        grace: Duration::from_secs(30),
    };
    Guest::new(identity, Children::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_real_changes_are_published() {
        let guest = for_tests();
        let mut reports = guest.watch();
        guest.change(|_| ());
        assert!(!reports.has_changed().unwrap());
        guest.change(Life::begin_start);
        assert!(reports.has_changed().unwrap());
        assert_eq!(reports.borrow_and_update().state, DomainState::Starting);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_only_comes_nearer() {
        let guest = for_tests();
        let start = Instant::now();
        let years = LONGEST_GRACE.as_secs();
        for (grace, expected) in [(u64::MAX, years), (30, 30), (60, 30), (5, 5), (0, 0)] {
            guest.ask_to_end(Duration::from_secs(grace));
            assert_eq!(*guest.deadline().borrow(), Some(start + Duration::from_secs(expected)));
        }
    }

    #[tokio::test]
    async fn a_task_replaces_the_one_of_the_same_name() {
        let guest = for_tests();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        guest.run("a", async move {
            std::future::pending::<()>().await;
            drop(sender);
        });
        guest.run("a", std::future::pending());
        // The first one is dropped, and its sender with it.
        assert!(receiver.await.is_err());
        assert!(guest.runs("a"));
        guest.stop("a");
        assert!(!guest.runs("a"));
    }
}
