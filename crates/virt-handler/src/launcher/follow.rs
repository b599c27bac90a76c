//! One follower per launcher pod of this node: it connects, hands over the capability cache, and keeps the last report.
//!
//! A follower has no opinion about the guest. When the connection breaks it connects again; what was known stays known, marked
//! as not connected, until the pod is gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::pace::Pace;
use super::{Launcher, LauncherError, Launchers};

/// The first pause between attempts to connect: a pod that was just started listens within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What is known about one launcher.
#[derive(Clone, Default)]
pub struct Followed {
    /// The way to it, while it answers.
    pub launcher: Option<Arc<dyn Launcher>>,
    /// Its last report.
    pub report: Option<DomainReport>,
}

/// Told about every change, with the pod's uid.
type Listener = dyn Fn(&str) + Send + Sync;

/// The followers of one node.
pub struct Followers {
    launchers: Arc<dyn Launchers>,
    capabilities: Arc<Capabilities>,
    known: Arc<Mutex<BTreeMap<String, Entry>>>,
    listener: Arc<Listener>,
}

/// libvirt's capability cache: in a file for the next handler, and at hand for the launchers of this one.
struct Capabilities {
    file: PathBuf,
    content: Mutex<Vec<u8>>,
}

impl Capabilities {
    fn discard(&self) {
        self.content.lock().clear();
        let _ = std::fs::remove_file(&self.file);
    }
}

struct Entry {
    followed: Followed,
    task: AbortHandle,
}

impl Followers {
    /// Followers that call `listener` after each change. `cache_file` keeps libvirt's capability cache.
    pub fn new(
        launchers: Arc<dyn Launchers>,
        cache_file: PathBuf,
        listener: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let content = Mutex::new(std::fs::read(&cache_file).unwrap_or_default());
        let capabilities = Arc::new(Capabilities { file: cache_file, content });
        Self { launchers, capabilities, known: Arc::default(), listener: Arc::new(listener) }
    }

    /// Follows the launcher of a pod from now on.
    pub fn follow(&self, pod_uid: &str) {
        let mut known = self.known.lock();
        if known.contains_key(pod_uid) {
            return;
        }
        let follower = Follower {
            pod_uid: pod_uid.to_owned(),
            launchers: self.launchers.clone(),
            capabilities: self.capabilities.clone(),
            known: self.known.clone(),
            listener: self.listener.clone(),
        };
        let task = tokio::spawn(follower.run()).abort_handle();
        known.insert(pod_uid.to_owned(), Entry { followed: Followed::default(), task });
    }

    /// The pod is gone. What was known about its launcher goes with it.
    pub fn forget(&self, pod_uid: &str) -> Followed {
        let Some(entry) = self.known.lock().remove(pod_uid) else { return Followed::default() };
        entry.task.abort();
        entry.followed
    }

    /// What is known about a pod's launcher.
    pub fn get(&self, pod_uid: &str) -> Followed {
        self.known.lock().get(pod_uid).map(|entry| entry.followed.clone()).unwrap_or_default()
    }

    /// Whether something of a pod runs here, whatever became of its object.
    pub async fn remains(&self, pod_uid: &str) -> std::io::Result<bool> {
        self.launchers.remains(pod_uid).await
    }

    /// Takes note of the answer to a call, which is newer than what the stream has brought.
    pub fn note(&self, pod_uid: &str, report: DomainReport) {
        if let Some(entry) = self.known.lock().get_mut(pod_uid) {
            entry.followed.report = Some(report);
        }
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        for entry in self.known.lock().values() {
            entry.task.abort();
        }
    }
}

struct Follower {
    pod_uid: String,
    launchers: Arc<dyn Launchers>,
    capabilities: Arc<Capabilities>,
    known: Arc<Mutex<BTreeMap<String, Entry>>>,
    listener: Arc<Listener>,
}

impl Follower {
    async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Ok(launcher) = self.launchers.connect(&self.pod_uid).await
                && self.listen(&launcher).await
            {
                pause = FIRST_PAUSE;
            }
            self.change(|followed| std::mem::take(&mut followed.launcher).is_some());
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows one connection to its end; says whether there was anything to hear.
    async fn listen(&self, launcher: &Arc<dyn Launcher>) -> bool {
        let cache = self.capabilities.content.lock().clone();
        let had_cache = !cache.is_empty();
        if let Err(error) = launcher.prepare(cache).await {
            tracing::debug!(pod = %self.pod_uid, %error, "the launcher does not take the capability cache");
            if had_cache && matches!(error, LauncherError::Refused(_)) {
                // Damaged, or of another version: the next launcher that starts brings one.
                self.capabilities.discard();
            }
            return false;
        }
        let Ok(mut events) = launcher.events().await else { return false };
        let mut heard = false;
        let mut pace = Pace::new(Instant::now());
        while let Some(report) = events.next().await {
            if !heard && !had_cache && report.state == DomainState::Absent {
                // Only now: once it has a guest, a launcher's word is not good enough for other guests' launchers.
                self.keep_capabilities(launcher).await;
            }
            heard = true;
            self.change(|followed| {
                let same = followed.launcher.is_some() && followed.report.as_ref() == Some(&report);
                followed.launcher = Some(launcher.clone());
                followed.report = Some(report);
                !same
            });
            let now = Instant::now();
            let next = pace.next(now);
            if next > now {
                tokio::time::sleep_until(next).await;
            }
        }
        heard
    }

    /// What one libvirt found out about QEMU saves the next ones a second each.
    async fn keep_capabilities(&self, launcher: &Arc<dyn Launcher>) {
        let Ok(cache) = launcher.capabilities().await else { return };
        let file = &self.capabilities.file;
        let unfinished = file.with_extension(format!("{}.new", self.pod_uid));
        let kept = async {
            let mut written = tokio::fs::File::create(&unfinished).await?;
            written.write_all(&cache).await?;
            // A name that outlives a power cut shall not have half a file.
            written.sync_all().await?;
            tokio::fs::rename(&unfinished, file).await
        };
        if let Err(error) = kept.await {
            tracing::warn!(%error, "cannot keep libvirt's capability cache in {}", file.display());
        }
        *self.capabilities.content.lock() = cache;
    }

    fn change(&self, change: impl FnOnce(&mut Followed) -> bool) {
        let changed = self.known.lock().get_mut(&self.pod_uid).is_some_and(|entry| change(&mut entry.followed));
        if changed {
            (self.listener)(&self.pod_uid);
        }
    }
}
