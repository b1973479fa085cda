//! Records in this process's memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::time::Instant;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::protocol::slot;
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{Cursor, Page, Query, Stats};
use crate::words::error::StoreError;
use crate::words::key::{Key, Scope};
use crate::words::record::Record;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;

const SHARDS: usize = 64;

/// Records in this process's memory: the reference, and a store for tests and for work that one process does.
///
/// It forgets everything when the process ends, so it promises nothing over a crash. Clones share their records.
/// At most [`MemoryStore::DEFAULT_CAPACITY`] are kept unless set; beyond, new keys are refused as unavailable until
/// some are pruned.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    shards: Box<[Shard]>,
    hasher: RandomState,
    count: AtomicUsize,
    capacity: usize,
    clock: MemoryClock,
    secret: Mutex<Option<Vec<u8>>>,
}

/// On a cache line of its own, so that two threads on two shards do not slow each other down.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Slots>);

type Slots = HashTable<Slot>;

/// A record, with what is asked of it most: the hash of its key, and when it expires.
struct Slot {
    hash: u64,
    expires_at: Option<Timestamp>,
    record: Option<Box<Record>>,
}

impl Slot {
    fn new(hash: u64, record: Box<Record>) -> Self {
        Self { hash, expires_at: record.expires_at(), record: Some(record) }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Option<Box<Record>>) -> T) -> T {
        let result = change(&mut self.record);
        self.expires_at = self.record.as_ref().and_then(|record| record.expires_at());
        result
    }

    fn is_of(&self, key: &Key) -> bool {
        self.record.as_ref().is_some_and(|record| record.key == *key)
    }
}

impl MemoryStore {
    /// How many records are kept unless set.
    pub const DEFAULT_CAPACITY: usize = 1_000_000;

    /// An empty store.
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// An empty store that keeps at most this many records.
    pub fn with_capacity(capacity: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        let (count, hasher) = (AtomicUsize::new(0), RandomState::new());
        let (clock, secret) = (MemoryClock::new(), Mutex::default());
        Self { shared: Arc::new(Shared { shards, hasher, count, capacity, clock, secret }) }
    }

    /// How many records there are.
    pub fn size(&self) -> StoreSize {
        StoreSize { records: Some(self.shared.count.load(Ordering::Relaxed) as u64), bytes: None }
    }

    /// The clock by which this store decides; tests can move it.
    pub fn memory_clock(&self) -> &MemoryClock {
        &self.shared.clock
    }

    /// Where the record of a key is, or would be, and the hash by which it is found there.
    fn slots(&self, key: &Key) -> (MutexGuard<'_, Slots>, u64) {
        let hash = self.shared.hasher.hash_one(key);
        // Not by the bits that a table looks at, or all keys of a shard would be for the same few places of it.
        (self.shared.shards[(hash >> 32) as usize % SHARDS].slots(), hash)
    }

    /// Does something with the record of a key, if there is one.
    fn with_record<T>(&self, key: &Key, act: impl FnOnce(&mut Option<Box<Record>>) -> T) -> T {
        let (mut slots, hash) = self.slots(key);
        match slots.find_mut(hash, |slot| slot.is_of(key)) {
            Some(slot) => slot.change(act),
            None => act(&mut None),
        }
    }

    fn answer<I, T>(&self, items: &[I], mut each: impl FnMut(&I, Timestamp) -> T) -> Answers<T> {
        let now = self.shared.clock.now();
        Answers { now, items: items.iter().map(|item| Ok(each(item, now))).collect() }
    }

    /// Refuses claims of new keys when there is no room for them; the others can still be answered.
    fn make_room(&self, asks: &[Ask]) -> Result<(), StoreError> {
        let Shared { count, capacity, .. } = &*self.shared;
        let fits = count.load(Ordering::Relaxed) + asks.len() <= *capacity;
        if fits || asks.iter().all(|ask| self.with_record(&ask.key, |record| record.is_some())) {
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

impl Shard {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        // Nothing panics while the lock is held, so a poisoned map is as whole as any other.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn completes_in_transactions(&self) -> bool {
        false
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.make_room(asks)?;
        Ok(self.answer(asks, |ask, now| {
            let (mut slots, hash) = self.slots(&ask.key);
            match slots.entry(hash, |slot| slot.is_of(&ask.key), |slot| slot.hash) {
                Entry::Occupied(mut found) => found.get_mut().change(|record| slot::open(record, ask, now)),
                Entry::Vacant(place) => {
                    let mut record = None;
                    let opened = slot::open(&mut record, ask, now);
                    if let Some(record) = record {
                        place.insert(Slot::new(hash, record));
                        self.shared.count.fetch_add(1, Ordering::Relaxed);
                    }
                    opened
                }
            }
        }))
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        Ok(self.answer(items, |item, now| {
            self.with_record(&item.key, |record| slot::replace(record, item, now))
        }))
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        Ok(self
            .answer(items, |item, now| self.with_record(&item.key, |record| slot::write(record, item, now))))
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        Ok(self.answer(keys, |key, _| self.with_record(key, |record| record.as_deref().cloned())))
    }

    async fn scan(&self, query: &Query) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(position).transpose()?;
        let now = self.shared.clock.now();
        let mut records: Vec<Record> = Vec::new();
        for shard in &self.shared.shards {
            let slots = shard.slots();
            let wanted = slots.iter().flat_map(|slot| &slot.record).filter(|record| {
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
        for shard in &self.shared.shards {
            for record in shard.slots().iter().flat_map(|slot| &slot.record) {
                stats.count(record.phase(now));
            }
        }
        Ok(stats)
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let cutoff = prune.cutoff(self.shared.clock.now());
        let mut left = prune.limit as usize;
        for shard in &self.shared.shards {
            if left == 0 {
                break;
            }
            let mut slots = shard.slots();
            let before = slots.len();
            let of_realm =
                |key: &Key| prune.realm.as_deref().is_none_or(|realm| realm == key.scope().realm());
            slots.retain(|slot| {
                let is_over = slot.expires_at.is_some_and(|end| end <= cutoff);
                let goes = left > 0 && is_over && slot.record.as_deref().is_some_and(|it| of_realm(&it.key));
                left -= usize::from(goes);
                !goes
            });
            self.shared.count.fetch_sub(before - slots.len(), Ordering::Relaxed);
        }
        Ok(u64::from(prune.limit) - left as u64)
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut kept = self.shared.secret.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() || kept.as_deref() == expected {
            *kept = Some(value.to_vec());
        }
        Ok(kept.clone().unwrap_or_default())
    }
}

/// The order of a listing is that of the keys, and a cursor is the last key of its page.
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

/// The clock of a [`MemoryStore`]: it starts at the system's time, never jumps with it, and can be moved.
///
/// It follows tokio's time, so a runtime with paused time moves it along.
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

    /// Moves the clock on, as if this much time had passed.
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
