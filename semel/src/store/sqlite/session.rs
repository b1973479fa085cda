//! A connection to the file.

use std::cell::Cell;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, ffi};

use super::errors::{Fault, is_busy};
use super::file::Identity;
use super::migrate;
use super::options::SqliteOptions;
use crate::runtime::backoff::Backoff;
use crate::words::error::StoreError;

/// The pauses before the lock is tried again. SQLite itself would pause for up to 100 ms, and another
/// connection would always be faster.
const BACKOFF: Backoff = Backoff::new(Duration::from_micros(100), Duration::from_millis(2));
/// The number of pages, 16 MiB in all, after which the write-ahead log is copied into the file. The
/// same pages are written again and again, and copied once.
const CHECKPOINT_PAGES: u32 = 4_000;
/// The size to which the write-ahead log is cut when it has grown beyond it, for example because of
/// a long listing.
const LOG_BYTES: u64 = 64 << 20;
/// The size of a connection's page cache: ids are spread over all pages of their index, and with
/// the default of 2 MiB most pages would be read again for each batch.
const CACHE_KIB: u64 = 16 << 10;

/// A connection to the file.
pub(super) struct Session {
    connection: Connection,
    options: SqliteOptions,
    identity: Identity,
    /// The version of the schema, as SQLite counts its changes, that was last found to fit.
    fitting: Cell<Option<i64>>,
    /// Set if records were removed whose bytes may still be in the write-ahead log.
    leftovers: Cell<bool>,
}

impl Session {
    /// Opens the file, which has to exist.
    pub(super) fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        let path = &options.path;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let identity = Identity::of(path)
            .ok_or_else(|| StoreError::unavailable(format!("{} is not there", path.display())))?;
        let fault = |e| Fault::before_commit(path, e).into_error();
        let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
        set_up(&connection, &options)?;
        Ok(Self { connection, options, identity, fitting: Cell::new(None), leftovers: Cell::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.options.path
    }

    /// Begins a transaction under any schema: one that only reads, or one that has the lock of the
    /// only writer.
    pub(super) fn begin(&self, behavior: TransactionBehavior) -> Result<Transaction<'_>, Fault> {
        self.begin_seeing(behavior).map(|(begun, _)| begun)
    }

    /// Begins a transaction if the schema fits. The schema is checked whenever it has changed:
    /// within the transaction it cannot change any more.
    pub(super) fn begin_fitting(&self, behavior: TransactionBehavior) -> Result<Transaction<'_>, Fault> {
        let (begun, version) = self.begin_seeing(behavior)?;
        if self.fitting.get() != Some(version) {
            migrate::check(&begun, self.path())?;
            self.fitting.set(Some(version));
        }
        Ok(begun)
    }

    /// A transaction, and the version of the schema in it.
    fn begin_seeing(&self, behavior: TransactionBehavior) -> Result<(Transaction<'_>, i64), Fault> {
        if Identity::of(self.path()) != Some(self.identity) {
            let message = format!("{} was removed or replaced while it was open", self.path().display());
            return Err(Fault { ends_session: true, ..Fault::of(StoreError::unavailable(message)) });
        }
        patiently(self.options.busy_timeout, || {
            let begun = Transaction::new_unchecked(&self.connection, behavior)?;
            // A transaction that only reads takes its snapshot with its first read, which this is.
            let version = begun.prepare_cached("pragma schema_version")?.query_row([], |row| row.get(0))?;
            Ok((begun, version))
        })
        .map_err(|e| self.fault(e))
    }

    /// Commits. A commit that fails was rolled back, and the fault says what is known.
    pub(super) fn commit(&self, change: Transaction<'_>) -> Result<(), Fault> {
        change.commit().map_err(|error| {
            let mut fault = Fault::at_commit(self.path(), error);
            fault.ends_session |= !self.connection.is_autocommit();
            fault
        })
    }

    /// Records that the write-ahead log may contain the bytes of removed records.
    pub(super) fn leave_behind(&self) {
        self.leftovers.set(true);
    }

    /// Copies the write-ahead log into the file and truncates it, if it may contain bytes of
    /// removed records. While another connection reads or writes, this is left for the next time:
    /// SQLite cannot truncate a log that is in use.
    pub(super) fn clear_log(&self) {
        if !self.leftovers.get() {
            return;
        }
        let busy =
            self.connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
        match busy {
            Ok(0) => self.leftovers.set(false),
            Ok(_) => {}
            Err(error) if is_busy(&error) => {}
            Err(error) => tracing::warn!(%error, "the log of {} could not be emptied", self.path().display()),
        }
    }

    /// Copies the write-ahead log into the file and truncates it, and waits for connections that
    /// use it. Returns `false` if one of them used it all the time.
    pub(super) fn empty_log(&self) -> Result<bool, Fault> {
        let emptied = patiently(self.options.busy_timeout, || {
            let emptying = "pragma wal_checkpoint(truncate)";
            is_free(self.connection.query_row(emptying, [], |row| row.get(0))?)
        });
        match emptied {
            Ok(()) => {
                self.leftovers.set(false);
                Ok(true)
            }
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => Err(self.fault(error)),
        }
    }

    /// Writes the whole file anew, without the unused parts of its pages. SQLite overwrites what is
    /// deleted, but not the copies that stay behind when it moves a row to another page.
    pub(super) fn rewrite(&self) -> Result<(), Fault> {
        // The copy of the file may be too large for memory.
        let rewritten = self
            .connection
            .execute_batch("pragma temp_store = file")
            .and_then(|()| patiently(self.options.busy_timeout, || self.connection.execute_batch("vacuum")));
        let restored = self.connection.execute_batch("pragma temp_store = memory");
        rewritten.and(restored).map_err(|e| self.fault(e))
    }

    /// The meaning of an error that came before a commit.
    pub(super) fn fault(&self, error: rusqlite::Error) -> Fault {
        Fault::before_commit(self.path(), error)
    }
}

