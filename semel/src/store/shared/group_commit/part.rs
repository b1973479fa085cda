//! A part of a batch: questions that go out together.

use tokio::time::Instant;

use super::Committer;
use super::job::Job;

/// What goes out together.
pub(super) struct Part<C: Committer> {
    pub(super) jobs: Vec<Job<C>>,
    /// Whether it was sent before and may have been applied then, by itself or as part of something larger.
    pub(super) lost: bool,
    pub(super) origin: Origin,
    /// Until when it is worth sending again; unless set, for a while from when it is sent first.
    pub(super) until: Option<Instant>,
}

/// Where a part comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is what was taken from the queue.
    Whole,
    /// Something larger was refused.
    Refused,
    /// Something larger failed as often as it was tried. This is tried once.
    Failed,
    /// Something larger was not answered in time.
    Slow,
    /// It is about a suspect. It is tried once, and if it fails, that says nothing about the others.
    Suspect,
}

impl<C: Committer> Part<C> {
    /// The two halves, from the same origin.
    pub(super) fn halved(self, origin: Origin, until: Option<Instant>) -> [Self; 2] {
        let Self { jobs: mut first, lost, .. } = self;
        let rest = first.split_off(first.len() / 2);
        [first, rest].map(|jobs| Self { jobs, lost, origin, until })
    }
}

/// The parts in which a batch is sent at first, the last one first.
pub(super) fn parts<C: Committer>(jobs: Vec<Job<C>>, origin: Origin) -> Vec<Part<C>> {
    let is_apart = |job: &Job<C>| C::is_apart(&job.question);
    let (apart, together): (Vec<_>, Vec<_>) = match jobs.iter().any(is_apart) {
        true => jobs.into_iter().partition(is_apart),
        false => (Vec::new(), jobs),
    };
    [apart, together].map(|jobs| Part { jobs, lost: false, origin, until: None }).into()
}
