//! Batches: the operations of many callers as a few SQL statements in one transaction, over one
//! connection.
//!
//! - `committer`: the connection of a committer, and the fate of a batch when the connection fails.
//! - `batch`: a batch sorted into statements, sent, and answered.
//! - `statements`: the prepared statements and their columns.
//! - `reading`: reading records within a limit of bytes.
//! - `answers`: the answer to each operation, from the rows that the statements returned.
//! - `sql/`: the statements.

pub(super) mod committer;
pub(super) mod statements;
mod batch;
mod reading;
mod answers;
