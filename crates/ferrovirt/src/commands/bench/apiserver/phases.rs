//! The phases of one run at one size: fill up, update under load, update one by one, read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::super::memory::{self, Processors};
use super::client::{Connection, find_string};
use super::report::{Measured, Metric};
use super::sample::Sample;
use super::target::{Target, version_of};

/// How much is done in each phase; the same on every server.
pub(crate) struct Effort {
    /// Updates by all writers together.
    pub(crate) updates: usize,
    /// Updates one after the other.
    pub(crate) sequential: usize,
    /// Reads of single objects.
    pub(crate) gets: usize,
    /// Each list is read this often; the median counts.
    pub(crate) lists: usize,
    /// No phase takes longer.
    pub(crate) limit: Duration,
}

/// Events that are still on their way after the last write.
const LATE_EVENTS: Duration = Duration::from_secs(120);
/// Freed memory goes back to the system a little later.
const SETTLE: Duration = Duration::from_secs(3);

/// One write as its writer saw it.
struct Acknowledged {
    version: String,
    sent: Instant,
    acknowledged: Instant,
}

impl Acknowledged {
    fn latency(&self) -> Duration {
        self.acknowledged - self.sent
    }
}

/// Grows `target` to `size` objects and measures everything there.
pub(crate) async fn run(
    target: &mut Target,
    sample: &Arc<Sample>,
    size: usize,
    effort: &Effort,
) -> anyhow::Result<Measured> {
    let mut measured = Measured::new(size);
    let (machine, before) = (Processors::now()?, ours(target)?);
    progress(target, size, "creating");
    create(target, sample, size, effort, &mut measured).await.context("creating objects")?;
    progress(target, size, "updating with all writers");
    update(target, sample, effort, &mut measured).await.context("updating objects")?;
    progress(target, size, "updating one by one");
    update_one_by_one(target, sample, effort, &mut measured).await.context("updating objects one by one")?;
    progress(target, size, "reading");
    read(target, effort, &mut measured).await.context("reading")?;
    if let (Some(before), Some(after)) = (before, ours(target)?) {
        measured.add(Metric::Others, Processors::now()?.used_by_others(machine, after.saturating_sub(before)));
    }
    tokio::time::sleep(SETTLE).await;
    if let Some(memory) = target.memory()? {
        measured.add(Metric::Resident, memory.resident as f64);
        measured.add(Metric::Peak, memory.peak as f64);
    }
    Ok(measured)
}

/// Processor time of the server and of this client.
fn ours(target: &Target) -> anyhow::Result<Option<Duration>> {
    let client = memory::computed(&[i32::try_from(std::process::id())?])?;
    Ok(target.computed()?.zip(client).map(|(server, client)| server + client))
}

fn progress(target: &Target, size: usize, what: &str) {
    eprintln!("{}, {size} objects: {what} ...", target.name);
}

/// What one writer does: its connection, its objects with their versions, and how each is written.
struct Share {
    connection: Connection,
    objects: Vec<(usize, String)>,
}

/// Spreads work over all writers and waits for them. Each object is written by one writer only, so none conflicts.
async fn spread(
    target: &mut Target,
    sample: &Arc<Sample>,
    objects: Vec<(usize, String)>,
    serial: u64,
    limit: Duration,
) -> anyhow::Result<(Vec<Acknowledged>, Duration)> {
    let mut shares: Vec<Share> =
        target.connections.drain(..).map(|connection| Share { connection, objects: Vec::new() }).collect();
    let count = shares.len().max(1);
    for (index, object) in objects.into_iter().enumerate() {
        if let Some(share) = shares.get_mut(index % count) {
            share.objects.push(object);
        }
    }
    let begin = Instant::now();
    let mut writers = JoinSet::new();
    for share in shares {
        writers.spawn(write_share(share, sample.clone(), target.collection.clone(), serial, begin + limit));
    }
    let mut all = Vec::new();
    while let Some(done) = writers.join_next().await {
        let (share, acknowledged) = done??;
        target.connections.push(share.connection);
        for (number, version) in share.objects {
            if number >= target.versions.len() {
                target.versions.resize(number + 1, String::new());
            }
            target.versions[number] = version;
        }
        all.extend(acknowledged);
    }
    Ok((all, begin.elapsed()))
}

async fn write_share(
    mut share: Share,
    sample: Arc<Sample>,
    collection: String,
    serial: u64,
    deadline: Instant,
) -> anyhow::Result<(Share, Vec<Acknowledged>)> {
    let mut all = Vec::with_capacity(share.objects.len());
    for (number, version) in &mut share.objects {
        if Instant::now() > deadline {
            break;
        }
        let write = write(&mut share.connection, &sample, &collection, *number, version, serial).await?;
        version.clone_from(&write.version);
        all.push(write);
    }
    Ok((share, all))
}

