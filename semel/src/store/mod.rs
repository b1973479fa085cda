//! The stores: the trait that decides which attempt runs, and its implementations.
//!
//! [`Store`] has the verbs of the engine and [`Inspect`](crate::admin::Inspect) those of the
//! operator. Both are written once, in `verbs`, over the primitives of a [`backend`]; a store on a
//! database implements that trait.
//! - `url`, `any`: a store by its URL.
//! - `inspect`: listing records and settling held keys.
//! - [`backend`]: the three primitives, reads and a sweep.
//! - [`verbs`]: the verbs over any backend.
//! - `limits`: the limits of the stores' options.
//! - `pruner`: removing expired records in the background.
//! - `memory`: the reference store, for tests and for one process.
//! - `postgres`, `sqlite`, `redis`: the stores on databases.
//! - `tiered`: a hot store in front of a durable one.
//! - `shared`: the parts that the stores on databases share.
//! - `conformance`: the tests that every store has to pass.

mod any;
mod url;
mod limits;
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
pub use crate::words::lease::{Token, Transactions};
pub use crate::words::record::{Note, Owner, Phase, Record, RecordState};
pub use crate::words::terms::Terms;
pub use any::AnyStore;
pub use memory::MemoryClock;
#[cfg(feature = "postgres")]
pub use postgres::{InTransaction, PostgresOptions};
#[cfg(feature = "redis")]
pub use redis::RedisOptions;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteOptions;
pub use tiered::{Hot, MemoryCache, Rank, TieredOptions};
pub use url::{SecretUrl, StoreUrl, open, redacted};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::time::Timestamp;

/// A store of records, which decides which attempt of a key runs.
///
/// # Contract
/// - **One winner.** Of all claims of a key, at most one token at a time is told to run.
/// - **Idempotent by token.** A verb whose answer was lost is sent again with the same token: a
///   claim is granted again with the same fence, a complete is `Repeated`.
/// - **Owner writes match token and fence** of a running record, and nothing else: time decides
///   whether a new token may claim the key, never whether the owner may write.
/// - **The store's clock decides.** `None` is never "expired".
/// - **Errors are honest.** An error that is not [`StoreError::is_unknown`] means that nothing was
///   applied. A record that is not understood is an error, never "absent".
/// - **No stray copies.** A claim is answered only if no other copy of it can arrive later. A store
///   that has resent a claim by itself, for example over a new connection, and cannot rule out
///   another copy answers with an unknown error: the caller then knows that it has to void the
///   token in the end.
/// - **Cancel-safe.** Dropping a future neither releases a key nor leaves a write half applied.
///
/// The conformance suite (feature `conformance`) checks a store against this contract. There are no
/// default methods: a wrapper that forgets to forward a method should not compile.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The short name of the store for logs and metrics.
    fn name(&self) -> &'static str;

    /// The store's clock, exact enough to set a claim's `not_after`. The engine asks before each
    /// claim, so a store on a server answers from the last time that server reported.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns `true` if a handler can record its outcome in the transaction of its effect, by the
    /// store's own means. [`Policy::transactional`](crate::Policy::transactional) requires it; over
    /// any other store it is refused.
    fn completes_in_transactions(&self) -> bool;

    /// Returns `true` if expired records stay until [`prune`](Store::prune) removes them. An engine
    /// over such a store prunes it in the background, unless told otherwise.
    fn needs_pruning(&self) -> bool;

    /// Claims a key: requests the right to run.
    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError>;

    /// Restarts the lease, with this length from now.
    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError>;

    /// Records the outcome. It never changes afterwards.
    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError>;

    /// Releases the key; only correct if the work had no effect.
    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError>;

    /// Ends the lease now, with the reason: the key is held or lost, as its policy says.
    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError>;

    /// Ends the lease now and leaves the key held, whatever its policy was, with the reason.
    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError>;

    /// Withdraws a claim that was given up: once the void is settled, the token never runs.
    /// `not_after` is the claim's.
    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError>;

    /// The record of a key, unless it is expired.
    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError>;

    /// The records of several keys, in their order, in one question. A record that the store cannot
    /// interpret is an error in its own place.
    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError>;

    /// Removes some expired records and returns their number. A number below the limit means that
    /// none are left, unless the call was [paced](Prune::paced); until then, call it again.
    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError>;

    /// Stores the secret with which processes that share the store derive principals from
    /// credentials, and returns the secret that is stored afterwards. `value` is written if there
    /// is none yet, or if the stored one is exactly `expected`; it has at most
    /// [`MAX_SECRET_BYTES`]. Like the records, the secret outlives every process, and prune leaves
    /// it alone.
    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError>;
}

/// The largest size of a secret for [`Store::keep_secret`].
pub const MAX_SECRET_BYTES: usize = 1_024;

/// The result of [`Store::find_many`] for one key.
pub type Found = Result<Option<Record>, StoreError>;

/// The choice of expired records to remove, and their number in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prune {
    /// The realm to prune; `None` stands for all.
    pub realm: Option<String>,
    /// The moment before which the retention must have been over; `None` stands for now. A record
    /// that is not expired is never removed.
    pub before: Option<Timestamp>,
    /// The largest number of records in one call.
    pub limit: u32,
    /// Set if a call may read only a part of a large store, from where the previous call of any
    /// process ended: the upkeep then visits all records without reading all of them each time. One
    /// process at a time does so; for the other processes nothing is left to remove. A store on
    /// Redis does nothing, because Redis removes expired records itself.
    pub paced: bool,
}

impl Default for Prune {
    fn default() -> Self {
        Self { realm: None, before: None, limit: 1_000, paced: false }
    }
}

impl Prune {
    /// The same choice within this realm.
    #[must_use]
    pub fn with_realm(self, realm: impl Into<Option<String>>) -> Self {
        Self { realm: realm.into(), ..self }
    }

    /// The same choice of records whose retention was over before this moment.
    #[must_use]
    pub fn with_before(self, before: impl Into<Option<Timestamp>>) -> Self {
        Self { before: before.into(), ..self }
    }

    /// The same choice with another number of records in one call.
    #[must_use]
    pub fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// The same choice, read in parts or as a whole.
    #[must_use]
    pub fn with_paced(self, paced: bool) -> Self {
        Self { paced, ..self }
    }

    /// The moment at which a record's retention must have been over, by the store's clock; never
    /// later than now.
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

    fn needs_pruning(&self) -> bool {
        (**self).needs_pruning()
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
