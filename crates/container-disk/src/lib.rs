//! The program that keeps a container disk's image at hand where a cluster has no image volumes.
//!
//! ```text
//!   init container (launcher's image)    install DIR     copies this program into a volume of the pod
//!   sidecar (the disk's image)           hold SOCKET     listens until it is told to end, and answers each byte with itself
//!   virt-handler                         connects: the kernel says which process listens, and that process has the image as its root
//! ```
//!
//! In a disk's image there is nothing else, not even a C library, so this program has to be linked statically; it is an own one to be small,
//! as every such pod has a copy. It takes nothing from the image and reads nothing but bytes that it returns.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

/// The name of the copy.
pub const PROGRAM: &str = "container-disk";

/// Whether this program runs in a tree without libraries.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");

/// Copies this program into `directory`.
///
/// # Errors
/// When it could not run in a disk's image, or the copy cannot be written.
pub fn install(directory: &Path) -> io::Result<()> {
    if !IS_STATIC {
        let reason = "this container-disk needs libraries that a disk's image does not have; build it for x86_64-unknown-linux-musl";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    copy(Path::new("/proc/self/exe"), directory)
}

/// Under another name first: a program that is half there must not be started.
fn copy(program: &Path, directory: &Path) -> io::Result<()> {
    let unfinished = directory.join(format!(".{PROGRAM}.new"));
    fs::copy(program, &unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755))?;
    fs::rename(&unfinished, directory.join(PROGRAM))
}

/// Listens on `socket` until SIGTERM or SIGINT.
///
/// # Errors
/// When the socket cannot be made, or signals cannot be received.
pub async fn hold(socket: &Path) -> io::Result<()> {
    // Before anybody can find the socket: the first process of a container ignores what it has no handler for.
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = listen(socket)?;
    loop {
        tokio::select! {
            _ = terminated.recv() => return Ok(()),
            _ = interrupted.recv() => return Ok(()),
            caller = listener.accept() => {
                tokio::spawn(echo(caller?.0));
            }
        }
    }
}

/// One that was restarted finds its own old socket.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(socket)
}

/// An answer proves that the process which listens is alive at that moment.
async fn echo(mut caller: UnixStream) {
    while let Ok(byte) = caller.read_u8().await {
        if caller.write_u8(byte).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_can_be_run_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        for content in ["old", "new"] {
            let program = directory.path().join("source");
            fs::write(&program, content).unwrap();
            let target = directory.path().join("volume");
            fs::create_dir_all(&target).unwrap();
            copy(&program, &target).unwrap();
            let copied = target.join(PROGRAM);
            assert_eq!(fs::read_to_string(&copied).unwrap(), content);
            assert_eq!(copied.metadata().unwrap().permissions().mode() & 0o777, 0o755);
            assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_program_that_needs_libraries_is_not_copied() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(install(directory.path()).is_ok(), IS_STATIC);
        assert_eq!(directory.path().join(PROGRAM).exists(), IS_STATIC);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn it_answers_and_ends_when_told_to() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("disk.sock");
        // What an earlier one has left behind.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let holder = tokio::spawn({
            let socket = socket.clone();
            async move { hold(&socket).await }
        });
        let mut caller = loop {
            match UnixStream::connect(&socket).await {
                Ok(caller) => break caller,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        for byte in [7, 0] {
            caller.write_u8(byte).await.unwrap();
            assert_eq!(caller.read_u8().await.unwrap(), byte);
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        holder.await.unwrap().unwrap();
    }
}
