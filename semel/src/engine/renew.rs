//! Keeping leases alive while their work runs.
//!
//! Most work is done before its first renewal is due. So an attempt is only entered into a book,
//! and one task looks after all of a runtime: when a renewal is due, it starts a task that renews
//! that lease from then on. A handler that blocks its thread does not stop either.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::patience::{CALL_LIMIT, call};
use crate::fault;
use crate::observe;
use crate::protocol::answer::Ack;
use crate::store::Store;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::{Alarm, Fence, Lease};

/// The attempts that are alive in this process.
#[derive(Default)]
pub(super) struct Alive {
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    attempts: BTreeSet<(Fence, Key)>,
    /// Leases that were not renewed yet. Those of a runtime are looked after there: it may be the
    /// only one that goes on.
    waiting: HashMap<Id, Waiting>,
    /// Leases that are being renewed, by their tokens: few live for so long.
    renewed: BTreeMap<[u8; 16], (DropGuard, JoinHandle<()>)>,
}

impl Book {
    /// Takes a lease off the book: it is not renewed again, except by the task that does so
    /// already.
    fn end(&mut self, renewal: &Renewal) -> Option<(DropGuard, JoinHandle<()>)> {
        if let Some(waiting) = self.waiting.get_mut(&renewal.runtime) {
            waiting.by_due.remove(&renewal.due);
            if waiting.by_due.is_empty() && waiting.next_look.is_none() {
                self.waiting.remove(&renewal.runtime);
            }
        }
        self.renewed.remove(&renewal.due.1)
    }
}

/// The leases of a runtime that were not renewed yet.
#[derive(Default)]
struct Waiting {
    by_due: BTreeMap<Due, Box<Keeper>>,
    /// When the task that looks after them does so next, if there is one.
    next_look: Option<Instant>,
    /// A renewal is due earlier than that.
    earlier: Arc<Notify>,
}

/// When a lease is to be renewed for the first time, and whose it is.
type Due = (Instant, [u8; 16]);

impl Alive {
    /// Whether this attempt is: then it is not lost, whatever its lease says.
    pub(super) fn has(&self, key: &Key, fence: Fence) -> bool {
        self.book().attempts.contains(&(fence, key.clone()))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while the lock is held.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an attempt, and says whether somebody had to be woken to look after it in time.
    fn enter(self: &Arc<Self>, renewal: &Renewal, keeper: Box<Keeper>) -> bool {
        let mut book = self.book();
        book.attempts.insert(renewal.attempt.clone());
        let waiting = book.waiting.entry(renewal.runtime).or_default();
        waiting.by_due.insert(renewal.due, keeper);
        let earlier = Arc::clone(&waiting.earlier);
        match waiting.next_look {
            Some(next) if next <= renewal.due.0 => return false,
            Some(_) => {
                drop(book);
                earlier.notify_one();
            }
            None => {
                waiting.next_look = Some(renewal.due.0);
                // A runtime that ends drops the task right here, and that needs the book.
                drop(book);
                let looker = Looker { alive: Arc::downgrade(self), runtime: renewal.runtime, ended: false };
                tokio::spawn(looker.look(earlier));
            }
        }
        true
    }

    /// Begins to renew what is due in this runtime, and says when the next is; `None` if there is
    /// none.
    fn renew_due(&self, runtime: Id) -> Option<Instant> {
        let mut book = self.book();
        let Book { waiting: all, renewed, .. } = &mut *book;
        let waiting = all.get_mut(&runtime)?;
        let now = Instant::now();
        while let Some(first) = waiting.by_due.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, token), keeper) = first.remove_entry();
            let stop = CancellationToken::new();
            let task = tokio::spawn(keeper.keep(stop.clone()));
            renewed.insert(token, (stop.drop_guard(), task));
        }
        waiting.next_look = waiting.by_due.first_key_value().map(|(due, _)| due.0);
        let next = waiting.next_look;
        if next.is_none() {
            all.remove(&runtime);
        }
        next
    }
}

/// The task that looks after the leases of a runtime.
struct Looker {
    alive: Weak<Alive>,
    runtime: Id,
    ended: bool,
}

impl Looker {
    /// Looks whenever a renewal is due, until none is any more.
    async fn look(mut self, earlier: Arc<Notify>) {
        while let Some(next) = self.alive.upgrade().and_then(|alive| alive.renew_due(self.runtime)) {
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                () = earlier.notified() => {}
            }
        }
        self.ended = true;
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        // One that has ended by itself has said so, and another may look by now. One that dies does
        // so with its runtime, and so do the attempts.
        if !self.ended
            && let Some(alive) = self.alive.upgrade()
            && let Some(waiting) = alive.book().waiting.get_mut(&self.runtime)
        {
            waiting.next_look = None;
        }
    }
}

/// A lease that is renewed, from when it is due, for as long as this is kept.
pub(super) struct Renewal {
    alive: Arc<Alive>,
    attempt: (Fence, Key),
    due: Due,
    runtime: Id,
}

impl Renewal {
    /// Renewal of a lease that was last asked for at `heard`, which is at the latest when it began.
    /// From now on the lease tells of its loss.
    pub(super) async fn begin(
        store: &Arc<dyn Store>,
        lease: &mut Lease,
        length: Duration,
        heard: Instant,
        alive: &Arc<Alive>,
    ) -> Self {
        let alarm = lease.set_alarm();
        // It leaves the book when it is dropped, in the middle of this, too.
        let renewal = Self {
            alive: Arc::clone(alive),
            attempt: (lease.fence(), lease.key().clone()),
            due: (heard + length / 3, *lease.token().as_bytes()),
            runtime: Handle::current().id(),
        };
        let keeper = Keeper { store: Arc::clone(store), lease: lease.clone(), length, heard, alarm };
        if alive.enter(&renewal, Box::new(keeper)) {
            // Whoever looks after it may be next in line on this very thread, and the work may
            // block that: let it set its timer first.
            yield_now().await;
        }
        renewal
    }

    /// Renews no more. When this returns, no renewal is on its way: one that came after an abandon
    /// would revive the lease of a key that nobody runs.
    pub(super) async fn stop(self) {
        let renewed = self.alive.book().end(&self);
        if let Some((stop, task)) = renewed {
            drop(stop);
            // It ends by itself; a panic in the store is the store's, and says nothing about the
            // work.
            let _ended = task.await;
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let mut book = self.alive.book();
        book.attempts.remove(&self.attempt);
        let renewed = book.end(self);
        drop(book);
        // Dropping the guard stops the task.
        drop(renewed);
    }
}

struct Keeper {
    store: Arc<dyn Store>,
    lease: Lease,
    length: Duration,
    /// When the lease was last asked for.
    heard: Instant,
    alarm: Arc<Alarm>,
}

impl Keeper {
    async fn keep(self: Box<Self>, stop: CancellationToken) {
        // When the last renewal that got through was sent.
        let heard = watch::Sender::new(self.heard);
        tokio::select! {
            biased;
            () = self.renew(&heard, &stop) => {}
            () = self.watch(heard.subscribe()) => {}
        }
    }

    /// Renews three times a lease. A renewal that fails is sent again soon, so that one lost
    /// message costs nothing.
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
        fault::reach("before_renew");
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

    /// Raises the alarm when no renewal got through for a whole lease. Goes on: the lease may still
    /// be ours.
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
        if self.alarm.raise() {
            observe::lease_lost(self.store.name());
            tracing::warn!(key = ?self.lease.key(), fence = %self.lease.fence(), "lost a lease: {why}");
        }
    }
}
