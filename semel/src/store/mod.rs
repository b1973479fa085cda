//! Stores: where records are kept, and who arbitrates.
//!
//! [`Store`] has the verbs of the engine and [`Inspect`](inspect::Inspect) those of the operator. Both are written once, in `verbs`, over
//! the primitives of a [`backend`]; a store on a database implements that trait.
//! - [`inspect`]: listing records and settling held keys.
//! - [`backend`]: the three primitives, reads and a sweep.
//! - [`verbs`]: the verbs over any backend.
//! - [`pruner`]: removing expired records in the background.
//! - [`memory`]: the reference store, for tests and for one process.
//! - `postgres`, `sqlite`, `redis`: the stores on databases.
//! - [`tiered`]: a hot store in front of a durable one.
//! - `shared`: the parts that the stores on databases share.
//! - `conformance`: the tests that every store has to pass.

pub(crate) mod inspect;
pub mod backend;
#[doc(hidden)]
pub mod verbs;
pub(crate) mod pruner;
pub(crate) mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod tiered;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) mod shared;
#[cfg(feature = "conformance")]
pub mod conformance;

pub use crate::protocol::answer::{Ack, Claim, Done, Remembered, Void};
pub use crate::protocol::ask::{Ask, Takeover};
pub use crate::words::lease::Token;
pub use crate::words::record::{Note, Owner, Phase, Record, RecordState};
pub use crate::words::terms::Terms;
pub use memory::MemoryClock;
#[cfg(feature = "postgres")]
pub use postgres::{InTransaction, PostgresOptions};
#[cfg(feature = "redis")]
pub use redis::RedisOptions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteOptions;
pub use tiered::{Hot, MemoryCache, Rank};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::time::Timestamp;

/// The place that arbitrates who runs.
///
/// # Contract
/// - **One winner.** Of all claims of a key, at most one token at a time is told to run.
/// - **Idempotent by token.** A verb whose answer was lost is sent again with the same token: a claim is granted
///   again with the same fence, a complete is `Repeated`.
/// - **Owner writes match token and fence** of a running record, and nothing else: time decides who may ask for a
///   new token, never who may write.
/// - **The store's clock decides.** `None` is never "expired".
/// - **Errors are honest.** An error that is not [`StoreError::is_unknown`] means that nothing was applied. A
///   record that is not understood is an error, never "absent".
/// - **No stray copies.** A claim is answered only if no other copy of it can arrive later. A store that has sent
///   one again by itself, over a new connection say, and cannot rule that out, answers with an unknown error: the
///   caller then knows that it has to void the token in the end.
/// - **Cancel-safe.** Dropping a future neither releases a key nor leaves a write half applied.
///
/// The conformance suite (feature `conformance`) checks a store against this contract. There are no default
/// methods: a wrapper that forgets to pass one on should not compile.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A short name for logs and metrics.
    fn name(&self) -> &'static str;

    /// The store's clock, near enough to set a claim's `not_after` by. The engine asks before each claim, so a store on a
    /// server answers from the last time it heard that server.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Whether a handler can record its outcome in the transaction of its effect, by the store's own means. Only then is
    /// [`Policy::transactional`](crate::Policy::transactional) true; over any other store it is refused.
    fn completes_in_transactions(&self) -> bool;

    /// Asks for the right to run.
    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError>;

    /// Begins the lease anew, this long from now.
    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError>;

    /// Records the outcome. It never changes afterwards.
    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError>;

    /// Gives the key back; only when nothing can have happened.
    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError>;

    /// Ends the lease now, with the reason: the key is held or lost, as its policy says.
    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError>;

    /// Ends the lease now and leaves the key held, whatever its policy was, with the reason.
    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError>;

    /// Takes back a claim that was given up: once it is settled, its token never runs. `not_after` is the claim's.
    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError>;

    /// The record of a key, unless it is expired.
    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// The records of several keys, in their order, in one question. A record that is not understood is an error in
    /// its own place.
    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError>;

    /// Removes some expired records and says how many. Call it until it says fewer than were asked for: then there are
    /// no more, unless it was [paced](Prune::paced).
    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError>;

    /// Keeps the secret by which processes that share the store make principals of credentials, and returns the one that
    /// is kept afterwards. `value` is written if there is none yet, or if it is exactly `expected`; at most
    /// [`MAX_SECRET_BYTES`] long. Like the records it outlives every process, and prune leaves it alone.
    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError>;
}

/// The longest secret that [`Store::keep_secret`] takes.
pub const MAX_SECRET_BYTES: usize = 1_024;

/// What [`Store::find_many`] finds for one key.
pub type Found = Result<Option<Record>, StoreError>;

/// Which expired records to remove, and how many at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune {
    /// Of this realm only; of all if `None`.
    pub realm: Option<String>,
    /// Only those whose retention was over at this moment; `None` stands for now. What is not expired never goes.
    pub before: Option<Timestamp>,
    /// At most this many in one call.
    pub limit: u32,
    /// Whether a call may look at only a part of a large store, where the one before ended, whichever process made it: so
    /// the upkeep goes round all records without reading all of them each time. One process at a time does so; to the
    /// others nothing is left to remove. On Redis nothing is done, as records go by themselves there.
    pub paced: bool,
}

impl Default for Prune {
    fn default() -> Self {
        Self { realm: None, before: None, limit: 1_000, paced: false }
    }
}

impl Prune {
    /// The moment at which a record's retention must have been over, by the store's clock: never later than now.
    pub fn cutoff(&self, now: Timestamp) -> Timestamp {
        self.before.map_or(now, |before| before.min(now))
    }
}

/// A shared store is a store; so is a shared `dyn Store`.
#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        (**self).now().await
    }

    fn completes_in_transactions(&self) -> bool {
        (**self).completes_in_transactions()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError> {
        (**self).claim(ask).await
    }

    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError> {
        (**self).renew(lease, length).await
    }

    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError> {
        (**self).complete(lease, outcome).await
    }

    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError> {
        (**self).release(lease).await
    }

    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        (**self).abandon(lease, reason).await
    }

    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        (**self).hold(lease, reason).await
    }

    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError> {
        (**self).void(key, token, not_after).await
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        (**self).find(key).await
    }

    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        (**self).find_many(keys).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        (**self).prune(prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        (**self).keep_secret(expected, value).await
    }
}
