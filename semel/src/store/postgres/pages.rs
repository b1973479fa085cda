//! The pages of the table, or of its partitions one after another.

use super::errors;
use super::session::Session;
use super::side::Side;
use crate::words::error::StoreError;

/// A table of this many pages, 8 MiB, is read whole where that is simpler.
const FEW: i64 = 1_024;

/// A table with records, and its pages, counted on from those of the tables before it.
pub(super) struct Part {
    pub(super) table: String,
    pub(super) first: i64,
    pub(super) end: i64,
}

pub(super) async fn parts(side: &Side, session: &Session) -> Result<Vec<Part>, StoreError> {
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

/// How many pages all parts have.
pub(super) fn count(parts: &[Part]) -> i64 {
    parts.last().map_or(0, |part| part.end)
}

pub(super) fn are_few(parts: &[Part]) -> bool {
    count(parts) <= FEW
}
