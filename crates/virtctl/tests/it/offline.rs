//! Commands that need no cluster.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs the program where no kubeconfig is.
fn run(words: &[&str], input: &str) -> (i32, String, String) {
    let nowhere = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_virtctl"))
        .args(words)
        .env_clear()
        .env("HOME", nowhere.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

const MISTAKES: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: misspelt}
spec:
  runStrategy: Always
  template: {spec: {domain: {devicess: {a: b}, devices: {}, memory: {guest: 64Mi}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: no-volume}
spec:
  runStrategy: Always
  template: {spec: {domain: {devices: {disks: [{name: root, disk: {bus: virtio}}]}, memory: {guest: 64Mi}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: wrong-type}
spec: {domain: {devices: {}, memory: {guest: much}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
";

#[test]
fn files_are_validated_without_a_cluster() {
    let (code, out, err) = run(&["validate", "-f", "-"], MISTAKES);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    insta::assert_snapshot!(out);
    let (code, out, _) = run(&["validate", "-f", "-", "-o", "json"], MISTAKES);
    let reports: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, reports.as_array().unwrap().len()), (1, 4));
    assert_eq!(run(&["validate"], "").0, 1);
}

#[test]
fn a_new_machine_is_valid() {
    let flags = ["create", "vm", "--name", "web", "--volume-containerdisk", "src:quay.io/os:1", "--user", "jane"];
    let (code, manifest, _) = run(&flags, "");
    assert_eq!(code, 0);
    let (code, out, _) = run(&["validate", "-f", "-"], &manifest);
    assert_eq!((code, out.as_str()), (0, "standard input: VirtualMachine web is valid\n"));
}

#[test]
fn without_a_kubeconfig_the_next_step_is_named() {
    let (code, _, err) = run(&["start", "web"], "");
    assert_eq!(code, 1);
    assert!(err.starts_with("there is no kubeconfig: set KUBECONFIG") && err.contains("ferrovirt up"), "{err}");
}

#[test]
fn shells_get_their_completion() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(&["completion", shell], "");
        assert!(code == 0 && script.contains("virtctl") && script.contains("port-forward"), "{shell}");
    }
    assert_eq!(run(&["completion", "abacus"], "").0, 2);
}

#[test]
fn a_plugin_s_help_names_kubectl() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-virt");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_virtctl"), &plugin).unwrap();
    let done = Command::new(plugin).args(["why", "--help"]).output().unwrap();
    let help = String::from_utf8(done.stdout).unwrap();
    assert!(help.contains("Usage: kubectl virt why") && help.contains("kubectl virt why web"), "{help}");
}
