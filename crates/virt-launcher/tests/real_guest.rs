//! The launcher as a pod runs it, with a real libvirt and a guest that is one boot sector.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pod;

use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{
    DomainReport, DomainState, FinalWords, OffReason, PauseReason, Refusal, ShutdownRequest, Version,
};
use ferrovirt_launcher_rpc::paths;
use pod::{Pod, UID, start_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_guest_runs_pauses_outlives_libvirt_and_crashes() {
    let mut pod = Pod::start("30").await;
    assert_eq!(pod.get::<Version>("version").await.protocol, 1);
    assert_eq!(pod.get::<DomainReport>("domain").await.state, DomainState::Absent);
    pod.put("capabilities", &[]).await.unwrap();
    let report = pod.start_guest(&start_request()).await;
    assert_eq!(report.state, DomainState::Running);
    assert_eq!(report.uid.as_deref(), Some(UID));
    assert!(report.emulated && report.machine_type.unwrap().starts_with("pc-q35-"));
    assert_eq!((report.memory, report.disks), (Some(32 << 20), vec![("root".to_owned(), "sda".to_owned())]));
    assert!(report.qemu_version.unwrap().split('.').count() == 3);

    // The guest echoes; a second client takes its console over.
    let mut first = pod.stream("console").await;
    pod.echo(&mut first).await;
    let mut second = pod.stream("console").await;
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).await.unwrap();
    pod.echo(&mut second).await;
    let mut display = pod.stream("vnc").await;
    let mut greeting = [0; 4];
    display.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"RFB ");
    assert!(pod.call("GET", "screenshot", &[]).await.1.len() > 100);

    let mut events = pod.events().await;
    assert_eq!(events.next().await.state, DomainState::Running);
    pod.post("pause").await.unwrap();
    assert_eq!(events.next().await.state, DomainState::Paused(PauseReason::User));
    assert_eq!(pod.get::<DomainReport>("domain").await.state, DomainState::Paused(PauseReason::User));
    pod.post("unpause").await.unwrap();
    assert_eq!(events.next().await.state, DomainState::Running);
    assert_eq!(pod.post("freeze").await.unwrap_err().reason, "Malformed");
    assert_eq!(pod.post("unfreeze").await.unwrap_err().reason, "NoAgent");
    pod.post("reset").await.unwrap();
    assert_eq!(pod.start_guest(&start_request()).await.state, DomainState::Running);

    pod.kill_libvirt().await;
    pod.until_done("pause").await;
    pod.echo_after_unpause(&mut second).await;

    pod.kill_qemu();
    let last = events.last().await;
    assert_eq!(last.state, DomainState::Off(OffReason::Crashed));
    assert_eq!(pod.post("pause").await.unwrap_err().reason, "NotRunning");
    pod.post("done").await.unwrap();
    let (code, words) = pod.end().await;
    assert_eq!((code, words.reason), (1, OffReason::Crashed));
}

#[tokio::test]
async fn a_guest_that_powers_off_succeeds() {
    let mut pod = Pod::start("30").await;
    pod.start_guest(&start_request()).await;
    let mut console = pod.stream("console").await;
    pod.echo(&mut console).await;
    console.write_all(b"o").await.unwrap();
    assert_eq!(pod.events().await.last().await.state, DomainState::Off(OffReason::Shutdown));
    pod.post("done").await.unwrap();
    assert_eq!(pod.end().await.0, 0);
}

#[tokio::test]
async fn a_capability_cache_that_is_handed_over_is_used() {
    let probed = Pod::start("30").await;
    probed.put("capabilities", &[]).await.unwrap();
    let archive = probed.checked("GET", "capabilities", &[]).await.unwrap();
    let warm = Pod::start("30").await;
    warm.put("capabilities", &archive).await.unwrap();
    let handed = warm.capability_files();
    warm.start_guest(&start_request()).await;
    // libvirt would have replaced what it does not believe.
    assert_eq!(warm.capability_files(), handed);
    assert_eq!(warm.put("capabilities", &archive).await.unwrap(), "");
}

#[tokio::test]
async fn a_guest_that_panics_fails() {
    let mut pod = Pod::start("30").await;
    pod.start_guest(&start_request()).await;
    let mut console = pod.stream("console").await;
    pod.echo(&mut console).await;
    console.write_all(b"p").await.unwrap();
    assert_eq!(pod.events().await.last().await.state, DomainState::Off(OffReason::Panicked));
    pod.post("done").await.unwrap();
    let (code, words) = pod.end().await;
    assert_eq!((code, words.reason), (1, OffReason::Panicked));
}

