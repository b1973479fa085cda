//! The memory store: records in the memory of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::protocol::slot;
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{Cursor, ListQuery, Page, Stats};
use crate::words::error::StoreError;
use crate::words::key::{Key, Scope};
use crate::words::lease::Transactions;
use crate::words::record::Record;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;

/// The number of parts of the map, each with its own lock, so that callers of different keys seldom
/// wait for each other.
const SHARDS: usize = 64;

/// Records in this process's memory: the reference, and a store for tests and for work that one
/// process does.
///
/// The store forgets everything when the process ends, so it promises nothing over a crash. Clones
/// share their records. At most [`MemoryStore::DEFAULT_CAPACITY`] records are kept unless set;
/// beyond, new keys are refused as unavailable until some records are pruned.
///
/// It has the methods of [`Store`](crate::Store), such as `find` and `claim`, and those of
/// [`Inspect`](crate::admin::Inspect) for operators, such as `list`, `resolve` and `stats`.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    shards: [Mutex<Records>; SHARDS],
    /// Picks the shard of a key.
    hasher: RandomState,
    /// The number of records in all shards.
    count: AtomicUsize,
    capacity: usize,
    clock: MemoryClock,
    secret: Mutex<Option<Vec<u8>>>,
}

type Records = HashMap<Key, Box<Record>>;

impl MemoryStore {
    /// The largest number of records, unless set.
    pub const DEFAULT_CAPACITY: usize = 1_000_000;

    /// An empty store.
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// An empty store that keeps at most this many records.
    pub fn with_capacity(capacity: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        let (count, hasher) = (AtomicUsize::new(0), RandomState::new());
        let (clock, secret) = (MemoryClock::new(), Mutex::default());
        Self { shared: Arc::new(Shared { shards, hasher, count, capacity, clock, secret }) }
    }

    /// The number of records.
    pub fn size(&self) -> StoreSize {
        StoreSize { records: Some(self.shared.count.load(Ordering::Relaxed) as u64), bytes: None }
    }

    /// The clock of this store, which tests can move.
    pub fn memory_clock(&self) -> &MemoryClock {
        &self.shared.clock
    }

