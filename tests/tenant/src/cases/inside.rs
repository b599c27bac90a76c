//! What the root of a container tries on its machine. A command that succeeds is a way out.

use anyhow::{Result, bail, ensure};
use blackbox::cluster::wait;
use blackbox::scene::Scene;
use blackbox::suite::{Case, Need};
use serde_json::Value;

use super::pods::pod;
use crate::tenant::{Ask, Role, Tenant};

/// Until a pod has run.
const PATIENCE: u64 = 60;

/// Name, the programs that it needs, and a command that must not succeed.
const ROWS: &[(&str, &str, &str)] = &[
    ("mount-proc", "mount", "mount -t proc proc /tmp"),
    ("mount-tmpfs", "mount", "mount -t tmpfs none /tmp"),
    ("mount-cgroup", "mount", "mount -t cgroup -o devices none /tmp || mount -t cgroup2 none /tmp"),
    ("remount-usr", "mount", "mount -o remount,rw /usr || mount -o remount,bind,rw /usr"),
    ("user-namespace", "unshare", "unshare --user --map-root-user true"),
    ("mount-namespace", "unshare", "unshare --mount true"),
    ("other-namespace", "nsenter", "nsenter --target 1 --mount true"),
    ("write-usr", "touch", "touch /usr/x || touch /usr/bin/x || touch /usr/local/x"),
    ("write-opt", "touch", "touch /opt/ferrovirt/bin/x"),
    ("change-program", "chmod", "chmod u+s /usr/bin/env || chown 1000 /usr/bin/env"),
    ("core-pattern", "cat", "echo core > /proc/sys/kernel/core_pattern"),
    ("modprobe", "cat", "echo /tmp/x > /proc/sys/kernel/modprobe"),
    ("sysrq", "cat", "echo h > /proc/sysrq-trigger"),
    ("kernel-memory", "head", "head -c 1 /proc/kcore | grep -q . || head -c 1 /dev/mem || head -c 1 /dev/kmem"),
    ("kernel-log", "dmesg", "dmesg || head -c 1 /dev/kmsg"),
    (
        "disk-device",
        "mknod head",
        "for n in '8 0' '254 0' '253 0' '259 0' '7 0'; do rm -f /tmp/d; mknod /tmp/d b $n && head -c 1 /tmp/d >/dev/null && exit 66; done; false",
    ),
    ("uevent-helper", "cat", "echo /tmp/x > /sys/kernel/uevent_helper"),
    (
        "release-agent",
        "find",
        "for f in $(find /sys/fs/cgroup -name release_agent); do echo /tmp/x > $f && exit 66; done; false",
    ),
    (
        "limits",
        "find",
        "for f in $(find /sys/fs/cgroup -name memory.max -o -name memory.limit_in_bytes); do echo -1 > $f && exit 66; done; false",
    ),
    ("new-privileges", "grep", "! grep -q 'NoNewPrivs:[[:space:]]*1' /proc/self/status"),
    ("no-filter", "grep", "! grep -q 'Seccomp:[[:space:]]*2' /proc/self/status"),
    // Anything beside what containers have anywhere.
    ("power-of-root", "awk", "test $((0x$(awk '/^CapBnd/ { print $2 }' /proc/self/status) & ~0xa80425fb)) -ne 0"),
    ("others-processes", "ls grep", "test $(ls /proc | grep -c '^[0-9]') -gt 8"),
    ("others-devices", "ls grep", "ls /sys/class/net | grep -qv '^\\(lo\\|eth0\\)$'"),
    ("hardware-address", "ip", "ip link set eth0 address 02:00:00:00:00:99"),
    ("set-clock", "date", "date --set '2001-01-01'"),
    ("hostname", "hostname", "hostname stolen"),
    ("swap", "swapoff", "swapoff --all --verbose && swapon --all --verbose && exit 66; false"),
    ("chroot-out", "chroot", "chroot /proc/1/root/../../.. test -e /etc/shadow"),
    ("shadow", "cat", "cat /etc/shadow"),
];

/// One case for each row.
pub(super) fn all() -> Vec<Case<Scene>> {
    let rows = ROWS.iter().map(|(name, programs, attack)| {
        let run = move |scene: Scene| async move {
            let tenant = Tenant::new(scene, Role::Editor).await?;
            let checks: String =
                programs.split(' ').map(|program| format!("command -v {program} >/dev/null || exit 77\n")).collect();
            match run_pod(&tenant, &pod(&format!("{checks}if {attack}; then exit 66; fi; exit 0"))).await? {
                0 => Ok(()),
                66 => bail!("it succeeded: {attack}"),
                77 => bail!("nothing was tried: the image has not all of {programs}"),
                other => bail!("the pod ended with {other}, so nobody knows"),
            }
        };
        Case::new(&format!("inside/{name}"), "A container's root gets nothing of its machine.", run)
            .needing(Need::LocalNodes)
    });
    rows.collect()
}

/// Runs a pod of the tenant, and returns the exit code of its container.
pub(super) async fn run_pod(tenant: &Tenant, pod: &Value) -> Result<i64> {
    let made = tenant.ask(&Ask::post("/api/v1/namespaces/{ns}/pods", pod)).await?;
    ensure!(made.code == 201, "the pod was answered with {}: {}", made.code, made.body);
    let path = tenant.scene.path("/api/v1", "pods/try");
    wait("the pod to end", PATIENCE, || async {
        let status = tenant.scene.cluster.get(&path).await?["status"].take();
        Ok(status["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64())
    })
    .await
}
