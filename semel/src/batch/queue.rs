//! The queue: who waits, and who goes next.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::{Committer, Lane};
use crate::error::StoreError;

/// How many questions go out together at most.
const MAX_BATCH: usize = 512;
/// How many bytes go out together, unless a single question has more.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// How many questions have to wait for another connection to take part.
const ENOUGH: usize = 16;
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

struct Lanes<C: Committer> {
    owners: VecDeque<Job<C>>,
    claims: VecDeque<Job<C>>,
    /// Those whose questions are under way.
    busy: HashSet<C::Subject>,
    /// How many committers there are, how many of them are at work, and how many have lost a batch and not found
    /// back yet.
    committers: usize,
    at_work: usize,
    recovering: usize,
    closed: bool,
}

/// A question, and where the answer goes.
pub(super) struct Job<C: Committer> {
    pub(super) question: C::Question,
    pub(super) reply: oneshot::Sender<Result<C::Answer, StoreError>>,
    /// Its place in the lane, given back when it is answered.
    #[expect(dead_code, reason = "it is held, and dropped")]
    pub(super) room: OwnedSemaphorePermit,
}

impl<C: Committer> Job<C> {
    /// Whether nobody waits for the answer any more.
    pub(super) fn is_idle(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<C::Answer, StoreError>) {
        // Whoever went away does not want to know.
        let _ = self.reply.send(answer);
    }
}

impl<C: Committer> Queue<C> {
    pub(super) fn new(committers: usize) -> Self {
        Self {
            lanes: Mutex::new(Lanes {
                owners: VecDeque::new(),
                claims: VecDeque::new(),
                busy: HashSet::new(),
                committers,
                at_work: 0,
                recovering: 0,
                closed: false,
            }),
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
    pub(super) fn push(&self, lane: Lane, job: Job<C>) -> Result<(), StoreError> {
        let mut lanes = self.lanes();
        if lanes.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let waiting = match lane {
            Lane::Owner => &mut lanes.owners,
            Lane::Claim => &mut lanes.claims,
        };
        waiting.push_back(job);
        let worth_it = lanes.is_worth_another();
        drop(lanes);
        if worth_it {
            self.filled.notify_last();
        }
        Ok(())
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

    /// What is queued, owners first; `None` when the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<Vec<Job<C>>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut lanes = self.lanes();
                let jobs = lanes.take();
                if !jobs.is_empty() {
                    lanes.at_work += 1;
                    if lanes.waiting() >= ENOUGH {
                        self.filled.notify_one();
                    }
                    lanes.busy.extend(jobs.iter().map(|job| C::subject(&job.question)));
                    return Some(jobs);
                }
                if lanes.closed && lanes.waiting() == 0 {
                    return None;
                }
            }
            filled.await;
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
        let mut refused = Vec::new();
        let Lanes { owners, claims, .. } = &mut *lanes;
        for lane in [owners, claims] {
            let (out, kept) = std::mem::take(lane)
                .into_iter()
                .partition(|job| everything || subjects.contains(&C::subject(&job.question)));
            *lane = kept;
            refused.extend::<VecDeque<_>>(out);
        }
        let closed = lanes.closed;
        drop(lanes);
        let error =
            StoreError::unavailable("an earlier question is not settled yet").with_source(why.clone());
        refused.into_iter().for_each(|job| job.answer(Err(error.clone())));
        closed
    }
}

impl<C: Committer> Lanes<C> {
    fn waiting(&self) -> usize {
        self.owners.len() + self.claims.len()
    }

    /// Whether another committer should take part.
    fn is_worth_another(&self) -> bool {
        self.at_work == 0 || self.waiting() >= ENOUGH
    }

    /// As many questions as may go together, about nobody who is busy.
    fn take(&mut self) -> Vec<Job<C>> {
        if !self.is_worth_another() && !self.closed {
            return Vec::new();
        }
        // What is enough for all who are free is shared out: while one batch is on its way, another is answered.
        let free = self.committers.saturating_sub(self.at_work + self.recovering).max(1);
        let share =
            if self.waiting() >= ENOUGH * free { self.waiting().div_ceil(free) } else { self.waiting() };
        let limit = share.min(MAX_BATCH);
        let mut jobs = Vec::with_capacity(limit);
        let mut bytes = 0;
        let (mut owners, mut claims) = (VecDeque::new(), VecDeque::new());
        for (lane, left) in [(&mut self.owners, &mut owners), (&mut self.claims, &mut claims)] {
            while jobs.len() < limit {
                let Some(job) = lane.pop_front() else { break };
                if self.busy.contains(&C::subject(&job.question)) {
                    left.push_back(job);
                    continue;
                }
                bytes += C::weight(&job.question);
                if bytes > MAX_BATCH_BYTES && !jobs.is_empty() {
                    left.push_back(job);
                    break;
                }
                jobs.push(job);
            }
            while let Some(job) = left.pop_back() {
                lane.push_front(job);
            }
        }
        jobs
    }
}