#[tokio::test]
async fn a_guest_that_ignores_the_power_button_is_killed_in_time() {
    let mut pod = Pod::start("1").await;
    let mut request = start_request();
    request.paused = true;
    assert_eq!(pod.start_guest(&request).await.state, DomainState::Paused(PauseReason::User));
    let mut events = pod.events().await;
    assert_eq!(events.next().await.state, DomainState::Paused(PauseReason::User));
    pod.terminate();
    assert_eq!(events.next().await.state, DomainState::ShuttingDown);
    assert_eq!(events.last().await.state, DomainState::Off(OffReason::Destroyed));
    pod.post("done").await.unwrap();
    let (code, FinalWords { reason, .. }) = pod.end().await;
    assert_eq!((code, reason), (1, OffReason::Destroyed));
}

#[tokio::test]
async fn a_guest_without_grace_ends_as_asked() {
    let mut pod = Pod::start("30").await;
    pod.start_guest(&start_request()).await;
    let wish = serde_json::to_vec(&ShutdownRequest { grace_seconds: 0 }).unwrap();
    pod.checked("POST", "shutdown", &wish).await.unwrap();
    assert_eq!(pod.events().await.last().await.state, DomainState::Off(OffReason::Destroyed));
    pod.post("done").await.unwrap();
    assert_eq!(pod.end().await.0, 0);
}

#[tokio::test]
async fn a_start_that_is_refused_says_why_and_can_be_repeated() {
    let pod = Pod::start("30").await;
    let mut wrong = start_request();
    wrong.uid = "somebody else".to_owned();
    assert_eq!(pod.refused(&wrong).await.reason, "WrongGuest");
    let mut missing = start_request();
    missing.disks = serde_json::from_str(r#"[{"kind":"rawImage","volume":"data","path":"/run/missing.img"}]"#).unwrap();
    let Refusal { reason, message } = pod.refused(&missing).await;
    assert!(reason == "DiskNotUsable" && message.contains("data"), "{reason}: {message}");
    let mut unknown = start_request();
    unknown.domain_xml = unknown.domain_xml.replace("machine='q35'", "machine='pc-q35-99.0'");
    let Refusal { reason, message } = pod.refused(&unknown).await;
    assert!(reason == "DomainRefused" && message.contains("pc-q35-99.0"), "{reason}: {message}");
    let mut huge = start_request();
    huge.domain_xml = huge.domain_xml.replace(">32<", ">99999999<");
    assert_eq!(pod.refused(&huge).await.reason, "StartFailed");
    assert_eq!(pod.get::<DomainReport>("domain").await.state, DomainState::Absent);
    assert_eq!(pod.start_guest(&start_request()).await.state, DomainState::Running);
    pod.post("kill").await.unwrap();
    assert_eq!(pod.events().await.last().await.state, DomainState::Off(OffReason::Destroyed));
}

#[tokio::test]
async fn a_guest_that_runs_already_is_taken_over() {
    let mut pod = Pod::start("30").await;
    pod.put("capabilities", &[]).await.unwrap();
    pod.libvirt_listens().await;
    let request = start_request();
    let directory = pod.file(&paths::guest_directory(UID));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(paths::RUNTIME_USER), None).unwrap();
    std::fs::write(pod.file("/run/domain.xml"), &request.domain_xml).unwrap();
    pod.virsh(&["define", "/run/domain.xml"]);
    pod.virsh(&["start", "default_guest", "--paused"]);
    assert_eq!(pod.start_guest(&request).await.state, DomainState::Paused(PauseReason::User));
    assert_eq!(pod.qemus(), 1);
    // Killed behind our back: libvirt says "destroyed", and it was not us.
    pod.virsh(&["destroy", "default_guest"]);
    assert_eq!(pod.events().await.last().await.state, DomainState::Off(OffReason::Crashed));
    pod.post("done").await.unwrap();
    assert_eq!(pod.end().await.0, 1);
}

#[tokio::test]
async fn a_launcher_without_a_guest_waits_and_ends_when_told() {
    let mut pod = Pod::start("3600").await;
    assert_eq!(pod.post("pause").await.unwrap_err().reason, "NotRunning");
    assert_eq!(pod.post("dance").await.unwrap_err().reason, "NoSuchCall");
    pod.post("done").await.unwrap();
    pod.terminate();
    let (code, words) = tokio::time::timeout(Duration::from_secs(60), pod.end()).await.unwrap();
    assert_eq!((code, words.reason), (1, OffReason::Failed));
}
