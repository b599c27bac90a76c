//! `kill -9` at random points: no acknowledged write is lost, and revisions grow across restarts.
//!
//! The test runs itself again as a child that writes with several concurrent writers and prints a line for every
//! write that was acknowledged. The parent kills it, opens the store and compares.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use ferrovirt_apiserver::store::{Body, Change, Expect, Key, Object, Revision, Store, StoreOptions, Write};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

const ROUNDS: u64 = 20;
const WRITES_PER_ROUND: std::ops::Range<usize> = 150..400;
const WRITERS: u64 = 8;
const DIRECTORY: &str = "STORE_CRASH_DIRECTORY";
const SEED: &str = "STORE_CRASH_SEED";
const RESOURCE: &str = "kubevirt.io/virtualmachines";

fn hash(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.to_json().hash(&mut hasher);
    hasher.finish()
}

/// One writer of the child: creates, updates and deletes its own objects until it is killed.
async fn write_forever(store: Store, writer: u64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed * 1000 + writer);
    loop {
        let name = format!("vm-{writer}-{}", random.random_range(0..20));
        let key = Key::new(RESOURCE, format!("ns-{}", writer % 3), name.clone());
        let change = if random.random_bool(0.2) && store.get(&key).is_some() {
            Change::Delete
        } else {
            let padding = "x".repeat(random.random_range(0..6000));
            Change::Put(Body::encode(&json!({"metadata": {"name": name}, "n": random.random::<u64>(), "p": padding})))
        };
        let committed = store.write(Write { key: key.clone(), expect: Expect::Any, change }).await.unwrap();
        let state = committed.object.map_or("gone".to_owned(), |object| hash(&object).to_string());
        // One call to write the line, so that lines of different writers do not mix.
        let line = format!("ACK {} {} {} {state}\n", key.namespace, key.name, committed.revision);
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            // The parent is gone.
            std::process::exit(1);
        }
    }
}

/// Not a test of its own: what the child runs.
#[test]
fn child() {
    let (Ok(directory), Ok(seed)) = (std::env::var(DIRECTORY), std::env::var(SEED)) else {
        return;
    };
    let seed: u64 = seed.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(Path::new(&directory), StoreOptions::default()).unwrap();
        for writer in 0..WRITERS {
            tokio::spawn(write_forever(store.clone(), writer, seed));
        }
        // Compaction must be as safe to interrupt as writes. It stays far behind, because the parent looks for
        // deletions that were not acknowledged in the history.
        loop {
            let head = store.revision();
            store.compact(head.saturating_sub(1000)).await.unwrap();
            store.wait_for(head + 50).await;
        }
    });
}

/// What the child said of a key: the revision and the hash of its state, `None` when it is gone.
type Acknowledged = HashMap<(String, String), (Revision, Option<u64>)>;

/// A child that does not outlive a failed assertion.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a child, kills it after so many acknowledgements and returns how many there were and the highest revision.
fn run_child(directory: &Path, round: u64, kill_after: usize, known: &mut Acknowledged) -> (usize, Revision) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(SEED, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Victim(child);
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let (mut count, mut highest, mut line) = (0, 0, String::new());
    // What is in the pipe after the kill was acknowledged too.
    while output.read_line(&mut line).unwrap() > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The harness prints around the first line, and the last may be cut.
        if let Some(at) = words.iter().position(|word| *word == "ACK")
            && let [namespace, name, revision, state] = words[at + 1..]
            && line.ends_with('\n')
        {
            let revision: Revision = revision.parse().unwrap();
            let entry = known.entry((namespace.to_owned(), name.to_owned())).or_default();
            assert!(revision > entry.0, "revisions of {name} must grow: {} then {revision}", entry.0);
            *entry = (revision, state.parse().ok());
            highest = highest.max(revision);
            count += 1;
            if count == kill_after {
                child.0.kill().unwrap();
            }
        }
        line.clear();
    }
    drop(child);
    assert!(count >= kill_after, "the child ended by itself after {count} writes");
    (count, highest)
}

/// Every key's state is the acknowledged one, or a later write that was on its way when the child died.
fn check(store: &Store, head_before: Revision, known: &mut Acknowledged) {
    let page = store.list(RESOURCE, None, None, None, None).unwrap();
    let mut found: HashMap<(String, String), &Object> =
        page.objects.iter().map(|o| ((o.namespace().to_owned(), o.name().to_owned()), &**o)).collect();
    for (key, (revision, state)) in known.iter_mut() {
        match found.remove(key) {
            Some(object) if object.revision == *revision => assert_eq!(Some(hash(object)), *state, "{key:?}"),
            Some(object) => {
                assert!(object.revision > *revision, "{key:?} went back from {revision} to {}", object.revision);
                assert!(object.revision > head_before);
                (*revision, *state) = (object.revision, Some(hash(object)));
            }
            // A deletion that nobody was told of is no loss, but it must be in the history.
            None if state.is_some() => {
                let mut watch = store.watch(RESOURCE, Some(&key.0), store.compacted().max(*revision)).unwrap();
                let deletion = std::iter::from_fn(|| watch.try_next().unwrap())
                    .find(|event| *event.key.name == *key.1 && event.object.is_none());
                (*revision, *state) = (deletion.unwrap_or_else(|| panic!("{key:?} was lost")).revision, None);
            }
            None => {}
        }
    }
    for (key, object) in found {
        known.insert(key, (object.revision, Some(hash(object))));
    }
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let (mut known, mut head, mut total, mut slowest) = (Acknowledged::new(), 0, 0, 0.0f64);
    for round in 0..ROUNDS {
        let (count, highest) = run_child(directory.path(), round, random.random_range(WRITES_PER_ROUND), &mut known);
        total += count;
        let start = Instant::now();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        slowest = slowest.max(seconds);
        println!("round {round}: {count} writes, revision {highest}, opened in {:.1} ms", seconds * 1000.0);
        assert!(highest > head, "revisions must grow across restarts: {head} then {highest}");
        assert!(store.revision() >= highest, "the head went back from {highest} to {}", store.revision());
        check(&store, head, &mut known);
        head = store.revision();
    }
    println!("{total} acknowledged writes, {} objects, slowest open {:.1} ms", known.len(), slowest * 1000.0);
    assert!(total >= 3000, "only {total} writes");
}
