//! The pages of the table, or of its partitions one after another.

use crate::store::postgres::errors;
use crate::store::postgres::session::Session;
use crate::store::postgres::side::Side;
use crate::words::error::StoreError;

/// The number of pages, 8 MiB, up to which a table is read whole where that is simpler.
const FEW: i64 = 1_024;

/// A table with records, and its pages, numbered after those of the preceding tables.
pub(crate) struct Part {
    pub(crate) table: String,
    pub(crate) first: i64,
    pub(crate) end: i64,
}

pub(crate) async fn parts(side: &Side, session: &Session) -> Result<Vec<Part>, StoreError> {
    let question = side.statement(include_str!("sql/pages.sql"));
    let rows = session.client.query(&question, &[]).await.map_err(errors::of_question)?;
    let mut end = 0;
    let parts = rows.iter().map(|row| {
        let first = end;
        end += row.get::<_, i64>(1);
        Part { table: row.get(0), first, end }
    });
    Ok(parts.collect())
}

/// The number of pages of all parts.
pub(crate) fn count(parts: &[Part]) -> i64 {
    parts.last().map_or(0, |part| part.end)
}

pub(crate) fn are_few(parts: &[Part]) -> bool {
    count(parts) <= FEW
}
