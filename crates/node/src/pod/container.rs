//! One container on this machine: started, found again after a restart, and its end collected.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrovirt_kubernetes::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use tokio::sync::watch;
use tokio::time::Instant;

use super::images;
use super::lifecycle::HEALTHY;
use super::record::{ContainerRecord, Stage, Termination};
use super::status::Waiting;
use super::worker::Desired;
use crate::context::Context;
use crate::layout::{ContainerLayout, PodLayout};
use crate::oci::container::{self as oci, HostDevice, Inputs, PreparedVolume};
use crate::oci::environment;
use crate::oci::resources::wanted_devices;
use crate::oci::security;
use crate::oci::spec::Mount;
use crate::process::{Process, ProcessIdentity};
use crate::runtime::RuntimeError;
use crate::sources::{Image, PodNetwork};
use crate::{cgroups, files, host_root, mounts};

/// How long the monitor may take to write down an exit code that it has seen. Longer, and it was killed itself.
const EXIT_CODE_PATIENCE: Duration = Duration::from_secs(5);
/// Last words are cut to this length, as a kubelet does.
const LONGEST_MESSAGE: usize = 4096;
/// The share of a log that can stand in for last words.
const LONGEST_LOG_MESSAGE: usize = 2048;
/// The end of a log, with the time before each line, that such a share is found in.
const LOG_LOOKED_AT: usize = 128 * 1024;
/// Files of an image that are read when a container starts are cut to this length.
const LONGEST_IMAGE_FILE: u64 = 1024 * 1024;

/// Why a container did not start: what its status shows.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The image is not there.
    #[error(transparent)]
    Image(#[from] crate::sources::ImageProblem),
    /// Its settings cannot be honoured.
    #[error("{0}")]
    Config(String),
    /// The pod is to end, so nothing is started any more.
    #[error("the pod is being deleted")]
    Ending,
    /// The runtime refused.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The file system refused.
    #[error("cannot {operation} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl StartError {
    /// The waiting reason that a kubelet gives; `repeated`: it is not the first time.
    pub fn waiting(&self, repeated: bool) -> Waiting {
        let reason = match self {
            Self::Image(problem) => match images::reason(problem) {
                "ErrImagePull" if repeated => "ImagePullBackOff",
                reason => reason,
            },
            Self::Config(_) => "CreateContainerConfigError",
            Self::Ending => "ContainerCreating",
            Self::Runtime(_) | Self::Io { .. } => "CreateContainerError",
        };
        Waiting::new(reason, self.to_string())
    }
}

/// The pod around a container.
pub(crate) struct Surroundings<'a> {
    pub(crate) node: &'a Context,
    pub(crate) pod: &'a Pod,
    pub(crate) layout: &'a PodLayout,
    pub(crate) network: &'a PodNetwork,
    pub(crate) volumes: &'a [PreparedVolume],
    pub(crate) desired: watch::Receiver<Desired>,
}

/// A file tree for a container.
struct Tree {
    root: PathBuf,
    read_only: bool,
    mounts: Vec<Mount>,
    image: Image,
}

