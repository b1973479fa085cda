//! The schedule of the renewals: the leases of all attempts of this process.
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
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::renewer::Renewer;
use crate::store::Store;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease};

/// The attempts that run in this process, with the renewals of their leases.
#[derive(Default)]
pub(in crate::engine) struct LiveAttempts(Mutex<Live>);

#[derive(Default)]
struct Live {
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

impl Live {
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
    pub(in crate::engine) fn has(&self, key: &Key, fence: Fence) -> bool {
        self.state().attempts.contains(&(fence, key.clone()))
    }

    fn state(&self) -> MutexGuard<'_, Live> {
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
        let Live { schedules, tasks, .. } = &mut *state;
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
pub(in crate::engine) struct Renewal {
    attempts: Arc<LiveAttempts>,
    attempt: (Fence, Key),
    /// The moment at which the first renewal is due, and the token of the lease.
    due: (Instant, [u8; 16]),
    runtime: Id,
}

impl Renewal {
    /// Schedules the renewals of a lease that began at `since` or later. From now on the lease
    /// reports its loss.
    pub(in crate::engine) async fn begin(
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
    pub(in crate::engine) async fn stop(self) {
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
