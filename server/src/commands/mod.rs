//! The operator's commands: one file for each, with its arguments and what it does.

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
mod store;
mod key;
mod filter;
mod listing;
mod change;
mod progress;
