//! The memory of the process as a hot store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::hot::{Hot, Rank};
use crate::protocol::answer::Remembered;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;

/// The memory of this process as the hot store of a [`Tiered`](super::Tiered): it keeps as many
/// outcomes as fit, and prefers those that are used.
///
/// Clones share their content.
#[derive(Clone)]
pub struct MemoryCache {
    shared: Arc<Shared>,
}

struct Shared {
    entries: Cache<Key, Entry, ByBytes>,
    /// The recently forgotten keys. They are kept apart, so that they are not evicted too early.
    buried: Mutex<HashMap<Key, Buried>>,
}

#[derive(Clone)]
struct Entry {
    remembered: Arc<Remembered>,
    until: Instant,
}

struct Buried {
    rank: Rank,
    until: Instant,
}

impl Entry {
    fn rank(&self) -> Rank {
        Rank { fence: self.remembered.done.fence, forgotten: false }
    }
}

/// The weight of an entry: its approximate size in memory.
#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Entry> for ByBytes {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        let outcome = &entry.remembered.done.outcome;
        let headers = outcome.stored_headers().len();
        let intent = entry.remembered.intent.operation().len() + entry.remembered.intent.resource().len();
        let body = outcome.body().map_or(0, |body| body.len());
        (400 + key.value().len() + intent + headers + body) as u64
    }
}

impl MemoryCache {
    /// A cache of about this many bytes.
    pub fn new(bytes: u64) -> Self {
        // A small entry weighs about this much.
        let entries = (bytes / 800).clamp(16, 1 << 24) as usize;
        let shared =
            Shared { entries: Cache::with_weighter(entries, bytes, ByBytes), buried: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Hot for MemoryCache {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError> {
        let entry = self.shared.entries.get(key);
        let live = entry.filter(|entry| Instant::now() < entry.until);
        Ok(live.map(|entry| (*entry.remembered).clone()))
    }

    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        _within: Duration,
    ) -> Result<(), StoreError> {
        let now = Instant::now();
        let entry = Entry { remembered: Arc::new(remembered.clone()), until: now + kept };
        // The lock is held until the entry is there: a burial comes either before it, and is seen,
        // or after it, and removes it.
        let buried = self.shared.buried.lock();
        let forgotten = buried.get(key).filter(|buried| now < buried.until).map(|buried| buried.rank);
        let there = self.shared.entries.peek(key).map(|there| there.rank()).max(forgotten);
        if there <= Some(entry.rank()) {
            self.shared.entries.insert(key.clone(), entry);
        }
        drop(buried);
        Ok(())
    }

    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError> {
        let mut buried = self.shared.buried.lock();
        let now = Instant::now();
        if buried.len() == buried.capacity() {
            // The map is cleaned before it grows, and not at each burial, because many keys may be
            // forgotten at once.
            buried.retain(|_, buried| now < buried.until);
        }
        let rank = Rank { fence, forgotten: true };
        let rank = buried.get(key).map_or(rank, |earlier| earlier.rank.max(rank));
        buried.insert(key.clone(), Buried { rank, until: now + kept });
        if self.shared.entries.peek(key).is_some_and(|entry| entry.rank() <= rank) {
            self.shared.entries.remove(key);
        }
        Ok(())
    }
}
