//! The store on disk: shared fsyncs, reopening, compaction, and files that cannot be used.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use ferrovirt_apiserver::store::{
    Body, Change, Expect, Key, OpenError, Retention, Revision, Store, StoreOptions, WatchError, Write, WriteError,
};
use serde_json::json;

fn open(directory: &Path) -> Store {
    Store::open(directory, StoreOptions::default()).unwrap()
}

fn put(name: &str, n: u64) -> Write {
    let key = Key::new("/configmaps", "default", name);
    let body = Body::encode(
        &json!({"metadata": {"name": name, "labels": {"n": n.to_string()}}, "data": {"n": n.to_string()}}),
    );
    Write { key, expect: Expect::Any, change: Change::Put(body) }
}

fn delete(name: &str) -> Write {
    Write { change: Change::Delete, ..put(name, 0) }
}

fn key(name: &str) -> Key {
    put(name, 0).key
}

/// Everything that readers can see, as text.
fn picture(store: &Store) -> Vec<String> {
    let mut lines = vec![format!("head {} compacted {}", store.revision(), store.compacted())];
    for at in store.compacted().max(1)..=store.revision() {
        for resource in store.resources() {
            let page = store.list(&resource, None, Some(at), None, None).unwrap();
            lines.extend(page.objects.iter().map(|o| format!("{at} {} {} {}", o.key, o.created, o.value())));
        }
    }
    let mut watch = store.watch("/configmaps", None, store.compacted()).unwrap();
    while let Some(event) = watch.try_next().unwrap() {
        lines.push(format!("{event:?}"));
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_share_transactions() {
    const WRITERS: u64 = 32;
    const EACH: u64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let start = store.revision();
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for n in 0..EACH {
                    revisions.push(store.write(put(&format!("w{writer}"), n)).await.unwrap().revision);
                }
                revisions
            })
        })
        .collect();
    let mut all: Vec<Revision> = Vec::new();
    for task in tasks {
        let revisions = task.await.unwrap();
        assert!(revisions.is_sorted_by(|a, b| a < b));
        all.extend(revisions);
    }
    all.sort_unstable();
    assert_eq!(all, (start + 1..=start + WRITERS * EACH).collect::<Vec<_>>(), "every revision is used once");
    let transactions = store.stats().transactions;
    assert!(transactions < WRITERS * EACH, "{transactions} transactions");
    assert!(transactions >= EACH, "one writer's writes cannot share a transaction: {transactions}");
}

#[tokio::test]
async fn of_concurrent_creates_one_wins_and_the_others_see_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let create = |n| {
        let store = store.clone();
        async move { store.write(Write { expect: Expect::Absent, ..put("one", n) }).await }
    };
    let answers = tokio::join!(create(1), create(2), create(3));
    let answers = [answers.0, answers.1, answers.2];
    let winners: Vec<_> = answers.iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    for loser in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(loser, &WriteError::Exists(winners[0].object.clone().unwrap()));
    }
    assert_eq!(store.revision(), winners[0].revision, "refused writes use no revision");
}

#[tokio::test]
async fn a_reopened_store_looks_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for n in 0..20 {
        store.write(put(&format!("c{}", n % 7), n)).await.unwrap();
    }
    store.write(delete("c3")).await.unwrap();
    store.write(put("c3", 99)).await.unwrap();
    store.write(delete("c5")).await.unwrap();
    let before = picture(&store);
    drop(store);
    let store = open(directory.path());
    assert_eq!(picture(&store), before);

    store.compact(12).await.unwrap();
    let before = picture(&store);
    drop(store);
    assert_eq!(picture(&open(directory.path())), before);
}

#[tokio::test]
async fn revisions_grow_after_everything_was_deleted_and_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.write(put("a", 1)).await.unwrap();
    let last = store.write(delete("a")).await.unwrap().revision;
    assert_eq!(store.compact(last).await.unwrap(), last);
    drop(store);
    let store = open(directory.path());
    assert_eq!((store.revision(), store.compacted()), (last, last));
    assert_eq!(store.resources(), Vec::<std::sync::Arc<str>>::new());
    let again = store.write(put("a", 2)).await.unwrap();
    assert_eq!(again.revision, last + 1);
    assert_eq!(again.object.unwrap().created, last + 1);
}

