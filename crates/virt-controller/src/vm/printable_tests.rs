//! The order of the words: of all that fit, the first counts.

use serde_json::{Value, json};

use super::super::fixtures::{guest, machine, vm};
use super::*;

/// Things that can be true of a machine at once, in the order in which they count.
const FACTS: [(&str, PrintableStatus); 13] = [
    ("machine deleted", PrintableStatus::Terminating),
    ("guest deleted", PrintableStatus::Stopping),
    ("moving", PrintableStatus::Migrating),
    ("paused", PrintableStatus::Paused),
    ("running", PrintableStatus::Running),
    ("claim missing", PrintableStatus::ErrorPvcNotFound),
    ("import failed", PrintableStatus::DataVolumeError),
    ("import impossible", PrintableStatus::DataVolumeError),
    ("unschedulable", PrintableStatus::ErrorUnschedulable),
    ("importing", PrintableStatus::Provisioning),
    ("claim unbound", PrintableStatus::WaitingForVolumeBinding),
    ("starting", PrintableStatus::Starting),
    ("nothing", PrintableStatus::Stopped),
];

/// The word for a machine of which `facts` hold.
fn word(facts: &[&str]) -> PrintableStatus {
    let holds = |fact: &str| facts.contains(&fact);
    let mut vm = vm("Always");
    if holds("machine deleted") {
        vm["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    }
    let runs = holds("running") || holds("paused");
    let mut vmi = guest(if runs { "Running" } else { "Scheduling" });
    if holds("guest deleted") {
        vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    }
    if holds("moving") {
        vmi["status"]["migrationState"] = json!({"startTimestamp": "2026-01-01T11:59:59Z"});
    }
    let conditions = [
        ("paused", json!({"type": "Paused", "status": "True"})),
        ("claim missing", json!({"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound"})),
        ("pull failed", json!({"type": "Synchronized", "status": "False", "reason": "ErrImagePull"})),
        ("pull waits", json!({"type": "Synchronized", "status": "False", "reason": "ImagePullBackOff"})),
        ("unschedulable", json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})),
    ];
    let conditions = conditions.into_iter().filter(|(fact, _)| holds(fact)).map(|(_, condition)| condition);
    vmi["status"]["conditions"] = Value::Array(conditions.collect());
    let mut machine = machine(vm, (!holds("nothing")).then_some(vmi));
    if holds("claim unbound") {
        let claim = json!({"status": {"phase": "Pending"}});
        let claim = std::sync::Arc::new(serde_json::from_value(claim).unwrap());
        machine.claims = [("disk".to_owned(), Some(claim))].into();
    }
    let message = String::new();
    let filling = match () {
        () if holds("import failed") => Filling::Failed { message },
        () if holds("import impossible") => Filling::Impossible { message },
        () if holds("importing") => Filling::Awaited { message, look_again: None },
        () => Filling::Ready,
    };
    let facts = Facts {
        vmi: machine.own_guest().map(|vmi| &**vmi),
        strategy: Some(RunStrategy::Always),
        is_set_to_start: true,
        filling: &filling,
        start_failure: None,
    };
    status(&machine, &facts)
}

#[test]
fn of_two_that_fit_the_first_counts() {
    for (index, (first, expected)) in FACTS.iter().enumerate() {
        assert_eq!(word(&[first]), *expected, "{first}");
        for (second, _) in FACTS[index + 1..].iter().filter(|(second, _)| *second != "nothing") {
            // A running guest has left what comes before its start behind.
            assert_eq!(word(&[first, second]), *expected, "{first}, {second}");
        }
    }
}

#[test]
fn images_come_after_volumes_and_before_the_rest() {
    assert_eq!(word(&["pull failed"]), PrintableStatus::ErrImagePull);
    assert_eq!(word(&["pull waits"]), PrintableStatus::ImagePullBackOff);
    assert_eq!(word(&["pull failed", "claim unbound"]), PrintableStatus::WaitingForVolumeBinding);
    assert_eq!(word(&["pull failed", "starting"]), PrintableStatus::ErrImagePull);
}

#[test]
fn a_machine_whose_starts_fail_says_so_while_it_waits() {
    let failure = StartFailure { consecutive_fail_count: Some(2), ..StartFailure::default() };
    let say = |vmi: Option<&str>, strategy| {
        let machine = machine(vm("Always"), vmi.map(guest));
        let vmi = machine.own_guest().map(|vmi| &**vmi);
        let facts = Facts {
            vmi,
            strategy: Some(strategy),
            is_set_to_start: true,
            filling: &Filling::Ready,
            start_failure: Some(&failure),
        };
        status(&machine, &facts)
    };
    assert_eq!(say(None, RunStrategy::Always), PrintableStatus::CrashLoopBackOff);
    assert_eq!(say(Some("Failed"), RunStrategy::Once), PrintableStatus::CrashLoopBackOff);
    assert_eq!(say(Some("Scheduling"), RunStrategy::Always), PrintableStatus::Starting);
    assert_eq!(say(None, RunStrategy::Manual), PrintableStatus::Stopped);
    assert_eq!(say(Some("Unknown"), RunStrategy::Manual), PrintableStatus::Unknown);
}
