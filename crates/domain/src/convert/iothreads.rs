//! Which threads do the IO of which disks. Only virtio disks, and the SCSI controller as a whole, can have threads of their own.

use std::collections::BTreeMap;

use ferrovirt_api::vmi::IoThreadsPolicy;

use super::{Guest, disks};
use crate::facts::Version;
use crate::unsupported::Unsupported;

/// `auto` makes at most so many threads for each CPU of the guest.
const THREADS_PER_CPU: u32 = 2;
/// libvirt and QEMU spread one disk over many threads from here on.
const MANY_THREADS_PER_DISK: (Version, Version) = (Version(10, 0), Version(9, 0));

/// The guest's IO threads, counted from 1.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Threads {
    count: u32,
    by_disk: BTreeMap<String, Vec<u32>>,
}

impl Threads {
    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The threads of a disk; none when the emulator's main thread does its work.
    pub(super) fn of(&self, disk: &str) -> &[u32] {
        self.by_disk.get(disk).map_or(&[], Vec::as_slice)
    }

    /// The thread that everything shares which has none of its own.
    pub(super) fn shared(&self) -> Option<u32> {
        (self.count > 0).then_some(1)
    }
}

/// Decides by the guest's policy. Thread 1 is always a shared one, dedicated threads come last.
pub(super) fn plan(guest: &Guest<'_>) -> Result<Threads, Unsupported> {
    let disks = guest.spec.devices.disks.iter().filter(|disk| disks::is_virtio(disk));
    let (dedicated, sharing): (Vec<_>, Vec<_>) = disks.partition(|disk| disk.dedicated_io_thread == Some(true));
    let policy = guest.spec.io_threads_policy;
    if policy == Some(IoThreadsPolicy::SupplementalPool) {
        return pool(guest, dedicated.iter().chain(&sharing).map(|disk| disk.name.clone()).collect());
    }
    if policy.is_none() && dedicated.is_empty() {
        return Ok(Threads::default());
    }
    let isolated = guest.spec.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread);
    let count = |disks: &[_]| u32::try_from(disks.len()).unwrap_or(u32::MAX);
    let shared = match policy {
        Some(IoThreadsPolicy::Auto) if !isolated => {
            let room = guest.topology.vcpus().saturating_mul(THREADS_PER_CPU).saturating_sub(count(&dedicated));
            count(&sharing).min(room).max(1)
        }
        _ => 1,
    };
    let round = (1..=shared).cycle();
    let mut by_disk: BTreeMap<_, _> =
        sharing.iter().zip(round).map(|(disk, thread)| (disk.name.clone(), vec![thread])).collect();
    by_disk.extend(dedicated.iter().zip(shared + 1..).map(|(disk, thread)| (disk.name.clone(), vec![thread])));
    Ok(Threads { count: shared + count(&dedicated), by_disk })
}

/// All disks use all threads of a pool; with older programs each disk gets one of them in turn.
fn pool(guest: &Guest<'_>, disks: Vec<String>) -> Result<Threads, Unsupported> {
    let wanted = guest.spec.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    let count = wanted.filter(|count| *count > 0).ok_or_else(|| {
        let path = "spec.domain.ioThreads.supplementalPoolThreadCount";
        Unsupported::new(path, wanted.unwrap_or(0), "the policy supplementalPool needs a number of threads")
    })?;
    let all: Vec<u32> = (1..=count).collect();
    let (libvirt, qemu) = MANY_THREADS_PER_DISK;
    let many = guest.facts.libvirt >= libvirt && guest.facts.qemu >= qemu;
    let turn = (1..=count).cycle();
    let threads = disks.into_iter().zip(turn).map(|(disk, next)| (disk, if many { all.clone() } else { vec![next] }));
    Ok(Threads { count, by_disk: threads.collect() })
}
