//! A part of a batch: operations that are sent together.

use tokio::time::Instant;

use super::Committer;
use super::job::Job;

/// The operations of a part, and its history.
pub(super) struct Part<C: Committer> {
    pub(super) jobs: Vec<Job<C>>,
    /// Set if the part was sent before and may have been applied then, by itself or within a larger
    /// part.
    pub(super) lost: bool,
    pub(super) origin: Origin,
    /// The moment until which the part is sent again; unless set, a while after it is first sent.
    pub(super) until: Option<Instant>,
}

/// The origin of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The whole batch that was taken from the queue.
    Whole,
    /// Half of a part that was refused.
    Refused,
    /// Half of a part that failed as often as it was tried. This half is tried once.
    Failed,
    /// Half of a part that was not answered in time.
    Slow,
    /// An operation about a suspect. It is tried once, and its failure means nothing for other
    /// operations.
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

/// The parts in which a batch is first sent, the last one first.
pub(super) fn parts<C: Committer>(jobs: Vec<Job<C>>, origin: Origin) -> Vec<Part<C>> {
    let is_apart = |job: &Job<C>| C::is_apart(&job.question);
    let (apart, together): (Vec<_>, Vec<_>) = match jobs.iter().any(is_apart) {
        true => jobs.into_iter().partition(is_apart),
        false => (Vec::new(), jobs),
    };
    [apart, together].map(|jobs| Part { jobs, lost: false, origin, until: None }).into()
}
