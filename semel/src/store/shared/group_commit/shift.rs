//! The shift of a worker at the queue. It ends with the task of the worker, however that ends: when the queue is closed,
//! by a panic, or together with its runtime. Then whoever waits for this worker is told.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::Committer;
use super::queue::Queue;

/// After this long a worker does not count as at work any more: others take what waits, however little it is.
pub(super) const LONG: Duration = Duration::from_millis(10);
/// How often it looks from then on at what waits for too long.
const SWEEP: Duration = Duration::from_millis(250);

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

    pub(super) fn subjects(&self) -> Vec<C::Subject> {
        self.subjects.clone()
    }

    /// The questions are answered, or this takes so long that it should not keep others from work.
    pub(super) fn step_back(&mut self) {
        if std::mem::take(&mut self.at_work) {
            self.queue.step_back();
        }
    }

    /// Waits for work that takes as long as it takes, and meanwhile lets others take part, and withdraws what waits in vain.
    pub(super) async fn watch<T>(&mut self, timer: &mut Pin<Box<Sleep>>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        timer.as_mut().reset(Instant::now() + LONG);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            while done.is_pending() && timer.as_mut().poll(context).is_ready() {
                self.step_back();
                self.queue.withdraw();
                timer.as_mut().reset(Instant::now() + SWEEP);
            }
            done
        })
        .await
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
