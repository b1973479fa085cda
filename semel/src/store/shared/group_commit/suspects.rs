//! Suspects: subjects whose last operation failed by itself, and would fail a batch with it.
//!
//! Operations about suspects wait in a queue of their own, and are sent one at a time, each alone.
//! Together they get a quarter of one committer's time, so that callers of other keys hardly
//! notice. A suspect whose operation is answered is no longer a suspect.

use std::collections::{HashSet, VecDeque};

use tokio::time::Instant;

use super::Committer;
use super::job::Job;

/// The largest number of known suspects; beyond it, the oldest is forgotten.
pub(super) const MAX_SUSPECTS: usize = 1_024;
/// The pause before the next operation about a suspect, as a multiple of the time that the last one
/// took.
const REST: u32 = 3;

pub(super) struct Suspects<C: Committer> {
    known: HashSet<C::Subject>,
    /// The suspects, the oldest first.
    order: VecDeque<C::Subject>,
    waiting: VecDeque<Job<C>>,
    /// The moment at which the operation in flight was taken.
    began: Option<Instant>,
    /// The moment from which the next operation may be taken.
    rested: Option<Instant>,
}

impl<C: Committer> Suspects<C> {
    pub(super) fn none() -> Self {
        let (known, order) = (HashSet::new(), VecDeque::new());
        Self { known, order, waiting: VecDeque::new(), began: None, rested: None }
    }

    pub(super) fn knows(&self, subject: &C::Subject) -> bool {
        self.known.contains(subject)
    }

    /// Adds a suspect, and returns the one that is forgotten to make room.
    pub(super) fn add(&mut self, subject: C::Subject) -> Option<C::Subject> {
        if self.known.insert(subject) {
            self.order.push_back(subject);
        }
        if self.order.len() > MAX_SUSPECTS { self.order.front().copied() } else { None }
    }

    /// Removes a suspect, and returns the operations that wait about it.
    pub(super) fn remove(&mut self, subject: C::Subject) -> Vec<Job<C>> {
        if !self.known.remove(&subject) {
            return Vec::new();
        }
        self.order.retain(|known| *known != subject);
        self.drain(|job| job.subject() == subject)
    }

    pub(super) fn push(&mut self, job: Job<C>) {
        self.waiting.push_back(job);
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns `true` if this holds for a waiting operation.
    pub(super) fn any(&self, holds: impl Fn(&Job<C>) -> bool) -> bool {
        self.waiting.iter().any(holds)
    }

    /// Removes the operations for which this holds.
    pub(super) fn drain(&mut self, is_out: impl FnMut(&Job<C>) -> bool) -> Vec<Job<C>> {
        let (out, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(is_out);
        self.waiting = kept.into();
        out
    }

    /// The moment at which the next operation may be taken, if one waits and none is in flight.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let may_go = self.began.is_none() && !self.waiting.is_empty();
        may_go.then(|| self.rested.unwrap_or(now))
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.began.is_some()
    }

    /// The next operation whose subject is not busy.
    pub(super) fn take(&mut self, busy: &HashSet<C::Subject>, now: Instant) -> Option<Job<C>> {
        let at = self.waiting.iter().position(|job| !busy.contains(&job.subject()))?;
        let job = self.waiting.remove(at)?;
        self.began = Some(now);
        Some(job)
    }

    /// Records that the operation in flight is answered.
    pub(super) fn rest(&mut self, now: Instant) {
        if let Some(began) = self.began.take() {
            self.rested = Some(now + (now - began) * REST);
        }
    }
}
