//! Two launchers as two pods run them, with a real libvirt each, and a guest that moves between them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod pod;

use std::io::{Read, Seek, SeekFrom, Write};

use ferrovirt_handover::{Outcome, SourceStage, TargetStage, Verdict};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState, OffReason, PauseReason};
use ferrovirt_launcher_rpc::migration::{
    CancelRequest, Channel, Mode, Options, SourceRequest, Stage, TargetRequest, VerdictRequest,
};
use ferrovirt_launcher_rpc::paths;
use pod::between::{Between, Loses};
use pod::{NAME, Pod, UID, start_request};

/// Where a disk says whose it is.
const MARK_AT: u64 = 64 * 1024;
const MARK: &[u8] = b"written at the source";

fn stage(report: &DomainReport) -> Option<&Stage> {
    report.migration.as_ref().map(|migration| &migration.stage)
}

fn at_source(report: &DomainReport) -> Option<&SourceStage> {
    match stage(report) {
        Some(Stage::Source(stage)) => Some(stage),
        _ => None,
    }
}

fn at_target(report: &DomainReport) -> Option<&TargetStage> {
    match stage(report) {
        Some(Stage::Target(stage)) => Some(stage),
        _ => None,
    }
}

fn mark(pod: &Pod) {
    let mut disk = std::fs::OpenOptions::new().write(true).open(pod.file(&paths::volume_image("root"))).unwrap();
    disk.seek(SeekFrom::Start(MARK_AT)).unwrap();
    disk.write_all(MARK).unwrap();
}

fn is_marked(pod: &Pod) -> bool {
    let mut disk = std::fs::File::open(pod.file(&paths::volume_image("root"))).unwrap();
    disk.seek(SeekFrom::Start(MARK_AT)).unwrap();
    let mut found = [0; MARK.len()];
    disk.read_exact(&mut found).unwrap();
    found == MARK
}

/// Of "QEMU emulator version 7.2.22 (Debian …)".
fn qemu_major_version() -> u32 {
    let said = std::process::Command::new("qemu-system-x86_64").arg("--version").output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    said.split("version ").nth(1).and_then(|version| version.split('.').next()).unwrap().parse().unwrap()
}

fn target_request(id: &str) -> TargetRequest {
    let disks = vec![DiskTask::RawImage { volume: "root".into(), path: paths::volume_image("root"), create: None }];
    TargetRequest { id: id.to_owned(), uid: UID.to_owned(), name: NAME.to_owned(), disks, dhcp: Vec::new() }
}

fn source_request(id: &str, options: Options) -> SourceRequest {
    SourceRequest { id: id.to_owned(), options, copied_volumes: vec!["root".to_owned()] }
}

/// A target that waits.
async fn target(id: &str) -> Pod {
    target_in(Pod::start("30").await, &target_request(id)).await
}

async fn target_in(pod: Pod, request: &TargetRequest) -> Pod {
    pod.put("migration/target", &serde_json::to_vec(request).unwrap()).await.unwrap();
    let report = pod.get::<DomainReport>("domain").await;
    assert_eq!(at_target(&report), Some(&TargetStage::Waiting));
    pod
}

/// A source with a guest whose counter is at `A`.
async fn source() -> Pod {
    let pod = Pod::start("30").await;
    mark(&pod);
    assert_eq!(pod.start_guest(&start_request()).await.state, DomainState::Running);
    let mut console = pod.stream("console").await;
    pod.echo(&mut console).await;
    assert_eq!(pod.ask(&mut console, b'n').await, b'A');
    pod
}

async fn begin(source: &Pod, id: &str, options: Options) {
    let request = serde_json::to_vec(&source_request(id, options)).unwrap();
    source.put("migration/source", &request).await.unwrap();
    // Asked again, nothing happens.
    source.put("migration/source", &request).await.unwrap();
}

async fn cancel(pod: &Pod, id: &str) {
    let request = CancelRequest { id: id.to_owned(), reason: "nobody wants it".to_owned() };
    pod.checked("POST", "migration/cancel", &serde_json::to_vec(&request).unwrap()).await.unwrap();
}

/// So slow that it does not end before something happened to it.
fn slow() -> Options {
    Options { bandwidth: 1 << 20, ..Options::default() }
}

async fn judge(pod: &Pod, id: &str, verdict: Verdict) {
    let request = VerdictRequest { id: id.to_owned(), verdict };
    pod.checked("POST", "migration/verdict", &serde_json::to_vec(&request).unwrap()).await.unwrap();
}

fn has_stayed(report: &DomainReport) -> bool {
    matches!(at_source(report), Some(SourceStage::Over(Outcome::Stayed(_))))
}

