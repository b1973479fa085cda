//! A durable store that decides, with a hot store in front of it that remembers outcomes.
//!
//! - `options`: the limits of the hot store.
//! - `hot`: the trait of a hot store.
//! - `front`: a hot store that may be slow or down.
//! - `breaker`: the circuit breaker in front of it.
//! - `repeats`: the share of repeats among the recent claims.
//! - `cache`: memory as a hot store.

mod options;
mod hot;
mod front;
mod breaker;
mod repeats;
mod cache;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

pub use cache::MemoryCache;
pub use hot::{Hot, Rank};
pub use options::TieredOptions;

use crate::protocol::answer::{Ack, Claim, Done, OperatorAck, Remembered, Void};
use crate::protocol::ask::Ask;
use crate::protocol::decide;
use crate::store::inspect::{Inspect, ListQuery, Page, Stats};
use crate::store::{Found, Prune, Store};
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::record::Record;
use crate::words::time::Timestamp;
use front::Front;
use repeats::Repeats;

/// A durable store that decides, and a hot store in front of it that remembers outcomes: Redis in
/// front of Postgres, or memory in front of either.
///
/// The hot store is believed in one case only: when it says that a key is *done*, because that
/// never changes. Everything else is asked of the durable store, and every grant is its own. So a
/// hot store that was flushed, restarted or lags behind costs time, and neither a second run nor a
/// stuck key. A hot store that is slow or down is skipped by a circuit breaker, and tried again
/// before long.
///
/// ```no_run
/// # #[cfg(all(feature = "redis", feature = "postgres"))]
/// # async fn connect() -> Result<(), semel::StoreError> {
/// use semel::{Once, PostgresStore, Tiered};
/// use semel::store::RedisOptions;
///
/// // As it only remembers, it may also forget.
/// let hot = RedisOptions::new("redis://cache")?.with_eviction_allowed().connect().await?;
/// let durable = PostgresStore::connect("postgres://db/app").await?;
/// let once = Once::new(Tiered::new(hot, durable));
/// # Ok(())
/// # }
/// ```
///
/// # What is where
/// An outcome is recorded in the durable store and answered. Most keys are never repeated, so it is
/// not sent to the hot store at once: the first repeat, which the durable store answers, plants it
/// there, in the background. It stays for at most [`TieredOptions::DEFAULT_RETENTION`], and never
/// for longer than in the durable store. The hot store is asked first while at least one in eight
/// claims is a repeat; otherwise a claim goes to the durable store straight away.
/// [`TieredOptions::with_hot_first`] plants every outcome, and always asks the hot store first.
///
/// `find`, `list` and similar calls show the content of the durable store. `forget` and `reset`
/// reach both, the durable one first. They cannot reach a [`MemoryCache`] *of another process*:
/// there a forgotten outcome may be replayed until its time is over. The same holds if Redis fails
/// over at that moment and comes back with an older state.
///
/// Clones share everything.
pub struct Tiered<H, D> {
    front: Arc<Front<H>>,
    durable: Arc<D>,
    repeats: Arc<Repeats>,
    hot_first: bool,
}

impl<H, D> Clone for Tiered<H, D> {
    fn clone(&self) -> Self {
        Self {
            front: Arc::clone(&self.front),
            durable: Arc::clone(&self.durable),
            repeats: Arc::clone(&self.repeats),
            hot_first: self.hot_first,
        }
    }
}

impl<H: Hot, D: Store> Tiered<H, D> {
    /// The hot store in front of the durable one, with the default options; see [`TieredOptions`].
    pub fn new(hot: H, durable: D) -> Self {
        Self::with_options(hot, durable, &TieredOptions::new())
    }

    fn with_options(hot: H, durable: D, options: &TieredOptions) -> Self {
        Self {
            front: Arc::new(Front::new(hot, options.limits)),
            durable: Arc::new(durable),
            repeats: Arc::default(),
            hot_first: options.hot_first,
        }
    }

    /// The hot store, which remembers.
    pub fn hot(&self) -> &H {
        self.front.hot()
    }

    /// The durable store, which decides.
    pub fn durable(&self) -> &D {
        &self.durable
    }

    /// Waits until nothing is in flight to the hot store.
    pub async fn drain(&self) {
        self.front.drain().await;
    }

    /// Plants in the hot store an outcome that the durable one has shown in answer to a question of
    /// that moment.
    async fn plant(&self, key: &Key, intent: Intent, done: Done, asked: Instant) {
        // Without the store's time, the remaining retention is unknown. The clock was just read, so
        // this costs no round trip.
        if let Ok(now) = self.durable.now().await {
            let left = done.expires_at.since(now);
            self.front.plant(key, Remembered { intent, done }, left, asked);
        }
    }