/// Creates an object without a version, updates one with it.
async fn write(
    connection: &mut Connection,
    sample: &Sample,
    collection: &str,
    number: usize,
    version: &str,
    serial: u64,
) -> anyhow::Result<Acknowledged> {
    let body = sample.body(number, version, serial);
    let sent = Instant::now();
    let answer = if version.is_empty() {
        connection.expect(Method::POST, collection, body).await?
    } else {
        connection.expect(Method::PUT, &format!("{collection}/{}", Sample::name(number)), body).await?
    };
    let acknowledged = Instant::now();
    Ok(Acknowledged { version: version_of(&answer)?, sent, acknowledged })
}

async fn create(
    target: &mut Target,
    sample: &Arc<Sample>,
    size: usize,
    effort: &Effort,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let objects = (target.versions.len()..size).map(|number| (number, String::new())).collect::<Vec<_>>();
    let wanted = objects.len();
    let before = target.computed()?;
    let (writes, took) = spread(target, sample, objects, 0, effort.limit).await?;
    if writes.len() < wanted {
        bail!("only {} of {wanted} objects after {} s", writes.len(), effort.limit.as_secs());
    }
    measured.rate(Metric::Creates, writes.len(), took);
    measured.computed(Metric::CreateComputed, writes.len(), before, target.computed()?);
    measured.latencies(Metric::CreateP50, Metric::CreateP99, writes.iter().map(Acknowledged::latency).collect());
    Ok(())
}

async fn update(
    target: &mut Target,
    sample: &Arc<Sample>,
    effort: &Effort,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let watch = Watch::open(target).await?;
    let before = target.computed()?;
    let (mut writes, mut took, mut serial) = (Vec::new(), Duration::ZERO, 1);
    // More updates than objects: several rounds, each with the versions of the one before.
    while writes.len() < effort.updates && took < effort.limit {
        let rest = effort.updates - writes.len();
        let objects = target.versions.iter().cloned().enumerate().take(rest).collect();
        let (more, time) = spread(target, sample, objects, serial, effort.limit - took).await?;
        writes.extend(more);
        took += time;
        serial += 1;
    }
    measured.rate(Metric::Updates, writes.len(), took);
    measured.computed(Metric::UpdateComputed, writes.len(), before, target.computed()?);
    measured.latencies(Metric::UpdateP50, Metric::UpdateP99, writes.iter().map(Acknowledged::latency).collect());
    let arrived = watch.finish(writes.len()).await?;
    measured.latencies(Metric::BusyWatchP50, Metric::BusyWatchP99, delays(&writes, &arrived)?);
    Ok(())
}

async fn update_one_by_one(
    target: &mut Target,
    sample: &Arc<Sample>,
    effort: &Effort,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let watch = Watch::open(target).await?;
    let mut connection = target.connections.pop().context("no connection")?;
    let begin = Instant::now();
    let mut writes: Vec<Acknowledged> = Vec::new();
    for round in 0..effort.sequential {
        if begin.elapsed() > effort.limit {
            break;
        }
        let number = round % target.versions.len();
        let serial = 1_000_000 + round as u64;
        let version = &target.versions[number];
        let done = write(&mut connection, sample, &target.collection, number, version, serial).await?;
        target.versions[number].clone_from(&done.version);
        writes.push(done);
    }
    target.connections.push(connection);
    measured.latencies(
        Metric::LoneUpdateP50,
        Metric::LoneUpdateP99,
        writes.iter().map(Acknowledged::latency).collect(),
    );
    let arrived = watch.finish(writes.len()).await?;
    measured.latencies(Metric::WatchP50, Metric::WatchP99, delays(&writes, &arrived)?);
    Ok(())
}

/// From sending the write to the arrival of its event. Every acknowledged write must have one.
fn delays(writes: &[Acknowledged], arrived: &HashMap<String, Instant>) -> anyhow::Result<Vec<Duration>> {
    let delays: Vec<Duration> =
        writes.iter().filter_map(|write| Some(arrived.get(&write.version)?.duration_since(write.sent))).collect();
    if delays.len() < writes.len() {
        bail!("the watch missed {} of {} acknowledged writes", writes.len() - delays.len(), writes.len());
    }
    Ok(delays)
}

/// A watch that notes when each version arrived.
struct Watch {
    reader: JoinHandle<anyhow::Result<HashMap<String, Instant>>>,
    expected: oneshot::Sender<usize>,
}

