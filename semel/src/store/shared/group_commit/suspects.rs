//! Suspects: subjects whose last question failed by itself, and would fail a batch with it.
//!
//! Questions about suspects wait in a line of their own, and are sent one at a time, each alone. Together they get a
//! quarter of one committer's time, so that callers of other keys hardly notice. A suspect that is answered is none
//! any more.

use std::collections::{HashSet, VecDeque};

use tokio::time::Instant;

use super::Committer;
use super::job::Job;

/// How many suspects are known at most; beyond that, the oldest is forgotten.
pub(super) const MAX_SUSPECTS: usize = 1_024;
/// How many times as long as the last question about a suspect took the next one has to wait.
const REST: u32 = 3;

pub(super) struct Suspects<C: Committer> {
    known: HashSet<C::Subject>,
    /// The same, the oldest first.
    order: VecDeque<C::Subject>,
    waiting: VecDeque<Job<C>>,
    /// When the question that is under way was taken.
    began: Option<Instant>,
    /// When the next one may be taken.
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

    /// Takes note of a suspect, and returns the one that has to be forgotten for it.
    pub(super) fn add(&mut self, subject: C::Subject) -> Option<C::Subject> {
        if self.known.insert(subject) {
            self.order.push_back(subject);
        }
        if self.order.len() > MAX_SUSPECTS { self.order.front().copied() } else { None }
    }

    /// Forgets a suspect, and returns what waits about it.
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

    /// Whether this holds for one that waits.
    pub(super) fn any(&self, holds: impl Fn(&Job<C>) -> bool) -> bool {
        self.waiting.iter().any(holds)
    }

    /// Takes out the questions for which this holds.
    pub(super) fn drain(&mut self, is_out: impl FnMut(&Job<C>) -> bool) -> Vec<Job<C>> {
        let (out, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(is_out);
        self.waiting = kept.into();
        out
    }

    /// When the next question may be taken, if one waits and none is under way.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let may_go = self.began.is_none() && !self.waiting.is_empty();
        may_go.then(|| self.rested.unwrap_or(now))
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.began.is_some()
    }

    /// The next question, about nobody who is busy.
    pub(super) fn take(&mut self, busy: &HashSet<C::Subject>, now: Instant) -> Option<Job<C>> {
        let at = self.waiting.iter().position(|job| !busy.contains(&job.subject()))?;
        let job = self.waiting.remove(at)?;
        self.began = Some(now);
        Some(job)
    }

    /// The question that was under way is answered.
    pub(super) fn rest(&mut self, now: Instant) {
        if let Some(began) = self.began.take() {
            self.rested = Some(now + (now - began) * REST);
        }
    }
}
