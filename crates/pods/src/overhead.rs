//! What the processes around a guest need besides the guest's own memory.
//!
//! Too little, and the kernel kills guests of a full node; too much, and nodes stand half empty. So each figure says where it
//! comes from. "Measured" is the proportional set size (PSS: shared pages are split among those who share them) of one guest
//! alone on an x86-64 node with libvirt 9.0 and QEMU 7.2, rounded up; more guests on the node share more and need less.

use ferrovirt_api::VirtualMachineInstance;

use crate::resources::{guest_memory, io_threads, vcpus};
use crate::{Acceleration, LauncherConfig};

const MIB: u64 = 1 << 20;

/// The launcher itself: one single-threaded process. Its bound is 8 MiB, which a test of the machine suite holds it to.
const LAUNCHER: u64 = 8 * MIB;
/// libvirt in session mode: measured 26 MiB alone, 16 MiB next to a second one.
const LIBVIRT: u64 = 28 * MIB;
/// QEMU before the guest runs: measured 42 MiB. Code, device models, its heap.
const QEMU: u64 = 44 * MIB;
/// Each virtual CPU: a thread's stack in use, its registers and, with hardware, the kernel's shadow of them. Measured 1 to 2 MiB
/// idle; the rest is what a busy device queue of that CPU adds.
const VCPU: u64 = 8 * MIB;
/// Each thread for disk IO: its stack and the requests in flight.
const IO_THREAD: u64 = 4 * MIB;
/// The kernel maps each 2 MiB of the guest by one 4 KiB page of page table: 1/512 of the memory.
const PAGE_TABLE_DIVISOR: u64 = 512;
/// A display: 16 MiB of video memory, and as much for the copies that VNC compares.
const GRAPHICS: u64 = 32 * MIB;
/// swtpm, a process of its own: measured 5 MiB idle; it keeps the state that a guest stores in it in memory.
const TPM: u64 = 12 * MIB;

/// The most that QEMU's translated code may take when instructions are emulated.
///
/// By default QEMU takes up to an eighth of the host's memory or 1 GiB, whichever is less, which no honest reservation covers; a
/// domain says less with `<tb-cache unit='MiB'>`. A kernel with a small user land fills about 50 MiB, a distribution about 100;
/// a full cache is thrown away and filled again.
pub const TRANSLATION_CACHE: u64 = 128 * MIB;
/// What QEMU keeps outside of the cache to find translated code: measured about a fifth of it.
const TRANSLATION_INDEX: u64 = TRANSLATION_CACHE / 4;

/// Bytes that the pod needs besides the guest's memory.
pub fn memory_overhead(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> u64 {
    let devices = &vmi.spec.domain.devices;
    let has_graphics = devices.autoattach_graphics_device.unwrap_or(true);
    let has_tpm = devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled.unwrap_or(true));
    let added =
        vmi.spec.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref()?.added_overhead.as_ref());
    let parts = [
        LAUNCHER + LIBVIRT + QEMU,
        u64::from(vcpus(vmi)).saturating_mul(VCPU),
        u64::from(io_threads(vmi)).saturating_mul(IO_THREAD),
        guest_memory(vmi).unwrap_or(0) / PAGE_TABLE_DIVISOR,
        if has_graphics { GRAPHICS } else { 0 },
        if has_tpm { TPM } else { 0 },
        if config.acceleration == Acceleration::Emulation { TRANSLATION_CACHE + TRANSLATION_INDEX } else { 0 },
        added.map_or(0, |added| u64::try_from(added.value()).unwrap_or(0)),
    ];
    let sum = parts.into_iter().fold(0_u64, u64::saturating_add);
    whole_mebibytes(scaled(sum, config))
}

/// Times what the cluster's administrator adds for good measure; anything below 1 is no factor.
fn scaled(bytes: u64, config: &LauncherConfig) -> u64 {
    let ratio = config.cluster.additional_guest_memory_overhead_ratio.as_deref();
    let ratio = ratio.and_then(|ratio| ratio.parse::<f64>().ok()).filter(|ratio| (1.0..=1000.0).contains(ratio));
    match ratio {
        Some(ratio) => (bytes as f64 * ratio) as u64,
        None => bytes,
    }
}

/// Rounded up, so that people can read it.
fn whole_mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrovirt_api::kubevirt::Configuration;
    use serde_json::{Value, json};

    fn overhead(domain: &Value, config: &LauncherConfig) -> u64 {
        let vmi = json!({"spec": {"domain": domain}});
        memory_overhead(&serde_json::from_value(vmi).unwrap(), config) / MIB
    }

    #[test]
    fn the_parts_add_up() {
        let plain = LauncherConfig::default();
        let guest = |devices: Value| json!({"memory": {"guest": "1Gi"}, "devices": devices});
        assert_eq!(overhead(&guest(json!({"autoattachGraphicsDevice": false})), &plain), 8 + 28 + 44 + 8 + 2);
        assert_eq!(overhead(&guest(json!({})), &plain), 122);
        assert_eq!(overhead(&guest(json!({"tpm": {}})), &plain), 122 + 12);
        assert_eq!(overhead(&guest(json!({"tpm": {"enabled": false}})), &plain), 122);
        let emulated = LauncherConfig { acceleration: Acceleration::Emulation, ..LauncherConfig::default() };
        assert_eq!(overhead(&guest(json!({})), &emulated), 122 + 160);
    }

    #[test]
    fn what_the_guest_and_the_cluster_add_is_added() {
        let cluster =
            Configuration { additional_guest_memory_overhead_ratio: Some("1.5".into()), ..Configuration::default() };
        let config = LauncherConfig { cluster, ..LauncherConfig::default() };
        let domain = json!({"devices": {}, "memory": {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "8Mi"}}});
        assert_eq!(overhead(&domain, &config), (122 + 8) * 3 / 2);
    }

    #[test]
    fn processors_and_io_threads_count() {
        let domain = json!({
            "devices": {"autoattachGraphicsDevice": false}, "cpu": {"cores": 4}, "memory": {"guest": "512Mi"},
            "ioThreadsPolicy": "supplementalPool", "ioThreads": {"supplementalPoolThreadCount": 2},
        });
        assert_eq!(overhead(&domain, &LauncherConfig::default()), 80 + 4 * 8 + 2 * 4 + 1);
    }
}
