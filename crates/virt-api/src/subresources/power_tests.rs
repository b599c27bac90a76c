//! Every answer of [`power`](super::power), as tables.

use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};

use super::options::{MigrateOptions, RestartOptions, StartOptions, StopOptions};
use super::power::{Change, Refusal, Target, decide_migrate, decide_restart, decide_start, decide_stop};

const STRATEGIES: [&str; 6] = ["Always", "RerunOnFailure", "Manual", "Halted", "Once", "WaitAsReceiver"];

fn machine(spec: &Value, status: &Value) -> VirtualMachine {
    let mut vm = json!({
        "metadata": {"name": "m", "namespace": "n", "uid": "vm-uid"},
        "spec": {"template": {"spec": {"domain": {"devices": {}}}}},
    });
    for (name, value) in spec.as_object().unwrap() {
        vm["spec"][name] = value.clone();
    }
    if !status.is_null() {
        vm["status"] = status.clone();
    }
    serde_json::from_value(vm).unwrap()
}

fn with_strategy(strategy: &str) -> VirtualMachine {
    machine(&json!({"runStrategy": strategy}), &json!({"created": true}))
}

fn guest(phase: &str) -> VirtualMachineInstance {
    let status = if phase.is_empty() { json!({}) } else { json!({"phase": phase, "nodeName": "node1"}) };
    let spec = json!({"domain": {"devices": {}}, "terminationGracePeriodSeconds": 30});
    serde_json::from_value(json!({"metadata": {"name": "m", "uid": "vmi-uid"}, "spec": spec, "status": status}))
        .unwrap()
}

/// A decision in short: what is tested and set, in order; or the code and words of its refusal.
fn told(decision: Result<Vec<Change>, Refusal>) -> Result<Vec<String>, (u16, String)> {
    let changes = decision.map_err(|refusal| (refusal.code().as_u16(), refusal.to_string()))?;
    let line = |change: &Change, operation: &Value| {
        let target = match change.target {
            Target::Machine => "vm",
            Target::MachineStatus => "vm/status",
            Target::Guest => "vmi",
        };
        let value = operation.get("value").map(|value| format!(" {value}")).unwrap_or_default();
        format!("{target} {} {}{value}", operation["op"].as_str().unwrap(), operation["path"].as_str().unwrap())
    };
    Ok(changes.iter().flat_map(|change| change.operations.iter().map(|one| line(change, one))).collect())
}

fn lines(lines: &[&str]) -> Result<Vec<String>, (u16, String)> {
    Ok(lines.iter().map(|line| (*line).to_owned()).collect())
}

fn conflict(why: &str) -> Result<Vec<String>, (u16, String)> {
    Err((409, why.to_owned()))
}

/// The lines of a patch that leaves requests.
fn requested(wanted: &Value) -> Result<Vec<String>, (u16, String)> {
    let path = "/status/stateChangeRequests";
    Ok(vec![format!("vm/status test {path} null"), format!("vm/status add {path} {wanted}")])
}

fn start(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<Vec<String>, (u16, String)> {
    told(decide_start(vm, vmi, &StartOptions::default()))
}

fn stop(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    grace_period: Option<i64>,
) -> Result<Vec<String>, (u16, String)> {
    told(decide_stop(vm, vmi, &StopOptions { grace_period, ..StopOptions::default() }))
}

fn restart(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    grace_period_seconds: Option<i64>,
) -> Result<Vec<String>, (u16, String)> {
    told(decide_restart(vm, vmi, &RestartOptions { grace_period_seconds, ..RestartOptions::default() }))
}

#[test]
fn a_start_depends_on_the_strategy() {
    let one = json!([{"action": "Start"}]);
    let again = json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]);
    let no = |strategy: &str| conflict(&format!("{strategy} does not support manual start requests"));
    let always = lines(&["vm test /spec/runStrategy \"Halted\"", "vm add /spec/runStrategy \"Always\""]);
    let failed = conflict("RerunOnFailure does not support starting VM from failed state");
    // Strategy, and the answer without a guest, after one that succeeded and after one that failed.
    for (strategy, none, succeeded, crashed) in [
        ("Always", no("Always"), no("Always"), no("Always")),
        ("RerunOnFailure", requested(&one), requested(&again), failed),
        ("Manual", requested(&one), requested(&again), requested(&again)),
        ("Halted", always.clone(), always.clone(), always),
        ("Once", no("Once"), no("Once"), no("Once")),
        ("WaitAsReceiver", no("WaitAsReceiver"), no("WaitAsReceiver"), no("WaitAsReceiver")),
    ] {
        let vm = with_strategy(strategy);
        assert_eq!(start(&vm, None), none, "{strategy}");
        assert_eq!(start(&vm, Some(&guest("Succeeded"))), succeeded, "{strategy}");
        assert_eq!(start(&vm, Some(&guest("Failed"))), crashed, "{strategy}");
    }
}

