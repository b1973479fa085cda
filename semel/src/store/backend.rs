//! The interface of a backend: three set-based primitives, reads, and a sweep.
//!
//! A backend holds no rule. It creates or reads, replaces what is unchanged, and writes as the
//! owner; the verbs of [`Store`](crate::Store) are written once over it, in
//! [`verbs`](crate::store::verbs). [`slot`](crate::protocol::slot) defines the effect of each
//! primitive on one record. The answers come in the order of the items, with the store's clock.

use async_trait::async_trait;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::store::Prune;
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::{Fence, Transactions};
use crate::words::record::Record;
use crate::words::time::Timestamp;

/// The answers to a set of items, and the store's clock when it gave them.
#[derive(Debug, Clone)]
pub struct Answers<T> {
    /// The store's clock.
    pub now: Timestamp,
    /// One answer for each item, in their order. A record that the backend cannot interpret is the
    /// error of its item alone.
    pub items: Vec<Result<T, StoreError>>,
}

/// The result of one claim in [`Backend::open`].
#[derive(Debug, Clone)]
pub enum Opened {
    /// There was no record; now there is the record of the claim, attempt 1.
    Created {
        /// The fence that the store assigned.
        fence: Fence,
        /// The end of the lease.
        lease_until: Timestamp,
    },
    /// The key has this record.
    Found(Box<Record>),
    /// The claim came after its `not_after`; nothing was done.
    Late,
    /// The claim neither created nor saw a record, because another writer was faster than the
    /// snapshot. Ask again.
    Unseen,
}

/// The result of one item in [`Backend::replace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The record was as expected and is replaced.
    Applied {
        /// The fence that the store assigned.
        fence: Fence,
        /// The end of the lease.
        lease_until: Timestamp,
    },
    /// The record differs from the expected one, or is gone.
    Changed,
    /// The record is locked by another open transaction, for which the call does not wait.
    Locked,
    /// The item came after its `not_after`; nothing was done.
    Late,
}

/// The result of one item in [`Backend::write`].
#[derive(Debug, Clone)]
pub enum Written {
    /// Token and fence matched a running record, and it was written.
    Applied,
    /// Token or fence did not match, or the record was locked; this is the record that was found.
    Unapplied(Option<Box<Record>>),
}

/// The primitives of a store.
///
/// # Contract
/// - An error of the whole call is an error of each of its items.
/// - Each item is applied atomically and on its own; items of one call may be applied in any order,
///   and one that is not applied changes nothing.
/// - A call is answered only when its writes are as durable as the store promises.
/// - [`StoreError::unavailable`] means that nothing of the call was applied; if it is not known
///   whether any of it was, the error is [`StoreError::unknown`].
/// - An `open` or a `replace` is answered only if no other copy of it can arrive later; else the
///   error is unknown.
/// - Dropping a future of this trait never leaves an item half applied.
/// - Only the store's clock is used.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The short name of the backend for logs and metrics, such as `postgres`.
    fn name(&self) -> &'static str;

    /// The store's clock, as exact as it is known without asking each time.
    async fn clock(&self) -> Result<Timestamp, StoreError>;

    /// The store's clock, if it is known without a round trip. `None` is always correct.
    fn known_clock(&self) -> Option<Timestamp>;

    /// The transactions in which a handler can record its outcome with its effect, if there are
    /// any.
    fn transactions(&self) -> Option<Transactions>;

    /// Returns `true` if expired records stay until they are pruned.
    fn needs_pruning(&self) -> bool;

    /// Creates the record of each claim if there is none, otherwise reads it.
    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError>;

    /// Replaces each record that still has the expected token and version.
    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError>;

    /// Writes to each running record whose token and fence match; a void needs the token only.
    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError>;

    /// Reads records as they are, whether expired or not.
    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError>;

    /// Reads a page of the matching records, in an order that the backend chooses and never
    /// changes.
    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// Counts records by phase, without reading all of them each time.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Removes some of the records for which [`Record::is_expired`] holds, at most as many as
    /// requested, and returns their number.
    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError>;

    /// Stores one secret beside the records: writes `value` if there is none, or if the stored one
    /// is exactly `expected`, in one atomic step, and returns the secret that is stored afterwards.
    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError>;
}
