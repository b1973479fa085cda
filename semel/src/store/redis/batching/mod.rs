//! Batches: the operations of many callers as a pipeline of scripts, over one connection to one
//! server.
//!
//! - `committer`: a batch sent, answered, and sent again after a lost connection.
//! - `session`: a connection, and the termination of the one before it.
//! - `scripts`: the scripts in `lua/`, and their hashes.

pub(super) mod committer;
pub(super) mod session;
pub(super) mod scripts;
