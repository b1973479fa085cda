//! The commands of the operator, with their arguments.
//!
//! - `migrate`: `semel migrate up`, `down`, `status` and `print`.
//! - `list`, `stale`: the records in a table.
//! - `inspect`: one record with its timeline.
//! - `resolve`: the outcome of a held or lost key.
//! - `undo`: both `reset` and `forget`.
//! - `prune`, `stats`: the removal of expired records, and the counts.
//! - `health`: the health of a store or of a gateway.
//! - `completions`: completions for shells.
//! - `shared/`: the parts that several commands use.

pub(crate) mod migrate;
pub(crate) mod list;
pub(crate) mod stale;
pub(crate) mod inspect;
pub(crate) mod resolve;
pub(crate) mod undo;
pub(crate) mod prune;
pub(crate) mod stats;
pub(crate) mod health;
pub(crate) mod completions;
mod shared;
