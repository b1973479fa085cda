//! The parts that the stores on databases share.
//!
//! - [`group_commit`]: a queue of operations, and the workers that send them in batches.
//! - `question`: one operation on one key, as it waits in that queue.
//! - `record_id`: the primary key of a record.
//! - [`decode`]: outcomes from the bytes that were stored.
//! - `migration`: the versions of a schema.
//! - `server_clock`: the clock of a server, extrapolated from its last answer.
//! - `time_limit`: the time limit for the answer of a server.
//! - [`cached_stats`]: counts of records that are reused for a while.
//! - `tls`: the TLS settings of connections to a server.

pub(in crate::store) mod group_commit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) mod question;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) mod record_id;
pub(in crate::store) mod decode;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod migration;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) mod server_clock;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) mod time_limit;
pub(in crate::store) mod cached_stats;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(in crate::store) mod tls;