impl Surroundings<'_> {
    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Starts a container: a new attempt, unless the last one was not finished. `record` is on disk before the runtime is asked.
    pub(crate) async fn start(&self, container: &Container, record: &mut ContainerRecord) -> Result<(), StartError> {
        let layout = self.layout.container(&container.name);
        let io_error = |operation| {
            let path = layout.bundle().to_owned();
            move |source| StartError::Io { operation, path, source }
        };
        let mut desired = self.desired.clone();
        // A pull may take long. What follows is short, and must not stop half way.
        let tree = tokio::select! {
            biased;
            tree = self.tree(container, &layout) => tree?,
            _ = desired.wait_for(Desired::is_ending) => return Err(StartError::Ending),
        };
        if let Stage::Ended(end) = &record.stage {
            record.previous = Some(end.clone());
            record.attempt += 1;
        }
        record.id = ContainerRecord::id_of(self.uid(), &container.name, record.attempt);
        record.image_id = tree.image.digest.clone();
        record.volume_images =
            self.volumes.iter().filter_map(|volume| Some((volume.name.clone(), volume.image.clone()?))).collect();
        record.stop_signal = tree.image.stop_signal.clone();
        record.stage = Stage::Creating;
        let spec = self.spec(container, &layout, &tree).await?;
        let clean = || -> io::Result<()> {
            files::remove_file(&layout.pid())?;
            files::remove_file(&layout.monitor_pid())?;
            files::remove_file(&layout.exits().join(&record.id))?;
            if record.attempt >= 2 {
                files::remove_file(&layout.log(record.attempt - 2))?;
            }
            fs::write(layout.termination_log(), "")?;
            // Whoever the container runs as writes to it.
            fs::set_permissions(layout.termination_log(), fs::Permissions::from_mode(0o666))?;
            files::write_json(&layout.config(), &spec)?;
            record.write(&layout)
        };
        clean().map_err(io_error("prepare"))?;
        self.node.runtime.delete(&record.id).await?;
        let log = layout.log(record.attempt);
        let pid = self.node.runtime.create(&record.id, &layout, &log, container.tty == Some(true)).await?;
        self.node.runtime.start(&record.id).await?;
        set_running(record, pid);
        record.write(&layout).map_err(io_error("write to"))
    }

    /// The container's file tree: the machine's own, or an image, below a layer that takes the writes.
    async fn tree(&self, container: &Container, layout: &ContainerLayout) -> Result<Tree, StartError> {
        let io_error = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| StartError::Io { operation, path, source }
        };
        fs::create_dir_all(layout.bundle()).map_err(io_error("make", layout.bundle()))?;
        let (overlay, reference) = (layout.overlay(), container.image.as_deref().unwrap_or_default());
        if reference.split([':', '@']).next() == Some(host_root::IMAGE) {
            let image = Image {
                digest: host_root::IMAGE.to_owned(),
                environment: vec![format!("PATH={}", host_root::SEARCH_PATH)],
                ..Image::default()
            };
            let (tree, binaries) = (self.node.layout.host_root(), &self.node.config.binaries);
            let made = mounts::remove_layers(&overlay).and_then(|()| host_root::assemble(&tree, binaries, &overlay));
            let (root, mounts) = made.map_err(io_error("make a root in", &overlay))?;
            return Ok(Tree { root, read_only: true, mounts, image });
        }
        let policy = images::policy(container.image_pull_policy.as_deref(), reference);
        let secrets = self.node.objects.pull_secrets(self.pod).await;
        let image = self.node.images.resolve(reference, policy, &secrets, &self.node.holder(self.uid())).await?;
        let made = mounts::remove_layers(&overlay).and_then(|()| mounts::overlay(&image.root, &overlay));
        let root = made.map_err(io_error("mount the image on", &overlay))?;
        Ok(Tree { root, read_only: false, mounts: Vec::new(), image })
    }

    async fn spec(
        &self,
        container: &Container,
        layout: &ContainerLayout,
        tree: &Tree,
    ) -> Result<crate::oci::spec::Spec, StartError> {
        let config = |error: &dyn std::fmt::Display| StartError::Config(error.to_string());
        let spec = self.pod.spec.as_ref().ok_or_else(|| StartError::Config("the pod has no spec".to_owned()))?;
        let file = |path: &str| files::read_inside(&tree.root, path, LONGEST_IMAGE_FILE).unwrap_or_default();
        let user = security::user(spec, container, &tree.image.user, &file("etc/passwd"), &file("etc/group"));
        let user = user.map_err(|error| config(&error))?;
        let wanted = environment::wanted(container);
        let data = self.node.objects.keyed(self.pod, &wanted).await.map_err(|error| config(&error))?;
        let facts = self.node.facts(self.network.addresses.clone());
        let image_environment = image_environment(&tree.image, container, self.pod);
        let environment = environment::variables(self.pod, container, &image_environment, &facts, &data)
            .map_err(|error| config(&error))?;
        let arguments = environment::arguments(container, &tree.image.entrypoint, &tree.image.command, &environment);
        if arguments.is_empty() {
            return Err(StartError::Config("no command: neither the pod nor the image names one".to_owned()));
        }
        let own_directory = container.working_dir.as_deref().filter(|directory| !directory.is_empty());
        let inputs = Inputs {
            pod: self.pod,
            container,
            root: &tree.root,
            root_read_only: tree.read_only,
            root_mounts: tree.mounts.clone(),
            user,
            arguments,
            environment,
            working_directory: own_directory.unwrap_or(&tree.image.working_directory),
            volume_mounts: self.volume_mounts(container)?,
            read_only_volumes: self.volumes.iter().filter(|v| v.read_only).map(|v| v.name.clone()).collect(),
            devices: self.devices(container)?,
            etc: &self.layout.etc(),
            termination_log: &layout.termination_log(),
            network: &self.network.namespace,
            shared: shares(self.pod).then(|| (self.layout.ipc_namespace(), self.layout.shared_memory())),
            cgroup: oci::cgroup(&self.node.config.name, self.uid(), &container.name),
        };
        Ok(oci::spec(&inputs))
    }

    fn volume(&self, name: &str) -> Result<&PreparedVolume, StartError> {
        let found = self.volumes.iter().find(|volume| volume.name == name);
        found.ok_or_else(|| StartError::Config(format!("the pod has no volume {name:?}")))
    }

    /// Sources of the container's mounts, parts of volumes mounted by themselves.
    fn volume_mounts(&self, container: &Container) -> Result<Vec<PathBuf>, StartError> {
        let mut sources = Vec::new();
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let volume = self.volume(&mount.name)?;
            let part = mount.sub_path.as_deref().unwrap_or_default();
            if mount.sub_path_expr.as_deref().is_some_and(|part| !part.is_empty()) {
                let message = format!("volume mount {}: this node knows no subPathExpr, use subPath", mount.mount_path);
                return Err(StartError::Config(message));
            }
            if part.is_empty() {
                sources.push(volume.source.clone());
                continue;
            }
            let target = self.layout.sub_path(&container.name, index);
            let io_error =
                |source| StartError::Io { operation: "mount a part of", path: volume.source.clone(), source };
            mounts::part_of_volume(&volume.source, part, &target).map_err(io_error)?;
            sources.push(target);
        }
        Ok(sources)
    }

    /// Devices that are asked for as resources, and claims in block mode.
    fn devices(&self, container: &Container) -> Result<Vec<HostDevice>, StartError> {
        let wanted = wanted_devices(container.resources.as_ref()).map_err(StartError::Config)?;
        let mut devices = Vec::new();
        for path in wanted {
            devices.push(device(Path::new(path), path)?);
        }
        for block in container.volume_devices.iter().flatten() {
            devices.push(device(&self.volume(&block.name)?.source, &block.device_path)?);
        }
        Ok(devices)
    }
}

