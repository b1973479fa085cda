//! Upkeep without reading the whole table: removing expired records, and finding unsettled ones.
//!
//! - `prune`: the sweeper, which reads the table in turns and removes expired records.
//! - `watermark`: the unsettled records, found behind a moment before which every record is settled
//!   or entered in a small table.
//! - `pages`: the table as parts of its pages.
//! - `sql/`: the statements.

pub(super) mod prune;
pub(super) mod watermark;
pub(super) mod pages;