#[test]
fn a_live_guest_is_not_started_again() {
    for strategy in STRATEGIES {
        for phase in ["Pending", "Scheduling", "Scheduled", "Running", "WaitingForSync"] {
            let answer = start(&with_strategy(strategy), Some(&guest(phase)));
            assert_eq!(answer, conflict("VM is already running"), "{strategy} {phase}");
        }
    }
    for phase in ["", "Unknown"] {
        assert!(start(&with_strategy("Manual"), Some(&guest(phase))).is_ok(), "{phase}");
    }
}

#[test]
fn a_paused_start_is_a_request_even_when_halted() {
    let paused = StartOptions { paused: true, ..StartOptions::default() };
    for strategy in ["Halted", "Manual", "RerunOnFailure"] {
        let answer = told(decide_start(&with_strategy(strategy), None, &paused));
        assert_eq!(answer, requested(&json!([{"action": "Start", "data": {"paused": "true"}}])), "{strategy}");
    }
}

#[test]
fn the_field_that_the_user_chose_is_changed() {
    let status = json!({});
    let running = machine(&json!({"running": false}), &status);
    assert_eq!(start(&running, None), lines(&["vm test /spec/running false", "vm add /spec/running true"]));
    let running = machine(&json!({"running": true}), &status);
    assert_eq!(stop(&running, None, None), lines(&["vm test /spec/running true", "vm add /spec/running false"]));
    let silent = machine(&json!({}), &status);
    let expected = ["vm test /spec/runStrategy null", "vm add /spec/runStrategy \"Always\""];
    assert_eq!(start(&silent, None), lines(&expected));
}

