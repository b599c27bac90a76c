//! The store on disks that fail, and on disks that lose power.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, StorageBackend};
use serde_json::json;

use super::log::Opener;
use super::{Body, Change, Expect, Key, Retention, Revision, Store, Write, WriteError};

/// A disk in memory. It outlives the database in it, forgets unsynced writes when asked, and fails on demand.
#[derive(Debug, Clone, Default)]
struct Disk {
    content: Arc<Mutex<Content>>,
    fail_writes: Arc<AtomicBool>,
    fail_syncs: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Content {
    synced: Vec<u8>,
    /// What a reader sees: the synced bytes and everything after.
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl Disk {
    fn refuse(flag: &AtomicBool) -> io::Result<()> {
        if flag.load(Ordering::Relaxed) { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }

    fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move || {
            let database = Database::builder().set_cache_size(1 << 20).create_with_backend(disk.clone());
            database.map_err(|error| redb::Error::from(error).into())
        })
    }

    fn open(&self) -> Store {
        Store::open_with(self.opener(), Retention::default()).unwrap()
    }

    /// What a power cut leaves: the synced bytes, and any part of the writes after.
    fn after_power_cut(&self, random: &mut StdRng) -> Disk {
        let content = self.content.lock();
        let mut left = content.synced.clone();
        left.resize(content.current.len(), 0);
        for (offset, data) in &content.unsynced {
            if random.random_bool(0.5) && offset + data.len() <= left.len() {
                left[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
        let content = Content { synced: left.clone(), current: left, unsynced: Vec::new() };
        Disk { content: Arc::new(Mutex::new(content)), ..Disk::default() }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.content.lock();
        let start = offset as usize;
        let bytes = content.current.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Disk::refuse(&self.fail_writes)?;
        self.content.lock().current.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Disk::refuse(&self.fail_syncs)?;
        let content = &mut *self.content.lock();
        content.synced.clone_from(&content.current);
        content.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Disk::refuse(&self.fail_writes)?;
        let content = &mut *self.content.lock();
        let start = offset as usize;
        content.current[start..start + data.len()].copy_from_slice(data);
        content.unsynced.push((start, data.to_vec()));
        Ok(())
    }
}

fn put(name: &str) -> Write {
    let body = Body::encode(&json!({"metadata": {"name": name}}));
    Write { key: Key::new("/secrets", "a", name), expect: Expect::Absent, change: Change::Put(body) }
}

#[tokio::test]
async fn a_full_disk_fails_the_group_and_nothing_else() {
    let disk = Disk::default();
    let store = disk.open();
    let before = store.write(put("before")).await.unwrap().revision;
    let mut watch = store.watch("/secrets", None, before).unwrap();

    disk.fail_writes.store(true, Ordering::Relaxed);
    let failed = tokio::join!(store.write(put("x")), store.write(put("y")), store.write(put("z")));
    for error in [failed.0, failed.1, failed.2].map(Result::unwrap_err) {
        assert!(matches!(error, WriteError::Io(_)), "{error:?}");
    }
    assert!(matches!(store.compact(before).await, Err(WriteError::Io(_))));
    assert_eq!((store.revision(), store.count("/secrets", None)), (before, 1));
    assert_eq!(watch.try_next().unwrap(), None);

    disk.fail_writes.store(false, Ordering::Relaxed);
    let after = store.write(put("after")).await.unwrap().revision;
    assert!(after > before);
    let seen = std::iter::from_fn(|| watch.try_next().unwrap()).map(|event| event.revision);
    assert_eq!(seen.collect::<Vec<_>>(), (before + 1..=after).collect::<Vec<_>>());
    drop(store);

    let store = disk.open();
    assert_eq!(store.revision(), after);
    assert!(store.get(&put("after").key).is_some());
}

#[tokio::test]
async fn what_a_failed_sync_left_behind_is_taken_over() {
    let disk = Disk::default();
    let store = disk.open();
    let mut watch = store.watch("/secrets", None, store.revision()).unwrap();
    disk.fail_syncs.store(true, Ordering::Relaxed);
    assert!(matches!(store.write(put("unsure")).await, Err(WriteError::Io(_))));
    assert_eq!(store.get(&put("unsure").key), None, "readers see only what is durable");
    disk.fail_syncs.store(false, Ordering::Relaxed);

    // Whichever way it went, memory and file agree from here on, and no revision has two meanings.
    let after = store.write(put("after")).await.unwrap().revision;
    let in_memory = store.list("/secrets", None, None, None, None).unwrap().objects;
    let mut seen = Vec::new();
    watch.drain(10, &mut seen).unwrap();
    assert_eq!(seen.len(), in_memory.len());
    assert_eq!(seen.last().map(|event| event.revision), Some(after));
    drop(store);
    let store = disk.open();
    assert_eq!(store.list("/secrets", None, None, None, None).unwrap().objects, in_memory);
    assert_eq!(store.revision(), after);
}

/// `kill -9` keeps what the kernel has; a power cut keeps only what was synced. So this sees a missing fsync.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_power_cut() {
    let disk = Disk::default();
    let store = disk.open();
    let mut random = StdRng::seed_from_u64(11);
    let acknowledged: Arc<Mutex<Vec<(String, Revision)>>> = Arc::default();
    for cut in 0..30 {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, acknowledged) = (store.clone(), acknowledged.clone());
                tokio::spawn(async move {
                    for n in 0..3 {
                        let name = format!("s-{cut}-{writer}-{n}");
                        let revision = store.write(put(&name)).await.unwrap().revision;
                        acknowledged.lock().push((name, revision));
                    }
                })
            })
            .collect();
        if cut % 3 == 0 {
            store.compact(store.revision() / 2).await.unwrap();
        }
        // Somewhere in the middle of the writes; what was acknowledged before the cut must be there after it.
        while acknowledged.lock().len() < cut * 12 + random.random_range(1..12) {
            tokio::task::yield_now().await;
        }
        let before = acknowledged.lock().clone();
        let reopened = disk.after_power_cut(&mut random).open();
        for (name, revision) in before {
            let object = reopened.get(&put(&name).key);
            assert_eq!(object.map(|object| object.revision), Some(revision), "{name} after cut {cut}");
        }
        for writer in writers {
            writer.await.unwrap();
        }
    }
}
