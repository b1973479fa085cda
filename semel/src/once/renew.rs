//! Keeping leases alive while their work runs.
//!
//! Most work is done before its first renewal is due. So an attempt is only entered into a book, and one task looks
//! after all of them: when a renewal is due, it starts a task that renews that lease from then on. A handler that
//! blocks its thread does not stop either.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::patience::{CALL_LIMIT, call};
use crate::answer::Ack;
use crate::error::StoreError;
use crate::key::Key;
use crate::lease::{Alarm, Fence, Lease, Token};
use crate::meter;
use crate::store::Store;

/// The attempts that are alive in this process.
#[derive(Default)]
pub(super) struct Alive {
    book: Mutex<Book>,
    /// A renewal is due earlier than the next look at the book.
    earlier: Arc<Notify>,
}

#[derive(Default)]
struct Book {
    attempts: BTreeSet<(Fence, Key)>,
    /// Leases that were not renewed yet, by when that is due.
    due: BTreeMap<Due, Box<Keeper>>,
    /// Leases that are being renewed.
    renewed: HashMap<Token, (DropGuard, JoinHandle<()>)>,
    /// When the task that looks after the book does so next, if there is one.
    next_look: Option<Instant>,
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

    /// Enters an attempt, and makes sure that somebody looks after it in time.
    async fn enter(self: &Arc<Self>, attempt: (Fence, Key), due: Due, keeper: Box<Keeper>) {
        if self.write(attempt, due, keeper) {
            // Whoever looks after it may be next in line on this very thread, and the work may block that: let it
            // set its timer first.
            yield_now().await;
        }
    }

    /// Writes an attempt into the book, and says whether somebody had to be woken for it.
    fn write(self: &Arc<Self>, attempt: (Fence, Key), due: Due, keeper: Box<Keeper>) -> bool {
        let mut book = self.book();
        book.attempts.insert(attempt);
        book.due.insert(due, keeper);
        match book.next_look {
            None => {
                book.next_look = Some(due.0);
                let looker = Looker { alive: Arc::downgrade(self), ended: false };
                tokio::spawn(looker.look(Arc::clone(&self.earlier)));
            }
            Some(next) if due.0 < next => self.earlier.notify_one(),
            Some(_) => return false,
        }
        true
    }

    /// Begins to renew what is due, and says when the next is; `None` if there is none.
    fn renew_due(&self) -> Option<Instant> {
        let mut book = self.book();
        let now = Instant::now();
        while let Some(first) = book.due.first_entry().filter(|first| first.key().0 <= now) {
            let keeper = first.remove();
            let (token, stop) = (keeper.lease.token(), CancellationToken::new());
            let task = tokio::spawn(keeper.keep(stop.clone()));
            book.renewed.insert(token, (stop.drop_guard(), task));
        }
        book.next_look = book.due.first_key_value().map(|(due, _)| due.0);
        book.next_look
    }
}

/// The task that looks after the book. If it dies, with its runtime say, the next attempt starts another.
struct Looker {
    alive: Weak<Alive>,
    ended: bool,
}

impl Looker {
    /// Looks whenever a renewal is due, until none is any more.
    async fn look(mut self, earlier: Arc<Notify>) {
        while let Some(next) = self.alive.upgrade().and_then(|alive| alive.renew_due()) {
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
        // One that has ended by itself has said so, and another may look by now.
        if !self.ended
            && let Some(alive) = self.alive.upgrade()
        {
            alive.book().next_look = None;
        }
    }
}

/// A lease that is renewed, from when it is due, for as long as this is kept.
pub(super) struct Renewal {
    alive: Arc<Alive>,
    attempt: (Fence, Key),
    due: Due,
    token: Token,
}

impl Renewal {
    /// Renewal of a lease that was last asked for at `heard`, which is at the latest when it began. The lease that
    /// comes back tells of its loss.
    pub(super) async fn begin(
        store: &Arc<dyn Store>,
        lease: Lease,
        length: Duration,
        heard: Instant,
        alive: &Arc<Alive>,
    ) -> (Lease, Self) {
        let (lease, alarm) = lease.with_alarm();
        let (attempt, token) = ((lease.fence(), lease.key().clone()), lease.token());
        let due = (heard + length / 3, *token.as_bytes());
        let keeper = Keeper { store: Arc::clone(store), lease: lease.clone(), length, heard, alarm };
        alive.enter(attempt.clone(), due, Box::new(keeper)).await;
        (lease, Self { alive: Arc::clone(alive), attempt, due, token })
    }

    /// Renews no more. When this returns, no renewal is on its way: one that came after an abandon would revive
    /// the lease of a key that nobody runs.
    pub(super) async fn stop(self) {
        if let Some((stop, task)) = self.end() {
            drop(stop);
            // It ends by itself; a panic in the store is the store's, and says nothing about the work.
            let _ended = task.await;
        }
    }

    /// Takes the lease off the book: it is not renewed again, except by the task that does so already.
    fn end(&self) -> Option<(DropGuard, JoinHandle<()>)> {
        let mut book = self.alive.book();
        match book.due.remove(&self.due) {
            Some(_) => None,
            None => book.renewed.remove(&self.token),
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        // Dropping the guard stops the task.
        self.end();
        self.alive.book().attempts.remove(&self.attempt);
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
        if self.alarm.raise() {
            meter::lease_lost(self.store.name());
            tracing::warn!(key = ?self.lease.key(), fence = %self.lease.fence(), "lost a lease: {why}");
        }
    }
}