fn set_up(connection: &Connection, options: &SqliteOptions) -> Result<(), StoreError> {
    let path = options.path.display();
    let fault = |e| Fault::before_commit(&options.path, e).into_error();
    // `patiently` waits for the lock instead.
    connection.busy_timeout(Duration::ZERO).map_err(fault)?;
    if connection.is_readonly("main").map_err(fault)? {
        return Err(StoreError::refused(format!("{path} cannot be written by this process")));
    }
    let mode: String = patiently(options.busy_timeout, || {
        connection.query_row("pragma journal_mode = wal", [], |row| row.get(0))
    })
    .map_err(fault)?;
    if mode != "wal" {
        return Err(StoreError::refused(format!(
            "{path} cannot have a write-ahead log (its journal mode is {mode}); is it on a network file system?"
        )));
    }
    // With FULL every commit waits for the disk; with less, a power loss would lose acknowledged
    // writes. Deleted content is overwritten with zeros: it may be a body that an operator has been
    // asked to erase.
    let settings = format!(
        "pragma synchronous = full; pragma secure_delete = on; pragma temp_store = memory; pragma cache_size = -{CACHE_KIB}; \
         pragma wal_autocheckpoint = {CHECKPOINT_PAGES}; pragma journal_size_limit = {LOG_BYTES}"
    );
    connection.execute_batch(&settings).map_err(fault)?;
    // The first process that opens the file after a crash finds complete commits that were written
    // and possibly not synced yet. This syncs them, before any caller sees them; and if another
    // process is about to, this waits for it. If the copying that follows finds the disk full, that
    // does no harm.
    match patiently(options.busy_timeout, || sync(connection)) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {}
        synced => synced.map_err(fault)?,
    }
    if let Some(bytes) = options.max_bytes {
        let page: u32 = connection.query_row("pragma page_size", [], |row| row.get(0)).map_err(fault)?;
        let pages = (bytes / u64::from(page)).max(1);
        let limit = format!("pragma max_page_count = {pages}");
        connection.query_row(&limit, [], |_| Ok(())).map_err(fault)?;
    }
    Ok(())
}

/// Syncs the log. SQLite reports by a number that another connection is doing so; here it becomes
/// an error like every other lock.
fn sync(connection: &Connection) -> rusqlite::Result<()> {
    is_free(connection.query_row("pragma wal_checkpoint(passive)", [], |row| row.get(0))?)
}

/// The number by which SQLite says that another connection was in the way, as an error.
fn is_free(busy: i64) -> rusqlite::Result<()> {
    match busy {
        0 => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)),
    }
}

/// Tries again while another connection has the lock, until the time is up.
fn patiently<T>(timeout: Duration, mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let (began, mut failures) = (Instant::now(), 0);
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && began.elapsed() < timeout => {
                sleep(BACKOFF.jittered(failures));
                failures += 1;
            }
            done => return done,
        }
    }
}
