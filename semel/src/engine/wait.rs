//! Waiting for a running attempt.
//!
//! In this process the attempt itself wakes its waiters. For attempts of other processes one task
//! asks the store about all waited-for keys in one question at a time, however many wait.
//!
//! A lease that is over says little: the row may be locked by the transaction of its owner, or by a
//! takeover. So one waiter claims the key as a scout, and the others wait on. A scout that is
//! granted the key runs; one that is refused wakes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::patience::call;
use crate::store::{Found, Store};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::record::Phase;
use crate::words::time::Timestamp;

/// How often the store is asked about attempts of other processes.
const POLL_EVERY: Duration = Duration::from_millis(25);
/// The longest pause between two scouts of a key that stays locked.
const LONGEST_SCOUT_PAUSE: Duration = Duration::from_millis(400);
/// How many keys are asked about in one question.
const POLL_KEYS: usize = 500;
/// How many may wait for one key.
const MAX_PER_KEY: usize = 1_000;
/// How many may wait in all.
const MAX_IN_ALL: usize = 10_000;

/// Who waits for what, in this process.
#[derive(Default)]
pub(super) struct Waiters {
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    keys: BTreeMap<Key, Waited>,
    in_all: usize,
    polling: bool,
}

#[derive(Default)]
struct Waited {
    waiters: usize,
    ended: Arc<Notify>,
    /// When the next scout may be sent, and how long after the last that is; set while the lease is
    /// over.
    next_scout: Option<(Instant, Duration)>,
}

impl Waiters {
    /// The attempt of this key has ended, or may have.
    pub(super) fn wake(&self, key: &Key) {
        // Not under the lock: who is woken may leave right away.
        let ended = self.book().keys.get(key).map(|waited| Arc::clone(&waited.ended));
        if let Some(ended) = ended {
            ended.notify_waiters();
        }
    }

    /// One more that waits for this key; `None` if too many do already.
    pub(super) fn enter(self: &Arc<Self>, key: &Key) -> Option<Waiter> {
        let mut book = self.book();
        if book.in_all >= MAX_IN_ALL {
            return None;
        }
        let waited = book.keys.entry(key.clone()).or_default();
        if waited.waiters >= MAX_PER_KEY {
            return None;
        }
        waited.waiters += 1;
        let ended = Arc::clone(&waited.ended);
        book.in_all += 1;
        Some(Waiter { waiters: Arc::clone(self), key: key.clone(), ended })
    }

    /// The lease of this key is over: one that waits for it looks what that means, unless one did
    /// so a moment ago.
    fn send_scout(&self, key: &Key) {
        let mut book = self.book();
        let Some(waited) = book.keys.get_mut(key) else { return };
        let (now, last) = (Instant::now(), waited.next_scout);
        if last.is_some_and(|(next, _)| now < next) {
            return;
        }
        let pause = last.map_or(POLL_EVERY, |(_, pause)| (pause * 2).min(LONGEST_SCOUT_PAUSE));
        waited.next_scout = Some((now + pause, pause));
        let ended = Arc::clone(&waited.ended);
        drop(book);
        ended.notify_one();
    }

    /// The attempt of this key runs, under a lease.
    fn needs_no_scout(&self, key: &Key) {
        if let Some(waited) = self.book().keys.get_mut(key) {
            waited.next_scout = None;
        }
    }

    fn leave(&self, key: &Key) {
        let mut book = self.book();
        book.in_all -= 1;
        if let Some(waited) = book.keys.get_mut(key) {
            waited.waiters -= 1;
            if waited.waiters == 0 {
                book.keys.remove(key);
            }
        }
    }

    /// Starts the one task that polls, if it does not run already. It ends when nobody waits.
    fn poll(self: &Arc<Self>, store: &Arc<dyn Store>, tasks: &TaskTracker) {
        if std::mem::replace(&mut self.book().polling, true) {
            return;
        }
        let store = Arc::clone(store);
        let poller = Poller { waiters: Arc::clone(self), ended: false };
        tasks.spawn(async move {
            let mut poller = poller;
            while let Some(keys) = poller.waiters.waited_for() {
                for some in keys.chunks(POLL_KEYS) {
                    poller.waiters.wake_ended(some, &store).await;
                }
                sleep(POLL_EVERY).await;
            }
            poller.ended = true;
        });
    }

    /// The keys to ask about; `None` ends the polling.
    fn waited_for(&self) -> Option<Vec<Key>> {
        let mut book = self.book();
        book.polling = !book.keys.is_empty();
        book.polling.then(|| book.keys.keys().cloned().collect())
    }

    /// Wakes all waiters of a key whose attempt has ended, and one if only its lease is over. A
    /// record that cannot be read wakes all: they hear the error when they ask.
    async fn wake_ended(&self, keys: &[Key], store: &Arc<dyn Store>) {
        match look(keys, store).await {
            Ok((now, found)) => {
                for (key, found) in keys.iter().zip(found) {
                    match found.ok().flatten().map(|record| record.phase(now)) {
                        Some(Phase::Running) => self.needs_no_scout(key),
                        Some(Phase::Held | Phase::Lost) => self.send_scout(key),
                        Some(Phase::Done | Phase::Released) | None => self.wake(key),
                    }
                }
            }
            // Who waits has a deadline of its own and asks the store itself then.
            Err(error) => tracing::debug!(%error, keys = keys.len(), "could not look after waited-for keys"),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while the lock is held.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time by the store's clock, and the records, in that order: a lease that is over by that time
/// is over.
async fn look(keys: &[Key], store: &Arc<dyn Store>) -> Result<(Timestamp, Vec<Found>), StoreError> {
    let now = call(store.now()).await?;
    Ok((now, call(store.find_many(keys)).await?))
}

/// The task that polls. If it dies, by a panic or with its runtime, the next waiter starts another.
struct Poller {
    waiters: Arc<Waiters>,
    ended: bool,
}

impl Drop for Poller {
    fn drop(&mut self) {
        // One that has ended by itself has said so, and another may run by now.
        if !self.ended {
            self.waiters.book().polling = false;
        }
    }
}

/// One that waits; leaving is dropping. It is kept while its owner asks the store what has become
/// of the key.
pub(super) struct Waiter {
    waiters: Arc<Waiters>,
    key: Key,
    ended: Arc<Notify>,
}

impl Waiter {
    /// Waits until the attempt of the key may have ended, or until then: the store is to be asked
    /// again.
    pub(super) async fn wait(&self, until: Instant, store: &Arc<dyn Store>, tasks: &TaskTracker) {
        let ended = self.ended.notified();
        self.waiters.poll(store, tasks);
        let _ended = timeout_at(until, ended).await;
    }

    /// The attempt has ended: the others are to ask, too.
    pub(super) fn wake_others(&self) {
        self.waiters.wake(&self.key);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.leave(&self.key);
    }
}
