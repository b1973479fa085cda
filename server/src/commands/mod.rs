//! The operator's commands, a file for each, with its arguments; `undo` is both `reset` and `forget`.
//! `shared/` has what several commands use.

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
