//! The verbs of the operator.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::protocol::answer::OperatorAck;
use crate::store::Store;
use crate::words::error::StoreError;
use crate::words::key::{Key, Scope};
use crate::words::lease::Fence;
use crate::words::outcome::Outcome;
use crate::words::record::{Phase, Record};
use crate::words::time::Timestamp;

/// The view of an operator into a store, and the changes that only a person can decide.
///
/// # Contract
/// - `list` and `stale` show records as they are stored, expired ones included, page by page.
/// - A change names the fence that the operator saw. If the record has a different fence by now,
///   nothing changes and the answer holds the record.
/// - A change never touches a live lease, and invalidates the token of the lost owner.
/// - The record's note keeps the change, with its reason and time.
#[async_trait]
pub trait Inspect: Store {
    /// A page of the matching records. It may have fewer records than the limit, or none, and still
    /// be followed by another page: a store reads a bounded part of its records for each page.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// A page of the held and lost records: their lease is over and there is no outcome.
    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// The number of records in each phase.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Records the outcome of a held or lost key, because its effect happened.
    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError>;

    /// Allows a held or lost key to be claimed again, because its effect did not happen.
    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError>;

    /// Makes a key as if it had never been used, and removes its outcome.
    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError>;
}

/// The choice of records to list. The default is the first hundred of all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListQuery {
    /// The phase of the records.
    pub phase: Option<Phase>,
    /// The realm of the records.
    pub realm: Option<String>,
    /// The principal of the records.
    pub principal: Option<String>,
    /// The value of the key, in any scope.
    pub value: Option<String>,
    /// The operation of the records.
    pub operation: Option<String>,
    /// `true` for records whose retention is over, `false` for all other records.
    pub expired: Option<bool>,
    /// Set for records whose lease is over without an outcome only: held or lost.
    pub stale: bool,
    /// The least time since the creation of the record.
    pub min_age: Option<Duration>,
    /// The least time since the last sign of life of the owner.
    pub unheard_for: Option<Duration>,
    /// The end of the previous page, where this one begins.
    pub after: Option<Cursor>,
    /// The largest number of records.
    pub limit: u32,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            phase: None,
            realm: None,
            principal: None,
            value: None,
            operation: None,
            expired: None,
            stale: false,
            min_age: None,
            unheard_for: None,
            after: None,
            limit: 100,
        }
    }
}

impl ListQuery {
    /// The same query for records in this phase.
    #[must_use]
    pub fn with_phase(self, phase: impl Into<Option<Phase>>) -> Self {
        Self { phase: phase.into(), ..self }
    }

    /// The same query for records of this realm.
    #[must_use]
    pub fn with_realm(self, realm: impl Into<Option<String>>) -> Self {
        Self { realm: realm.into(), ..self }
    }

    /// The same query for records of this principal.
    #[must_use]
    pub fn with_principal(self, principal: impl Into<Option<String>>) -> Self {
        Self { principal: principal.into(), ..self }
    }

    /// The same query for keys with this value.
    #[must_use]
    pub fn with_value(self, value: impl Into<Option<String>>) -> Self {
        Self { value: value.into(), ..self }
    }

    /// The same query for records of this operation.
    #[must_use]
    pub fn with_operation(self, operation: impl Into<Option<String>>) -> Self {
        Self { operation: operation.into(), ..self }
    }

    /// The same query for records whose retention is over, or for all others.
    #[must_use]
    pub fn with_expired(self, expired: impl Into<Option<bool>>) -> Self {
        Self { expired: expired.into(), ..self }
    }

    /// The same query for records whose lease is over without an outcome only, if set.
    #[must_use]
    pub fn with_stale(self, stale: bool) -> Self {
        Self { stale, ..self }
    }

    /// The same query for records that were created at least so long ago.
    #[must_use]
    pub fn with_min_age(self, min_age: impl Into<Option<Duration>>) -> Self {
        Self { min_age: min_age.into(), ..self }
    }

