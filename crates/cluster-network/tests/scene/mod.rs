//! What tests of the network have in common: a cluster that is removed again, and bytes that go through it.

#![allow(dead_code, reason = "each test program has a part of it")]

use std::{
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrovirt_cluster_network::{Cluster, run_in};

pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Ranges of addresses are free or taken for the whole machine: a test that gives its own back for a moment must not lose it to another.
static ADDRESSES: Mutex<()> = Mutex::new(());

/// A cluster in a temporary directory, which is removed from the machine also when a test fails.
pub(crate) struct Scene {
    directory: tempfile::TempDir,
    _addresses: MutexGuard<'static, ()>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
        Self { directory: tempfile::tempdir().unwrap(), _addresses: addresses }
    }

    pub(crate) async fn open(&self) -> Cluster {
        Cluster::open(self.directory.path(), "test").await.unwrap()
    }

    /// Where its state is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let directory = self.directory.path().to_owned();
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(Cluster::remove_at(&directory))
        });
        if let Err(error) = removal.join().expect("removal does not panic") {
            eprintln!("cannot remove the cluster: {error:?}");
        }
    }
}

pub(crate) fn uid(name: &str) -> String {
    format!("{name}-{}-{:x}", std::process::id(), rand_suffix())
}

fn rand_suffix() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}

/// Sends bytes from one place to an address that a listener in another place has, and back.
pub(crate) fn exchange(server: Option<&Path>, address: IpAddr, client: Option<&Path>) -> io::Result<SocketAddr> {
    let listener = at(server, move || TcpListener::bind((address, 0)))?;
    let target = listener.local_addr()?;
    let serving = std::thread::spawn(move || -> io::Result<SocketAddr> {
        let (mut connection, peer) = listener.accept()?;
        let mut received = [0; 4];
        connection.read_exact(&mut received)?;
        connection.write_all(&received)?;
        Ok(peer)
    });
    let mut connection = at(client, move || TcpStream::connect_timeout(&target, PATIENCE))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"ping")?;
    let mut answer = [0; 4];
    connection.read_exact(&mut answer)?;
    assert_eq!(&answer, b"ping");
    serving.join().unwrap()
}

fn at<T: Send + 'static>(
    namespace: Option<&Path>,
    function: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match namespace {
        Some(path) => run_in(path, function),
        None => function(),
    }
}

pub(crate) fn output(command: &str, arguments: &[&str]) -> String {
    String::from_utf8(Command::new(command).args(arguments).output().unwrap().stdout).unwrap()
}
