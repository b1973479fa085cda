//! A store whose commits take a while, like those of a database: until the commit the row is
//! locked, and all other connections read the previous state and write nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::admin::{ListQuery, Page, Prune, Stats};
use semel::protocol::{draft::Replace, draft::Write};
use semel::store::{Ask, Record, Transactions};
use semel::store::{
    backend::Answers, backend::Backend, backend::Opened, backend::Replaced, backend::Written,
};
use semel::{Key, MemoryStore, StoreError, Timestamp};
use tokio::time::sleep;

use crate::chaos::Dice;

/// The percentage of writes that are slow to commit.
const SLOW_PERCENT: u64 = 15;

/// The store that all processes share.
#[derive(Clone)]
pub(crate) struct Locking {
    pub(crate) memory: MemoryStore,
    dice: Dice,
    locked: Arc<Mutex<BTreeSet<Key>>>,
    /// Set once commits are quick again.
    healed: Arc<AtomicBool>,
}

impl Locking {
    pub(crate) fn new(dice: &Dice, healed: &Arc<AtomicBool>) -> Self {
        let (memory, locked) = (MemoryStore::new(), Arc::default());
        Self { memory, dice: dice.clone(), locked, healed: Arc::clone(healed) }
    }

    fn is_locked(&self, key: &Key) -> bool {
        self.locked.lock().unwrap().contains(key)
    }

    /// The duration of the next write's commit.
    fn commit_time(&self) -> Duration {
        if !self.healed.load(Ordering::Relaxed) && self.dice.percent(SLOW_PERCENT) {
            self.dice.millis(1_500)
        } else {
            Duration::ZERO
        }
    }

    /// Locks the row, commits, and only then shows the write. The commit continues even if its
    /// caller stops waiting.
    async fn commit<T, F>(
        &self,
        key: &Key,
        write: impl FnOnce(MemoryStore) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let takes = self.commit_time();
        if takes.is_zero() {
            return write(self.memory.clone()).await;
        }
        self.locked.lock().unwrap().insert(key.clone());
        let (store, key) = (self.clone(), key.clone());
        let committed = tokio::spawn(async move {
            sleep(takes).await;
            let answer = write(store.memory.clone()).await;
            store.locked.lock().unwrap().remove(&key);
            answer
        });
        committed.await.map_err(|e| StoreError::unknown("the history is over").with_source(e))?
    }

    async fn record(&self, key: &Key) -> Result<Answers<Option<Record>>, StoreError> {
        self.memory.read(std::slice::from_ref(key)).await
    }
}

/// The engine sends one item at a time.
fn only<T: Clone>(items: &[T]) -> T {
    assert_eq!(items.len(), 1, "one item at a time");
    items[0].clone()
}

#[async_trait]
impl Backend for Locking {
    fn name(&self) -> &'static str {
        "locking"
    }

    fn transactions(&self) -> Option<Transactions> {
        self.memory.transactions()
    }

    fn needs_pruning(&self) -> bool {
        false
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.memory.clock().await
    }

    fn known_clock(&self) -> Option<Timestamp> {
        self.memory.known_clock()
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.memory.open(asks).await
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        let mut item = only(items);
        let Answers { now, items: found } = self.record(&item.key).await?;
        if self.is_locked(&item.key) {
            return Ok(Answers { now, items: vec![Ok(Replaced::Locked)] });
        }
        let is_as_expected =
            |record: &Record| (record.token, record.version) == (item.expected_token, item.expected_version);
        let is_late = item.not_after.is_some_and(|not_after| now > not_after);
        if is_late || !matches!(&found[0], Ok(Some(record)) if is_as_expected(record)) {
            return self.memory.replace(items).await;
        }
        // The statement came in time, however long its commit takes.
        item.not_after = None;
        let key = item.key.clone();
        self.commit(&key, |memory| async move { memory.replace(&[item]).await }).await
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        let item = only(items);
        let Answers { now, items: found } = self.record(&item.key).await?;
        if self.is_locked(&item.key) {
            let found = found.into_iter().map(|found| Ok(Written::Unapplied(found?.map(Box::new))));
            return Ok(Answers { now, items: found.collect() });
        }
        if !matches!(&found[0], Ok(Some(record)) if record.token == item.token) {
            return self.memory.write(items).await;
        }
        let key = item.key.clone();
        self.commit(&key, |memory| async move { memory.write(&[item]).await }).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        self.memory.read(keys).await
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.memory.scan(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Backend::stats(&self.memory).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        Backend::prune(&self.memory, prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        Backend::keep_secret(&self.memory, expected, value).await
    }
}