/// The machine's device `source` under the name `path`.
fn device(source: &Path, path: &str) -> Result<HostDevice, StartError> {
    let metadata = fs::metadata(source)
        .map_err(|error| StartError::Config(format!("device {} is not on this node: {error}", source.display())))?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => 'c',
        kind if kind.is_block_device() => 'b',
        _ => return Err(StartError::Config(format!("{} is no device", source.display()))),
    };
    let number = metadata.rdev();
    Ok(HostDevice { path: path.to_owned(), kind, major: rustix::fs::major(number), minor: rustix::fs::minor(number) })
}

fn image_environment(image: &Image, container: &Container, pod: &Pod) -> Vec<String> {
    let mut environment = image.environment.clone();
    let mut default = |name: &str, value: &str| {
        if !environment.iter().any(|present| present.split('=').next() == Some(name)) {
            environment.push(format!("{name}={value}"));
        }
    };
    default("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    default("HOSTNAME", &oci::hostname(pod));
    if container.tty == Some(true) {
        default("TERM", "xterm");
    }
    environment
}

/// Containers of the pod share IPC and memory: it has more than one.
pub(crate) fn shares(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers.len() + spec.init_containers.iter().flatten().count() > 1)
}

fn set_running(record: &mut ContainerRecord, pid: u32) {
    let process = ProcessIdentity::of(pid);
    // One that has ended already is still a process that ran.
    let process = process.unwrap_or(ProcessIdentity { pid, start_ticks: 0, boot: String::new() });
    record.stage = Stage::Running { process, started_at: Timestamp::now() };
}

/// Looks at a container that should run. Returns its process when it does; else its record says how it ended.
pub(crate) async fn observe(
    node: &Context,
    uid: &str,
    container: &Container,
    layout: &ContainerLayout,
    record: &mut ContainerRecord,
) -> Result<Option<Arc<Process>>, StartError> {
    if record.stage == Stage::Creating {
        adopt_half_made(node, layout, record).await?;
    }
    let Stage::Running { process, started_at } = &record.stage else { return Ok(None) };
    let io_error = |operation| move |source| StartError::Io { operation, path: layout.record(), source };
    if let Some(process) = Process::find(process).map_err(io_error("find the process of"))? {
        return Ok(Some(Arc::new(process)));
    }
    let group = oci::cgroup(&node.config.name, uid, &container.name);
    let mut end = collect_end(layout, record, *started_at).await;
    if end.exit_code == 137 && cgroups::out_of_memory(&group) {
        end.reason = "OOMKilled".to_owned();
    }
    end.message = last_words(container, layout, record.attempt, end.exit_code);
    let ran = end.finished_at.duration_since(*started_at);
    record.quick_ends = if ran.unsigned_abs() >= HEALTHY { 0 } else { record.quick_ends.saturating_add(1) };
    record.stage = Stage::Ended(end);
    record.write(layout).map_err(io_error("write"))?;
    node.runtime.delete(&record.id).await?;
    Ok(None)
}