    /// The shard for the record of a key.
    fn shard(&self, key: &Key) -> MutexGuard<'_, Records> {
        self.shared.shards[self.shared.hasher.hash_one(key) as usize % SHARDS].lock()
    }

    /// Each shard, locked one after the other.
    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Records>> {
        self.shared.shards.iter().map(Mutex::lock)
    }

    /// Runs a primitive on the slot of a key.
    fn on_slot<T>(&self, key: &Key, act: impl FnOnce(&mut Option<Box<Record>>) -> T) -> T {
        let mut records = self.shard(key);
        let mut slot = records.remove(key);
        let was_there = slot.is_some();
        let answer = act(&mut slot);
        if let Some(record) = slot {
            records.insert(key.clone(), record);
            self.shared.count.fetch_add(usize::from(!was_there), Ordering::Relaxed);
        }
        answer
    }

    fn answer<I, T>(&self, items: &[I], mut each: impl FnMut(&I, Timestamp) -> T) -> Answers<T> {
        let now = self.shared.clock.now();
        Answers { now, items: items.iter().map(|item| Ok(each(item, now))).collect() }
    }

    /// Refuses claims of new keys when the store is full; claims of known keys can still be
    /// answered.
    fn make_room(&self, asks: &[Ask]) -> Result<(), StoreError> {
        let Shared { count, capacity, .. } = &*self.shared;
        let fits = count.load(Ordering::Relaxed) + asks.len() <= *capacity;
        if fits || asks.iter().all(|ask| self.shard(&ask.key).contains_key(&ask.key)) {
            return Ok(());
        }
        Err(StoreError::unavailable(format!("memory holds {capacity} records, the limit; prune or raise it")))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Backend for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(self.shared.clock.now())
    }

    fn known_clock(&self) -> Option<Timestamp> {
        Some(self.shared.clock.now())
    }

    fn transactions(&self) -> Option<Transactions> {
        None
    }

    fn needs_pruning(&self) -> bool {
        true
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.make_room(asks)?;
        Ok(self.answer(asks, |ask, now| self.on_slot(&ask.key, |slot| slot::open(slot, ask, now))))
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        Ok(self.answer(items, |item, now| self.on_slot(&item.key, |slot| slot::replace(slot, item, now))))
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        Ok(self.answer(items, |item, now| self.on_slot(&item.key, |slot| slot::write(slot, item, now))))
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        Ok(self.answer(keys, |key, _| self.shard(key).get(key).map(|record| (**record).clone())))
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(position).transpose()?;
        let now = self.shared.clock.now();
        let mut records: Vec<Record> = Vec::new();
        for shard in self.shards() {
            let wanted = shard.values().filter(|record| {
                after.as_ref().is_none_or(|after| record.key > *after) && query.matches(record, now)
            });
            records.extend(wanted.map(|record| (**record).clone()));
        }
        records.sort_by(|a, b| a.key.cmp(&b.key));
        let more = records.len() > query.limit as usize;
        records.truncate(query.limit as usize);
        let next = records.last().filter(|_| more).map(|last| cursor(&last.key));
        Ok(Page { now, records, next })
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let now = self.shared.clock.now();
        let mut stats = Stats::default();
        for shard in self.shards() {
            shard.values().for_each(|record| stats.count(record.phase(now)));
        }
        Ok(stats)
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let cutoff = prune.cutoff(self.shared.clock.now());
        let of_realm = |key: &Key| prune.realm.as_deref().is_none_or(|realm| realm == key.scope().realm());
        let mut removed = 0;
        for mut shard in self.shards() {
            shard.retain(|key, record| {
                let goes = removed < prune.limit && of_realm(key) && record.is_expired(cutoff);
                removed += u32::from(goes);
                !goes
            });
        }
        self.shared.count.fetch_sub(removed as usize, Ordering::Relaxed);
        Ok(removed.into())
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut kept = self.shared.secret.lock();
        if kept.is_none() || kept.as_deref() == expected {
            *kept = Some(value.to_vec());
        }
        Ok(kept.clone().unwrap_or_default())
    }
}

/// A listing is ordered by key, and a cursor is the last key of its page.
fn cursor(key: &Key) -> Cursor {
    let scope = key.scope();
    Cursor::new(format!("{}\n{}\n{}", scope.realm(), scope.principal(), key.value()))
}

fn position(cursor: &Cursor) -> Result<Key, StoreError> {
    let mut parts = cursor.as_str().split('\n');
    let mut part = || parts.next().unwrap_or_default();
    let scope = Scope::new(part()).and_then(|scope| scope.with_principal(part()));
    scope
        .and_then(|scope| scope.key(part()))
        .map_err(|e| StoreError::refused("the cursor is not from this store").with_source(e))
}

/// The clock of a [`MemoryStore`]: it starts at the system's time, ignores later changes of that,
/// and can be moved.
///
/// It follows tokio's time, so a runtime with paused time moves it.
pub struct MemoryClock {
    base_micros: u64,
    started: Instant,
    moved_micros: AtomicI64,
}

impl MemoryClock {
    fn new() -> Self {
        Self {
            base_micros: Timestamp::of_host().as_micros(),
            started: Instant::now(),
            moved_micros: AtomicI64::new(0),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        let running = self.base_micros + self.started.elapsed().as_micros() as u64;
        Timestamp::from_micros(running.saturating_add_signed(self.moved_micros.load(Ordering::Relaxed)))
    }

    /// Moves the clock forward, as if this much time had passed.
    pub fn advance(&self, by: Duration) {
        self.moved_micros.fetch_add(by.as_micros() as i64, Ordering::Relaxed);
    }

    /// Sets the clock back, as a broken time server would.
    pub fn set_back(&self, by: Duration) {
        self.moved_micros.fetch_sub(by.as_micros() as i64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_key() {
        let key = Scope::new("realm").unwrap().with_principal("").unwrap().key("a b").unwrap();
        assert_eq!(position(&cursor(&key)).unwrap(), key);
        assert!(position(&Cursor::new("nonsense")).is_err());
    }
}
