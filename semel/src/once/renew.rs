//! Keeping a lease alive while the work runs.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::patience::{CALL_LIMIT, call};
use crate::answer::Ack;
use crate::error::StoreError;
use crate::key::Key;
use crate::lease::{Fence, Lease};
use crate::meter;
use crate::store::Store;

/// The attempts that are alive in this process, by key and fence.
#[derive(Default)]
pub(super) struct Alive(Mutex<HashSet<(Key, Fence)>>);

impl Alive {
    /// Whether this attempt is: then it is not lost, whatever its lease says.
    pub(super) fn has(&self, key: &Key, fence: Fence) -> bool {
        self.attempts().contains(&(key.clone(), fence))
    }

    fn attempts(&self) -> MutexGuard<'_, HashSet<(Key, Fence)>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease that is renewed, from when it is due, for as long as this is kept.
///
/// Most work is done before the first renewal is due; the task that renews is started only then.
pub(super) struct Renewal {
    due: Instant,
    keeper: Option<Box<Keeper>>,
    started: Option<(DropGuard, JoinHandle<()>)>,
    _alive: Entry,
}

/// The entry of an attempt among those alive; leaving is dropping.
struct Entry {
    alive: Arc<Alive>,
    attempt: (Key, Fence),
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.alive.attempts().remove(&self.attempt);
    }
}

impl Renewal {
    /// Renewal of a lease that was last asked for at `heard`, which is at the latest when it began. The lease that
    /// comes back tells of its loss.
    pub(super) fn of(
        store: &Arc<dyn Store>,
        lease: Lease,
        length: Duration,
        heard: Instant,
        alive: &Arc<Alive>,
    ) -> (Lease, Self) {
        let (lease, alarm) = lease.with_alarm();
        let attempt = (lease.key().clone(), lease.fence());
        alive.attempts().insert(attempt.clone());
        let keeper = Keeper { store: Arc::clone(store), lease: lease.clone(), length, heard, alarm };
        let keeper = Some(Box::new(keeper));
        let entry = Entry { alive: Arc::clone(alive), attempt };
        let due = heard + length / 3;
        (lease, Self { due, keeper, started: None, _alive: entry })
    }

    /// Waits for this, and starts to renew if that takes so long.
    pub(super) async fn beside<F: Future>(&mut self, mut awaited: Pin<&mut F>) -> F::Output {
        tokio::select! {
            biased;
            done = &mut awaited => return done,
            () = sleep_until(self.due), if self.keeper.is_some() => self.start(),
        }
        awaited.await
    }

    /// Renews on a task of its own from now on.
    pub(super) fn start(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            let stop = CancellationToken::new();
            let task = tokio::spawn(keeper.keep(stop.clone()));
            self.started = Some((stop.drop_guard(), task));
        }
    }

    /// Renews no more. When this returns, no renewal is on its way: one that came after an abandon would revive
    /// the lease of a key that nobody runs.
    pub(super) async fn stop(self) {
        if let Some((stop, task)) = self.started {
            drop(stop);
            // It ends by itself; a panic in the store is the store's, and says nothing about the work.
            let _ended = task.await;
        }
    }
}

struct Keeper {
    store: Arc<dyn Store>,
    lease: Lease,
    length: Duration,
    /// When the lease was last asked for.
    heard: Instant,
    alarm: watch::Sender<bool>,
}

impl Keeper {
    async fn keep(self, stop: CancellationToken) {
        // When the last renewal that got through was sent.
        let heard = watch::Sender::new(self.heard);
        tokio::select! {
            biased;
            () = self.renew(&heard, &stop) => {}
            () = self.watch(heard.subscribe()) => {}
        }
    }

    /// Renews three times a lease. A renewal that fails is sent again soon, so that one lost message costs nothing.
    async fn renew(&self, heard: &watch::Sender<Instant>, stop: &CancellationToken) {
        let mut next = self.heard + self.length / 3;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(next) => {}
            }
            let asked = Instant::now();
            next = match timeout((self.length / 6).min(CALL_LIMIT), self.ask()).await {
                Ok(Ok(true)) => {
                    heard.send_replace(asked);
                    asked + self.length / 3
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::debug!(%error, key = ?self.lease.key(), "could not renew the lease");
                    Instant::now() + self.length / 30
                }
                Err(_) => {
                    tracing::debug!(key = ?self.lease.key(), "a renewal was not answered");
                    Instant::now() + self.length / 30
                }
            };
        }
    }

    /// One renewal: whether to go on.
    async fn ask(&self) -> Result<bool, StoreError> {
        match self.store.renew(&self.lease, self.length).await? {
            Ack::Applied | Ack::Repeated => Ok(true),
            Ack::Finished if self.recorded_by_the_work().await? => Ok(false),
            Ack::Finished | Ack::Superseded | Ack::Missing => {
                self.raise("another attempt has the key");
                Ok(false)
            }
        }
    }

    /// Whether the outcome is this attempt's own, recorded in a transaction of the work.
    async fn recorded_by_the_work(&self) -> Result<bool, StoreError> {
        let found = call(self.store.find(self.lease.key())).await?;
        Ok(found.is_some_and(|record| record.token == self.lease.token()))
    }

    /// Raises the alarm when no renewal got through for a whole lease. Goes on: the lease may still be ours.
    async fn watch(&self, mut heard: watch::Receiver<Instant>) {
        loop {
            let over = *heard.borrow_and_update() + self.length;
            let renewed = tokio::select! {
                biased;
                renewed = heard.changed() => renewed,
                () = sleep_until(over) => {
                    self.raise("no renewal got through for a whole lease");
                    heard.changed().await
                }
            };
            if renewed.is_err() {
                return;
            }
        }
    }

    fn raise(&self, why: &str) {
        if !self.alarm.send_replace(true) {
            meter::lease_lost(self.store.name());
            tracing::warn!(key = ?self.lease.key(), fence = %self.lease.fence(), "lost a lease: {why}");
        }
    }
}