impl Watch {
    async fn open(target: &Target) -> anyhow::Result<Self> {
        let mut connection = target.endpoint.connect().await?;
        let version = target.revision(&mut connection).await?;
        let mut stream = Stream { connection, collection: target.collection.clone(), version, rest: Vec::new() };
        let body = stream.start().await?;
        let (expected, count) = oneshot::channel();
        let reader = tokio::spawn(read_events(stream, body, count));
        Ok(Self { reader, expected })
    }

    /// Waits for the events of `expected` writes.
    async fn finish(self, expected: usize) -> anyhow::Result<HashMap<String, Instant>> {
        let _ = self.expected.send(expected);
        self.reader.await?
    }
}

/// Events as they come, and where to go on when the server ends the watch, which it may do whenever it likes.
struct Stream {
    connection: Connection,
    collection: String,
    version: String,
    rest: Vec<u8>,
}

impl Stream {
    async fn start(&mut self) -> anyhow::Result<Incoming> {
        self.rest.clear();
        let path = format!("{}?watch=1&resourceVersion={}", self.collection, self.version);
        let answer = self.connection.start(Method::GET, &path, Bytes::new()).await?;
        if !answer.status().is_success() {
            bail!("GET {path}: {}", answer.status());
        }
        Ok(answer.into_body())
    }

    /// Notes the versions of all events that are complete.
    fn take(&mut self, data: &[u8], arrived: &mut HashMap<String, Instant>) -> anyhow::Result<()> {
        let now = Instant::now();
        self.rest.extend_from_slice(data);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Ok(()) };
        for line in self.rest[..end].split(|&byte| byte == b'\n') {
            let version = find_string(line, "\"resourceVersion");
            let version = version.with_context(|| format!("not an event: {}", String::from_utf8_lossy(line)))?;
            version.clone_into(&mut self.version);
            arrived.insert(version.to_owned(), now);
        }
        self.rest.drain(..=end);
        Ok(())
    }
}

/// Reads until as many events as were announced are there, or no more come.
async fn read_events(
    mut stream: Stream,
    mut body: Incoming,
    mut announced: oneshot::Receiver<usize>,
) -> anyhow::Result<HashMap<String, Instant>> {
    let mut arrived = HashMap::new();
    let mut expected = None;
    while expected.is_none_or(|expected| arrived.len() < expected) {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            count = &mut announced, if expected.is_none() => {
                expected = Some(count?);
                continue;
            }
            () = tokio::time::sleep(LATE_EVENTS), if expected.is_some() => break,
        };
        match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    stream.take(data, &mut arrived)?;
                }
            }
            // kube-apiserver does this to watchers that it thinks are slow.
            _ => {
                eprintln!("the server ended the watch; going on from version {}", stream.version);
                body = stream.start().await?;
            }
        }
    }
    Ok(arrived)
}

async fn read(target: &mut Target, effort: &Effort, measured: &mut Measured) -> anyhow::Result<()> {
    let mut connection = target.connections.pop().context("no connection")?;
    let count = target.versions.len();
    let mut gets = Vec::with_capacity(effort.gets);
    for round in 0..effort.gets {
        // A large odd step visits objects in no particular order.
        let path = format!("{}/{}", target.collection, Sample::name(round * 7919 % count));
        gets.push(timed(connection.get(&path)).await?.1);
    }
    measured.latencies(Metric::GetP50, Metric::GetP99, gets);
    let full = target.collection.clone();
    let cached = format!("{full}?resourceVersion=0");
    let (mut fulls, mut caches, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.lists {
        let (body, time) = timed(connection.get(&full)).await?;
        measured.set(Metric::ListBytes, body.len() as f64);
        fulls.push(time);
        caches.push(timed(connection.get(&cached)).await?.1);
        pages.push(timed(read_pages(&mut connection, &full)).await?.1);
    }
    measured.median(Metric::ListFull, fulls);
    measured.median(Metric::ListPages, pages);
    measured.median(Metric::ListCached, caches);
    target.connections.push(connection);
    Ok(())
}

async fn timed<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<(T, Duration)> {
    let begin = Instant::now();
    let result = work.await?;
    Ok((result, begin.elapsed()))
}

async fn read_pages(connection: &mut Connection, collection: &str) -> anyhow::Result<()> {
    let mut path = format!("{collection}?limit=500");
    loop {
        let page = connection.get(&path).await?;
        match find_string(&page, "\"continue") {
            Some(token) if !token.is_empty() => path = format!("{collection}?limit=500&continue={token}"),
            _ => return Ok(()),
        }
    }
}
