//! The lanes of the queue: which question goes next.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use tokio::time::Instant;

use super::job::Job;
use super::suspects::Suspects;
use super::{Committer, Lane, MAX_ANSWER_BYTES};
use crate::words::error::StoreError;

/// How many questions go out together at most.
const MAX_BATCH: usize = 512;
/// How many bytes go out together, unless a single question has more.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// How many questions have to wait for another connection to take part.
pub(super) const ENOUGH: usize = 16;

pub(super) struct Lanes<C: Committer> {
    owners: VecDeque<Job<C>>,
    claims: VecDeque<Job<C>>,
    /// Those whose questions go alone.
    pub(super) suspects: Suspects<C>,
    /// Those whose questions are under way.
    pub(super) busy: HashSet<C::Subject>,
    /// Those whose questions were under way when their worker ended without a word: nobody knows what became of them.
    orphans: HashSet<C::Subject>,
    /// How many committers there are, how many of them are at work, and how many have lost a batch and not found
    /// back yet.
    pub(super) committers: usize,
    pub(super) at_work: usize,
    pub(super) recovering: usize,
    pub(super) closed: bool,
}

impl<C: Committer> Lanes<C> {
    pub(super) fn new(committers: usize) -> Self {
        Self {
            owners: VecDeque::new(),
            claims: VecDeque::new(),
            suspects: Suspects::none(),
            busy: HashSet::new(),
            orphans: HashSet::new(),
            committers,
            at_work: 0,
            recovering: 0,
            closed: false,
        }
    }

    /// How many questions wait, but for those about suspects.
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

    /// Puts a question where it has to wait, and says whether a committer should look at once.
    pub(super) fn push(&mut self, job: Job<C>) -> Result<bool, StoreError> {
        let subject = job.subject();
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        self.can_be_served(&subject)?;
        if self.suspects.knows(&subject) {
            self.suspects.push(job);
            return Ok(true);
        }
        self.lane(job.lane).push_back(job);
        Ok(self.is_worth_another())
    }

    /// Puts a question back to the front, where the oldest ones are.
    pub(super) fn put_back(&mut self, job: Job<C>) {
        match self.suspects.knows(&job.subject()) {
            true => self.suspects.push(job),
            false => self.lane(job.lane).push_front(job),
        }
    }

    /// Whether there is somebody who can ask about this subject.
    fn can_be_served(&self, subject: &C::Subject) -> Result<(), StoreError> {
        if self.committers == 0 {
            return Err(StoreError::refused(
                "the store has no worker any more: the runtime in which it was made has ended, or it panicked",
            ));
        }
        if self.orphans.contains(subject) {
            return Err(StoreError::refused(
                "a worker of the store panicked while it asked about this key: what became of that is not known",
            ));
        }
        Ok(())
    }

    /// Whether another committer should take part.
    fn is_worth_another(&self) -> bool {
        self.at_work == 0 || self.waiting() >= ENOUGH
    }

    /// As many questions as may go together, about nobody who is busy.
    pub(super) fn take(&mut self) -> Vec<Job<C>> {
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
        let mut answers = Answers::none();
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

    /// The next question about a suspect.
    pub(super) fn take_suspect(&mut self, now: Instant) -> Option<Job<C>> {
        let job = self.suspects.take(&self.busy, now)?;
        self.busy.insert(job.subject());
        Some(job)
    }

    /// Questions about this subject go alone from now on, also those that wait already.
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

    /// Questions about this subject go with the others again, in their order.
    pub(super) fn clear(&mut self, subject: C::Subject) {
        for job in self.suspects.remove(subject).into_iter().rev() {
            self.lane(job.lane).push_front(job);
        }
    }

    /// Takes out what has waited for too long.
    pub(super) fn withdraw(&mut self, now: Instant) -> Vec<Job<C>> {
        // The oldest stands in front.
        let fronts = [self.owners.front(), self.claims.front()];
        let is_late = |job: &Job<C>| job.deadline() <= now;
        match fronts.into_iter().flatten().any(is_late) || self.suspects.any(is_late) {
            true => self.drain(is_late),
            false => Vec::new(),
        }
    }

    /// Takes out that for which this holds.
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

    /// A worker is gone, in the middle of work on these. Returns what waits in vain for it, with the reason.
    pub(super) fn leave(&mut self, subjects: &[C::Subject]) -> Vec<(Job<C>, StoreError)> {
        self.committers -= 1;
        for subject in subjects {
            self.busy.remove(subject);
            self.orphans.insert(*subject);
        }
        let stranded = match self.committers {
            0 => self.drain(|_| true),
            _ => self.drain(|job| subjects.contains(&job.subject())),
        };
        let why = |job: Job<C>| self.can_be_served(&job.subject()).err().map(|why| (job, why));
        stranded.into_iter().filter_map(why).collect()
    }
}

/// The large answers that a batch is to bring, each of which has been weighed before.
struct Answers<S> {
    bytes: usize,
    /// Whom they are about: several questions about one subject get the same answer.
    brought: HashSet<S>,
    /// Those whose questions go later, so that what is asked about one subject stays in its order.
    left: HashSet<S>,
}

impl<S: Hash + Eq + Copy> Answers<S> {
    fn none() -> Self {
        Self { bytes: 0, brought: HashSet::new(), left: HashSet::new() }
    }

    /// Whether the batch has room for the answer to this question. There is always room for one.
    fn have_room<C: Committer<Subject = S>>(&mut self, job: &Job<C>) -> bool {
        if job.answer_bytes == 0 {
            return self.left.is_empty() || !self.left.contains(&job.subject());
        }
        let subject = job.subject();
        if self.brought.contains(&subject) {
            return true;
        }
        let fits = self.brought.is_empty() || self.bytes + job.answer_bytes <= MAX_ANSWER_BYTES;
        if fits && !self.left.contains(&subject) {
            self.bytes += job.answer_bytes;
            return self.brought.insert(subject);
        }
        self.left.insert(subject);
        false
    }
}
