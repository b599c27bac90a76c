//! How a move is done: what virt-controller resolved and recorded in the object becomes the launcher's options.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::{MigrationCompression, MigrationOptions};
use ferrovirt_launcher_rpc::migration::Options;

/// Connections for memory where nothing limits the processors that feed them.
const PARALLEL_CONNECTIONS: u32 = 8;
/// Seconds for each GiB.
const COMPLETION_TIMEOUT: i64 = 150;
const GIB: u64 = 1 << 30;

/// The options of a guest's move. `copied` are the volumes whose disks are copied too.
pub(crate) fn options(vmi: &VirtualMachineInstance, wanted: &MigrationOptions, copied: &[String]) -> Options {
    let defaults = Options::default();
    let seconds = |wanted: Option<i64>| wanted.and_then(|seconds| u64::try_from(seconds).ok());
    let experimental = wanted.experimental.as_ref();
    let stalls = experimental.and_then(|options| options.stall_detector.as_ref());
    let downtime = experimental.and_then(|options| options.downtime_tuning.as_ref());
    let post_copy = wanted.allow_post_copy == Some(true);
    let max_downtime_ms = wanted.max_downtime_ms.unwrap_or(defaults.max_downtime_ms);
    let first_downtime_ms =
        seconds(downtime.and_then(|tuning| tuning.initial_ms)).unwrap_or(defaults.first_downtime_ms);
    let per_gib = seconds(wanted.completion_timeout_per_gib.or(Some(COMPLETION_TIMEOUT))).unwrap_or_default();
    Options {
        bandwidth: wanted.bandwidth_per_migration.as_ref().map_or(0, amount),
        parallel_connections: parallel_connections(vmi, post_copy),
        compression: experimental.and_then(|options| options.compression) == Some(MigrationCompression::Zstd),
        auto_converge: wanted.allow_auto_converge == Some(true),
        post_copy,
        may_pause: wanted.allow_workload_disruption.unwrap_or(post_copy),
        unsafe_override: wanted.unsafe_migration_override == Some(true),
        completion_timeout: per_gib.saturating_mul(gigabytes(vmi, copied)),
        progress_timeout: seconds(wanted.progress_timeout).unwrap_or(defaults.progress_timeout),
        max_downtime_ms,
        first_downtime_ms: first_downtime_ms.min(max_downtime_ms),
        stall_timeout: seconds(stalls.and_then(|stalls| stalls.stall_progress_timeout))
            .unwrap_or(defaults.stall_timeout),
    }
}

/// Threads that share the guest's processors would only slow it down; and memory that is fetched later comes one page at a time.
fn parallel_connections(vmi: &VirtualMachineInstance, post_copy: bool) -> u32 {
    let domain = &vmi.spec.domain;
    let limited = domain.resources.as_ref().is_some_and(|resources| resources.limits.contains_key("cpu"));
    let dedicated = domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement);
    if limited || dedicated || post_copy { 0 } else { PARALLEL_CONNECTIONS }
}

/// Memory and copied disks, rounded up.
fn gigabytes(vmi: &VirtualMachineInstance, copied: &[String]) -> u64 {
    let memory = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let requested = vmi.spec.domain.resources.as_ref().and_then(|resources| resources.requests.get("memory"));
    let memory = memory.or(requested).map_or(0, amount);
    let disks = copied.iter().map(|volume| size(vmi, volume));
    disks.fold(memory, u64::saturating_add).div_ceil(GIB).max(1)
}

/// The size of a copied disk, as far as the object knows.
fn size(vmi: &VirtualMachineInstance, volume: &str) -> u64 {
    let status = vmi.status.iter().flat_map(|status| &status.volume_status).find(|status| status.name == volume);
    let known = status.and_then(|status| u64::try_from(status.size?).ok());
    let empty = vmi.spec.volumes.iter().find(|candidate| candidate.name == volume);
    let empty = empty.and_then(|volume| Some(amount(&volume.empty_disk.as_ref()?.capacity)));
    known.or(empty).unwrap_or_default()
}

fn amount(quantity: &ferrovirt_api::values::Quantity) -> u64 {
    u64::try_from(quantity.value()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options_of(spec: &Value, wanted: Value) -> Options {
        let vmi = json!({"metadata": {"name": "db"}, "spec": spec});
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        options(&vmi, &serde_json::from_value(wanted).unwrap(), &["scratch".to_owned()])
    }

    #[test]
    fn nothing_said_means_the_defaults() {
        let options = options_of(&json!({"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}), json!({}));
        let expected = Options { parallel_connections: 8, completion_timeout: 150, ..Options::default() };
        assert_eq!(options, expected);
    }

    #[test]
    fn time_grows_with_memory_and_copied_disks() {
        let spec = json!({
            "domain": {"devices": {}, "memory": {"guest": "2Gi"}},
            "volumes": [{"name": "scratch", "emptyDisk": {"capacity": "3Gi"}}],
        });
        assert_eq!(options_of(&spec, json!({"completionTimeoutPerGiB": 10})).completion_timeout, 50);
        assert_eq!(options_of(&spec, json!({"completionTimeoutPerGiB": 0})).completion_timeout, 0);
    }

    #[test]
    fn limited_or_dedicated_processors_and_post_copy_take_one_connection() {
        let limited = json!({"domain": {"devices": {}, "resources": {"limits": {"cpu": "2"}}}});
        let dedicated = json!({"domain": {"devices": {}, "cpu": {"dedicatedCpuPlacement": true}}});
        for spec in [limited, dedicated] {
            assert_eq!(options_of(&spec, json!({})).parallel_connections, 0);
        }
        let post_copy = options_of(&json!({"domain": {"devices": {}}}), json!({"allowPostCopy": true}));
        assert_eq!((post_copy.parallel_connections, post_copy.may_pause), (0, true), "disruption is allowed with it");
    }

    #[test]
    fn what_is_wanted_is_passed_on() {
        let wanted = json!({
            "bandwidthPerMigration": "64Mi", "allowAutoConverge": true, "allowPostCopy": true, "allowWorkloadDisruption": false,
            "unsafeMigrationOverride": true, "progressTimeout": 7, "maxDowntimeMs": 50,
            "experimental": {
                "compression": "zstd", "stallDetector": {"stallProgressTimeout": 9}, "downtimeTuning": {"initialMs": 400},
            },
        });
        let options = options_of(&json!({"domain": {"devices": {}}}), wanted);
        assert_eq!((options.bandwidth, options.progress_timeout, options.stall_timeout), (64 << 20, 7, 9));
        assert_eq!(
            (options.max_downtime_ms, options.first_downtime_ms),
            (50, 50),
            "the first is no longer than the longest"
        );
        assert!(options.auto_converge && options.post_copy && options.unsafe_override && options.compression);
        assert!(!options.may_pause);
    }
}
