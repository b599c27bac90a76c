//! Network namespaces that go away with the test.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Long enough for a busy machine; a packet that is dropped on purpose costs a test this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// A namespace of this test's own.
pub(super) struct Namespace {
    pub(super) name: String,
}

impl Namespace {
    pub(super) fn new(role: &str) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let namespace = Self { name: format!("fvnet-{}-{number}-{role}", std::process::id()) };
        command("ip", &["netns", "add", &namespace.name]);
        namespace.run("ip link set lo up");
        namespace
    }

    /// Runs a command line inside and returns what it printed.
    pub(super) fn run(&self, line: &str) -> String {
        let words: Vec<&str> = ["netns", "exec", &self.name].into_iter().chain(line.split_whitespace()).collect();
        command("ip", &words)
    }

    /// A handle as virt-handler has one.
    pub(super) fn handle(&self) -> OwnedFd {
        File::open(format!("/run/netns/{}", self.name)).unwrap().into()
    }

    /// Runs code on a thread inside. A socket stays in the namespace that it was made in.
    pub(super) fn inside<T: Send + 'static>(&self, code: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = self.handle();
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            code()
        });
        thread.join().unwrap()
    }

    pub(super) fn listen(&self, address: &str) -> TcpListener {
        let address: SocketAddr = address.parse().unwrap();
        self.inside(move || TcpListener::bind(address)).unwrap()
    }

    /// Connects from inside.
    pub(super) fn connect(&self, address: &str) -> io::Result<TcpStream> {
        let address: SocketAddr = address.parse().unwrap();
        self.inside(move || TcpStream::connect_timeout(&address, PATIENCE))
    }

    /// Whom the listener sees when somebody in this namespace connects to an address; `None` if it sees nobody.
    pub(super) fn seen_by(&self, listener: &TcpListener, address: &str) -> Option<String> {
        let stream = self.connect(address).ok()?;
        listener.set_nonblocking(true).unwrap();
        // The client is told of the connection before the listener is.
        let deadline = Instant::now() + PATIENCE;
        let peer = loop {
            match listener.accept() {
                Ok((_, peer)) => break Some(peer.ip().to_string()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                Err(_) => break None,
            }
        };
        drop(stream);
        peer
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = Command::new("ip").args(["netns", "del", &self.name]).status() {
            eprintln!("{} stays: {error}", self.name);
        }
    }
}

pub(super) fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {out}{err}");
    out.into_owned()
}