/// A monitor that another process started has not asked the runtime yet.
pub(crate) fn is_being_made(node: &Context, layout: &ContainerLayout, record: &ContainerRecord) -> bool {
    record.stage == Stage::Creating && !node.runtime.knows(&record.id) && monitor_lives(layout)
}

/// This process ended between asking for the container and writing down that it runs.
async fn adopt_half_made(
    node: &Context,
    layout: &ContainerLayout,
    record: &mut ContainerRecord,
) -> Result<(), StartError> {
    if is_being_made(node, layout, record) {
        let message = "its monitor is still at work".to_owned();
        return Err(RuntimeError::Refused { operation: "adopt container", message }.into());
    }
    let state = node.runtime.state(&record.id).await?;
    match state.as_ref().map(|state| (state.status.as_str(), state.pid)) {
        Some(("running", pid)) => set_running(record, pid),
        // Nothing of it has run yet, so one whose monitor is gone can be made anew.
        Some(("created", pid)) if monitor_lives(layout) => {
            node.runtime.start(&record.id).await?;
            set_running(record, pid);
        }
        // It ended before anybody looked, or it never was.
        _ if layout.exits().join(&record.id).exists() => set_running(record, 0),
        _ => {
            node.runtime.delete(&record.id).await?;
            record.stage = match record.previous.take() {
                Some(end) => {
                    record.attempt = record.attempt.saturating_sub(1);
                    Stage::Ended(end)
                }
                None => Stage::New,
            };
        }
    }
    record.write(layout).map_err(|source| StartError::Io { operation: "write", path: layout.record(), source })
}

/// Reads the exit code that the monitor writes as soon as it has seen the end.
async fn collect_end(layout: &ContainerLayout, record: &ContainerRecord, started_at: Timestamp) -> Termination {
    let path = layout.exits().join(&record.id);
    let deadline = Instant::now() + EXIT_CODE_PATIENCE;
    let mut pause = Duration::from_millis(2);
    loop {
        let code = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
        if let Some(exit_code) = code {
            let finished =
                fs::metadata(&path).and_then(|metadata| metadata.modified()).unwrap_or_else(|_| SystemTime::now());
            return Termination {
                exit_code,
                reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
                message: None,
                started_at: Some(started_at),
                finished_at: Timestamp::try_from(finished).unwrap_or_else(|_| Timestamp::now()),
                id: record.id.clone(),
            };
        }
        if Instant::now() >= deadline || !monitor_lives(layout) {
            return lost(record, Some(started_at));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

fn monitor_lives(layout: &ContainerLayout) -> bool {
    let pid = fs::read_to_string(layout.monitor_pid()).ok().and_then(|pid| pid.trim().parse().ok());
    pid.is_some_and(|pid| ProcessIdentity::of(pid).is_some())
}

/// A container that ended while nobody looked: the machine was switched off, or its monitor was killed.
pub(crate) fn lost(record: &ContainerRecord, started_at: Option<Timestamp>) -> Termination {
    Termination {
        exit_code: 137,
        reason: "ContainerStatusUnknown".to_owned(),
        message: Some("the container was gone when the node looked for it".to_owned()),
        started_at,
        finished_at: Timestamp::now(),
        id: record.id.clone(),
    }
}

/// What the container left as its last words, or the end of its log.
fn last_words(container: &Container, layout: &ContainerLayout, attempt: u32, exit_code: i32) -> Option<String> {
    let written = files::end_of(&layout.termination_log(), LONGEST_MESSAGE).unwrap_or_default();
    if !written.is_empty() {
        return Some(String::from_utf8_lossy(&written).into_owned());
    }
    let fall_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if !fall_back || exit_code == 0 {
        return None;
    }
    let log = files::end_of(&layout.log(attempt), LOG_LOOKED_AT).unwrap_or_default();
    let mut log = &*String::from_utf8_lossy(&log);
    if log.len() >= LOG_LOOKED_AT {
        // It begins in the middle of a line.
        log = log.split_once('\n').map_or("", |(_, rest)| rest);
    }
    let mut lines: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let mut length = 0;
    let first = lines.iter().rposition(|line| {
        length += line.len() + 1;
        length > LONGEST_LOG_MESSAGE
    });
    lines.drain(..first.map_or(0, |first| first + 1));
    Some(lines.join("\n")).filter(|text| !text.is_empty())
}
