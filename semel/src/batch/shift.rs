//! The shift of a worker at the queue. It ends with the task of the worker, however that ends: when the queue is closed,
//! by a panic, or together with its runtime. Then whoever waits for this worker is told.

use std::sync::Arc;

use super::Committer;
use super::queue::Queue;

pub(super) struct Shift<C: Committer> {
    queue: Arc<Queue<C>>,
    /// Whom the questions under way are about.
    subjects: Vec<C::Subject>,
    /// Whether it counts as at work, so that others do not take part for little.
    at_work: bool,
    is_suspect: bool,
    recovering: bool,
}

impl<C: Committer> Shift<C> {
    pub(super) fn new(queue: Arc<Queue<C>>) -> Self {
        Self { queue, subjects: Vec::new(), at_work: false, is_suspect: false, recovering: false }
    }

    /// Work on these has begun.
    pub(super) fn begin(&mut self, subjects: Vec<C::Subject>, is_suspect: bool) {
        (self.subjects, self.at_work, self.is_suspect) = (subjects, !is_suspect, is_suspect);
    }

    pub(super) fn subjects(&self) -> &[C::Subject] {
        &self.subjects
    }

    /// The questions are answered, or this takes so long that it should not keep others from work.
    pub(super) fn step_back(&mut self) {
        if std::mem::take(&mut self.at_work) {
            self.queue.step_back();
        }
    }

    /// The batch was lost, and nothing of it is known yet.
    pub(super) fn begin_recovery(&mut self) {
        self.recovering = true;
        self.queue.recovering(true);
    }

    /// The questions are answered and settled: whom they were about can be asked again.
    pub(super) fn end(&mut self) {
        self.step_back();
        if std::mem::take(&mut self.is_suspect) {
            self.queue.suspect_over();
        }
        if std::mem::take(&mut self.recovering) {
            self.queue.recovering(false);
        }
        self.queue.release(&std::mem::take(&mut self.subjects));
    }
}

impl<C: Committer> Drop for Shift<C> {
    fn drop(&mut self) {
        let subjects = std::mem::take(&mut self.subjects);
        self.end();
        self.queue.leave(&subjects);
    }
}
