//! The waits of requests for a running attempt of their key.
//!
//! An attempt of this process wakes its waiters when it ends. For attempts of other processes, one
//! task polls the store: a single query reads the records of all keys that have waiters.
//!
//! When a lease is over, only a claim shows whether the key is free: the transaction of its owner,
//! or a takeover, may have locked the row. So the poller wakes one waiter, the *scout*, to claim
//! the key, and the other waiters stay asleep. A scout that is granted the key runs its own work; a
//! scout that is refused because there is nothing to wait for wakes the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use crate::engine::patience::call;
use crate::runtime::backoff::Backoff;
use crate::store::{Found, Store};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::record::Phase;
use crate::words::time::Timestamp;

/// The pause between two polls of the store.
const POLL_EVERY: Duration = Duration::from_millis(25);
/// The pauses between the scouts for a key that stays locked.
const SCOUTING: Backoff = Backoff::new(POLL_EVERY, Duration::from_millis(400));
/// The largest number of keys in one query.
const POLL_KEYS: usize = 500;
/// The largest number of waiters for one key.
const MAX_PER_KEY: usize = 1_000;
/// The largest number of waiters for all keys.
const MAX_TOTAL: usize = 10_000;

/// The waiters of this process, by key.
#[derive(Default)]
pub(in crate::engine) struct Waiters(Mutex<State>);

#[derive(Default)]
struct State {
    keys: BTreeMap<Key, WaitedKey>,
    total: usize,
    is_polling: bool,
}

/// A key that has waiters.
#[derive(Default)]
struct WaitedKey {
    waiters: usize,
    /// Wakes the waiters.
    ended: Arc<Notify>,
    /// The moment from which the next scout may be sent, and the number of earlier ones. Set while
    /// the lease is over.
    next_scout: Option<(Instant, u32)>,
}

impl Waiters {
    /// Wakes all waiters of a key, because its attempt has ended or may have ended.
    pub(in crate::engine) fn wake(&self, key: &Key) {
        // The lock is released first: a waiter that wakes may leave at once, which takes the lock.
        let ended = self.state().keys.get(key).map(|waited| Arc::clone(&waited.ended));
        if let Some(ended) = ended {
            ended.notify_waiters();
        }
    }

    /// A new waiter for this key; `None` if there are too many waiters.
    pub(in crate::engine) fn enter(self: &Arc<Self>, key: &Key) -> Option<Waiter> {
        let mut state = self.state();
        if state.total >= MAX_TOTAL {
            return None;
        }
        let waited = state.keys.entry(key.clone()).or_default();
        if waited.waiters >= MAX_PER_KEY {
            return None;
        }
        waited.waiters += 1;
        let ended = Arc::clone(&waited.ended);
        state.total += 1;
        Some(Waiter { waiters: Arc::clone(self), key: key.clone(), ended })
    }

    /// Wakes one waiter of a key whose lease is over, so that it claims the key. The pauses between
    /// two scouts of a key grow.
    fn send_scout(&self, key: &Key) {
        let mut state = self.state();
        let Some(waited) = state.keys.get_mut(key) else { return };
        let (now, last) = (Instant::now(), waited.next_scout);
        if last.is_some_and(|(next, _)| now < next) {
            return;
        }
        let earlier = last.map_or(0, |(_, earlier)| earlier);
        waited.next_scout = Some((now + SCOUTING.pause(earlier), earlier.saturating_add(1)));
        let ended = Arc::clone(&waited.ended);
        drop(state);
        ended.notify_one();
    }

    /// Resets the pause between scouts, because the attempt of this key runs under a live lease.
    fn reset_scout(&self, key: &Key) {
        if let Some(waited) = self.state().keys.get_mut(key) {
            waited.next_scout = None;
        }
    }

    fn leave(&self, key: &Key) {
        let mut state = self.state();
        state.total -= 1;
        if let Some(waited) = state.keys.get_mut(key) {
            waited.waiters -= 1;
            if waited.waiters == 0 {
                state.keys.remove(key);
            }
        }
    }

    /// Starts the poller unless it runs already. It ends when there are no more waiters.
    fn poll(self: &Arc<Self>, store: &Arc<dyn Store>, tasks: &TaskTracker) {
        if std::mem::replace(&mut self.state().is_polling, true) {
            return;
        }
        let store = Arc::clone(store);
        let poller = Poller { waiters: Arc::clone(self), ended: false };
        tasks.spawn(async move {
            let mut poller = poller;
            while let Some(keys) = poller.waiters.keys_to_poll() {
                for chunk in keys.chunks(POLL_KEYS) {
                    poller.waiters.wake_ended(chunk, &store).await;
                }
                sleep(POLL_EVERY).await;
            }
            poller.ended = true;
        });
    }

    /// The keys that have waiters; `None` if there are none, which ends the poller.
    fn keys_to_poll(&self) -> Option<Vec<Key>> {
        let mut state = self.state();
        state.is_polling = !state.keys.is_empty();
        state.is_polling.then(|| state.keys.keys().cloned().collect())
    }

    /// Wakes all waiters of a key whose attempt has ended, and one waiter if only its lease is
    /// over. A record that cannot be read wakes all waiters: their own claims report the error.
    async fn wake_ended(&self, keys: &[Key], store: &Arc<dyn Store>) {
        match read(keys, store).await {
            Ok((now, found)) => {
                for (key, found) in keys.iter().zip(found) {
                    match found.ok().flatten().map(|record| record.phase(now)) {
                        Some(Phase::Running) => self.reset_scout(key),
                        Some(Phase::Held | Phase::Lost) => self.send_scout(key),
                        Some(Phase::Done | Phase::Released) | None => self.wake(key),
                    }
                }
            }
            // Each waiter has a deadline of its own, after which it asks the store itself.
            Err(error) => {
                tracing::debug!(%error, keys = keys.len(), "could not poll the keys that have waiters")
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// The time by the store's clock, and the records. The clock is read first, so a lease that is over
/// by that time was over when the record was read.
async fn read(keys: &[Key], store: &Arc<dyn Store>) -> Result<(Timestamp, Vec<Found>), StoreError> {
    let now = call(store.now()).await?;
    Ok((now, call(store.find_many(keys)).await?))
}

/// The task that polls the store. If it dies, by a panic or with its runtime, the next waiter
/// starts another.
struct Poller {
    waiters: Arc<Waiters>,
    ended: bool,
}

impl Drop for Poller {
    fn drop(&mut self) {
        // A poller that ended by itself has reset the flag, and another may run by now.
        if !self.ended {
            self.waiters.state().is_polling = false;
        }
    }
}

/// A place among the waiters of a key, given up when it is dropped. A request keeps its place while
/// it claims the key between two waits.
pub(in crate::engine) struct Waiter {
    waiters: Arc<Waiters>,
    key: Key,
    ended: Arc<Notify>,
}

impl Waiter {
    /// Waits until the attempt of the key may have ended, or until the deadline. The caller should
    /// then claim the key.
    pub(in crate::engine) async fn wait(&self, until: Instant, store: &Arc<dyn Store>, tasks: &TaskTracker) {
        let ended = self.ended.notified();
        self.waiters.poll(store, tasks);
        let _ended = timeout_at(until, ended).await;
    }

    /// Wakes the other waiters of the key, because its attempt has ended.
    pub(in crate::engine) fn wake_others(&self) {
        self.waiters.wake(&self.key);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.leave(&self.key);
    }
}
