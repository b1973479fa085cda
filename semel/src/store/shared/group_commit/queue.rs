//! The queue of waiting operations, behind a lock.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::crew::{Crew, ENOUGH, Next, Role};
use super::job::Job;
use super::lanes::Lanes;
use super::untaken::Untaken;
use super::{Committer, Lane};
use crate::words::error::StoreError;

/// The largest number of operations in each lane, waiting or in flight.
pub(super) const LANE_ROOM: usize = 4_096;
/// The longest time for which an operation waits for room.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(2);

/// The waiting operations, and the subjects on which committers are at work.
pub(super) struct Queue<C: Committer> {
    pub(super) untaken: Arc<Untaken>,
    lanes: Mutex<Lanes<C>>,
    /// Wakes a worker that shares a load, for operations that it should take.
    filled: Notify,
    /// Wakes an additional worker that has a connection, for operations that it should take.
    overflowed: Notify,
    /// Wakes an additional worker without a connection, because it should get one.
    wanted: Notify,
    owner_room: Arc<Semaphore>,
    claim_room: Arc<Semaphore>,
}

/// The next work of a committer.
pub(super) struct Taken<C: Committer> {
    pub(super) jobs: Vec<Job<C>>,
    /// Set for a single operation about a suspect. It does not count as work that other batches
    /// should wait for.
    pub(super) is_suspect: bool,
}

impl<C: Committer> Queue<C> {
    pub(super) fn new(crew: Crew) -> Self {
        Self {
            untaken: Arc::default(),
            lanes: Mutex::new(Lanes::new(crew)),
            filled: Notify::new(),
            overflowed: Notify::new(),
            wanted: Notify::new(),
            owner_room: Arc::new(Semaphore::new(LANE_ROOM)),
            claim_room: Arc::new(Semaphore::new(LANE_ROOM)),
        }
    }

    /// Room for an operation in its lane, if there is any.
    pub(super) fn room(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        Arc::clone(self.rooms(lane)).try_acquire_owned().ok()
    }

    /// Room for an operation in its lane, once there is some; an error if that takes too long.
    pub(super) async fn wait_for_room(&self, lane: Lane) -> Result<OwnedSemaphorePermit, StoreError> {
        let room = timeout(ROOM_WAIT, Arc::clone(self.rooms(lane)).acquire_owned()).await;
        room.ok()
            .and_then(Result::ok)
            .ok_or_else(|| StoreError::unavailable(format!("the queue had no room for {ROOM_WAIT:?}")))
    }

    fn rooms(&self, lane: Lane) -> &Arc<Semaphore> {
        match lane {
            Lane::Owner => &self.owner_room,
            Lane::Claim => &self.claim_room,
        }
    }

    /// Puts an operation into its lane.
    pub(super) fn push(&self, job: Job<C>) -> Result<(), StoreError> {
        let mut lanes = self.lanes.lock();
        let is_suspect = lanes.suspects.knows(&job.subject());
        lanes.push(job)?;
        if is_suspect || lanes.is_worth_another() {
            self.wake(lanes);
        }
        Ok(())
    }

    /// Gives back the lock, and wakes a worker. The one that was busy last comes first, as its
    /// connection and its memory are the warmest, and so the others can rest for longer. A wake
    /// takes long enough for other callers to find the lock taken, and to sleep.
    fn wake(&self, lanes: MutexGuard<'_, Lanes<C>>) {
        let next = lanes.crew.next(lanes.waiting());
        drop(lanes);
        match next {
            Some(Next::Idle(role)) => self.filled(role).notify_last(),
            Some(Next::Unconnected) => self.wanted.notify_one(),
            None => {}
        }
    }

    fn filled(&self, role: Role) -> &Notify {
        match role {
            Role::Sharing => &self.filled,
            Role::Additional => &self.overflowed,
        }
    }

    /// Wakes all workers, because they may have something else to do now than to wait.
    fn wake_all(&self) {
        self.filled.notify_waiters();
        self.overflowed.notify_waiters();
        self.wanted.notify_waiters();
    }

    /// Puts back operations that were excluded from a batch because of their answers. Any committer
    /// takes them again when their subjects are free.
    pub(super) fn put_back(&self, jobs: Vec<Job<C>>) {
        if jobs.is_empty() {
            return;
        }
        let mut lanes = self.lanes.lock();
        jobs.into_iter().rev().for_each(|job| lanes.put_back(job));
    }

    /// Returns `true` if so few operations wait that a batch of just these would be wasteful.
    pub(super) fn is_short(&self) -> bool {
        self.lanes.lock().waiting() < ENOUGH / 2
    }

    pub(super) fn close(&self) {
        self.lanes.lock().closed = true;
        self.wake_all();
    }

