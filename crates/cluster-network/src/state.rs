//! What the cluster remembers on disk, and the locks that keep its processes from doing the same thing twice.
//!
//! ```text
//! <directory>/network.json               id and ranges
//! <directory>/network/<node>/index       the index of a node
//! <directory>/network/<node>/pods/…      its pods' addresses (allocation.rs)
//! <directory>/network/<node>/policies.nft  rules of network policies, where there are any
//! /run/ferrovirt/network.lock            held while something of the host changes
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{NetworkError, addresses::Range};

/// Directory for what concerns all clusters of the machine, and ends with its boot.
pub(crate) const RUN: &str = "/run/ferrovirt";

/// What is remembered about a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Eight hexadecimal digits: part of every name on the host.
    pub(crate) id: String,
    /// The name of the cluster, for people who read the file.
    pub(crate) name: String,
    /// Its addresses.
    pub(crate) range: Range,
}

/// The files of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct State {
    directory: PathBuf,
}

impl State {
    pub(crate) fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// What was remembered, if anything.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, NetworkError> {
        let path = self.identity_file();
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(NetworkError::State { operation: "read", path, source }),
        };
        let parsed = serde_json::from_slice::<Identity>(&content);
        let identity =
            parsed.map_err(|error| NetworkError::Damaged { path: path.clone(), reason: error.to_string() })?;
        let valid = identity.id.len() == 8 && identity.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !valid {
            return Err(NetworkError::Damaged { path, reason: format!("{:?} is no id", identity.id) });
        }
        Ok(Some(identity))
    }

    pub(crate) fn remember(&self, identity: &Identity) -> Result<(), NetworkError> {
        let path = self.identity_file();
        let content = serde_json::to_vec_pretty(identity)
            .map_err(|error| NetworkError::Damaged { path: path.clone(), reason: error.to_string() })?;
        write(&path, &content)
    }

    /// The directory of one node's files.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.nodes_directory().join(name)
    }

    /// The nodes that were made, with their indexes.
    pub(crate) fn nodes(&self) -> Result<Vec<(String, u8)>, NetworkError> {
        let path = self.nodes_directory();
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(NetworkError::State { operation: "list", path, source }),
        };
        let mut nodes = Vec::new();
        for entry in entries {
            let entry =
                entry.map_err(|source| NetworkError::State { operation: "list", path: path.clone(), source })?;
            let index = fs::read_to_string(entry.path().join("index")).ok();
            let index = index.and_then(|text| text.trim().parse().ok());
            nodes.extend(entry.file_name().into_string().ok().zip(index));
        }
        Ok(nodes)
    }

    /// Remembers that the node was made, before anything of it is.
    pub(crate) fn remember_node(&self, name: &str, index: u8) -> Result<(), NetworkError> {
        write(&self.node(name).join("index"), index.to_string().as_bytes())
    }

    /// Forgets a node with all of its pods.
    pub(crate) fn forget_node(&self, name: &str) -> Result<(), NetworkError> {
        let path = self.node(name);
        absent_is_fine(fs::remove_dir_all(&path)).map_err(|source| NetworkError::State {
            operation: "remove",
            path,
            source,
        })
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) -> Result<(), NetworkError> {
        let (nodes, identity) = (self.nodes_directory(), self.identity_file());
        absent_is_fine(fs::remove_dir_all(&nodes)).map_err(|source| NetworkError::State {
            operation: "remove",
            path: nodes,
            source,
        })?;
        absent_is_fine(fs::remove_file(&identity)).map_err(|source| NetworkError::State {
            operation: "remove",
            path: identity,
            source,
        })
    }

    fn identity_file(&self) -> PathBuf {
        self.directory.join("network.json")
    }

    fn nodes_directory(&self) -> PathBuf {
        self.directory.join("network")
    }
}

/// A text that is there or not.
pub(crate) struct Remembered {
    path: PathBuf,
}

impl Remembered {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn read(&self) -> Result<Option<String>, NetworkError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(NetworkError::State { operation: "read", path: self.path.clone(), source }),
        }
    }

    pub(crate) fn write(&self, text: Option<&str>) -> Result<(), NetworkError> {
        match text {
            Some(text) => write(&self.path, text.as_bytes()),
            None => absent_is_fine(fs::remove_file(&self.path)).map_err(|source| NetworkError::State {
                operation: "remove",
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// Held by one process of the machine at a time; released with the value, or the process.
pub(crate) struct Lock {
    _file: fs::File,
}

impl Lock {
    /// The lock on what clusters share: the choice of ranges, and forwarding.
    pub(crate) async fn host() -> Result<Self, NetworkError> {
        let path = Path::new(RUN).join("network.lock");
        let failed =
            |source| NetworkError::State { operation: "lock", path: Path::new(RUN).join("network.lock"), source };
        let taken = tokio::task::spawn_blocking(move || Self::take(&path)).await;
        taken.unwrap_or_else(|panic| Err(failed(io::Error::other(panic))))
    }

    /// Waits for the lock of that file. The waiting blocks the thread, so only what takes microseconds may be done under it in async code.
    pub(crate) fn take(path: &Path) -> Result<Self, NetworkError> {
        let failed = |source| NetworkError::State { operation: "lock", path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let file = fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { _file: file })
    }
}

/// Writes a file so that a crash leaves the old content or the new one.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), NetworkError> {
    let failed = |source| NetworkError::State { operation: "write", path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let temporary = path.with_extension("new");
    fs::write(&temporary, content).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

/// Something that is gone need not be removed.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether a name may be part of the name of a file and a namespace.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), NetworkError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if name.is_empty() || name.len() > 63 || name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(NetworkError::InvalidName { what, name: name.to_owned() });
    }
    Ok(())
}

/// Hexadecimal digits that stand for `text` in names of links, which have room for fifteen characters. FNV-1a: the result has to be
/// the same in every build, as links outlive the process.
pub(crate) fn digits(text: &str, count: usize) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mut digits = format!("{hash:016x}");
    digits.truncate(count);
    digits
}
