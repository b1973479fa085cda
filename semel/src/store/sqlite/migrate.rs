//! The migrations of the schema.

use std::fmt::Write;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use super::errors::Fault;
use super::session::Session;
use crate::store::shared::migration::{Applied, Migration, MigrationStatus, Steps};
use crate::words::time::Timestamp;

const BOOK: &str = include_str!("sql/migrations.sql");

const STEPS: Steps = Steps {
    store: "SqliteStore",
    all: &[
        Migration {
            version: 1,
            name: "records",
            needs: 1,
            up: include_str!("migrations/0001_records.up.sql"),
            down: include_str!("migrations/0001_records.down.sql"),
        },
        Migration {
            version: 2,
            name: "retention",
            needs: 2,
            up: include_str!("migrations/0002_retention.up.sql"),
            down: include_str!("migrations/0002_retention.down.sql"),
        },
        Migration {
            version: 3,
            name: "secrets",
            needs: 2,
            up: include_str!("migrations/0003_secrets.up.sql"),
            down: include_str!("migrations/0003_secrets.down.sql"),
        },
    ],
};

/// The number that marks a file of semel, for example for the command `file`: "seml".
const APPLICATION_ID: i32 = 0x7365_6d6c;

/// Refuses a schema that is missing, or that needs newer code than this.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), Fault> {
    STEPS.check(&applied(connection, path)?, &path.display()).map_err(Fault::of)
}

/// Applies the missing steps, and returns their number.
pub(super) fn up(session: &Session) -> Result<u32, Fault> {
    // One process at a time has the lock; later ones find the work done.
    let change = session.begin(TransactionBehavior::Immediate)?;
    let applied = applied(&change, session.path())?;
    let way = STEPS.way_up(&applied, &session.path().display()).map_err(Fault::of)?;
    climb(&change, &way).map_err(|e| session.fault(e))?;
    session.commit(change)?;
    Ok(way.len() as u32)
}

fn climb(change: &Connection, way: &[&Migration]) -> rusqlite::Result<()> {
    let is_new = change.query_row("select not exists (select * from sqlite_schema)", [], |row| row.get(0))?;
    if is_new {
        change.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    change.execute_batch(BOOK)?;
    for step in way {
        change.execute_batch(step.up)?;
        let note = "insert into semel_migrations (version, name, checksum, needs) values (?1, ?2, ?3, ?4)";
        change.execute(note, params![step.version, step.name, step.checksum(), step.needs])?;
    }
    Ok(())
}

/// Reverts every step above a version, the newest first, and returns their number. The data of
/// these steps is lost.
pub(super) fn down(session: &Session, to: u32) -> Result<u32, Fault> {
    let change = session.begin(TransactionBehavior::Immediate)?;
    let applied = applied(&change, session.path())?;
    let way = STEPS.way_down(&applied, to, &session.path().display()).map_err(Fault::of)?;
    descend(&change, &way).map_err(|e| session.fault(e))?;
    if to == 0 && !applied.is_empty() {
        change.execute_batch("drop table semel_migrations").map_err(|e| session.fault(e))?;
    }
    session.commit(change)?;
    Ok(way.len() as u32)
}

fn descend(change: &Connection, way: &[&Migration]) -> rusqlite::Result<()> {
    for step in way {
        change.execute_batch(step.down)?;
        change.execute("delete from semel_migrations where version = ?1", [step.version])?;
    }
    Ok(())
}

/// Every step that is known here or in the file.
pub(super) fn status(session: &Session) -> Result<Vec<MigrationStatus>, Fault> {
    let view = session.begin(TransactionBehavior::Deferred)?;
    Ok(STEPS.status(applied(&view, session.path())?))
}

/// The whole way up as one script for the shell of SQLite, for operators who run migrations with
/// their own tools.
pub(super) fn print() -> String {
    let mut script = format!("begin immediate;\n\n{BOOK}");
    for step in STEPS.all {
        let checksum = step.checksum_digits();
        let Migration { version, name, needs, up, .. } = step;
        // Writing to a `String` does not fail.
        let _ = write!(
            script,
            "\n{up}\ninsert into semel_migrations (version, name, checksum, needs)\nvalues ({version}, '{name}', x'{checksum}', {needs});\n",
        );
    }
    script.push_str("\ncommit;\n");
    script
}

/// The applied steps according to the file; none if its table of migrations is missing.
fn applied(connection: &Connection, path: &Path) -> Result<Vec<Applied>, Fault> {
    let fault = |e| Fault::before_commit(path, e);
    if !connection.query_row(include_str!("sql/has_book.sql"), [], |row| row.get(0)).map_err(fault)? {
        return Ok(Vec::new());
    }
    let mut question = connection.prepare(include_str!("sql/applied.sql")).map_err(fault)?;
    let rows = question.query_map([], |row| {
        Ok(Applied {
            version: row.get(0)?,
            name: row.get(1)?,
            checksum: row.get(2)?,
            needs: row.get(3)?,
            at: Timestamp::from_micros(row.get::<_, i64>(4)?.unsigned_abs()),
        })
    });
    rows.map_err(fault)?.collect::<Result<_, _>>().map_err(fault)
}
