//! The table of decisions, row by row.

use super::report;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{ConditionStatus, find_condition};
use ferrovirt_api::vmi::{
    MigrationMethod, VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status,
};
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{
    AgentInterface, AgentReport, DomainInterface, DomainReport, DomainState, FinalWords, GuestOs, OffReason,
    PauseReason,
};
use serde_json::{Value, json};

use ferrovirt_reconcile::controller::Category;
use ferrovirt_reconcile::{Controller, Failure, Plan};

use super::Guests;
use super::decide::{Action, View, decide};
use crate::launcher::Command;

fn vmi(phase: &str, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut value = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "db", "namespace": "shop", "uid": "1-2-3"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {"phase": phase, "nodeName": "node1", "activePods": {"pod-1": "node1"}},
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

fn pod(phase: &str, message: Option<&str>) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "virt-launcher-db", "namespace": "shop", "uid": "pod-1"},
        "status": {
            "phase": phase,
            "podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00::7"}],
            "conditions": [{"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }}],
            "containerStatuses": [{
                "name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": message.map_or(json!({}), |message| json!({"terminated": {"exitCode": 1, "message": message}})),
            }],
        },
    }))
    .unwrap()
}

fn view(vmi: VirtualMachineInstance, state: Option<DomainState>) -> View {
    View {
        vmi: Arc::new(vmi),
        pod: Some(Arc::new(pod("Running", None))),
        report: state.map(|state| DomainReport { uid: Some("1-2-3".into()), state, ..DomainReport::default() }),
        reachable: true,
        node: "node1".into(),
        host_model: Some(true),
        since_progress: None,
        now: "2026-11-16T01:02:03Z".parse().unwrap(),
    }
}

fn deleted(value: &mut Value) {
    value["metadata"]["deletionTimestamp"] = "2026-11-16T01:00:00Z".into();
}

fn phase_after(view: &View) -> Option<Phase> {
    decide(view).status.and_then(|status| status.phase)
}

#[test]
fn a_scheduled_guest_is_started_once_its_launcher_answers() {
    let mut view = view(vmi("Scheduled", |_| {}), Some(DomainState::Absent));
    assert_eq!(decide(&view).actions, [Action::Start]);
    view.reachable = false;
    assert!(decide(&view).is_idle());
    view.report = None;
    assert!(decide(&view).is_idle());
}

#[test]
fn a_guest_is_started_in_no_pod_but_those_that_its_object_names() {
    let recorded = |ledger: Value| {
        let vmi = vmi("Scheduled", |value| value["status"]["activePods"] = ledger);
        !decide(&view(vmi, Some(DomainState::Absent))).is_idle()
    };
    assert!(recorded(json!({"pod-1": "node1"})));
    assert!(!recorded(json!({"pod-0": "node1"})), "the one before, of the same name");
    assert!(!recorded(Value::Null));
}

#[test]
fn a_guest_of_another_node_or_of_nobody_is_left_alone() {
    for change in [json!("node2"), Value::Null] {
        let other = vmi("Scheduled", |value| value["status"]["nodeName"] = change);
        assert!(decide(&view(other, Some(DomainState::Absent))).is_idle());
    }
    assert!(decide(&view(vmi("Scheduling", |_| {}), Some(DomainState::Absent))).is_idle());
}

#[test]
fn a_deleted_guest_is_never_started() {
    assert!(decide(&view(vmi("Scheduled", deleted), Some(DomainState::Absent))).is_idle());
}

#[test]
fn running_is_reported_once_with_one_event() {
    let first = view(vmi("Scheduled", |_| {}), Some(DomainState::Running));
    let plan = decide(&first);
    assert!(matches!(plan.actions.as_slice(), [Action::Tell { warning: false, reason: "Started", .. }]));
    let status = plan.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Running));
    assert!(find_condition(&status.conditions, "Ready").unwrap().is_true());
    assert!(find_condition(&status.conditions, "LiveMigratable").unwrap().is_true());
    let seen = VirtualMachineInstance { status: Some(status.clone()), ..VirtualMachineInstance::clone(&first.vmi) };
    let mut again = view(seen, Some(DomainState::Running));
    again.now = "2026-11-16T09:00:00Z".parse().unwrap();
    let plan = decide(&again);
    assert_eq!((plan.actions, plan.status), (vec![], Some(status)), "nothing changes when nothing happens");
}