fn is_in_doubt(report: &DomainReport) -> bool {
    at_source(report) == Some(&SourceStage::Doubtful)
}

/// The source's guest runs on, and its counter goes on from `A`.
async fn runs_on(source: &Pod, next: u8) {
    source.until("the guest runs", |report| report.state == DomainState::Running).await;
    let mut console = source.stream("console").await;
    assert_eq!(source.ask(&mut console, b'n').await, next);
}

/// The target says that it never ran the guest, and ends.
async fn never_ran(mut target: Pod) {
    target.until("the target's vow", |report| matches!(at_target(report), Some(TargetStage::Never(_)))).await;
    assert_eq!(target.qemus(), 0);
    target.post("done").await.unwrap();
    let (code, words) = target.end().await;
    assert_eq!((code, words.reason), (1, OffReason::Failed));
    assert!(matches!(words.migration.unwrap().stage, Stage::Target(TargetStage::Never(_))));
}

#[tokio::test]
async fn a_guest_moves_there_and_back_with_its_disk() {
    let mut here = source().await;
    for (id, letter, connections) in [("there", b'B', 0), ("back", b'C', 8)] {
        let there = target(id).await;
        assert!(!is_marked(&there));
        let between = Between::join(&here, &there, id);
        begin(&here, id, Options { parallel_connections: connections, ..Options::default() }).await;
        let report = there.until("the guest", |report| report.state == DomainState::Running).await;
        assert_eq!(at_target(&report), Some(&TargetStage::Started));
        let is_known = |report: &DomainReport| report.migration.as_ref().is_some_and(|it| it.progress.is_some());
        let report = there.until("the figures", is_known).await;
        assert!(report.migration.unwrap().progress.unwrap().downtime_ms.is_some());
        let (code, words) = here.end().await;
        assert_eq!((code, words.reason), (0, OffReason::Migrated));
        assert_eq!(words.migration.unwrap().stage, Stage::Source(SourceStage::Over(Outcome::Moved)));
        assert!(between.taken().starts_with(&[Channel::Link, Channel::Disks]), "{:?}", between.taken());
        let for_memory = between.taken().iter().filter(|channel| **channel == Channel::Memory).count();
        // An older QEMU cannot be stopped safely while it makes several.
        let several = if qemu_major_version() < 9 { 0 } else { connections as usize };
        assert_eq!(for_memory, 1 + several);
        assert!(is_marked(&there));
        let mut console = there.stream("console").await;
        assert_eq!(there.ask(&mut console, b'n').await, letter);
        here = there;
    }
}

#[tokio::test]
async fn a_move_that_is_called_off_leaves_the_guest_where_it_was() {
    let mut here = source().await;
    let there = target("first").await;
    let _between = Between::join(&here, &there, "first");
    begin(&here, "first", slow()).await;
    let is_on_its_way = |report: &DomainReport| {
        at_source(report) == Some(&SourceStage::Copying)
            && report.migration.as_ref().is_some_and(|migration| migration.progress.is_some())
    };
    let report = here.until("the first figures", is_on_its_way).await;
    assert!(report.migration.unwrap().progress.unwrap().total_bytes > 0);
    cancel(&here, "first").await;
    let stayed = SourceStage::Over(Outcome::Stayed("nobody wants it".to_owned()));
    here.until("the end of the move", |report| at_source(report) == Some(&stayed)).await;
    runs_on(&here, b'B').await;
    never_ran(there).await;

    // One that was called off before it began does not begin; the next one succeeds.
    cancel(&here, "second").await;
    begin(&here, "second", Options::default()).await;
    assert_eq!(at_source(&here.get::<DomainReport>("domain").await), Some(&stayed));
    let there = target("third").await;
    let _between = Between::join(&here, &there, "third");
    // A libvirt that is killed at the wrong moment leaves such a thing in QEMU.
    let left =
        r#"{"execute": "blockdev-add", "arguments": {"driver": "null-co", "node-name": "migration-sda-storage"}}"#;
    here.virsh(&["qemu-monitor-command", NAME, left]);
    begin(&here, "third", Options::default()).await;
    assert_eq!(here.end().await.0, 0);
    runs_on(&there, b'C').await;
}