    /// The same query for records whose owner was silent for at least so long.
    #[must_use]
    pub fn with_unheard_for(self, unheard_for: impl Into<Option<Duration>>) -> Self {
        Self { unheard_for: unheard_for.into(), ..self }
    }

    /// The same query from the end of a previous page.
    #[must_use]
    pub fn with_after(self, after: impl Into<Option<Cursor>>) -> Self {
        Self { after: after.into(), ..self }
    }

    /// The same query with another number of records in a page.
    #[must_use]
    pub fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// The key, if realm, principal and value are all given: then no search is necessary.
    ///
    /// # Errors
    /// Refused if the three do not form a valid key.
    pub fn whole_key(&self) -> Result<Option<Key>, StoreError> {
        let Self { realm: Some(realm), principal: Some(principal), value: Some(value), .. } = self else {
            return Ok(None);
        };
        let key = Scope::new(realm)
            .and_then(|scope| scope.with_principal(principal))
            .and_then(|scope| scope.key(value));
        key.map(Some).map_err(|e| StoreError::refused("the query does not form a valid key").with_source(e))
    }

    /// Returns `true` if a record matches, regardless of where the page begins.
    pub fn matches(&self, record: &Record, now: Timestamp) -> bool {
        fn is<T: PartialEq + ?Sized>(wanted: Option<&T>, found: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        let scope = record.key.scope();
        is(self.phase.as_ref(), &record.phase(now))
            && is(self.realm.as_deref(), scope.realm())
            && is(self.principal.as_deref(), scope.principal())
            && is(self.value.as_deref(), record.key.value())
            && is(self.operation.as_deref(), record.intent.operation())
            && is(self.expired.as_ref(), &record.is_expired(now))
            && (!self.stale || matches!(record.phase(now), Phase::Held | Phase::Lost))
            && self.min_age.is_none_or(|age| now.since(record.created_at) >= age)
            && self.unheard_for.is_none_or(|silence| now.since(record.heartbeat_at) >= silence)
    }
}

/// A position in a listing. Its text is internal to the backend that made it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(String);

impl Cursor {
    /// A cursor with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A page of the matching records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page {
    /// The store's clock, from which the phase of each record follows.
    pub now: Timestamp,
    /// The records.
    pub records: Vec<Record>,
    /// The beginning of the next page; `None` if this is the last.
    pub next: Option<Cursor>,
}

impl Page {
    /// A page of a listing, at this time of the store.
    pub fn new(now: Timestamp, records: Vec<Record>, next: Option<Cursor>) -> Self {
        Self { now, records, next }
    }
}

/// The number of records in each phase. A store may answer from a recent count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Records under a live lease.
    pub running: u64,
    /// Records with the lease over and no outcome, under `hold`: an operator or a hook has to
    /// decide.
    pub held: u64,
    /// Records with the lease over and no outcome, under another policy: the next attempt takes
    /// over.
    pub lost: u64,
    /// Records with an outcome.
    pub done: u64,
    /// Records that can be claimed again.
    pub released: u64,
    /// Set if `done` and `released` are estimates, because counting them would read all of a large
    /// store.
    pub estimated: bool,
}

impl Stats {
    /// Counts one more record in this phase.
    pub fn count(&mut self, phase: Phase) {
        *match phase {
            Phase::Running => &mut self.running,
            Phase::Held => &mut self.held,
            Phase::Lost => &mut self.lost,
            Phase::Done => &mut self.done,
            Phase::Released => &mut self.released,
        } += 1;
    }
}

#[async_trait]
impl<S: Inspect + ?Sized> Inspect for Arc<S> {
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        (**self).list(query).await
    }

    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError> {
        (**self).stale(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        (**self).stats().await
    }

    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError> {
        (**self).resolve(key, seen, outcome, reason).await
    }

    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        (**self).reset(key, seen, reason).await
    }

    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError> {
        (**self).forget(key, seen, reason).await
    }
}
