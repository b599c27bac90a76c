//! `kill -9` of the server at random points during mixed writes through the API: no acknowledged write is lost, and
//! resourceVersions grow across restarts.
//!
//! Each writer owns its objects, so it knows what each must look like: as the last acknowledged write left it, or as
//! the one write that was cut off by the kill would have left it, which may or may not have happened.
//!
//! `FERROVIRT_BIN` names another program to test, `KILL9_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request, header};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const KILLS: usize = 20;
const WRITES: usize = 5000;
const WRITERS: usize = 8;
const OBJECTS_PER_KIND: usize = 4;
const SERIAL: &str = "example.com/serial";
const NAMESPACE: &str = "kill9";

/// What is written: the collection's path, the type, and the rest of a body.
struct Kind {
    collection: &'static str,
    api_version: &'static str,
    kind: &'static str,
    content: fn(u64) -> Value,
}

const KINDS: &[Kind] = &[
    Kind {
        collection: "/api/v1/namespaces/kill9/configmaps",
        api_version: "v1",
        kind: "ConfigMap",
        content: |serial| json!({"data": {"serial": serial.to_string(), "padding": "x".repeat(serial as usize % 4000)}}),
    },
    Kind {
        collection: "/api/v1/namespaces/kill9/secrets",
        api_version: "v1",
        kind: "Secret",
        content: |_| json!({"data": {"key": "c2VjcmV0"}}),
    },
    Kind {
        collection: "/apis/kubevirt.io/v1/namespaces/kill9/virtualmachineinstances",
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachineInstance",
        content: |serial| {
            let memory = format!("{}Mi", 64 + serial % 512);
            json!({"spec": {"domain": {"devices": {}, "memory": {"guest": memory}}}, "status": {"phase": "Running"}})
        },
    },
    Kind {
        collection: "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies",
        api_version: "migrations.kubevirt.io/v1alpha1",
        kind: "MigrationPolicy",
        content: |serial| json!({"spec": {"selectors": {}, "completionTimeoutPerGiB": serial % 1000}}),
    },
];

/// What an object is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Absent,
    Present { version: u64, serial: u64 },
}

/// What a write that was never acknowledged would have done.
#[derive(Debug, Clone, Copy)]
enum Pending {
    Gone,
    Changed { serial: u64 },
}

/// One object of one writer.
struct Owned {
    kind: &'static Kind,
    name: String,
    known: Known,
    pending: Option<Pending>,
}

impl Owned {
    fn path(&self) -> String {
        format!("{}/{}", self.kind.collection, self.name)
    }

    fn body(&self, serial: u64, version: Option<u64>) -> Value {
        let mut body = (self.kind.content)(serial);
        body["apiVersion"] = self.kind.api_version.into();
        body["kind"] = self.kind.kind.into();
        body["metadata"] = json!({"name": self.name, "annotations": {SERIAL: serial.to_string()}});
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = version.to_string().into();
        }
        body
    }

    /// The next request and what it does.
    fn next(&self, serial: u64, random: &mut StdRng) -> (Request<Vec<u8>>, Pending) {
        let changed = Pending::Changed { serial };
        let apply = || {
            let path = format!("{}?fieldManager=kill9&force=true", self.path());
            request(Method::PATCH, &path, "application/apply-patch+yaml", &self.body(serial, None))
        };
        match (self.known, random.random_range(0..100)) {
            (Known::Absent, 0..80) => {
                (request(Method::POST, self.kind.collection, "application/json", &self.body(serial, None)), changed)
            }
            (Known::Absent, _) => (apply(), changed),
            (Known::Present { .. }, 0..25) => {
                (request(Method::DELETE, &self.path(), "application/json", &json!({})), Pending::Gone)
            }
            (Known::Present { version, .. }, 25..50) => {
                (request(Method::PUT, &self.path(), "application/json", &self.body(serial, Some(version))), changed)
            }
            (Known::Present { .. }, 50..70) => {
                let patch = json!({"metadata": {"annotations": {SERIAL: serial.to_string()}}});
                (request(Method::PATCH, &self.path(), "application/merge-patch+json", &patch), changed)
            }
            (Known::Present { .. }, 70..85) => {
                let path = format!("/metadata/annotations/{}", SERIAL.replace('/', "~1"));
                let patch = json!([{"op": "replace", "path": path, "value": serial.to_string()}]);
                (request(Method::PATCH, &self.path(), "application/json-patch+json", &patch), changed)
            }
            (Known::Present { .. }, _) => (apply(), changed),
        }
    }

    /// Compares with what the server has after a restart.
    fn check(&mut self, found: Known) {
        let happened = match (self.pending.take(), found) {
            (Some(Pending::Gone), Known::Absent) => true,
            (Some(Pending::Changed { serial }), Known::Present { serial: now, .. }) => serial == now,
            _ => false,
        };
        if let (Known::Present { version, .. }, Known::Present { version: now, .. }) = (self.known, found) {
            assert!(now >= version, "{} {} went back from {version} to {now}", self.kind.kind, self.name);
        }
        assert!(
            happened || found == self.known,
            "{} {}: acknowledged {:?}, found {found:?}",
            self.kind.kind,
            self.name,
            self.known
        );
        self.known = found;
    }
}