    /// Removes from the hot store a key that an operator has changed, or tried to.
    async fn bury(&self, key: &Key, seen: Fence, change: &OperatorAck) -> Result<(), StoreError> {
        let fence = match change {
            // A missing key may have been forgotten before without reaching the hot store. The
            // burial goes up to the present fence: an outcome that was planted since is lost from
            // the hot store, which is harmless.
            OperatorAck::Applied | OperatorAck::Missing => match self.durable.now().await {
                Ok(now) => Fence::next(Some(seen), now),
                Err(_) => seen,
            },
            // A key that has moved was buried then, and has been used since.
            OperatorAck::Moved(_) => seen,
            OperatorAck::Running(_) | OperatorAck::Unfit(_) => return Ok(()),
        };
        self.front.bury(key, fence).await
    }
}

#[async_trait]
impl<H: Hot, D: Store> Store for Tiered<H, D> {
    fn name(&self) -> &'static str {
        "tiered"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.durable.now().await
    }

    fn completes_in_transactions(&self) -> bool {
        self.durable.completes_in_transactions()
    }

    fn needs_pruning(&self) -> bool {
        self.durable.needs_pruning()
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim, StoreError> {
        if (self.hot_first || self.repeats.are_frequent())
            && let Some(found) = self.front.recall(&ask.key).await
            && let Some(claim) = decide::remembered(&found, ask)
        {
            self.repeats.count(true);
            return Ok(claim);
        }
        let asked = Instant::now();
        let claim = self.durable.claim(ask).await?;
        self.repeats.count(matches!(claim, Claim::Done(_)));
        Ok(match claim {
            Claim::Done(done) => {
                self.plant(&ask.key, ask.intent.clone(), done.clone(), asked).await;
                Claim::Done(done)
            }
            // The outcome is planted together with its intent.
            Claim::Granted(lease) if self.hot_first => Claim::Granted(lease.with_intent(ask.intent.clone())),
            other => other,
        })
    }

    async fn renew(&self, lease: &Lease, length: Duration) -> Result<Ack, StoreError> {
        self.durable.renew(lease, length).await
    }

    async fn complete(&self, lease: &Lease, outcome: &Outcome) -> Result<Ack, StoreError> {
        let asked = Instant::now();
        let ack = self.durable.complete(lease, outcome).await?;
        // Retention began with this write, at the earliest when it was sent. A repeated write may
        // have been applied long ago; the first repeat of the request that asks the durable store
        // plants its outcome.
        if self.hot_first
            && ack == Ack::Applied
            && let (Some(intent), Some(retention)) = (lease.intent(), lease.retention())
            && let Ok(now) = self.durable.now().await
        {
            let expires_at = now.after(retention.saturating_sub(asked.elapsed()));
            let done = Done { outcome: outcome.clone(), fence: lease.fence(), expires_at };
            self.plant(lease.key(), intent.clone(), done, asked).await;
        }
        Ok(ack)
    }

    async fn release(&self, lease: &Lease) -> Result<Ack, StoreError> {
        self.durable.release(lease).await
    }

    async fn abandon(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        self.durable.abandon(lease, reason).await
    }

    async fn hold(&self, lease: &Lease, reason: &str) -> Result<Ack, StoreError> {
        self.durable.hold(lease, reason).await
    }

    async fn void(&self, key: &Key, token: Token, not_after: Timestamp) -> Result<Void, StoreError> {
        self.durable.void(key, token, not_after).await
    }

    async fn find(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.durable.find(key).await
    }

    async fn find_many(&self, keys: &[Key]) -> Result<Vec<Found>, StoreError> {
        self.durable.find_many(keys).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        self.durable.prune(prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.durable.keep_secret(expected, value).await
    }
}

#[async_trait]
impl<H: Hot, D: Inspect> Inspect for Tiered<H, D> {
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.durable.list(query).await
    }

    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.durable.stale(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.durable.stats().await
    }

    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError> {
        self.durable.resolve(key, seen, outcome, reason).await
    }

    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        let change = self.durable.reset(key, seen, reason).await?;
        self.bury(key, seen, &change).await?;
        Ok(change)
    }

    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        let change = self.durable.forget(key, seen, reason).await?;
        self.bury(key, seen, &change).await?;
        Ok(change)
    }
}
