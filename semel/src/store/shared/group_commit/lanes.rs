//! The lanes of the queue, and the choice of the next batch.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use tokio::time::Instant;

use super::crew::{Crew, Role};
use super::job::Job;
use super::suspects::Suspects;
use super::{Committer, Lane, answer_room};
use crate::words::error::StoreError;

/// The largest number of operations in a batch.
const MAX_BATCH: usize = 512;
/// The largest number of bytes in a batch, unless a single operation has more.
const MAX_BATCH_BYTES: usize = 8 << 20;

pub(super) struct Lanes<C: Committer> {
    owners: VecDeque<Job<C>>,
    claims: VecDeque<Job<C>>,
    /// The subjects whose operations are sent alone.
    pub(super) suspects: Suspects<C>,
    /// The subjects of the operations in flight.
    pub(super) busy: HashSet<C::Subject>,
    /// The subjects of operations that were in flight when their worker ended without an answer:
    /// their results are unknown.
    orphans: HashSet<C::Subject>,
    pub(super) crew: Crew,
    pub(super) closed: bool,
}

impl<C: Committer> Lanes<C> {
    pub(super) fn new(crew: Crew) -> Self {
        Self {
            owners: VecDeque::new(),
            claims: VecDeque::new(),
            suspects: Suspects::none(),
            busy: HashSet::new(),
            orphans: HashSet::new(),
            crew,
            closed: false,
        }
    }