#[test]
fn a_machine_without_a_status_gets_one() {
    let vm = machine(&json!({"runStrategy": "Manual"}), &Value::Null);
    let expected =
        ["vm/status test /status null", r#"vm/status add /status {"stateChangeRequests":[{"action":"Start"}]}"#];
    assert_eq!(start(&vm, None), lines(&expected));
}

#[test]
fn volumes_that_need_recovery_forbid_a_start_and_a_restart() {
    let holding = |condition: &str| {
        let conditions = json!([{"type": condition, "status": "True"}]);
        machine(&json!({"runStrategy": "Manual"}), &json!({"conditions": conditions}))
    };
    let refused = |answer: Result<Vec<String>, (u16, String)>| {
        let (code, why) = answer.unwrap_err();
        assert_eq!(code, 409);
        assert!(why.starts_with("VM recovery required: Volume migration failed"), "{why}");
    };
    refused(start(&holding("ManualRecoveryRequired"), None));
    refused(restart(&holding("VolumesChange"), Some(&guest("Running")), None));
    assert!(stop(&holding("ManualRecoveryRequired"), Some(&guest("Running")), None).is_ok());
}

#[test]
fn a_stop_depends_on_the_strategy() {
    let request = requested(&json!([{"action": "Stop", "uid": "vmi-uid"}]));
    let halted = |from: &str| {
        Ok(vec![format!("vm test /spec/runStrategy \"{from}\""), "vm add /spec/runStrategy \"Halted\"".to_owned()])
    };
    let none = conflict("VM is not running");
    let shorter = conflict("Halted only supports manual stop requests with a shorter graceperiod");
    let receiver = conflict("WaitAsReceiver does not support manual stop requests");
    // Strategy, and the answer without a guest and with one that runs.
    for (strategy, without, running) in [
        ("Always", halted("Always"), halted("Always")),
        ("RerunOnFailure", none.clone(), request.clone()),
        ("Manual", none.clone(), request),
        ("Halted", none, shorter),
        ("Once", halted("Once"), halted("Once")),
        ("WaitAsReceiver", receiver.clone(), receiver),
    ] {
        let vm = with_strategy(strategy);
        assert_eq!(stop(&vm, None, None), without, "{strategy}");
        for ended in ["Succeeded", "Failed"] {
            assert_eq!(stop(&vm, Some(&guest(ended)), None), without, "{strategy}");
        }
        assert_eq!(stop(&vm, Some(&guest("Running")), None), running, "{strategy}");
    }
}

#[test]
fn a_grace_period_reaches_the_guest_before_the_stop() {
    let sooner = [
        "vmi test /spec/terminationGracePeriodSeconds 30",
        "vmi add /spec/terminationGracePeriodSeconds 5",
        "vm/status test /status/stateChangeRequests null",
        r#"vm/status add /status/stateChangeRequests [{"action":"Stop","uid":"vmi-uid"}]"#,
    ];
    assert_eq!(stop(&with_strategy("Manual"), Some(&guest("Running")), Some(5)), lines(&sooner));
    assert_eq!(stop(&with_strategy("Halted"), Some(&guest("Running")), Some(5)), lines(&sooner));
    let later = conflict("Halted only supports manual stop requests with a shorter graceperiod");
    for seconds in [30, 31] {
        assert_eq!(stop(&with_strategy("Halted"), Some(&guest("Running")), Some(seconds)), later);
    }
    let negative = Err((400, "gracePeriod has to be greater or equal to 0".to_owned()));
    assert_eq!(stop(&with_strategy("Always"), Some(&guest("Running")), Some(-1)), negative);
    assert_eq!(stop(&with_strategy("Always"), None, Some(0)).unwrap().len(), 2, "nobody to hurry");
}

#[test]
fn a_restart_depends_on_the_strategy() {
    let again = requested(&json!([{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]));
    let no = |strategy: &str| conflict(&format!("RunStategy {strategy} does not support manual restart requests"));
    let none = conflict("VM is not running: Halted");
    for (strategy, without, with) in [
        ("Always", none.clone(), again.clone()),
        ("RerunOnFailure", none.clone(), again.clone()),
        ("Manual", none, again),
        ("Halted", no("Halted"), no("Halted")),
        ("Once", no("Once"), no("Once")),
        ("WaitAsReceiver", no("WaitAsReceiver"), no("WaitAsReceiver")),
    ] {
        assert_eq!(restart(&with_strategy(strategy), None, None), without, "{strategy}");
        assert_eq!(restart(&with_strategy(strategy), Some(&guest("Running")), None), with, "{strategy}");
    }
}

#[test]
fn a_forced_restart_hurries_the_guest_and_can_be_taken_back() {
    let options = RestartOptions { grace_period_seconds: Some(0), ..RestartOptions::default() };
    let changes = decide_restart(&with_strategy("Always"), Some(&guest("Running")), &options).unwrap();
    let path = "/spec/terminationGracePeriodSeconds";
    let step = |op: &str, value: i64| json!({"op": op, "path": path, "value": value});
    assert_eq!(changes[0].operations, [step("test", 30), step("add", 1)]);
    assert_eq!(changes[0].undo, [step("test", 1), step("add", 30)]);
    assert_eq!(changes[1].target, Target::MachineStatus);
    for (seconds, why) in [
        (1, "For force restart, only gracePeriod=0 is supported for now"),
        (-1, "gracePeriod has to be greater or equal to 0"),
    ] {
        let answer = restart(&with_strategy("Always"), Some(&guest("Running")), Some(seconds));
        assert_eq!(answer, Err((400, why.to_owned())));
    }
}

#[test]
fn a_grace_period_that_was_not_there_goes_again() {
    let mut vmi = guest("Running");
    vmi.spec.termination_grace_period_seconds = None;
    let options = StopOptions { grace_period: Some(0), ..StopOptions::default() };
    let changes = decide_stop(&with_strategy("Halted"), Some(&vmi), &options).unwrap();
    assert_eq!(changes[0].operations[0]["value"], Value::Null);
    assert_eq!(changes[0].undo[1]["op"], "remove");
}

#[test]
fn requests_wait_for_each_other_and_a_stop_goes_first() {
    let waiting = json!([{"action": "Start"}]);
    let vm = |strategy: &str| machine(&json!({"runStrategy": strategy}), &json!({"stateChangeRequests": waiting}));
    let underway = conflict("unable to complete request: stop/start already underway");
    assert_eq!(start(&vm("Manual"), None), underway);
    assert_eq!(restart(&vm("Always"), Some(&guest("Running")), None), underway);
    let expected = [
        r#"vm/status test /status/stateChangeRequests [{"action":"Start"}]"#,
        r#"vm/status add /status/stateChangeRequests [{"action":"Stop","uid":"vmi-uid"}]"#,
    ];
    assert_eq!(stop(&vm("Manual"), Some(&guest("Running")), None), lines(&expected));
}

#[test]
fn whoever_asks_does_not_wait_for_the_back_off() {
    let status = json!({"startFailure": {"consecutiveFailCount": 3}});
    let answer = start(&machine(&json!({"runStrategy": "Manual"}), &status), None).unwrap();
    assert_eq!(answer[2], "vm/status remove /status/startFailure");
}

#[test]
fn a_migration_becomes_an_object() {
    let selector = [("zone".to_owned(), "a".to_owned())].into();
    let options = MigrateOptions { added_node_selector: Some(selector), ..MigrateOptions::default() };
    let made = decide_migrate(&with_strategy("Always"), Some(&guest("Running")), &options).unwrap();
    assert_eq!(made["metadata"], json!({"generateName": "kubevirt-migrate-vm-", "namespace": "n"}));
    assert_eq!(made["spec"], json!({"vmiName": "m", "addedNodeSelector": {"zone": "a"}}));
    let refused = |vmi: Option<&VirtualMachineInstance>| {
        let refusal = decide_migrate(&with_strategy("Always"), vmi, &MigrateOptions::default()).unwrap_err();
        (refusal.code().as_u16(), refusal.to_string())
    };
    assert_eq!(refused(Some(&guest("Scheduled"))), (409, "VM is not running".to_owned()));
    assert_eq!(refused(None), (404, "virtualmachineinstance.kubevirt.io \"m\" not found".to_owned()));
}