#[tokio::test]
async fn a_link_that_breaks_before_the_end_leaves_the_guest_where_it_was() {
    let here = source().await;
    let there = target("cut").await;
    let between = Between::join(&here, &there, "cut");
    begin(&here, "cut", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    between.cut();
    here.until("the end of the move", has_stayed).await;
    runs_on(&here, b'B').await;
    never_ran(there).await;
}

#[tokio::test]
async fn libvirt_that_dies_during_the_copy_leaves_the_guest_where_it_was() {
    let here = source().await;
    let there = target("first").await;
    let _between = Between::join(&here, &there, "first");
    begin(&here, "first", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    here.kill_libvirt().await;
    here.until("the end of the move", has_stayed).await;
    runs_on(&here, b'B').await;
    never_ran(there).await;
    let there = target("second").await;
    let _between = Between::join(&here, &there, "second");
    begin(&here, "second", Options::default()).await;
    runs_on(&there, b'C').await;
}

#[tokio::test]
async fn the_last_word_is_lost_and_the_source_asks_again() {
    let mut here = source().await;
    let there = target("first").await;
    let _between = Between::join_badly(&here, &there, "first", Loses::Once("finish"));
    begin(&here, "first", Options::default()).await;
    // The target never heard it: it never runs the guest, and says so.
    here.until("the end of the move", has_stayed).await;
    runs_on(&here, b'B').await;
    never_ran(there).await;

    let there = target("second").await;
    let _between = Between::join_badly(&here, &there, "second", Loses::Once("started"));
    begin(&here, "second", Options::default()).await;
    // The target heard it, and says so again.
    let (code, words) = here.end().await;
    assert_eq!((code, words.reason), (0, OffReason::Migrated));
    runs_on(&there, b'C').await;
}

#[tokio::test]
async fn a_source_in_doubt_stands_still_until_it_is_told() {
    let mut here = source().await;
    let there = target("first").await;
    let _between = Between::join_badly(&here, &there, "first", Loses::ForGood("finish"));
    begin(&here, "first", Options::default()).await;
    here.until("doubt", is_in_doubt).await;
    never_ran(there).await;
    here.kill_libvirt().await;
    here.libvirt_listens().await;
    assert_eq!(here.post("unpause").await.unwrap_err().reason, "WrongState");
    let report = here.get::<DomainReport>("domain").await;
    assert_eq!((is_in_doubt(&report), report.state), (true, DomainState::Paused(PauseReason::Migration)));
    judge(&here, "first", Verdict::Never).await;
    runs_on(&here, b'B').await;

    let there = target("second").await;
    let _between = Between::join_badly(&here, &there, "second", Loses::ForGood("started"));
    begin(&here, "second", Options::default()).await;
    here.until("doubt", is_in_doubt).await;
    runs_on(&there, b'C').await;
    here.kill_libvirt().await;
    cancel(&here, "second").await;
    // Even the death of the copy is not the guest's.
    here.kill_qemu();
    here.libvirt_listens().await;
    let report = here.get::<DomainReport>("domain").await;
    assert_eq!((is_in_doubt(&report), report.state), (true, DomainState::Paused(PauseReason::Migration)));
    judge(&here, "second", Verdict::Started).await;
    let (code, words) = here.end().await;
    assert_eq!((code, words.reason), (0, OffReason::Migrated));
}

#[tokio::test]
async fn a_source_in_doubt_that_is_told_to_end_says_that_it_does_not_know() {
    let mut here = source().await;
    let there = target("move").await;
    let _between = Between::join_badly(&here, &there, "move", Loses::ForGood("started"));
    begin(&here, "move", Options::default()).await;
    here.until("doubt", is_in_doubt).await;
    here.terminate();
    let (code, words) = here.end().await;
    assert_eq!((code, words.migration.unwrap().stage), (1, Stage::Source(SourceStage::Doubtful)));
    runs_on(&there, b'B').await;
}

#[tokio::test]
async fn a_launcher_that_is_told_to_end_ends_its_move_first() {
    let here = source().await;
    let mut there = target("first").await;
    let between = Between::join(&here, &there, "first");
    begin(&here, "first", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    there.terminate();
    let (code, words) = there.end().await;
    assert_eq!((code, words.reason), (1, OffReason::Failed));
    assert!(matches!(words.migration.unwrap().stage, Stage::Target(TargetStage::Never(_))));
    between.cut();
    here.until("the end of the move", has_stayed).await;
    runs_on(&here, b'B').await;

    let mut here = here;
    let there = target("second").await;
    let _between = Between::join(&here, &there, "second");
    begin(&here, "second", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    let wish = serde_json::to_vec(&ferrovirt_launcher_rpc::messages::ShutdownRequest { grace_seconds: 1 }).unwrap();
    here.checked("POST", "shutdown", &wish).await.unwrap();
    let report = here.until("the end", |report| matches!(report.state, DomainState::Off(_))).await;
    assert_eq!((has_stayed(&report), report.state), (true, DomainState::Off(OffReason::Destroyed)));
    here.post("done").await.unwrap();
    let (_, words) = here.end().await;
    assert!(matches!(words.migration.unwrap().stage, Stage::Source(SourceStage::Over(Outcome::Stayed(_)))));
    never_ran(there).await;
}

#[tokio::test]
async fn a_guest_that_changes_too_fast_is_paused_if_that_is_allowed_and_else_stays() {
    let mut here = source().await;
    let mut console = here.stream("console").await;
    assert_eq!(here.ask(&mut console, b'd').await, b'd');
    let restless = Options { bandwidth: 1 << 20, max_downtime_ms: 20, first_downtime_ms: 10, ..Options::default() };
    let there = target("first").await;
    let _between = Between::join(&here, &there, "first");
    begin(&here, "first", Options { progress_timeout: 8, stall_timeout: 4, ..restless.clone() }).await;
    let has_note = |report: &DomainReport| {
        report.migration.as_ref().and_then(|it| it.progress.as_ref()).is_some_and(|it| it.note.is_some())
    };
    let report = here.until("a note", has_note).await;
    assert_eq!(at_source(&report), Some(&SourceStage::Copying));
    let report = here.until("the end of the move", has_stayed).await;
    let Some(SourceStage::Over(Outcome::Stayed(reason))) = at_source(&report) else { panic!("no reason") };
    assert!(reason.contains("allowPostCopy"), "{reason}");
    runs_on(&here, b'B').await;
    never_ran(there).await;

    let there = target("second").await;
    let _between = Between::join(&here, &there, "second");
    begin(&here, "second", Options { may_pause: true, stall_timeout: 4, ..restless }).await;
    let is_paused = |report: &DomainReport| report.migration.as_ref().is_some_and(|it| it.mode == Mode::Paused);
    here.until("the pause", is_paused).await;
    assert_eq!(here.end().await.0, 0);
    runs_on(&there, b'C').await;
}

/// Whether the machine lets QEMU fetch memory without privileges, for a while.
struct PostCopy {
    before: String,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl PostCopy {
    const SETTING: &str = "/proc/sys/vm/unprivileged_userfaultfd";

    async fn is(possible: bool) -> Self {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let turn = TURN.lock().await;
        let before = std::fs::read_to_string(Self::SETTING).unwrap();
        std::fs::write(Self::SETTING, if possible { "1" } else { "0" }).unwrap();
        Self { before, _turn: turn }
    }
}

impl Drop for PostCopy {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::SETTING, &self.before);
    }
}

/// A source with a guest that changes too fast for these options.
async fn restless_source() -> (Pod, Options) {
    let pod = source().await;
    let mut console = pod.stream("console").await;
    assert_eq!(pod.ask(&mut console, b'd').await, b'd');
    let options = Options { bandwidth: 1 << 20, max_downtime_ms: 20, stall_timeout: 3, ..Options::default() };
    (pod, Options { post_copy: true, may_pause: true, ..options })
}

#[tokio::test]
async fn a_guest_that_changes_too_fast_goes_on_at_the_target_where_that_is_possible() {
    for (is_possible, expected) in [(true, Mode::PostCopy), (false, Mode::Paused)] {
        let _post_copy = PostCopy::is(is_possible).await;
        let (mut here, options) = restless_source().await;
        let there = target("move").await;
        let _between = Between::join(&here, &there, "move");
        begin(&here, "move", options).await;
        let is_expected = |report: &DomainReport| report.migration.as_ref().is_some_and(|it| it.mode == expected);
        here.until("what is allowed and possible", is_expected).await;
        assert_eq!(here.end().await.0, 0);
        runs_on(&there, b'B').await;
    }
}

#[tokio::test]
async fn post_copy_whose_last_word_is_lost_ends_the_guest() {
    let _post_copy = PostCopy::is(true).await;
    let (here, options) = restless_source().await;
    let there = target("move").await;
    let _between = Between::join_badly(&here, &there, "move", Loses::Once("finish"));
    begin(&here, "move", options).await;
    here.until("the end of the move", has_stayed).await;
    // libvirt knows no way back: no copy runs, and that is said.
    here.until("the end", |report| report.state == DomainState::Off(OffReason::Crashed)).await;
    assert_eq!(here.qemus(), 0);
    never_ran(there).await;
}

/// What lies below an overlay, in every pod.
const BASE: &str = "/var/run/kubevirt-private/vmi-disks/root/base.img";

async fn pod_with_base(shared: &std::path::Path) -> Pod {
    let pod = Pod::start_with("30", Some(shared)).await;
    std::fs::write(pod.file(BASE), vec![7; 1 << 20]).unwrap();
    pod
}

#[tokio::test]
async fn disks_are_copied_without_their_backing_files_or_shared_for_sure() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), Some(107), Some(107)).unwrap();
    let image = std::fs::File::create(directory.path().join("disk.img")).unwrap();
    image.set_len(1 << 20).unwrap();
    std::os::unix::fs::chown(directory.path().join("disk.img"), Some(107), Some(107)).unwrap();
    let (overlay, empty) = (paths::overlay("system"), paths::empty_disk("scratch"));
    let disks = vec![
        DiskTask::RawImage { volume: "root".into(), path: paths::volume_image("root"), create: None },
        DiskTask::RawImage { volume: "shared".into(), path: paths::volume_image("shared"), create: None },
        DiskTask::Overlay { volume: "system".into(), backing: BASE.into(), overlay: overlay.clone() },
        DiskTask::EmptyDisk { volume: "scratch".into(), path: empty.clone(), capacity: 4 << 20 },
    ];
    let disk = |volume: &str, format: &str, path: &str, target: &str| {
        format!(
            "<disk type='file' device='disk'><driver name='qemu' type='{format}'/><source file='{path}'/>\
             <target dev='{target}' bus='sata'/><alias name='ua-{volume}'/></disk>"
        )
    };
    let no_usb = "<controller type='usb' model='none'/>";
    let more = disk("shared", "raw", &paths::volume_image("shared"), "sdb")
        + &disk("system", "qcow2", &overlay, "sdc")
        + &disk("scratch", "qcow2", &empty, "sdd")
        + no_usb;
    let mut start = start_request();
    start.disks.clone_from(&disks);
    start.domain_xml = start.domain_xml.replace(no_usb, &more);
    let mut here = pod_with_base(directory.path()).await;
    assert_eq!(here.start_guest(&start).await.state, DomainState::Running);
    let copied = ["root", "system", "scratch"].map(str::to_owned).to_vec();
    let begin = async |here: &Pod, id: &str| {
        let request = SourceRequest { id: id.to_owned(), options: Options::default(), copied_volumes: copied.clone() };
        here.put("migration/source", &serde_json::to_vec(&request).unwrap()).await.unwrap();
    };

    // A target whose volume is another one is found out.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(directory.path().join("disk.img"), elsewhere.path().join("disk.img")).unwrap();
    let pod = pod_with_base(elsewhere.path()).await;
    let there = target_in(pod, &TargetRequest { disks: disks.clone(), ..target_request("elsewhere") }).await;
    let _between = Between::join(&here, &there, "elsewhere");
    begin(&here, "elsewhere").await;
    let report = here.until("the end of the move", has_stayed).await;
    let Some(SourceStage::Over(Outcome::Stayed(reason))) = at_source(&report) else { panic!("no reason") };
    assert!(reason.contains("shared is not shared"), "{reason}");
    never_ran(there).await;

    let pod = pod_with_base(directory.path()).await;
    let there = target_in(pod, &TargetRequest { disks, ..target_request("move") }).await;
    let _between = Between::join(&here, &there, "move");
    begin(&here, "move").await;
    assert_eq!(here.end().await.0, 0);
    let mut console = there.stream("console").await;
    there.echo(&mut console).await;
    // A full copy of the overlay would have 1 MiB more.
    assert!(std::fs::metadata(there.file(&overlay)).unwrap().len() < 1 << 20);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_paused_guest_stays_paused() {
    let mut here = source().await;
    here.post("pause").await.unwrap();
    let there = target("first").await;
    let between = Between::join(&here, &there, "first");
    begin(&here, "first", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    between.cut();
    let report = here.until("the end of the move", has_stayed).await;
    assert_eq!(report.state, DomainState::Paused(PauseReason::User));
    never_ran(there).await;

    let there = target("second").await;
    let _between = Between::join(&here, &there, "second");
    begin(&here, "second", Options::default()).await;
    assert_eq!(here.end().await.0, 0);
    let report = there.until("the guest", |report| at_target(report) == Some(&TargetStage::Started)).await;
    assert_eq!(report.state, DomainState::Paused(PauseReason::User));
    there.post("unpause").await.unwrap();
    runs_on(&there, b'B').await;
}

#[tokio::test]
async fn the_targets_libvirt_dies_and_the_guest_stays_where_it_was() {
    let here = source().await;
    let there = target("move").await;
    let _between = Between::join(&here, &there, "move");
    begin(&here, "move", slow()).await;
    here.until("the copy", |report| at_source(report) == Some(&SourceStage::Copying)).await;
    there.kill_libvirt().await;
    here.until("the end of the move", has_stayed).await;
    runs_on(&here, b'B').await;
    never_ran(there).await;
}