    /// The number of waiting operations, without those about suspects.
    pub(super) fn waiting(&self) -> usize {
        self.owners.len() + self.claims.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() + self.suspects.waiting() == 0
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Job<C>> {
        match lane {
            Lane::Owner => &mut self.owners,
            Lane::Claim => &mut self.claims,
        }
    }

    /// Puts an operation into its lane or behind its suspect.
    pub(super) fn push(&mut self, job: Job<C>) -> Result<(), StoreError> {
        let subject = job.subject();
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        self.can_be_served(&subject)?;
        if self.suspects.knows(&subject) {
            self.suspects.push(job);
        } else {
            self.lane(job.lane).push_back(job);
            let waiting = self.waiting();
            self.crew.came(waiting);
        }
        Ok(())
    }

    /// Puts an operation back to the front, where the oldest ones are.
    pub(super) fn put_back(&mut self, job: Job<C>) {
        match self.suspects.knows(&job.subject()) {
            true => self.suspects.push(job),
            false => self.lane(job.lane).push_front(job),
        }
    }

    /// Returns an error if no committer can serve this subject.
    fn can_be_served(&self, subject: &C::Subject) -> Result<(), StoreError> {
        if !self.crew.is_alive() {
            return Err(StoreError::refused(
                "the store has no worker any more: the runtime in which it was made has ended, or it panicked",
            ));
        }
        if self.orphans.contains(subject) {
            return Err(StoreError::refused(
                "a worker of the store panicked during an operation on this key, and its result is not known",
            ));
        }
        Ok(())
    }

    /// Returns `true` if another worker should take part.
    pub(super) fn is_worth_another(&self) -> bool {
        self.crew.is_worth_another(self.waiting())
    }

    /// As many operations as fit into one batch, none of them about a busy subject.
    pub(super) fn take(&mut self, role: Role) -> Vec<Job<C>> {
        let takes = self.is_worth_another() && self.crew.may_take(role, self.waiting());
        if !takes && !self.closed {
            return Vec::new();
        }
        let limit = self.crew.share(self.waiting(), self.suspects.is_at_work()).min(MAX_BATCH);
        let mut jobs = Vec::with_capacity(limit);
        let mut bytes = 0;
        let mut answers = Answers::none(answer_room(self.crew.size));
        let (mut owners, mut claims) = (VecDeque::new(), VecDeque::new());
        for (lane, left) in [(&mut self.owners, &mut owners), (&mut self.claims, &mut claims)] {
            while jobs.len() < limit {
                let Some(job) = lane.pop_front() else { break };
                if self.busy.contains(&job.subject()) || !answers.have_room(&job) {
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
        self.busy.extend(jobs.iter().map(Job::subject));
        jobs
    }

    /// The next operation about a suspect.
    pub(super) fn take_suspect(&mut self, now: Instant) -> Option<Job<C>> {
        let job = self.suspects.take(&self.busy, now)?;
        self.busy.insert(job.subject());
        Some(job)
    }

    /// Makes the operations about this subject go alone from now on, including those that already
    /// wait.
    pub(super) fn suspect(&mut self, subject: C::Subject) {
        if self.suspects.knows(&subject) {
            return;
        }
        if let Some(oldest) = self.suspects.add(subject) {
            self.clear(oldest);
        }
        for lane in [Lane::Owner, Lane::Claim] {
            for job in std::mem::take(self.lane(lane)) {
                match job.subject() == subject {
                    true => self.suspects.push(job),
                    false => self.lane(lane).push_back(job),
                }
            }
        }
    }

    /// Lets operations about this subject join batches again, in their order.
    pub(super) fn clear(&mut self, subject: C::Subject) {
        for job in self.suspects.remove(subject).into_iter().rev() {
            self.lane(job.lane).push_front(job);
        }
    }

    /// Removes the operations that have waited for too long.
    pub(super) fn withdraw(&mut self, now: Instant) -> Vec<Job<C>> {
        // The oldest operation is at the front.
        let fronts = [self.owners.front(), self.claims.front()];
        let is_late = |job: &Job<C>| job.deadline() <= now;
        match fronts.into_iter().flatten().any(is_late) || self.suspects.any(is_late) {
            true => self.drain(is_late),
            false => Vec::new(),
        }
    }

    /// Removes the operations for which this holds.
    pub(super) fn drain(&mut self, mut is_out: impl FnMut(&Job<C>) -> bool) -> Vec<Job<C>> {
        let mut drained = Vec::new();
        for lane in [&mut self.owners, &mut self.claims] {
            for job in std::mem::take(lane) {
                if is_out(&job) { drained.push(job) } else { lane.push_back(job) }
            }
        }
        drained.extend(self.suspects.drain(is_out));
        drained
    }

    /// Records that a worker ended while it worked on these subjects. Returns the operations that
    /// can no longer be answered, with the reason.
    pub(super) fn leave(
        &mut self,
        role: Role,
        subjects: &[C::Subject],
        was_ready: bool,
    ) -> Vec<(Job<C>, StoreError)> {
        self.crew.leave(role, was_ready);
        for subject in subjects {
            self.busy.remove(subject);
            self.orphans.insert(*subject);
        }
        let stranded = match self.crew.is_alive() {
            false => self.drain(|_| true),
            true => self.drain(|job| subjects.contains(&job.subject())),
        };
        let why = |job: Job<C>| self.can_be_served(&job.subject()).err().map(|why| (job, why));
        stranded.into_iter().filter_map(why).collect()
    }
}

/// The large answers that a batch will bring, each of known size.
struct Answers<S> {
    bytes: usize,
    limit: usize,
    /// The subjects of these answers: several operations about one subject get the same answer.
    brought: HashSet<S>,
    /// The subjects whose operations go later, so that the operations about one subject stay in
    /// order.
    left: HashSet<S>,
}

impl<S: Hash + Eq + Copy> Answers<S> {
    fn none(limit: usize) -> Self {
        Self { bytes: 0, limit, brought: HashSet::new(), left: HashSet::new() }
    }

    /// Returns `true` if the batch has room for the answer to this operation. There is always room
    /// for one.
    fn have_room<C: Committer<Subject = S>>(&mut self, job: &Job<C>) -> bool {
        if job.answer_bytes == 0 {
            return self.left.is_empty() || !self.left.contains(&job.subject());
        }
        let subject = job.subject();
        if self.brought.contains(&subject) {
            return true;
        }
        let fits = self.brought.is_empty() || self.bytes + job.answer_bytes <= self.limit;
        if fits && !self.left.contains(&subject) {
            self.bytes += job.answer_bytes;
            return self.brought.insert(subject);
        }
        self.left.insert(subject);
        false
    }
}