fn request(method: Method, path: &str, content_type: &str, body: &Value) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
    request.body(body.to_string().into_bytes()).unwrap()
}

/// The version and the serial of an object.
fn state(object: &Value) -> Known {
    let metadata = &object["metadata"];
    let number = |value: &Value| value.as_str().unwrap().parse().unwrap();
    Known::Present { version: number(&metadata["resourceVersion"]), serial: number(&metadata["annotations"][SERIAL]) }
}

/// One writer with everything it owns and knows.
struct Writer {
    objects: Vec<Owned>,
    random: StdRng,
    /// Never used twice, so a serial names a write.
    serial: u64,
    /// The versions of this round's acknowledged writes.
    versions: Vec<u64>,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let objects = KINDS.iter().flat_map(|kind| {
            (0..OBJECTS_PER_KIND).map(move |object| Owned {
                kind,
                name: format!("{NAMESPACE}-{number}-{object}"),
                known: Known::Absent,
                pending: None,
            })
        });
        Self {
            objects: objects.collect(),
            random: StdRng::seed_from_u64(seed + number as u64),
            serial: 0,
            versions: Vec::new(),
        }
    }

    /// Writes until the server is gone, or `quota` is used up.
    async fn write(mut self, client: Client, acknowledged: Arc<AtomicUsize>, quota: usize) -> Self {
        while acknowledged.load(Ordering::Relaxed) < quota {
            self.serial += 1;
            let index = self.random.random_range(0..self.objects.len());
            let object = &mut self.objects[index];
            let (request, effect) = object.next(self.serial, &mut self.random);
            let asked = format!("{} {}", request.method(), request.uri());
            object.pending = Some(effect);
            let answer = match client.request::<Value>(request).await {
                Ok(answer) => answer,
                Err(kube::Error::Api(status)) => panic!("{asked} of {:?}: {status:?}", object.known),
                // The kill.
                Err(_) => return self,
            };
            object.pending = None;
            object.known = match effect {
                Pending::Gone => Known::Absent,
                Pending::Changed { serial } => {
                    let Known::Present { version, serial: answered } = state(&answer) else { unreachable!() };
                    assert_eq!(answered, serial, "{asked} answered with another state");
                    self.versions.push(version);
                    Known::Present { version, serial }
                }
            };
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        self
    }
}

/// The server under test, which does not outlive a failed assertion.
struct Server {
    child: Child,
    client: Client,
    /// From starting the process to serving clients.
    start: Duration,
}

fn program() -> PathBuf {
    std::env::var_os("FERROVIRT_BIN").map_or_else(|| env!("CARGO_BIN_EXE_ferrovirt").into(), PathBuf::from)
}

impl Server {
    async fn start(state: &Path, log: &Path) -> Self {
        let log_file = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let begin = Instant::now();
        let mut child = Command::new(program())
            .arg("serve")
            .arg("--state")
            .arg(state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        let start = begin.elapsed();
        assert!(line.starts_with("ready "), "not ready: {}", std::fs::read_to_string(log).unwrap());
        let kubeconfig = Kubeconfig::read_from(state.join("kubeconfig")).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        // A repeated write would hide what became of the first one.
        config.default_retry = false;
        Self { child, client: Client::try_from(config).unwrap(), start }
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    async fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().await.unwrap().success());
    }

