//! The renewals of the leases of all attempts in this process.
//!
//! ```text
//! begin ──> scheduled ──(a third of the lease has passed)──> renewed by a task of its own
//!               └───────────(the attempt ends)───────────────────────┴──> forgotten
//! ```
//! Most attempts end before their first renewal is due, so starting one only adds an entry to the
//! schedule of its runtime. One task per runtime watches that schedule, and starts a task for each
//! lease whose first renewal is due. A lease is renewed on a task of its own, so a handler that
//! blocks its thread does not stop the renewals.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
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

/// The attempts that run in this process, with the renewals of their leases.
#[derive(Default)]
pub(super) struct LiveAttempts(Mutex<State>);

#[derive(Default)]
struct State {
    attempts: BTreeSet<(Fence, Key)>,
    /// The schedule of each runtime: when one runtime stops, the leases of the others are still
    /// renewed.
    schedules: HashMap<Id, Schedule>,
    /// The tasks that renew a lease, by its token. They are few, because few attempts last until
    /// their first renewal.
    tasks: BTreeMap<[u8; 16], (DropGuard, JoinHandle<()>)>,
}

/// The first renewals of the leases of one runtime.
#[derive(Default)]
struct Schedule {
    /// The renewals by the moment at which they are due, and the token of the lease.
    first_renewals: BTreeMap<(Instant, [u8; 16]), Box<Renewer>>,
    /// The moment until which the watcher sleeps.
    next_check: Option<Instant>,
    /// Wakes the watcher for a renewal that is due before `next_check`.
    earlier: Arc<Notify>,
    watcher: Option<JoinHandle<()>>,
}

impl Schedule {
    /// Returns `true` if the watcher runs. It ends together with the schedule, or with its runtime.
    fn is_watched(&self) -> bool {
        self.watcher.as_ref().is_some_and(|watcher| !watcher.is_finished())
    }
}

impl State {
    /// Removes a lease. Its renewals end when the returned guard is dropped, if they have begun.
    fn remove(&mut self, renewal: &Renewal) -> Option<(DropGuard, JoinHandle<()>)> {
        let (_, token) = renewal.due;
        if let Some(schedule) = self.schedules.get_mut(&renewal.runtime) {
            schedule.first_renewals.remove(&renewal.due);
            if schedule.first_renewals.is_empty() && !schedule.is_watched() {
                self.schedules.remove(&renewal.runtime);
            }
        }
        self.tasks.remove(&token)
    }
}

