//! The writer thread of a store on disk.
//!
//! Requests queue up while a transaction is on its way to the disk; the thread then takes all of them into the next
//! one. So concurrent writers share an fsync, and a single writer waits for nobody. Answers and events go out after
//! the fsync. Compaction runs in the same transactions, a slice at a time, so that writes never wait for it long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::log::{Log, OpenError, Opener, Transaction};
use super::object::{Event, Key, Object, Revision};
use super::state::{Names, State};
use super::write::{Change, Committed, Write, WriteError, decide};

/// Requests that may wait; more writers than this wait to get in.
const QUEUE: usize = 1024;
/// A group is closed when its bodies reach this size, so that a burst of large objects is not one huge transaction.
const GROUP_BYTES: usize = 8 << 20;
/// History events that one transaction compacts.
const SLICE: usize = 512;

type Reply<T> = oneshot::Sender<Result<T, WriteError>>;

enum Request {
    Write(Write, Reply<Committed>),
    Compact(Revision, Reply<Revision>),
    /// Only wakes the thread, to see that the store is closed.
    Stop,
}

/// The way to the writer thread.
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread on an open log whose content is in `shared`.
    pub(super) fn start(shared: Arc<Shared>, log: Log, opener: Opener, names: Names) -> std::io::Result<Writer> {
        let (requests, receiver) = mpsc::channel(QUEUE);
        let thread = Thread { shared, log: Some(log), opener, names, requests: receiver, compaction: None };
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || thread.run())?;
        Ok(Writer { requests, thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn write(&self, write: Write) -> Result<Committed, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Write(write, reply), answer).await
    }

    pub(super) async fn compact(&self, upto: Revision) -> Result<Revision, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Compact(upto, reply), answer).await
    }

    async fn ask<T>(
        &self,
        request: Request,
        answer: oneshot::Receiver<Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        self.requests.send(request).await.map_err(|_| WriteError::Closed)?;
        answer.await.unwrap_or(Err(WriteError::Closed))
    }

    /// Ends the thread after its present transaction. The state must be marked as closed before.
    pub(super) fn stop(&self) {
        // A full queue needs no wake-up: the thread is at work and looks at the mark after each group.
        let _ = self.requests.try_send(Request::Stop);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Thread {
    shared: Arc<Shared>,
    /// `None` after a failed transaction, until the file is open again.
    log: Option<Log>,
    opener: Opener,
    names: Names,
    requests: mpsc::Receiver<Request>,
    compaction: Option<Compaction>,
}

/// A compaction that is under way.
struct Compaction {
    upto: Revision,
    replies: Vec<Reply<Revision>>,
}

/// The writes of one transaction.
#[derive(Default)]
struct Group {
    events: Vec<Arc<Event>>,
    /// What the keys that the group touches will be; `None` where it deletes.
    pending: HashMap<Key, Option<Arc<Object>>>,
    answers: Vec<(Reply<Committed>, Result<Committed, WriteError>)>,
}

impl Thread {
    fn run(mut self) {
        while let Some(requests) = self.receive() {
            if let Err(error) = self.recover() {
                refuse(requests, &error);
                self.fail_compaction(&error);
                continue;
            }
            self.commit(requests);
        }
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
    }

    /// Waits for requests and takes all that are there; with a compaction under way it does not wait. `None` when the
    /// store is closed.
    fn receive(&mut self) -> Option<Vec<Request>> {
        let mut requests = Vec::new();
        if self.compaction.is_none() {
            requests.push(self.requests.blocking_recv()?);
        }
        let size = |request: &Request| match request {
            Request::Write(Write { change: Change::Put(body), .. }, _) => body.len(),
            _ => 0,
        };
        let mut bytes: usize = requests.iter().map(size).sum();
        while bytes < GROUP_BYTES && requests.len() < QUEUE {
            let Ok(request) = self.requests.try_recv() else {
                break;
            };
            bytes += size(&request);
            requests.push(request);
        }
        (!self.shared.state.read().closed).then_some(requests)
    }

    fn commit(&mut self, requests: Vec<Request>) {
        let mut group = Group::default();
        for request in requests {
            match request {
                Request::Write(write, reply) => self.admit(write, reply, &mut group),
                Request::Compact(upto, reply) => self.admit_compaction(upto, reply),
                Request::Stop => {}
            }
        }
        let slice = self.slice();
        if let Err(error) = self.make_durable(&group, slice.as_ref()) {
            // What the disk has now is not known. Readers keep the last state that is sure.
            self.log = None;
            tracing::error!(%error, "writing the store failed");
            let error = WriteError::Io(error.to_string());
            group.answers.into_iter().for_each(|(reply, _)| drop(reply.send(Err(error.clone()))));
            self.fail_compaction(&error);
            return;
        }
        {
            let mut state = self.shared.state.write();
            if !group.events.is_empty() {
                self.shared.publish(&mut state, group.events);
            }
            if let Some(slice) = &slice {
                state.trim(slice.upto);
            }
        }
        for (reply, answer) in group.answers {
            // A caller that is gone does not need its answer.
            let _ = reply.send(answer);
        }
        self.finish_compaction();
    }

    /// Checks a write against the state and what the group has changed so far.
    fn admit(&mut self, write: Write, reply: Reply<Committed>, group: &mut Group) {
        let state = self.shared.state.read();
        let current = match group.pending.get(&write.key) {
            Some(pending) => pending.as_ref(),
            None => state.get(&write.key),
        };
        let revision = state.head + 1 + group.events.len() as Revision;
        let answer = decide(write, current, revision, &mut self.names).map(|event| {
            let committed = Committed::from(&event);
            group.pending.insert(event.key.clone(), event.object.clone());
            group.events.push(Arc::new(event));
            committed
        });
        // Refusals wait too: they may rest on a write of this group that is not durable yet.
        group.answers.push((reply, answer));
    }

    fn make_durable(&self, group: &Group, slice: Option<&Slice>) -> Result<(), redb::Error> {
        if group.events.is_empty() && slice.is_none() {
            return Ok(());
        }
        let log = self.log.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        log.commit(&Transaction {
            events: &group.events,
            purge: slice.map_or(&[], |slice| &slice.purge),
            compacted: slice.map(|slice| (slice.upto, slice.head)),
        })?;
        self.shared.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// After a failed transaction: opens the file again and takes over what it has. A write whose caller was told of
    /// the failure may turn out to have happened.
    fn recover(&mut self) -> Result<(), WriteError> {
        if self.log.is_some() {
            return Ok(());
        }
        let log = self.reopen().map_err(|error| WriteError::Io(error.to_string()))?;
        self.log = Some(log);
        Ok(())
    }

    fn reopen(&mut self) -> Result<Log, OpenError> {
        let log = Log::open(&self.opener)?;
        let compacted = log.compacted()?;
        let mut state = self.shared.state.write();
        let before = state.head;
        log.replay(&mut state, before, &mut self.names)?;
        state.trim(compacted);
        self.shared.announce(&state);
        tracing::info!(recovered = state.head - before, "the store is writable again");
        Ok(log)
    }

    fn admit_compaction(&mut self, upto: Revision, reply: Reply<Revision>) {
        let upto = upto.min(self.shared.state.read().head);
        let compaction = self.compaction.get_or_insert(Compaction { upto, replies: Vec::new() });
        compaction.upto = compaction.upto.max(upto);
        compaction.replies.push(reply);
    }

    /// The next part of the compaction that is under way.
    fn slice(&self) -> Option<Slice> {
        let compaction = self.compaction.as_ref()?;
        let state = self.shared.state.read();
        (compaction.upto > state.compacted).then(|| Slice::plan(&state, compaction.upto))
    }

    fn finish_compaction(&mut self) {
        let compacted = self.shared.state.read().compacted;
        if let Some(done) = self.compaction.take_if(|compaction| compaction.upto <= compacted) {
            done.replies.into_iter().for_each(|reply| drop(reply.send(Ok(compacted))));
        }
    }

    fn fail_compaction(&mut self, error: &WriteError) {
        if let Some(failed) = self.compaction.take() {
            failed.replies.into_iter().for_each(|reply| drop(reply.send(Err(error.clone()))));
        }
    }
}

fn refuse(requests: Vec<Request>, error: &WriteError) {
    for request in requests {
        match request {
            Request::Write(_, reply) => drop(reply.send(Err(error.clone()))),
            Request::Compact(_, reply) => drop(reply.send(Err(error.clone()))),
            Request::Stop => {}
        }
    }
}

/// One step of a compaction.
struct Slice {
    upto: Revision,
    head: Revision,
    purge: Vec<Revision>,
}

impl Slice {
    /// Rows that are superseded at the slice's end, and deletions before it. Older ones went with earlier slices, so
    /// the history that is in memory names all of them.
    fn plan(state: &State, target: Revision) -> Slice {
        let upto = match state.ledger.get(SLICE - 1) {
            Some((revision, _)) if *revision < target => *revision,
            _ => target,
        };
        let mut purge = Vec::new();
        for table in state.tables.values() {
            for event in table.history.iter().take_while(|event| event.revision <= upto) {
                purge.extend(event.previous.as_ref().map(|previous| previous.revision));
                if event.object.is_none() {
                    purge.push(event.revision);
                }
            }
        }
        Slice { upto, head: state.head, purge }
    }
}
