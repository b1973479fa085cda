//! The watermark of unsettled records: the attempts that began some time ago and have no outcome.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::postgres::errors;
use crate::store::postgres::session::Session;
use crate::store::postgres::side::Side;
use crate::store::postgres::values::Moment;
use crate::words::error::StoreError;

/// The largest number of times that the watermark is moved in one call, each time over 10,000
/// records. A listing reads the rest by index; a pruner calls again.
const STEPS: usize = 16;

/// The number of rows that one statement reads: records that the watermark passes, and entries that
/// are read again.
const PASSED_ROWS: i64 = 10_000;
const CHECKED_ROWS: i64 = 500;

/// The number of times that a statement that meets a damaged page is sent again, with fewer rows.
const RETRIES: usize = 64;

/// Moves the watermark up to a minute ago, and reads again some of the records that are known as
/// unsettled. A role that may only read, or a standby, uses the known ones.
///
/// A record that cannot be read is skipped, so that the upkeep of all other records goes on: it is
/// not listed as unsettled until a sweep can read its page again.
///
/// Returns `true` if there may be more records to pass.
pub(crate) async fn keep_up(side: &Side, session: &Session) -> Result<bool, StoreError> {
    match look(side, session).await {
        Err(error) if is_read_only(&error) => {
            tracing::debug!(%error, "the search for unsettled records is left to other processes");
            Ok(false)
        }
        Err(error) if is_about_a_row(&error) => {
            tracing::warn!(%error, "the search for unsettled records met a damaged page, and uses the records that are already known");
            Ok(false)
        }
        looked => looked.map_err(errors::of_question),
    }
}

/// The moment before which every unsettled record is among the known ones.
pub(crate) async fn watermark(side: &Side, session: &Session) -> Result<Moment, StoreError> {
    let question = side.statement(include_str!("sql/watermark.sql"));
    let row = session.client.query_one(&question, &[]).await.map_err(errors::of_question)?;
    Ok(row.get(0))
}

async fn look(side: &Side, session: &Session) -> Result<bool, Error> {
    let look = Step {
        statement: include_str!("sql/look.sql"),
        pass_by: include_str!("sql/look_past.sql"),
        rows: PASSED_ROWS,
    };
    let check = Step {
        statement: include_str!("sql/check.sql"),
        pass_by: include_str!("sql/check_past.sql"),
        rows: CHECKED_ROWS,
    };
    let is_more = look.repeat(side, session, STEPS).await?;
    check.repeat(side, session, 1).await?;
    Ok(is_more)
}

/// A statement that reads the next rows, and one that skips the next of them without reading it.
struct Step {
    statement: &'static str,
    pass_by: &'static str,
    rows: i64,
}

impl Step {
    /// Repeats the step until it returns no row, but at most this many times at full length. At a
    /// damaged page the steps become shorter, down to the one row that is skipped, and longer again
    /// behind it. Returns `true` if it was stopped by that number.
    async fn repeat(&self, side: &Side, session: &Session, steps: usize) -> Result<bool, Error> {
        let statement = session.client.prepare(&side.statement(self.statement)).await?;
        let (mut rows, mut steps_left, mut retries) = (self.rows, steps, 0);
        while steps_left > 0 && retries <= RETRIES {
            match session.client.query_opt(&statement, &[&rows]).await {
                Ok(None) if rows == self.rows => return Ok(false),
                Ok(_) if rows == self.rows => steps_left -= 1,
                Ok(_) => {
                    rows = (rows * 2).min(self.rows);
                    retries += 1;
                }
                Err(error) if is_about_a_row(&error) => {
                    if retries == 0 {
                        tracing::warn!(%error, "records that cannot be read are left out of the search for unsettled ones");
                    }
                    retries += 1;
                    match rows {
                        _ if retries == 1 => read_by_index(session).await?,
                        1 => drop(session.client.execute(&side.statement(self.pass_by), &[]).await?),
                        _ => rows /= 2,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(steps_left == 0)
    }
}

/// Makes this connection read tables by their indexes from now on, even small ones: a scan of all
/// pages would meet a damaged page each time.
pub(crate) async fn read_by_index(session: &Session) -> Result<(), Error> {
    let settings = "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off";
    session.client.batch_execute(settings).await
}

fn is_about_a_row(error: &Error) -> bool {
    error.code().is_some_and(errors::is_about_a_row)
}

fn is_read_only(error: &Error) -> bool {
    let codes = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::READ_ONLY_SQL_TRANSACTION];
    error.code().is_some_and(|code| codes.contains(code))
}