#[tokio::test]
async fn compaction_in_slices_keeps_every_object() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    // More history than one transaction compacts.
    let writes: Vec<_> = (0..1500).map(|n| store.write(put(&format!("c{}", n % 50), n))).collect();
    for answer in futures::future::join_all(writes).await {
        answer.unwrap();
    }
    let before = store.list("/configmaps", None, None, None, None).unwrap();
    let head = before.revision;
    let (compacted, written) = tokio::join!(store.compact(head), store.write(put("c0", 5000)));
    assert_eq!(compacted.unwrap(), head);
    let written = written.unwrap().revision;
    assert_eq!(before.objects.len(), 50);
    assert_eq!(store.list("/configmaps", None, Some(head), None, None).unwrap().objects, before.objects);
    assert!(matches!(store.watch("/configmaps", None, head - 1).err(), Some(WatchError::Compacted { .. })));
    drop(store);

    let store = open(directory.path());
    assert_eq!((store.revision(), store.compacted()), (written, head));
    assert_eq!(store.get(&key("c0")).unwrap().label("n"), Some("5000"));
    assert_eq!(store.list("/configmaps", None, Some(head), None, None).unwrap().objects, before.objects);
    let mut watch = store.watch("/configmaps", None, head).unwrap();
    assert_eq!(watch.next().await.unwrap().revision, written);
}

#[tokio::test]
async fn history_is_bounded_by_age_and_size() {
    let seconds = Duration::from_secs;
    let retention = Retention { keep: seconds(300), max_bytes: 1 << 20, max_events: 50 };
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), StoreOptions { retention, ..StoreOptions::default() }).unwrap();
    store.maintain(seconds(0)).await.unwrap();
    for n in 0..10 {
        store.write(put("a", n)).await.unwrap();
    }
    store.maintain(seconds(40)).await.unwrap();
    let old = store.revision();
    store.write(put("a", 10)).await.unwrap();
    store.maintain(seconds(339)).await.unwrap();
    assert_eq!(store.stats().events, 11, "younger than five minutes");
    store.maintain(seconds(340)).await.unwrap();
    assert_eq!((store.compacted(), store.stats().events), (old, 1));

    for n in 0..80 {
        store.write(put("a", n)).await.unwrap();
    }
    store.maintain(seconds(341)).await.unwrap();
    assert_eq!(store.stats().events, 50, "too many events");
    let mut large = put("b", 0);
    large.change = Change::Put(Body::encode(&json!({"data": "x".repeat(400_000)})));
    for _ in 0..5 {
        store.write(large.clone()).await.unwrap();
    }
    store.maintain(seconds(342)).await.unwrap();
    let stats = store.stats();
    assert!(stats.history_bytes <= 1 << 20 && stats.events > 0, "{stats:?}");
}

#[tokio::test]
async fn waiting_for_a_revision() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.wait_for(store.revision()).await;
    let (_, written) = tokio::join!(store.wait_for(store.revision() + 1), store.write(put("a", 1)));
    assert_eq!(written.unwrap().revision, store.revision());
}

#[tokio::test]
async fn a_closed_store_refuses_writes_and_frees_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.write(put("a", 1)).await.unwrap();
    store.close();
    assert_eq!(store.write(put("a", 2)).await, Err(WriteError::Closed));
    assert_eq!(store.watch("/configmaps", None, 1).err(), Some(WatchError::Closed));
    assert_eq!(open(directory.path()).get(&key("a")), store.get(&key("a")));
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let error = Store::open(directory.path(), StoreOptions::default()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(store);
    open(directory.path());
}

#[test]
fn the_file_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("new/state");
    drop(open(&state));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    assert_eq!(mode(&state.join("state.redb")), 0o600);
}

#[test]
fn files_that_are_no_store_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("state.redb"), b"this is not a database, whatever its name says").unwrap();
    let error = Store::open(directory.path(), StoreOptions::default()).err().unwrap();
    assert!(matches!(error, OpenError::Database(_)), "{error:?}");

    let blocked = directory.path().join("state.redb/below-a-file");
    let error = Store::open(&blocked, StoreOptions::default()).err().unwrap();
    assert!(matches!(error, OpenError::File { .. }), "{error:?}");
}

#[test]
fn a_store_of_another_format_or_with_damaged_rows_is_refused() {
    use redb::TableDefinition;
    let tamper = |change: &dyn Fn(&redb::WriteTransaction)| {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path()));
        let database = redb::Database::open(directory.path().join("state.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        change(&transaction);
        transaction.commit().unwrap();
        drop(database);
        Store::open(directory.path(), StoreOptions::default()).err().unwrap()
    };
    let format = tamper(&|transaction| {
        let mut meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap();
        meta.insert("format", 7).unwrap();
    });
    assert!(matches!(format, OpenError::Format { found: 7 }), "{format:?}");
    let damaged = tamper(&|transaction| {
        let mut log = transaction.open_table(TableDefinition::<u64, &[u8]>::new("log")).unwrap();
        log.insert(5, &b"\x09nonsense"[..]).unwrap();
    });
    assert!(matches!(damaged, OpenError::Damaged(_)), "{damaged:?}");
}
