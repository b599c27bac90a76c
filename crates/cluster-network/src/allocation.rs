//! Which pod of a node has which address.
//!
//! One empty file for each pod, whose name says everything: `017_<uid>` has host number 17. So one look at the directory shows all
//! addresses in use, and making the file is the allocation. A pod whose network is complete has the word `attached` in its file, and
//! after it the hardware address of a bridged guest that has one of its own.
//! Numbers are given out in turn, so that an address rests before another pod gets it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    Mac, NetworkError,
    addresses::POD_HOSTS,
    state::{Lock, absent_is_fine, write},
};

const ATTACHED: &str = "attached";

/// The addresses of one node.
#[derive(Clone, Debug)]
pub(crate) struct Allocations {
    node: String,
    directory: PathBuf,
}

/// One address that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The host number.
    pub(crate) host: u8,
    /// The pod that has it.
    pub(crate) uid: String,
}

impl Allocations {
    /// The allocations of a node whose files are in `directory`.
    pub(crate) fn of(node: &str, directory: &Path) -> Self {
        Self { node: node.to_owned(), directory: directory.join("pods") }
    }

    /// The pod's address: the one that it has, or one that nobody has.
    pub(crate) fn allocate(&self, uid: &str) -> Result<Allocation, NetworkError> {
        let _lock = Lock::take(&self.directory.with_extension("lock"))?;
        let present = self.list()?;
        if let Some(found) = present.iter().find(|allocation| allocation.uid == uid) {
            return Ok(found.clone());
        }
        let used: BTreeSet<u8> = present.iter().map(|allocation| allocation.host).collect();
        let cursor = self.directory.with_extension("last");
        let last = fs::read_to_string(&cursor).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let host = next_free(&used, last)
            .ok_or_else(|| NetworkError::Exhausted { node: self.node.clone(), capacity: POD_HOSTS.count() })?;
        let allocation = Allocation { host, uid: uid.to_owned() };
        fs::create_dir_all(&self.directory).map_err(|source| self.failed("create", source))?;
        fs::write(self.file(&allocation), "").map_err(|source| self.failed("write into", source))?;
        write(&cursor, host.to_string().as_bytes())?;
        Ok(allocation)
    }

    /// The pod's address, if it has one.
    pub(crate) fn find(&self, uid: &str) -> Result<Option<Allocation>, NetworkError> {
        Ok(self.list()?.into_iter().find(|allocation| allocation.uid == uid))
    }

    /// All addresses in use.
    pub(crate) fn list(&self) -> Result<Vec<Allocation>, NetworkError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.failed("list", source)),
        };
        let mut allocations = Vec::new();
        for entry in entries {
            let name = entry.map_err(|source| self.failed("list", source))?.file_name();
            allocations.extend(name.to_str().and_then(parse));
        }
        allocations.sort_by_key(|allocation| allocation.host);
        Ok(allocations)
    }

    /// Whether the pod's network was complete once.
    pub(crate) fn is_attached(&self, allocation: &Allocation) -> bool {
        self.words(allocation).first().is_some_and(|word| word == ATTACHED)
    }

    /// The hardware address of the pod's guest, where it is not the pod's.
    pub(crate) fn guest(&self, allocation: &Allocation) -> Option<Mac> {
        self.words(allocation).get(1)?.parse().ok()
    }

    /// Notes the hardware address of the guest of a pod whose network is complete.
    pub(crate) fn set_guest(&self, allocation: &Allocation, guest: Option<Mac>) -> Result<(), NetworkError> {
        let content = guest.map_or_else(|| ATTACHED.to_owned(), |mac| format!("{ATTACHED} {mac}"));
        // In one step: an empty file would say that the network of a guest that runs is to be made again.
        let next = self.directory.with_extension(format!("{}-guest", allocation.host));
        let written = fs::write(&next, content).and_then(|()| fs::rename(&next, self.file(allocation)));
        written.map_err(|source| self.failed("write into", source))
    }

    fn words(&self, allocation: &Allocation) -> Vec<String> {
        let content = fs::read_to_string(self.file(allocation)).unwrap_or_default();
        content.split_whitespace().map(str::to_owned).collect()
    }

    /// Notes that the pod's network is complete, or that it has to be made again.
    pub(crate) fn set_attached(&self, allocation: &Allocation, attached: bool) -> Result<(), NetworkError> {
        let content = if attached { ATTACHED } else { "" };
        fs::write(self.file(allocation), content).map_err(|source| self.failed("write into", source))
    }

    /// Makes the address available to others.
    pub(crate) fn release(&self, allocation: &Allocation) -> Result<(), NetworkError> {
        absent_is_fine(fs::remove_file(self.file(allocation))).map_err(|source| self.failed("remove a file of", source))
    }

    fn file(&self, allocation: &Allocation) -> PathBuf {
        self.directory.join(format!("{:03}_{}", allocation.host, allocation.uid))
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> NetworkError {
        NetworkError::State { operation, path: self.directory.clone(), source }
    }
}

fn parse(name: &str) -> Option<Allocation> {
    let (host, uid) = name.split_once('_')?;
    Some(Allocation { host: host.parse().ok()?, uid: uid.to_owned() })
}

/// The first free number after `last`, beginning again at the end.
fn next_free(used: &BTreeSet<u8>, last: u8) -> Option<u8> {
    let mut later = POD_HOSTS.filter(|host| *host > last).chain(POD_HOSTS);
    later.find(|host| !used.contains(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_address_and_nobody_else_gets_it() {
        let directory = tempfile::tempdir().unwrap();
        let allocations = Allocations::of("one", directory.path());
        let a = allocations.allocate("a").unwrap();
        let b = allocations.allocate("b").unwrap();
        assert_ne!(a.host, b.host);
        assert_eq!(Allocations::of("one", directory.path()).allocate("a").unwrap(), a);
        assert!(!allocations.is_attached(&a));
        allocations.set_attached(&a, true).unwrap();
        assert!(allocations.is_attached(&a) && !allocations.is_attached(&b));
        let guest = Mac([2, 0, 0, 0, 0, 7]);
        allocations.set_guest(&a, Some(guest)).unwrap();
        assert!(allocations.is_attached(&a) && allocations.guest(&a) == Some(guest));
        allocations.set_guest(&a, None).unwrap();
        assert!(allocations.is_attached(&a) && allocations.guest(&a).is_none());
        assert_eq!(allocations.list().unwrap(), [a.clone(), b]);
        allocations.release(&a).unwrap();
        allocations.release(&a).unwrap();
        assert_eq!(allocations.find("a").unwrap(), None);
    }

    #[test]
    fn an_address_rests_before_it_is_given_out_again() {
        let directory = tempfile::tempdir().unwrap();
        let allocations = Allocations::of("one", directory.path());
        for round in POD_HOSTS {
            let allocation = allocations.allocate("passing").unwrap();
            assert_eq!(allocation.host, round);
            allocations.release(&allocation).unwrap();
        }
        assert_eq!(allocations.allocate("again").unwrap().host, *POD_HOSTS.start());
    }

    #[test]
    fn a_full_node_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let allocations = Allocations::of("one", directory.path());
        let hosts: BTreeSet<u8> = POD_HOSTS.map(|n| allocations.allocate(&format!("pod-{n}")).unwrap().host).collect();
        assert_eq!(hosts.len(), POD_HOSTS.count());
        let error = allocations.allocate("one-more").unwrap_err();
        assert_eq!(error.to_string(), "node one has no free pod address: all 253 are in use");
    }
}