    /// Compares everything there is with what the writers know, and returns the highest version that was seen.
    async fn check(&self, writers: &mut [Writer]) -> u64 {
        let mut head = 0;
        for kind in KINDS {
            let list: Value =
                self.client.request(Request::get(kind.collection).body(Vec::new()).unwrap()).await.unwrap();
            head = head.max(list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
            let ours = |item: &&Value| item["metadata"]["name"].as_str().unwrap().starts_with(NAMESPACE);
            let items = list["items"].as_array().unwrap().iter().filter(ours);
            let mut found: HashMap<&str, Known> =
                items.map(|item| (item["metadata"]["name"].as_str().unwrap(), state(item))).collect();
            for writer in &mut *writers {
                for object in writer.objects.iter_mut().filter(|object| object.kind.kind == kind.kind) {
                    object.check(found.remove(object.name.as_str()).unwrap_or(Known::Absent));
                }
            }
            assert!(found.is_empty(), "nobody wrote {found:?}");
        }
        head
    }
}

/// What is in the state directory.
fn entries(directory: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(entries(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}")));
        }
        all.insert(name);
    }
    all
}

/// Lets all writers write until `quota` writes are acknowledged and, unless `server` shall live, kills it there.
async fn write_round(server: &Server, writers: Vec<Writer>, quota: usize) -> (Vec<Writer>, usize) {
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|writer| tokio::spawn(writer.write(server.client.clone(), acknowledged.clone(), quota)))
        .collect();
    let mut back = Vec::new();
    for task in tasks {
        back.push(task.await.unwrap());
    }
    (back, acknowledged.load(Ordering::Relaxed))
}

/// The same, with a kill at a random point; the kill is what ends the writers.
async fn write_until_killed(server: Server, writers: Vec<Writer>, after: usize) -> (Vec<Writer>, usize) {
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|writer| tokio::spawn(writer.write(server.client.clone(), acknowledged.clone(), usize::MAX)))
        .collect();
    while acknowledged.load(Ordering::Relaxed) < after && !tasks.iter().any(tokio::task::JoinHandle::is_finished) {
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    server.kill().await;
    let mut back = Vec::new();
    for task in tasks {
        back.push(task.await.unwrap());
    }
    (back, acknowledged.load(Ordering::Relaxed))
}

/// Each write has a version of its own, above everything that was there when the round began.
fn check_versions(writers: &mut [Writer], head: u64, seen: &mut HashSet<u64>) {
    for version in writers.iter_mut().flat_map(|writer| writer.versions.drain(..)) {
        assert!(version > head, "version {version} was given although {head} was there before");
        assert!(seen.insert(version), "version {version} was given twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost() {
    let seed = std::env::var("KILL9_SEED").map_or_else(|_| rand::random::<u32>().into(), |seed| seed.parse().unwrap());
    eprintln!("KILL9_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let (state, log) = (directory.path().join("state"), directory.path().join("log"));
    let mut random = StdRng::seed_from_u64(seed);
    let mut server = Server::start(&state, &log).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let create = request(Method::POST, "/api/v1/namespaces", "application/json", &namespace);
    server.client.request::<Value>(create).await.unwrap();
    server.stop().await;
    let clean = entries(&state);
    server = Server::start(&state, &log).await;

    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
    let (mut seen, mut total, mut starts) = (HashSet::new(), 0, Vec::new());
    for _ in 0..KILLS {
        let head = server.check(&mut writers).await;
        let after = random.random_range(1..2 * WRITES / KILLS);
        let count;
        (writers, count) = write_until_killed(server, writers, after).await;
        assert!(count >= after, "the server ended by itself: {}", std::fs::read_to_string(&log).unwrap());
        total += count;
        check_versions(&mut writers, head, &mut seen);
        server = Server::start(&state, &log).await;
        starts.push(server.start);
    }
    let head = server.check(&mut writers).await;
    let count;
    (writers, count) = write_round(&server, writers, WRITES.saturating_sub(total)).await;
    total += count;
    check_versions(&mut writers, head, &mut seen);
    server.stop().await;
    assert_eq!(entries(&state), clean, "kills left something behind in the state directory");
    server = Server::start(&state, &log).await;
    server.check(&mut writers).await;
    server.stop().await;

    assert!(total >= WRITES);
    starts.sort_unstable();
    let (median, slowest) = (starts[starts.len() / 2], starts[starts.len() - 1]);
    eprintln!(
        "{total} acknowledged writes, {KILLS} kills; from start to ready: median {median:.0?}, slowest {slowest:.0?}"
    );
}