    /// The next batch, owners first; `None` when the queue is closed and empty. A suspect goes
    /// first if its time has come.
    pub(super) async fn next(&self, role: Role) -> Option<Taken<C>> {
        loop {
            let filled = self.filled(role).notified();
            let due = {
                let mut lanes = self.lanes.lock();
                let now = Instant::now();
                lanes.withdraw(now).into_iter().for_each(Job::withdraw);
                let due = lanes.suspects.due(now);
                if due.is_some_and(|due| due <= now || lanes.closed)
                    && let Some(job) = lanes.take_suspect(now)
                {
                    lanes.crew.begin_suspect(role);
                    return Some(Taken { jobs: vec![job], is_suspect: true });
                }
                let jobs = lanes.take(role);
                if !jobs.is_empty() {
                    lanes.crew.begin(role, jobs.len());
                    if lanes.waiting() > 0 && lanes.is_worth_another() {
                        self.wake(lanes);
                    }
                    return Some(Taken { jobs, is_suspect: false });
                }
                if lanes.closed && lanes.is_empty() {
                    return None;
                }
                // An operation whose subject is busy is looked at again when that subject is
                // released.
                due.filter(|due| *due > now)
            };
            match due {
                Some(due) => drop(timeout_at(due, filled).await),
                None => filled.await,
            }
        }
    }

    /// Waits until an additional worker should get a connection; returns `false` if the queue is
    /// closed instead.
    pub(super) async fn wants_another(&self) -> bool {
        loop {
            let wanted = self.wanted.notified();
            {
                let lanes = self.lanes.lock();
                if lanes.closed {
                    return false;
                }
                let waiting = lanes.waiting();
                let next = lanes.crew.next(waiting);
                if waiting > 0 && lanes.is_worth_another() && next == Some(Next::Unconnected) {
                    return true;
                }
            }
            wanted.await;
        }
    }

    /// Waits until the queue is closed.
    pub(super) async fn closed(&self) {
        loop {
            let wanted = self.wanted.notified();
            if self.lanes.lock().closed {
                return;
            }
            wanted.await;
        }
    }

    /// Records that an additional worker has got a connection, or has none any more.
    pub(super) fn ready(&self, is_ready: bool) {
        let mut lanes = self.lanes.lock();
        lanes.crew.ready(is_ready);
        if !is_ready && lanes.waiting() > 0 && lanes.is_worth_another() {
            // It may have been woken for operations that it cannot take.
            self.wake(lanes);
        }
    }

    /// Records the time that a batch took.
    pub(super) fn took(&self, operations: usize, answer_bytes: usize, time: Duration) {
        self.lanes.lock().crew.took(operations, answer_bytes, time);
    }

    /// Makes the operations about this subject go alone from now on.
    pub(super) fn suspect(&self, subject: C::Subject) {
        self.lanes.lock().suspect(subject);
    }

    /// Clears this subject of suspicion, if it was a suspect.
    pub(super) fn clear(&self, subject: C::Subject) {
        self.lanes.lock().clear(subject);
    }

    /// Records that the operation about a suspect is finished.
    pub(super) fn suspect_over(&self) {
        let mut lanes = self.lanes.lock();
        lanes.suspects.rest(Instant::now());
        if lanes.suspects.waiting() > 0 {
            self.wake(lanes);
        }
    }

    /// Records that a committer is done, or has worked for so long that other committers should not
    /// wait for it.
    pub(super) fn step_back(&self, operations: usize) {
        let mut lanes = self.lanes.lock();
        lanes.crew.step_back(operations);
        if lanes.waiting() > 0 && lanes.crew.rests() {
            self.wake(lanes);
        }
    }

    /// Records that a worker takes so long that others should not wait for it.
    pub(super) fn hang(&self, role: Role) {
        let mut lanes = self.lanes.lock();
        lanes.crew.hang(role);
        if lanes.waiting() > 0 && lanes.is_worth_another() {
            self.wake(lanes);
        }
    }

    /// Records that a committer has lost its batch, or has recovered.
    pub(super) fn recovering(&self, begins: bool) {
        let mut lanes = self.lanes.lock();
        if begins {
            lanes.crew.recovering += 1;
        } else {
            lanes.crew.recovering -= 1;
        }
    }

    /// Records that a batch is finished: operations about its subjects can be sent again.
    pub(super) fn release(&self, role: Role, was_hanging: bool, subjects: &[C::Subject]) {
        let mut lanes = self.lanes.lock();
        lanes.crew.end(role, was_hanging);
        for subject in subjects {
            lanes.busy.remove(subject);
        }
        if lanes.closed {
            // Other committers may wait for exactly these subjects.
            self.wake_all();
        }
    }

    /// Refuses the operations about subjects of a lost batch, and all operations if no committer
    /// has a connection. Returns `true` if the queue is closed, so that further tries are useless.
    pub(super) fn refuse(&self, subjects: &[C::Subject], why: &StoreError) -> bool {
        let mut lanes = self.lanes.lock();
        let everything = lanes.crew.has_lost_all();
        let refused = lanes.drain(|job| everything || subjects.contains(&job.subject()));
        let closed = lanes.closed;
        drop(lanes);
        let error =
            StoreError::unavailable("an earlier operation is not settled yet").with_source(why.clone());
        refused.into_iter().for_each(|job| job.fail(error.clone()));
        closed
    }

    /// Withdraws the operations that have waited for too long.
    pub(super) fn withdraw(&self) {
        let late = self.lanes.lock().withdraw(Instant::now());
        late.into_iter().for_each(Job::withdraw);
    }

    /// Records that a worker ended, with these subjects in flight, and answers the callers that
    /// wait for it.
    pub(super) fn leave(&self, role: Role, subjects: &[C::Subject], was_ready: bool) {
        let stranded = self.lanes.lock().leave(role, subjects, was_ready);
        stranded.into_iter().for_each(|(job, why)| job.fail(why));
        // The remaining workers have more to do now.
        self.wake_all();
    }
}
