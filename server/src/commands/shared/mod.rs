//! The parts that several commands use.
//!
//! - `store`: the arguments that open a store.
//! - `key`: the arguments that name a key, and the key as a command line shows it.
//! - `filter`, `listing`: the arguments that choose records, and the records as a table or as JSON.
//! - `change`: a change of one key, by its fence and with a reason.
//! - `progress`: the progress of long work.

pub(super) mod store;
pub(super) mod key;
pub(super) mod filter;
pub(super) mod listing;
pub(super) mod change;
pub(super) mod progress;
