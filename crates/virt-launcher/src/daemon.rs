//! libvirt's daemon: its configuration, its start, and its restart when it dies. QEMU survives that.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::paths;
use ferrovirt_libvirt::{Connection, Error};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::follow::follow;
use crate::guest::Guest;
use crate::reaper::{Children, Exit};

/// How often the socket is tried while the daemon starts. It listens after about 100 ms; less costs CPU then, more costs every start.
const CONNECT_INTERVAL: Duration = Duration::from_millis(5);
/// How often a daemon that listens and refuses is tried.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Pauses between restarts of a daemon that keeps dying: longer each time, so that a broken one does not eat the node.
const RESTART_PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(10)];
const URI: &str = "qemu:///session";

/// The daemon that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    program: PathBuf,
    /// Like `libvirtd`; files are named after it.
    name: &'static str,
    socket: &'static str,
}

const DAEMONS: [(&str, &str); 2] = [("libvirtd", "libvirt-sock"), ("virtqemud", "virtqemud-sock")];
const PROGRAM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/bin", "/usr/libexec"];
const LIBRARY_DIRECTORIES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

impl Daemon {
    /// Finds `libvirtd`, or else `virtqemud`.
    pub fn find() -> Option<Self> {
        DAEMONS.iter().find_map(|(name, socket)| {
            let candidates = PROGRAM_DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
            candidates.into_iter().find(|path| path.exists()).map(|program| Self { program, name, socket })
        })
    }

    fn socket(&self) -> PathBuf {
        Path::new(paths::LIBVIRT).join(self.socket)
    }

    fn config(&self) -> PathBuf {
        Path::new(paths::LIBVIRT).join(format!("{}.conf", self.name))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(self.config()).stdin(Stdio::null());
        command.arg("--pid-file").arg(Path::new(paths::LIBVIRT).join(format!("{}.pid", self.name)));
        // The session's directories: sockets are `<runtime>/libvirt/…`, EFI variables `<config>/libvirt/qemu/nvram/…`.
        let runtime = Path::new(paths::LIBVIRT).parent().unwrap_or(Path::new("/"));
        command.env("XDG_RUNTIME_DIR", runtime).env("HOME", paths::PRIVATE);
        command.env("XDG_CONFIG_HOME", paths::PRIVATE).env("XDG_CACHE_HOME", paths::PRIVATE);
        if let Some(directory) = driver_directory() {
            command.env("LIBVIRT_DRIVER_DIR", directory);
        }
        command
    }

    /// Writes the configuration.
    pub fn configure(&self) -> io::Result<()> {
        std::fs::create_dir_all(paths::LIBVIRT)?;
        // Launchers of two nodes must not look like the same host to a migration.
        let host_uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        std::fs::write(self.config(), daemon_configuration(host_uuid.trim()))?;
        let directory = Path::new(paths::PRIVATE).join("libvirt");
        std::fs::create_dir_all(&directory)?;
        std::fs::write(directory.join("qemu.conf"), QEMU_CONFIGURATION)?;
        link_qemu_driver()
    }
}

/// The capability cache of this launcher's libvirt.
pub fn capability_directory() -> PathBuf {
    Path::new(paths::PRIVATE).join("libvirt/qemu/cache/capabilities")
}

/// Only this user's processes reach the socket's directory, and threads cost memory.
fn daemon_configuration(host_uuid: &str) -> String {
    format!("auth_unix_rw = \"none\"\nhost_uuid = \"{host_uuid}\"\nmin_workers = 1\nprio_workers = 1\n")
}

/// No log daemon; the pod is the sandbox, so libvirt needs none of its own.
const QEMU_CONFIGURATION: &str = "stdio_handler = \"file\"\nsecurity_driver = \"none\"\nremember_owner = 0\nnamespaces = []\ncgroup_controllers = []\n";

fn driver_directory() -> Option<PathBuf> {
    let directory = Path::new(paths::LIBVIRT).join("drivers");
    directory.exists().then_some(directory)
}

/// libvirtd loads all drivers that it finds; with QEMU's alone it needs 4 MiB less and starts sooner.
fn link_qemu_driver() -> io::Result<()> {
    const DRIVER: &str = "libvirt_driver_qemu.so";
    let drivers = LIBRARY_DIRECTORIES.iter().map(|directory| Path::new(directory).join("libvirt/connection-driver"));
    let Some(driver) = drivers.map(|directory| directory.join(DRIVER)).find(|driver| driver.exists()) else {
        return Ok(());
    };
    let directory = Path::new(paths::LIBVIRT).join("drivers");
    std::fs::create_dir_all(&directory)?;
    match std::os::unix::fs::symlink(driver, directory.join(DRIVER)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Runs the daemon for ever and keeps a connection to it.
pub async fn supervise(daemon: Daemon, guest: Arc<Guest>, children: Children) {
    let mut deaths = 0;
    loop {
        match children.spawn(&mut daemon.command()) {
            Ok(mut child) => {
                let exit = attend(&daemon, &guest, &mut child.exit).await;
                guest.set_libvirt(Err(format!("{} ended with {exit} and is started again", daemon.name)));
                tracing::warn!(%exit, "{} ended; it is started again, the guest goes on", daemon.name);
            }
            Err(error) => {
                tracing::error!(%error, "{} cannot be started", daemon.program.display());
                guest.set_libvirt(Err(format!("{} cannot be started: {error}", daemon.program.display())));
            }
        }
        sleep(RESTART_PAUSES[deaths.min(RESTART_PAUSES.len() - 1)]).await;
        deaths += 1;
    }
}

/// Keeps a connection until the daemon ends.
async fn attend(daemon: &Daemon, guest: &Arc<Guest>, exit: &mut oneshot::Receiver<Exit>) -> Exit {
    loop {
        let session = async {
            let connection = connect(&daemon.socket(), guest).await;
            let reason = follow(guest, connection)
                .await
                .err()
                .map_or("it closed the connection".to_owned(), |error| error.to_string());
            tracing::warn!(reason, "the connection to libvirt ended");
            guest.set_libvirt(Err(reason));
            sleep(CONNECT_INTERVAL).await;
        };
        tokio::select! {
            // The reaper holds the other end; without it nothing is left to attend.
            exit = &mut *exit => return exit.unwrap_or(Exit::Code(0)),
            () = session => {}
        }
    }
}

async fn connect(socket: &Path, guest: &Guest) -> Connection {
    loop {
        match Connection::open(socket, URI).await {
            Ok(connection) => return connection,
            Err(Error::Connect { .. }) => sleep(CONNECT_INTERVAL).await,
            Err(error) => {
                tracing::warn!(%error, "libvirt cannot be opened");
                guest.set_libvirt(Err(error.to_string()));
                sleep(OPEN_INTERVAL).await;
            }
        }
    }
}