#[test]
fn a_deleted_guest_is_asked_to_power_off_and_killed_without_patience() {
    let running = view(vmi("Running", deleted), Some(DomainState::Running));
    assert!(decide(&running).actions.contains(&Action::Command(Command::Shutdown { grace_seconds: 30 })));
    let short = vmi("Running", |value| {
        deleted(value);
        value["spec"]["terminationGracePeriodSeconds"] = 0.into();
    });
    assert!(decide(&view(short, Some(DomainState::Running))).actions.contains(&Action::Command(Command::Kill)));
}

#[test]
fn a_guest_on_its_way_is_asked_again_without_a_word_and_killed_when_its_time_was_cut() {
    let on_its_way = view(vmi("Running", deleted), Some(DomainState::ShuttingDown));
    assert_eq!(decide(&on_its_way).actions, [Action::Command(Command::Shutdown { grace_seconds: 30 })]);
    let cut = vmi("Running", |value| {
        deleted(value);
        value["spec"]["terminationGracePeriodSeconds"] = 0.into();
    });
    assert_eq!(decide(&view(cut, Some(DomainState::ShuttingDown))).actions, [Action::Command(Command::Kill)]);
}

#[test]
fn how_a_guest_ends_decides_its_last_phase() {
    for (reason, phase) in [
        (OffReason::Shutdown, Phase::Succeeded),
        (OffReason::Saved, Phase::Succeeded),
        (OffReason::Destroyed, Phase::Failed),
        (OffReason::Crashed, Phase::Failed),
        (OffReason::Panicked, Phase::Failed),
        (OffReason::Failed, Phase::Failed),
        (OffReason::Unknown, Phase::Failed),
    ] {
        let ended = view(vmi("Running", |_| {}), Some(DomainState::Off(reason)));
        assert_eq!(phase_after(&ended), Some(phase), "{reason:?}");
    }
    let moved = view(vmi("Running", |_| {}), Some(DomainState::Off(OffReason::Migrated)));
    assert_eq!(phase_after(&moved), None);
}

/// The events of a plan: their reasons, and their messages one after the other.
fn told(plan: &Plan<Action, Status>) -> (Vec<&'static str>, String) {
    let told = plan.actions.iter().filter_map(|action| match action {
        Action::Tell { reason, message, .. } => Some((*reason, message.as_str())),
        _ => None,
    });
    told.unzip()
}

#[test]
fn a_deletion_that_was_not_obeyed_is_told_as_kubevirt_tells_it() {
    let killed = Some(DomainState::Off(OffReason::Destroyed));
    assert_eq!(told(&decide(&view(vmi("Running", deleted), killed.clone()))).0, ["Stopped", "Deleted"]);
    assert_eq!(told(&decide(&view(vmi("Running", |_| {}), killed))).0, ["Stopped"]);
    let obeyed = Some(DomainState::Off(OffReason::Shutdown));
    assert_eq!(told(&decide(&view(vmi("Running", deleted), obeyed))).0, ["Stopped"]);
}

#[test]
fn what_qemu_said_at_its_end_is_told_and_has_room_in_an_event() {
    let mut crashed = view(vmi("Running", |_| {}), Some(DomainState::Off(OffReason::Crashed)));
    let report = crashed.report.as_mut().unwrap();
    report.ending = Some("QEMU ended with signal 6, and wrote: Assertion\u{1b}[31m failed".into());
    let (_, message) = told(&decide(&crashed));
    assert!(message.ends_with("QEMU ended with signal 6, and wrote: Assertion[31m failed"), "{message}");
    crashed.report.as_mut().unwrap().ending = Some("x".repeat(5000));
    assert!(told(&decide(&crashed)).1.len() < 1024);
}

#[test]
fn a_kill_that_was_the_way_to_stop_is_a_success() {
    let changes: [fn(&mut Value); 2] = [
        |value| value["spec"]["terminationGracePeriodSeconds"] = 0.into(),
        |value| value["spec"]["domain"]["features"] = json!({"acpi": {"enabled": false}}),
    ];
    for change in changes {
        let stopped = view(vmi("Running", change), Some(DomainState::Off(OffReason::Destroyed)));
        assert_eq!(phase_after(&stopped), Some(Phase::Succeeded));
    }
}

#[test]
fn the_pods_last_words_count_when_the_launcher_said_nothing() {
    let words =
        serde_json::to_string(&FinalWords { reason: OffReason::Shutdown, message: "bye".into(), migration: None })
            .unwrap();
    for (message, phase) in
        [(Some(words.as_str()), Phase::Succeeded), (Some("nonsense"), Phase::Failed), (None, Phase::Failed)]
    {
        let mut view = view(vmi("Running", |_| {}), None);
        view.reachable = false;
        view.pod = Some(Arc::new(pod("Failed", message)));
        assert_eq!(phase_after(&view), Some(phase), "{message:?}");
    }
}

