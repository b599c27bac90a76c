//! The revision log on disk.
//!
//! One table maps revisions to rows (see [`row`]); the newest row of a key is the object. A second table holds a few
//! numbers: the format, how far history is compacted, and the head at that time (later heads are the last row's key).

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, DatabaseError, ReadableDatabase, TableDefinition};

use super::object::{Event, Object, Revision};
use super::row;
use super::state::{FIRST_REVISION, Names, State};

const LOG: TableDefinition<'_, Revision, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

const FORMAT: u64 = 1;
const FILE: &str = "state.redb";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory or the file cannot be used.
    #[error("cannot open the store {}: {source}", .path.display())]
    File {
        /// The directory or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process has the store open.
    #[error("the store {} is in use by another process", .path.display())]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file was written by another version.
    #[error("the store has format {found}, but this version reads format {FORMAT}")]
    Format {
        /// The file's format.
        found: u64,
    },
    /// The file's content makes no sense.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The writer's thread cannot be started.
    #[error("cannot start the store's writer: {0}")]
    Thread(io::Error),
    /// The database failed.
    #[error("cannot read the store: {0}")]
    Database(#[from] redb::Error),
}

/// Opens the database; called again after a failed write. Tests put a failing disk behind it.
pub(super) type Opener = Box<dyn Fn() -> Result<Database, OpenError> + Send>;

/// What one transaction changes.
pub(super) struct Transaction<'a> {
    pub(super) events: &'a [Arc<Event>],
    /// Rows that compaction removes.
    pub(super) purge: &'a [Revision],
    /// The revision that is compacted then, and the head.
    pub(super) compacted: Option<(Revision, Revision)>,
}

/// The open log.
pub(super) struct Log {
    database: Database,
}

/// An opener for the file in a directory, which is made when it is missing.
pub(super) fn file_opener(directory: &Path, cache_bytes: usize) -> Opener {
    let directory = directory.to_owned();
    Box::new(move || open_file(&directory, cache_bytes))
}

fn open_file(directory: &Path, cache_bytes: usize) -> Result<Database, OpenError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::File { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
    let path = directory.join(FILE);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(failed(&path))?;
    // The umask or an earlier owner may have said otherwise; secrets are in there.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed(&path))?;
    // A new file must still have its name after a crash.
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed(directory))?;
    match Database::builder().set_cache_size(cache_bytes).create_file(file) {
        Ok(database) => Ok(database),
        Err(DatabaseError::DatabaseAlreadyOpen) => Err(OpenError::InUse { path }),
        Err(error) => Err(OpenError::Database(error.into())),
    }
}

impl Log {
    /// Opens the log and makes the tables of a new one.
    pub(super) fn open(opener: &Opener) -> Result<Log, OpenError> {
        let log = Log { database: opener()? };
        log.prepare()?;
        Ok(log)
    }

    fn prepare(&self) -> Result<(), OpenError> {
        match self.meta("format")? {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(OpenError::Format { found }),
            None => Ok(self.create_tables()?),
        }
    }

    fn meta(&self, name: &str) -> Result<Option<u64>, redb::Error> {
        let transaction = self.database.begin_read()?;
        match transaction.open_table(META) {
            Ok(meta) => Ok(meta.get(name)?.map(|number| number.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create_tables(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert("format", FORMAT)?;
            meta.insert("head", FIRST_REVISION)?;
            meta.insert("compacted", 0)?;
            transaction.open_table(LOG)?;
        }
        Ok(transaction.commit()?)
    }

    /// Reads the whole log into a new state.
    pub(super) fn load(&self, names: &mut Names) -> Result<State, OpenError> {
        let head = self.meta("head")?.unwrap_or(FIRST_REVISION);
        let mut state = State::new(FIRST_REVISION, self.meta("compacted")?.unwrap_or(0));
        self.replay(&mut state, 0, names)?;
        state.head = state.head.max(head);
        Ok(state)
    }

    /// Publishes the rows after a revision that the state does not have yet.
    pub(super) fn replay(&self, state: &mut State, after: Revision, names: &mut Names) -> Result<(), OpenError> {
        let transaction = self.database.begin_read().map_err(redb::Error::from)?;
        let log = transaction.open_table(LOG).map_err(redb::Error::from)?;
        for entry in log.range(after + 1..).map_err(redb::Error::from)? {
            let (revision, bytes) = entry.map_err(redb::Error::from)?;
            let revision = revision.value();
            let row = row::decode(bytes.value(), names)
                .ok_or_else(|| OpenError::Damaged(format!("row {revision} cannot be read")))?;
            restore(state, revision, row)?;
        }
        Ok(())
    }

    /// How far the file's history is compacted.
    pub(super) fn compacted(&self) -> Result<Revision, redb::Error> {
        Ok(self.meta("compacted")?.unwrap_or(0))
    }

    /// Writes a transaction; it is durable when this returns.
    pub(super) fn commit(&self, change: &Transaction<'_>) -> Result<(), redb::Error> {
        // The default durability is one fsync at commit.
        let transaction = self.database.begin_write()?;
        {
            let mut log = transaction.open_table(LOG)?;
            let mut bytes = Vec::new();
            for event in change.events {
                bytes.clear();
                row::encode(event, &mut bytes);
                log.insert(event.revision, &*bytes)?;
            }
            for revision in change.purge {
                log.remove(revision)?;
            }
        }
        if let Some((compacted, head)) = change.compacted {
            let mut meta = transaction.open_table(META)?;
            meta.insert("compacted", compacted)?;
            meta.insert("head", head)?;
        }
        Ok(transaction.commit()?)
    }
}

/// Adds one row to the state: behind the compacted revision it is history, before it only the object counts.
fn restore(state: &mut State, revision: Revision, row: row::Row) -> Result<(), OpenError> {
    let previous = state.get(&row.key).cloned();
    let key = previous.as_ref().map_or(row.key, |previous| previous.key.clone());
    let object = row
        .body
        .map(|body| Arc::new(Object { key: key.clone(), created: row.created, revision, body: Arc::new(body) }));
    if revision <= state.compacted {
        state.restore(&key, object, revision);
        return Ok(());
    }
    let known = previous.as_ref().map_or(0, |previous| previous.revision);
    if known != row.previous {
        let message = format!("row {revision} of {key} follows {}, but the log has {known}", row.previous);
        return Err(OpenError::Damaged(message));
    }
    state.publish(Arc::new(Event { revision, key, object, previous }));
    Ok(())
}
