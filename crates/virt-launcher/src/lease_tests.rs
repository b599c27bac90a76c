//! Two launchers and one directory.

use super::*;

fn disk() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk.img");
    (directory, disk)
}

fn files(directory: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A launcher that renews its lease until it is told to stop.
fn living(mut lease: Lease) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            sleep(BEAT).await;
            assert_eq!(lease.renew().unwrap(), Renewed::Done);
        }
    })
}

#[tokio::test(start_paused = true)]
async fn who_lives_keeps_everybody_else_away() {
    let (directory, disk) = disk();
    let first = living(Lease::acquire(&disk, "first").await.unwrap());
    let refused = Lease::acquire(&disk, "second").await.unwrap_err();
    assert!(refused.contains("is written by the launcher in"), "{refused}");
    assert_eq!(read(&draft(&disk, "").0).unwrap().unwrap().holder, "first");
    first.abort();
    let _ = first.await;
    assert!(files(&directory).is_empty(), "given up with its holder");
    Lease::acquire(&disk, "second").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_died_is_waited_for_and_then_replaced() {
    let (directory, disk) = disk();
    std::mem::forget(Lease::acquire(&disk, "dead").await.unwrap());
    let begun = tokio::time::Instant::now();
    let second = Lease::acquire(&disk, "second").await.unwrap();
    assert!(begun.elapsed() >= SILENCE, "on the clock of the test");
    assert_eq!(files(&directory), [".disk.img.lease"]);
    drop(second);
    assert!(files(&directory).is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_two_that_replace_a_dead_one_only_one_starts() {
    let (_directory, disk) = disk();
    std::mem::forget(Lease::acquire(&disk, "dead").await.unwrap());
    let (second, third) = tokio::join!(Lease::acquire(&disk, "second"), Lease::acquire(&disk, "third"));
    assert_eq!([second.is_ok(), third.is_ok()].iter().filter(|has| **has).count(), 1, "{second:?} {third:?}");
}

#[tokio::test]
async fn who_comes_back_too_late_finds_out_and_takes_nothing() {
    let (_directory, disk) = disk();
    let mut late = Lease::acquire(&disk, "late").await.unwrap();
    let mut other = Lease::seize(&disk, "other").unwrap();
    assert!(matches!(late.renew().unwrap(), Renewed::Taken(_)));
    drop(late);
    assert_eq!(other.renew().unwrap(), Renewed::Done, "it was not removed by the one that lost it");
}

#[tokio::test]
async fn a_move_passes_the_lease_on() {
    let (directory, disk) = disk();
    let mut source = Lease::acquire(&disk, "source").await.unwrap();
    let mut target = Lease::seize(&disk, "target").unwrap();
    // A renewal of the source that was on its way.
    source.file.write_all_at(&encoded(&source.ours).unwrap(), 0).unwrap();
    assert_eq!(target.renew().unwrap(), Renewed::Done);
    assert!(matches!(source.renew().unwrap(), Renewed::Taken(_)));
    drop(source);
    assert_eq!(target.renew().unwrap(), Renewed::Done);
    drop(target);
    assert!(files(&directory).is_empty());
}

#[tokio::test]
async fn a_move_that_failed_leaves_the_lease_with_the_source() {
    let (_directory, disk) = disk();
    let mut source = Lease::acquire(&disk, "source").await.unwrap();
    drop(Lease::seize(&disk, "target").unwrap());
    assert_eq!(source.renew().unwrap(), Renewed::Done, "what was given back is made anew");
    // The target died before it could give it back; it never ran the guest.
    std::mem::forget(Lease::seize(&disk, "target").unwrap());
    source.retake().unwrap();
    assert_eq!(source.renew().unwrap(), Renewed::Done);
}

#[tokio::test]
async fn nothing_can_be_written_where_there_is_no_directory() {
    let refused = Lease::acquire(Path::new("/nonexistent/disk.img"), "a").await.unwrap_err();
    assert!(refused.contains("/nonexistent/.disk.img.lease"), "{refused}");
}

#[test]
fn mounts_say_whether_locks_reach_other_nodes() {
    let on = |kind: &str, options: &str| {
        let mounts = format!(
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n40 22 0:40 / /disks/my\\040data rw,relatime shared:1 - {kind} server:/a {options}\n"
        );
        locks_reach_everybody(&mounts, Path::new("/disks/my data/disk.img"))
    };
    assert!(on("ext4", "rw") && on("xfs", "rw") && on("ceph", "rw"), "QEMU's locks do");
    assert!(on("nfs4", "rw,vers=4.2,local_lock=none") && on("nfs", "rw,vers=3") && on("fuse.glusterfs", "rw"));
    assert!(!on("nfs", "rw,nolock,vers=3") && !on("nfs", "rw,local_lock=all") && !on("nfs4", "rw,local_lock=posix"));
    assert!(
        !on("cifs", "rw,nobrl")
            && on("cifs", "rw")
            && !on("9p", "rw")
            && !on("virtiofs", "rw")
            && !on("fuse.sshfs", "rw")
    );
    assert!(locks_reach_everybody("", Path::new("/disk.img")), "nothing is known against it");
}

#[test]
fn a_disk_without_room_beside_it_has_no_lease() {
    let (_directory, disk) = disk();
    assert!(has_room(&disk));
    assert!(!has_room(Path::new("/nonexistent/disk.img")));
}

#[test]
fn a_disk_on_this_machine_needs_no_lease() {
    let (_directory, disk) = disk();
    let xml = format!(
        "<domain type='qemu'><devices><disk><source file='{}'/><target dev='vda'/></disk></devices></domain>",
        disk.display()
    );
    assert_eq!(disks(&xml, &[]).unwrap(), Vec::<PathBuf>::new());
}
