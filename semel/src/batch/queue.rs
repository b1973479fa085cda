//! The queue: who waits, and who goes next.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::suspects::Suspects;
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
    /// Those whose questions go alone.
    suspects: Suspects<C>,
    /// Those whose questions are under way.
    busy: HashSet<C::Subject>,
    /// How many committers there are, how many of them are at work, and how many have lost a batch and not found
    /// back yet.
    committers: usize,
    at_work: usize,
    recovering: usize,
    closed: bool,
}

/// What a committer is to do next.
pub(super) struct Taken<C: Committer> {
    pub(super) jobs: Vec<Job<C>>,
    /// Whether it is a question about a suspect, alone. It does not count as work that others should wait for.
    pub(super) is_suspect: bool,
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
                suspects: Suspects::none(),
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
        let worth_it = lanes.push(lane, job);
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

    /// What is queued, owners first; `None` when the queue is closed and empty. A suspect goes before them, if its
    /// time has come.
    pub(super) async fn next(&self) -> Option<Taken<C>> {
        loop {
            let filled = self.filled.notified();
            let due = {
                let mut lanes = self.lanes();
                let now = Instant::now();
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
                    lanes.busy.extend(jobs.iter().map(|job| C::subject(&job.question)));
                    return Some(Taken { jobs, is_suspect: false });
                }
                if lanes.closed && lanes.waiting() + lanes.suspects.waiting() == 0 {
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
        let mut refused = Vec::new();
        let Lanes { owners, claims, .. } = &mut *lanes;
        for lane in [owners, claims] {
            let (out, kept) = std::mem::take(lane)
                .into_iter()
                .partition(|job| everything || subjects.contains(&C::subject(&job.question)));
            *lane = kept;
            refused.extend::<VecDeque<_>>(out);
        }
        let suspects =
            lanes.suspects.drain(|job| everything || subjects.contains(&C::subject(&job.question)));
        refused.extend(suspects.into_iter().map(|(_, job)| job));
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

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Job<C>> {
        match lane {
            Lane::Owner => &mut self.owners,
            Lane::Claim => &mut self.claims,
        }
    }

    /// Puts a question where it has to wait, and says whether a committer should look at once.
    fn push(&mut self, lane: Lane, job: Job<C>) -> bool {
        if self.suspects.knows(&C::subject(&job.question)) {
            self.suspects.push(lane, job);
            return true;
        }
        self.lane(lane).push_back(job);
        self.is_worth_another()
    }

    /// Questions about this subject go alone from now on, also those that wait already.
    fn suspect(&mut self, subject: C::Subject) {
        if self.suspects.knows(&subject) {
            return;
        }
        if let Some(oldest) = self.suspects.add(subject) {
            self.clear(oldest);
        }
        for lane in [Lane::Owner, Lane::Claim] {
            let waiting = std::mem::take(self.lane(lane));
            for job in waiting {
                match C::subject(&job.question) == subject {
                    true => self.suspects.push(lane, job),
                    false => self.lane(lane).push_back(job),
                }
            }
        }
    }

    /// Questions about this subject go with the others again, in their order.
    fn clear(&mut self, subject: C::Subject) {
        for (lane, job) in self.suspects.remove(subject).into_iter().rev() {
            self.lane(lane).push_front(job);
        }
    }

    fn take_suspect(&mut self, now: Instant) -> Option<Job<C>> {
        let job = self.suspects.take(&self.busy, now)?;
        self.busy.insert(C::subject(&job.question));
        Some(job)
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
        let away = self.at_work + self.recovering + usize::from(self.suspects.is_at_work());
        let free = self.committers.saturating_sub(away).max(1);
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
