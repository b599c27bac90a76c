//! Puts the parts together.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use ferrovirt_launcher_rpc::paths;
use rustix::process::{getpid, set_child_subreaper};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::daemon::{Daemon, supervise};
use crate::guest::{Guest, Identity};
use crate::migration::Moves;
use crate::reaper::Children;
use crate::server::Server;
use crate::start::Starter;
use crate::{ending, serial_log};

/// Runs until the guest ended. The code is 0 when it ended as asked.
pub async fn run(identity: Identity) -> anyhow::Result<ExitCode> {
    // Pid 1 gets orphans anyway; any other process has to ask for them.
    set_child_subreaper(Some(getpid())).context("orphans cannot be adopted")?;
    let children = Children::default();
    tokio::spawn(children.clone().reap_for_ever());
    let terminations = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let guest = Guest::new(identity, children.clone());
    for termination in terminations {
        tokio::spawn(end_on(termination.context("signals cannot be received")?, guest.clone()));
    }

    let daemon = Daemon::find().context("neither libvirtd nor virtqemud is installed in this image")?;
    daemon
        .configure()
        .with_context(|| format!("libvirt's configuration cannot be written below {}", paths::LIBVIRT))?;
    tokio::spawn(run_libvirt(daemon, guest.clone(), children.clone()));
    tokio::spawn(ending::bring_about(guest.clone()));
    tokio::spawn(serial_log::keep_small(guest.identity.uid.clone()));

    std::fs::create_dir_all(paths::SOCKETS).with_context(|| format!("{} cannot be made", paths::SOCKETS))?;
    let socket = Path::new(paths::SOCKETS).join(paths::LAUNCHER_SOCKET);
    let listener = Server::listen(&socket).with_context(|| format!("{} cannot be made", socket.display()))?;
    let moves = Moves::new(guest.clone(), children.clone());
    let starter = Arc::new(Starter::new(guest.clone(), children));
    tokio::spawn(Server::new(guest.clone(), starter, moves).serve(listener));
    let Identity { uid, name, namespace, .. } = &guest.identity;
    tracing::info!(uid, name, namespace, "virt-launcher is ready");

    let reason = ending::wait(&guest).await;
    ending::speak(&ending::final_words(reason, guest.report()));
    Ok(if guest.life().ended_as_asked() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The pod is to end: the guest gets its grace period.
async fn end_on(mut termination: Signal, guest: Arc<Guest>) {
    while termination.recv().await.is_some() {
        tracing::info!(grace = ?guest.identity.grace, "told to end");
        guest.ask_to_end(guest.identity.grace);
    }
}

/// libvirt starts when the handler has brought the capability cache, or asks for the guest without one.
async fn run_libvirt(daemon: Daemon, guest: Arc<Guest>, children: Children) {
    guest.libvirt_wanted.notified().await;
    supervise(daemon, guest, children).await;
}
