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

/// Looks into a store, and settles what only a person can settle.
///
/// # Contract
/// - `list` and `stale` show records as they are stored, expired ones included, page by page.
/// - A change names the fence that the operator saw. If the record has another one by now, nothing changes and
///   the answer holds the record.
/// - A change never touches a live lease, and takes the token away from the lost owner.
/// - What was changed is kept in the record's note, with the reason and the time.
#[async_trait]
pub trait Inspect: Store {
    /// A page of the records that match. It may have fewer records than there is room for, or none, and another page
    /// after it: a store looks at a bounded part of its records for each page.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// A page of the held and lost records: their lease is over and there is no outcome.
    async fn stale(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// How many records there are in each phase.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Records the outcome of a held or lost key: it happened.
    async fn resolve(
        &self,
        key: &Key,
        seen: Fence,
        outcome: &Outcome,
        reason: &str,
    ) -> Result<OperatorAck, StoreError>;

    /// Lets a held or lost key be claimed again: it did not happen.
    async fn reset(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError>;

    /// Lets a key be as if it had never been used, its outcome removed.
    async fn forget(&self, key: &Key, seen: Fence, reason: &str) -> Result<OperatorAck, StoreError>;
}

/// Which records to list. The default asks for the first hundred of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// In this phase only.
    pub phase: Option<Phase>,
    /// Of this realm only.
    pub realm: Option<String>,
    /// Of this principal only.
    pub principal: Option<String>,
    /// With this value of the key, in whatever scope.
    pub value: Option<String>,
    /// With this operation only.
    pub operation: Option<String>,
    /// Only those whose retention is over, or only the others.
    pub expired: Option<bool>,
    /// Only those whose lease is over without an outcome: held or lost.
    pub stale: bool,
    /// Created at least this long ago.
    pub min_age: Option<Duration>,
    /// Without a sign of life of their owner for at least this long.
    pub unheard_for: Option<Duration>,
    /// From where the page before this one ended.
    pub after: Option<Cursor>,
    /// At most this many.
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
    /// The key, if realm, principal and value are all named: then there is nothing to search.
    ///
    /// # Errors
    /// Refused if they make no key.
    pub fn whole_key(&self) -> Result<Option<Key>, StoreError> {
        let Self { realm: Some(realm), principal: Some(principal), value: Some(value), .. } = self else {
            return Ok(None);
        };
        let key = Scope::new(realm)
            .and_then(|scope| scope.with_principal(principal))
            .and_then(|scope| scope.key(value));
        key.map(Some).map_err(|e| StoreError::refused("the query names no possible key").with_source(e))
    }

    /// Whether a record is one of those asked for, wherever the page begins.
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

/// A place in a listing. Its text is the backend's own and says nothing to anybody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(String);

impl Cursor {
    /// From its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Some of the records that match.
#[derive(Debug, Clone)]
pub struct Page {
    /// The store's clock, by which a record's phase is told.
    pub now: Timestamp,
    /// The records.
    pub records: Vec<Record>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<Cursor>,
}

/// How many records there are. A store may answer from a count that is a little old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Under a live lease.
    pub running: u64,
    /// With the lease over and no outcome, under `hold`: an operator or a hook has to decide.
    pub held: u64,
    /// With the lease over and no outcome, under another policy: the next attempt takes over.
    pub lost: u64,
    /// With an outcome.
    pub done: u64,
    /// That can be claimed again.
    pub released: u64,
    /// Whether `done` and `released` are estimates, because counting them would read all of a large store.
    pub estimated: bool,
}

impl Stats {
    /// Counts one more record, which is in this phase.
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