impl LiveAttempts {
    /// Returns `true` if this attempt runs in this process: it is not lost, even if its lease is
    /// over.
    pub(super) fn has(&self, key: &Key, fence: Fence) -> bool {
        self.state().attempts.contains(&(fence, key.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Adds an attempt, and schedules its first renewal. Returns `true` if the watcher was started
    /// or woken for it.
    fn add(self: &Arc<Self>, renewal: &Renewal, renewer: Box<Renewer>) -> bool {
        let mut state = self.state();
        state.attempts.insert(renewal.attempt.clone());
        if !state.schedules.contains_key(&renewal.runtime) {
            // A runtime that has ended may have left an empty schedule.
            state
                .schedules
                .retain(|_, schedule| !schedule.first_renewals.is_empty() || schedule.is_watched());
        }
        let (due, _) = renewal.due;
        let schedule = state.schedules.entry(renewal.runtime).or_default();
        schedule.first_renewals.insert(renewal.due, renewer);
        if !schedule.is_watched() {
            schedule.next_check = Some(due);
            let watch = watch_schedule(Arc::downgrade(self), renewal.runtime, Arc::clone(&schedule.earlier));
            schedule.watcher = Some(tokio::spawn(watch));
        } else if schedule.next_check.is_some_and(|next| due < next) {
            schedule.earlier.notify_one();
        } else {
            return false;
        }
        true
    }

    /// Starts the renewals of a runtime that are due. Returns the moment at which the next one is
    /// due, or removes the schedule if it is empty.
    fn start_due(&self, runtime: Id) -> Option<Instant> {
        let mut state = self.state();
        let State { schedules, tasks, .. } = &mut *state;
        let schedule = schedules.get_mut(&runtime)?;
        let now = Instant::now();
        while let Some(first) = schedule.first_renewals.first_entry().filter(|first| first.key().0 <= now) {
            let ((_, token), renewer) = first.remove_entry();
            let stop = CancellationToken::new();
            let task = tokio::spawn(renewer.run(stop.clone()));
            tasks.insert(token, (stop.drop_guard(), task));
        }
        schedule.next_check = schedule.first_renewals.first_key_value().map(|((due, _), _)| *due);
        let next = schedule.next_check;
        if next.is_none() {
            schedules.remove(&runtime);
        }
        next
    }
}

/// The watcher of a schedule: starts renewals when they are due, until the schedule is empty.
async fn watch_schedule(attempts: Weak<LiveAttempts>, runtime: Id, earlier: Arc<Notify>) {
    while let Some(next) = attempts.upgrade().and_then(|attempts| attempts.start_due(runtime)) {
        tokio::select! {
            biased;
            () = sleep_until(next) => {}
            () = earlier.notified() => {}
        }
    }
}

/// A guard for the renewals of one lease: they end when it is dropped.
pub(super) struct Renewal {
    attempts: Arc<LiveAttempts>,
    attempt: (Fence, Key),
    /// The moment at which the first renewal is due, and the token of the lease.
    due: (Instant, [u8; 16]),
    runtime: Id,
}

impl Renewal {
    /// Schedules the renewals of a lease that began at `since` or later. From now on the lease
    /// reports its loss.
    pub(super) async fn begin(
        store: &Arc<dyn Store>,
        lease: &mut Lease,
        length: Duration,
        since: Instant,
        attempts: &Arc<LiveAttempts>,
    ) -> Self {
        let alarm = lease.set_alarm();
        // The guard exists before the first await, so a future that is dropped there removes the
        // attempt again.
        let renewal = Self {
            attempts: Arc::clone(attempts),
            attempt: (lease.fence(), lease.key().clone()),
            due: (since + length / 3, *lease.token().as_bytes()),
            runtime: Handle::current().id(),
        };
        let renewer = Renewer { store: Arc::clone(store), lease: lease.clone(), length, since, alarm };
        if attempts.add(&renewal, Box::new(renewer)) {
            // The watcher may be the next task of this very thread, which the work may block: the
            // watcher sets its timer first.
            yield_now().await;
        }
        renewal
    }

    /// Ends the renewals. When this returns, no renewal is in flight: a renewal that arrived after
    /// an abandon would revive the lease of a key without an attempt.
    pub(super) async fn stop(self) {
        let begun = self.attempts.state().remove(&self);
        if let Some((stop, task)) = begun {
            drop(stop);
            // A panic in here is a panic of the store, which says nothing about the work.
            let _ended = task.await;
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let mut state = self.attempts.state();
        state.attempts.remove(&self.attempt);
        let begun = state.remove(self);
        // The lock is released before the guard is dropped, which wakes the task.
        drop(state);
        drop(begun);
    }
}

/// The task that renews one lease.
struct Renewer {
    store: Arc<dyn Store>,
    lease: Lease,
    length: Duration,
    /// The lease began at this moment or later.
    since: Instant,
    alarm: Arc<Alarm>,
}

impl Renewer {
    async fn run(self: Box<Self>, stop: CancellationToken) {
        // The moment at which the last successful renewal was sent: the lease began then or later.
        let since = watch::Sender::new(self.since);
        tokio::select! {
            biased;
            () = self.renew(&since, &stop) => {}
            () = self.watch(since.subscribe()) => {}
        }
    }

    /// Renews the lease three times in its length. A failed renewal is retried early, so one lost
    /// message does not cost the lease.
    async fn renew(&self, since: &watch::Sender<Instant>, stop: &CancellationToken) {
        let mut next = self.since + self.length / 3;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(next) => {}
            }
            let sent = Instant::now();
            next = match timeout((self.length / 6).min(CALL_LIMIT), self.renew_once()).await {
                Ok(Ok(true)) => {
                    since.send_replace(sent);
                    sent + self.length / 3
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

    /// Sends one renewal. Returns `true` if the lease is still this attempt's, and `false` if there
    /// is nothing left to renew.
    async fn renew_once(&self) -> Result<bool, StoreError> {
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

    /// Returns `true` if this attempt has recorded the outcome, in a transaction of its work.
    async fn recorded_by_the_work(&self) -> Result<bool, StoreError> {
        let found = call(self.store.find(self.lease.key())).await?;
        Ok(found.is_some_and(|record| record.token == self.lease.token()))
    }

    /// Raises the alarm when no renewal has succeeded for the length of the lease. The renewals
    /// continue: unless another attempt takes over, a later one still succeeds.
    async fn watch(&self, mut since: watch::Receiver<Instant>) {
        loop {
            let over = *since.borrow_and_update() + self.length;
            let renewed = tokio::select! {
                biased;
                renewed = since.changed() => renewed,
                () = sleep_until(over) => {
                    self.raise("no renewal got through for a whole lease");
                    since.changed().await
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
