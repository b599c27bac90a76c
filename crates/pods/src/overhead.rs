//! What the processes around a guest need besides the guest's own memory.
//!
//! Too little, and the kernel kills guests of a full node; too much, and nodes stand half empty. So each figure says where it
//! comes from:
//!
//! - *measured*: the proportional set size (PSS: shared pages are split among those who share them) of single runs on one x86-64
//!   machine without KVM, with libvirt 9.0, QEMU 7.2 and a guest of 96 MiB;
//! - *derived*: follows from how something works;
//! - *assumed*: nobody has measured it here yet. Replace it when somebody has.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_launcher_rpc::TRANSLATION_CACHE_MIB;

use crate::resources::{guest_memory, io_threads, vcpus};
use crate::{Acceleration, LauncherConfig};

const MIB: u64 = 1 << 20;

/// The launcher itself. Measured: 3.2 MiB alone, 0.8 MiB next to nine others; the rest is for requests and consoles in flight.
const LAUNCHER: u64 = 8 * MIB;
/// libvirt in session mode. Measured: 20 to 26 MB alone, 6.6 MB next to nine others.
const LIBVIRT: u64 = 28 * MIB;
/// QEMU before the guest runs: code, device models, its heap. Measured: 42 MB.
const QEMU: u64 = 44 * MIB;
/// Each virtual CPU: its thread, and with hardware the kernel's copy of its state. Assumed: KubeVirt's figure.
const VCPU: u64 = 8 * MIB;
/// Each thread for disk IO: its stack and the requests in flight. Assumed.
const IO_THREAD: u64 = 4 * MIB;
/// Derived: a 4 KiB page of page table maps 2 MiB of the guest, which is 1/512 of the memory.
const PAGE_TABLE_DIVISOR: u64 = 512;
/// A display. Derived: 16 MiB of video memory; assumed: as much again for the copies that VNC compares.
const GRAPHICS: u64 = 32 * MIB;
/// swtpm, a process of its own. Measured: 5 MiB before any guest used it; assumed: the rest, for what a guest stores in it.
const TPM: u64 = 12 * MIB;

/// QEMU's translated code when instructions are emulated; the domain sets the same bound. The size is assumed. What is measured: QEMU
/// with a booted guest of 96 MiB had 196 MB in all, and 182 MB with a cache of 32 MiB.
pub const TRANSLATION_CACHE: u64 = TRANSLATION_CACHE_MIB * MIB;
/// What QEMU keeps outside of the cache to find translated code. Assumed.
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
