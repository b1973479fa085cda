//! What is known of unsettled records: which attempts that began some time ago have no outcome.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::errors;
use super::session::Session;
use super::side::Side;
use super::values::Moment;
use crate::words::error::StoreError;

/// How often the watermark is moved at most, each time over 10,000 records. What is left is read by index until the next
/// time.
const STEPS: usize = 16;

/// Moves the watermark up to a minute ago, and looks again at some of the records that are known as unsettled. A
/// role that may only read, or a standby, goes by what is known.
pub(super) async fn keep_up(side: &Side, session: &Session) -> Result<(), StoreError> {
    match look(side, session).await {
        Err(error) if is_read_only(&error) => {
            tracing::debug!(%error, "the search for unsettled records is left to other processes");
            Ok(())
        }
        looked => looked.map_err(errors::of_question),
    }
}

/// The moment before which every unsettled record is among those that are known.
pub(super) async fn watermark(side: &Side, session: &Session) -> Result<Moment, StoreError> {
    let question = side.statement(include_str!("sql/watermark.sql"));
    let row = session.client.query_one(&question, &[]).await.map_err(errors::of_question)?;
    Ok(row.get(0))
}

async fn look(side: &Side, session: &Session) -> Result<(), Error> {
    let look = session.client.prepare(&side.statement(include_str!("sql/look.sql"))).await?;
    for _ in 0..STEPS {
        if session.client.query_opt(&look, &[]).await?.is_none() {
            break;
        }
    }
    session.client.execute(&side.statement(include_str!("sql/check.sql")), &[]).await.map(drop)
}

fn is_read_only(error: &Error) -> bool {
    let codes = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::READ_ONLY_SQL_TRANSACTION];
    error.code().is_some_and(|code| codes.contains(code))
}