#[test]
fn silence_is_no_evidence() {
    for state in [None, Some(DomainState::Running), Some(DomainState::Starting)] {
        let mut view = view(vmi("Running", |_| {}), state.clone());
        view.reachable = false;
        let after = phase_after(&view);
        assert!(after.is_none() || after == Some(Phase::Running), "{state:?}");
        assert!(!decide(&view).actions.iter().any(|action| matches!(action, Action::Command(_))));
    }
    let mut view = view(vmi("Running", |_| {}), None);
    (view.reachable, view.pod) = (false, None);
    assert!(decide(&view).is_idle());
}

#[test]
fn only_a_guest_that_never_ran_fails_by_what_could_not_be_done() {
    let failure = Failure::new(Category::Hopeless, "start the guest", "its disk is broken");
    let after = |phase| Guests::status_after(&view(vmi(phase, |_| {}), Some(DomainState::Absent)), &failure);
    let failed = after("Scheduled").unwrap();
    assert_eq!(failed.phase, Some(Phase::Failed));
    assert!(find_condition(&failed.conditions, "Synchronized").unwrap().message.as_ref().unwrap().contains("broken"));
    assert!(report::news_of_failure(None, &failed).is_some_and(|told| told.contains("broken")));
    assert_eq!(report::news_of_failure(Some(&failed), &failed), None, "it is told once");
    for phase in ["Running", "Succeeded", "Failed"] {
        assert_eq!(after(phase), None, "{phase}");
    }
}

#[test]
fn after_the_end_the_launcher_may_go() {
    let ended = view(vmi("Succeeded", |_| {}), Some(DomainState::Off(OffReason::Shutdown)));
    assert_eq!(decide(&ended).actions, [Action::Command(Command::Done)]);
    let never_started = view(vmi("Failed", |_| {}), Some(DomainState::Absent));
    assert_eq!(decide(&never_started).actions, [Action::Command(Command::Kill)]);
}

#[test]
fn a_paused_guest_runs_but_is_not_ready() {
    for (reason, word) in [(PauseReason::User, "PausedByUser"), (PauseReason::IoError, "PausedIOError")] {
        let status = decide(&view(vmi("Running", |_| {}), Some(DomainState::Paused(reason)))).status.unwrap();
        assert_eq!(status.phase, Some(Phase::Running));
        assert_eq!(find_condition(&status.conditions, "Paused").unwrap().reason.as_deref(), Some(word));
        assert_eq!(find_condition(&status.conditions, "Ready").unwrap().status, ConditionStatus::False);
    }
    let broken = view(vmi("Running", |_| {}), Some(DomainState::Paused(PauseReason::PostcopyFailed)));
    assert_eq!(phase_after(&broken), Some(Phase::Failed));
}

#[test]
fn the_guests_words_are_shown() {
    let mut view = view(vmi("Running", |_| {}), Some(DomainState::Running));
    let report = view.report.as_mut().unwrap();
    report.emulated = true;
    report.machine_type = Some("pc-q35-7.2".into());
    report.interfaces = vec![DomainInterface {
        name: "default".into(),
        mac: "02:00:00:aa:bb:cc".into(),
        tap: "tap0".into(),
        queues: 1,
        link_up: true,
    }];
    let card = |name: &str, mac: &str, addresses: &[&str]| AgentInterface {
        name: name.into(),
        mac: mac.into(),
        addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
    };
    report.agent = AgentReport {
        connected: true,
        os: Some(GuestOs { name: "Debian".into(), ..GuestOs::default() }),
        interfaces: vec![
            card("lo", "00:00:00:00:00:00", &["127.0.0.1"]),
            card("enp1s0", "02:00:00:AA:BB:CC", &["10.0.2.2", "fe80::1"]),
            card("docker0", "02:42:00:00:00:01", &["172.17.0.1"]),
        ],
        ..AgentReport::default()
    };
    let status = decide(&view).status.unwrap();
    insta::assert_json_snapshot!(serde_json::json!({
        "interfaces": status.interfaces, "guestOSInfo": status.guest_os_info, "machine": status.machine,
    }));
    assert!(find_condition(&status.conditions, "AgentConnected").unwrap().is_true());
    assert!(find_condition(&status.conditions, "SoftwareEmulation").unwrap().is_true());
}

