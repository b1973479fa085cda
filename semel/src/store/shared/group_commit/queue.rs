//! The queue: who waits, and who goes next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::job::Job;
use super::lanes::{ENOUGH, Lanes};
use super::{Committer, Lane};
use crate::words::error::StoreError;

/// How many questions may wait or be under way in each lane.
pub(super) const LANE_ROOM: usize = 4_096;
/// For how long a question may wait for room.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(2);

/// Who waits, and for whom the committers are at work.
pub(super) struct Queue<C: Committer> {
    lanes: Mutex<Lanes<C>>,
    filled: Notify,
    owner_room: Arc<Semaphore>,
    claim_room: Arc<Semaphore>,
}

/// What a committer is to do next.
pub(super) struct Taken<C: Committer> {
    pub(super) jobs: Vec<Job<C>>,
    /// Whether it is a question about a suspect, alone. It does not count as work that others should wait for.
    pub(super) is_suspect: bool,
}

impl<C: Committer> Queue<C> {
    pub(super) fn new(committers: usize) -> Self {
        Self {
            lanes: Mutex::new(Lanes::new(committers)),
            filled: Notify::new(),
            owner_room: Arc::new(Semaphore::new(LANE_ROOM)),
            claim_room: Arc::new(Semaphore::new(LANE_ROOM)),
        }
    }

    /// Room for a question in its lane, if there is any.
    pub(super) fn room(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        Arc::clone(self.rooms(lane)).try_acquire_owned().ok()
    }

    /// The same, if there is any before long.
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

    /// Puts a question into its lane.
    pub(super) fn push(&self, job: Job<C>) -> Result<(), StoreError> {
        let worth_it = self.lanes().push(job)?;
        if worth_it {
            self.filled.notify_last();
        }
        Ok(())
    }

    /// Puts questions back that had no part in a batch, for the sake of their answers. The committer that had them, or
    /// another, takes them again when their subjects are free.
    pub(super) fn put_back(&self, jobs: Vec<Job<C>>) {
        if jobs.is_empty() {
            return;
        }
        let mut lanes = self.lanes();
        jobs.into_iter().rev().for_each(|job| lanes.put_back(job));
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes<C>> {
        // Nothing panics while the lock is held.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so few wait that it would be a pity to go with just these.
    pub(super) fn is_short(&self) -> bool {
        self.lanes().waiting() < ENOUGH / 2
    }

    pub(super) fn close(&self) {
        self.lanes().closed = true;
        self.filled.notify_waiters();
    }

    /// What is queued, owners first; `None` when the queue is closed and empty. A suspect goes before them, if its
    /// time has come.
    pub(super) async fn next(&self) -> Option<Taken<C>> {
        loop {
            let filled = self.filled.notified();
            let due = {
                let mut lanes = self.lanes();
                let now = Instant::now();
                lanes.withdraw(now).into_iter().for_each(Job::withdraw);
                let due = lanes.suspects.due(now);
                if due.is_some_and(|due| due <= now || lanes.closed)
                    && let Some(job) = lanes.take_suspect(now)
                {
                    return Some(Taken { jobs: vec![job], is_suspect: true });
                }
                let jobs = lanes.take();
                if !jobs.is_empty() {
                    lanes.at_work += 1;
                    if lanes.waiting() >= ENOUGH {
                        self.filled.notify_one();
                    }
                    return Some(Taken { jobs, is_suspect: false });
                }
                if lanes.closed && lanes.is_empty() {
                    return None;
                }
                // One whose subject is busy is looked at again when that is over.
                due.filter(|due| *due > now)
            };
            match due {
                Some(due) => drop(timeout_at(due, filled).await),
                None => filled.await,
            }
        }
    }

    /// Questions about this subject go alone from now on.
    pub(super) fn suspect(&self, subject: C::Subject) {
        self.lanes().suspect(subject);
    }

    /// This subject is a suspect no more, if it was one.
    pub(super) fn clear(&self, subject: C::Subject) {
        self.lanes().clear(subject);
    }

    /// The question about a suspect that was taken is over.
    pub(super) fn suspect_over(&self) {
        let mut lanes = self.lanes();
        lanes.suspects.rest(Instant::now());
        if lanes.suspects.waiting() > 0 {
            self.filled.notify_last();
        }
    }

    /// A committer is done, or has been at it for so long that it should not keep others from work.
    pub(super) fn step_back(&self) {
        let mut lanes = self.lanes();
        lanes.at_work -= 1;
        if lanes.waiting() > 0 && lanes.at_work == 0 {
            self.filled.notify_last();
        }
    }

    /// A committer has lost its batch, or has found back.
    pub(super) fn recovering(&self, begins: bool) {
        let mut lanes = self.lanes();
        if begins {
            lanes.recovering += 1;
        } else {
            lanes.recovering -= 1;
        }
    }

    /// A batch is over: those it was about can be asked again.
    pub(super) fn release(&self, subjects: &[C::Subject]) {
        let mut lanes = self.lanes();
        for subject in subjects {
            lanes.busy.remove(subject);
        }
        if lanes.closed {
            // Others may wait for just these.
            self.filled.notify_waiters();
        }
    }

    /// Refuses what waits for subjects of a lost batch; and everything if no committer has a connection. Says
    /// whether the queue is closed, so that there is no use in going on.
    pub(super) fn refuse(&self, subjects: &[C::Subject], why: &StoreError) -> bool {
        let mut lanes = self.lanes();
        let everything = lanes.recovering == lanes.committers;
        let refused = lanes.drain(|job| everything || subjects.contains(&job.subject()));
        let closed = lanes.closed;
        drop(lanes);
        let error =
            StoreError::unavailable("an earlier question is not settled yet").with_source(why.clone());
        refused.into_iter().for_each(|job| job.fail(error.clone()));
        closed
    }

    /// Withdraws what has waited for too long.
    pub(super) fn withdraw(&self) {
        let late = self.lanes().withdraw(Instant::now());
        late.into_iter().for_each(Job::withdraw);
    }

    /// A worker is gone, in the middle of work on these if there are any. Who waits for it is told.
    pub(super) fn leave(&self, subjects: &[C::Subject]) {
        let stranded = self.lanes().leave(subjects);
        stranded.into_iter().for_each(|(job, why)| job.fail(why));
        // The others have more to do now.
        self.filled.notify_waiters();
    }
}
