//! The client against a real libvirtd in session mode, with a guest that has no disk and never boots.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrovirt_libvirt::{
    Connection, Destroy, Domain, ErrorCode, Event, EventKind, Events, Lifecycle, PausedReason, Start, State,
    StoppedDetail, SuspendedDetail,
};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// libvirtd as root would be the system's; it needs a user with an entry in passwd.
const NOBODY: u32 = 65534;
const PATIENCE: Duration = Duration::from_secs(60);

/// A libvirtd of its own, and the directory that all its files are in.
struct Libvirtd {
    directory: TempDir,
    process: Child,
}

impl Libvirtd {
    fn start() -> Self {
        // Socket paths are short, so the directory is directly below /tmp.
        let directory = tempfile::Builder::new().prefix("fvl").tempdir_in("/tmp").unwrap();
        let root = directory.path();
        for name in ["run", "config/libvirt", "cache", "home"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("libvirtd.conf"), "auth_unix_rw = \"none\"\n").unwrap();
        std::fs::write(root.join("config/libvirt/qemu.conf"), "stdio_handler = \"file\"\n").unwrap();
        give_to_nobody(root);
        let process = Command::new("libvirtd")
            .args(["--config", &root.join("libvirtd.conf").to_string_lossy()])
            .args(["--pid-file", &root.join("pid").to_string_lossy()])
            .env("XDG_RUNTIME_DIR", root.join("run"))
            .env("XDG_CONFIG_HOME", root.join("config"))
            .env("XDG_CACHE_HOME", root.join("cache"))
            .env("HOME", root.join("home"))
            .stdin(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY)
            .spawn()
            .unwrap();
        Self { directory, process }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/libvirt/libvirt-sock")
    }

    async fn connect(&self) -> Connection {
        timeout(PATIENCE, async {
            loop {
                match Connection::open(self.socket(), "qemu:///session").await {
                    Ok(connection) => return connection,
                    Err(ferrovirt_libvirt::Error::Connect { .. }) => sleep(Duration::from_millis(20)).await,
                    Err(other) => panic!("{other}"),
                }
            }
        })
        .await
        .expect("libvirtd listens")
    }

    fn qemu_pid(&self, name: &str) -> Option<i32> {
        let file = self.directory.path().join(format!("run/libvirt/qemu/run/{name}.pid"));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn kill_qemu(&self, name: &str) {
        let pid = self.qemu_pid(name).expect("QEMU has a pid file");
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        let running = std::fs::read_dir(self.directory.path().join("run/libvirt/qemu/run"));
        for file in running.into_iter().flatten().flatten() {
            if let Some(name) = file.file_name().to_string_lossy().strip_suffix(".pid")
                && let Some(pid) = self.qemu_pid(name)
            {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn give_to_nobody(path: &Path) {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| give_to_nobody(&entry.unwrap().path()));
    }
}

fn xml(name: &str) -> String {
    format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>\
         <graphics type='vnc'><listen type='none'/></graphics><video><model type='vga'/></video>\
         <memballoon model='none'/></devices></domain>"
    )
}

/// Waits for a step in the domain's life; other events in between do not matter.
async fn wait_for(events: &mut Events, domain: &Domain, wanted: Lifecycle) {
    let wait = async {
        loop {
            match events.next().await.unwrap() {
                Event::Lifecycle(of, step) if of.uuid == domain.uuid && step == wanted => return,
                _ => {}
            }
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no event {wanted:?}"));
}

#[tokio::test]
async fn a_domain_lives_pauses_and_dies() {
    let libvirtd = Libvirtd::start();
    let libvirt = libvirtd.connect().await;
    assert!(libvirt.libvirt_version().await.unwrap() >= 9_000_000);
    assert!(libvirt.hypervisor_version().await.unwrap() >= 7_002_000);
    let mut events = libvirt.events();
    for kind in [EventKind::Lifecycle, EventKind::Reboot, EventKind::AgentLifecycle, EventKind::IoErrorReason] {
        libvirt.register(kind).await.unwrap();
    }

    let defined = libvirt.define(&xml("life")).await.unwrap();
    assert_eq!((defined.name.as_str(), defined.id), ("life", -1));
    let domain = libvirt.create(&defined, Start::Paused).await.unwrap();
    assert!(domain.id > 0);
    wait_for(&mut events, &domain, Lifecycle::Started).await;
    assert!(matches!(libvirt.state(&domain).await.unwrap(), State::Paused(_)));
    libvirt.resume(&domain).await.unwrap();
    wait_for(&mut events, &domain, Lifecycle::Resumed).await;
    assert_eq!(libvirt.state(&domain).await.unwrap(), State::Running);
    libvirt.suspend(&domain).await.unwrap();
    wait_for(&mut events, &domain, Lifecycle::Suspended(SuspendedDetail::Paused)).await;
    assert_eq!(libvirt.state(&domain).await.unwrap(), State::Paused(PausedReason::User));
    libvirt.resume(&domain).await.unwrap();

    assert!(libvirt.xml(&domain).await.unwrap().contains("machine='pc-q35-"));
    assert!(libvirt.monitor_command(&domain, r#"{"execute":"query-status"}"#).await.unwrap().contains("running"));
    assert_eq!(libvirt.lookup("life").await.unwrap(), domain);
    assert_eq!(libvirt.lookup_uuid(&domain.uuid).await.unwrap(), domain);
    assert_eq!(libvirt.domains().await.unwrap(), std::slice::from_ref(&domain));
    let screenshot = libvirt.screenshot(&domain).await.unwrap();
    assert!(screenshot.mime.starts_with("image/") && screenshot.bytes.len() > 100, "{}", screenshot.mime);
    libvirt.reset(&domain).await.unwrap();

    libvirt.destroy(&domain, Destroy::Graceful).await.unwrap();
    wait_for(&mut events, &domain, Lifecycle::Stopped(StoppedDetail::Destroyed)).await;
    libvirt.undefine(&domain).await.unwrap();
    assert!(libvirt.lookup("life").await.unwrap_err().is_no_domain());
}

#[tokio::test]
async fn a_killed_qemu_is_told_at_once_and_errors_are_typed() {
    let libvirtd = Libvirtd::start();
    let libvirt = libvirtd.connect().await;
    let mut events = libvirt.events();
    libvirt.register(EventKind::Lifecycle).await.unwrap();

    assert_eq!(libvirt.define("<domain").await.unwrap_err().code(), Some(ErrorCode::XmlDetail));
    let domain = libvirt.define(&xml("crash")).await.unwrap();
    assert!(libvirt.suspend(&domain).await.unwrap_err().is_invalid_operation());
    let domain = libvirt.create(&domain, Start::Running).await.unwrap();
    let agent = libvirt.agent_command(&domain, r#"{"execute":"guest-ping"}"#, Duration::from_secs(1)).await;
    assert!(agent.is_err());
    libvirtd.kill_qemu("crash");
    wait_for(&mut events, &domain, Lifecycle::Stopped(StoppedDetail::Failed)).await;
}

#[tokio::test]
async fn nobody_listens() {
    let error = Connection::open("/nonexistent/libvirt-sock", "qemu:///session").await.unwrap_err();
    assert_eq!(error.to_string(), "libvirt's socket /nonexistent/libvirt-sock cannot be reached: is libvirtd running?");
}