#[test]
fn what_cannot_move_says_why() {
    let local = |value: &mut Value| {
        value["spec"]["volumes"] = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]);
        value["status"]["volumeStatus"] = json!([{"name": "root", "target": "", "persistentVolumeClaimInfo": {"claimName": "root", "accessModes": ["ReadWriteOnce"]}}]);
    };
    let shared = |value: &mut Value| {
        local(value);
        value["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"]["accessModes"] = json!(["ReadWriteMany"]);
    };
    let bridge = |value: &mut Value| {
        value["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "default", "bridge": {}}]);
    };
    let seeded = |value: &mut Value| {
        value["spec"]["volumes"] = json!([{"name": "seed", "cloudInitNoCloud": {"userData": "#"}}]);
        value["spec"]["domain"]["devices"]["disks"] = json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
    };
    let read_only = |value: &mut Value| {
        seeded(value);
        value["spec"]["domain"]["devices"]["disks"] = json!([{"name": "seed", "cdrom": {"bus": "sata"}}]);
    };
    let judge = |change: &dyn Fn(&mut Value)| {
        let status = decide(&view(vmi("Running", |value| change(value)), Some(DomainState::Running))).status.unwrap();
        let condition = find_condition(&status.conditions, "LiveMigratable").unwrap().clone();
        (condition.reason, status.migration_method.unwrap())
    };
    assert_eq!(judge(&local), (Some("DisksNotLiveMigratable".into()), MigrationMethod::BlockMigration));
    assert_eq!(judge(&shared), (None, MigrationMethod::LiveMigration));
    assert_eq!(judge(&bridge), (Some("InterfaceNotLiveMigratable".into()), MigrationMethod::LiveMigration));
    assert_eq!(judge(&seeded), (None, MigrationMethod::BlockMigration));
    assert_eq!(judge(&read_only), (None, MigrationMethod::LiveMigration));
    let rows = [
        ("/devices/filesystems", json!([{"name": "share", "virtiofs": {}}]), "VirtIOFSNotLiveMigratable"),
        ("/devices/gpus", json!([{"name": "gpu", "deviceName": "x/gpu"}]), "HostDeviceNotLiveMigratable"),
        ("/launchSecurity", json!({"sev": {}}), "SEVNotLiveMigratable"),
        ("/launchSecurity", json!({"tdx": {}}), "TDXNotLiveMigratable"),
        ("/cpu", json!({"features": [{"name": "invtsc"}]}), "NoTSCFrequencyNotLiveMigratable"),
        ("/features", json!({"hyperv": {"reenlightenment": {}}}), "NoTSCFrequencyNotLiveMigratable"),
        ("/features", json!({"hypervPassthrough": {}}), "HypervPassthroughNotLiveMigratable"),
        (
            "/devices/disks",
            json!([{"name": "a", "lun": {"reservation": true}}]),
            "PersistentReservationNotLiveMigratable",
        ),
    ];
    for (path, wanted, reason) in rows {
        let change = |value: &mut Value| {
            let domain = &mut value["spec"]["domain"];
            match path[1..].split_once('/') {
                Some((outer, inner)) => domain[outer][inner] = wanted.clone(),
                None => domain[&path[1..]] = wanted.clone(),
            }
        };
        assert_eq!(judge(&change).0.as_deref(), Some(reason));
    }
}

#[test]
fn a_guest_that_follows_a_host_nobody_can_name_stays_there() {
    let judge = |model: &str, known: Option<bool>, change: &dyn Fn(&mut View)| {
        let guest = vmi("Running", |value| value["spec"]["domain"]["cpu"] = json!({"model": model}));
        let mut view = view(guest, Some(DomainState::Running));
        view.host_model = known;
        change(&mut view);
        let status = decide(&view).status.unwrap();
        find_condition(&status.conditions, "LiveMigratable").map(|told| told.reason.clone().unwrap_or_default())
    };
    let same = |_: &mut View| {};
    let stays = Some("CPUModeLiveMigratable".to_owned());
    assert_eq!(judge("host-model", Some(false), &same), stays);
    assert_eq!(judge("", Some(false), &same), stays, "it is the default");
    assert_eq!(judge("host-model", Some(true), &same), Some(String::new()));
    assert_eq!(judge("host-model", None, &same), None, "not said before it is known");
    assert_eq!(judge("Haswell", None, &same), Some(String::new()));
    let emulated = |view: &mut View| view.report.as_mut().unwrap().emulated = true;
    assert_eq!(judge("host-model", Some(false), &emulated), Some(String::new()), "emulation follows no host");
    let moved = |view: &mut View| {
        let pod = Arc::make_mut(view.pod.as_mut().unwrap());
        pod.metadata.labels = Some([("kubevirt.io/migrationJobUID".to_owned(), "m".to_owned())].into());
    };
    assert_eq!(judge("host-model", Some(false), &moved), Some(String::new()), "its pod names the model");
}
