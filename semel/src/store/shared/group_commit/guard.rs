//! The guard of a worker at the queue. It ends with the task of the worker, however that ends: when
//! the queue is closed, by a panic, or together with its runtime. The callers that wait for this
//! worker are then answered.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::Committer;
use super::crew::Role;
use super::queue::Queue;

/// The time after which a worker no longer counts as at work: other workers then take the waiting
/// operations, however few.
pub(super) const LONG: Duration = Duration::from_millis(10);
/// The interval at which a slow worker looks for operations that have waited too long.
const SWEEP: Duration = Duration::from_millis(250);

pub(super) struct WorkerGuard<C: Committer> {
    queue: Arc<Queue<C>>,
    role: Role,
    /// The subjects of the operations in flight.
    subjects: Vec<C::Subject>,
    /// Set while the worker counts as at work, which keeps other workers from taking part for
    /// little.
    at_work: bool,
    is_suspect: bool,
    recovering: bool,
    /// Set from taking operations until they are settled.
    serving: bool,
    /// Set while it has been serving for long.
    hanging: bool,
    /// Set while the worker may take operations.
    is_ready: bool,
}

impl<C: Committer> WorkerGuard<C> {
    /// The guard of a worker. One that shares a load is ready from the start, and stays so.
    pub(super) fn new(queue: Arc<Queue<C>>, role: Role) -> Self {
        Self {
            queue,
            role,
            subjects: Vec::new(),
            at_work: false,
            is_suspect: false,
            recovering: false,
            serving: false,
            hanging: false,
            is_ready: role == Role::Sharing,
        }
    }

    /// Marks an additional worker as one that may take operations, or not.
    pub(super) fn ready(&mut self, is_ready: bool) {
        if self.is_ready != is_ready {
            self.is_ready = is_ready;
            self.queue.ready(is_ready);
        }
    }

    /// Marks the begin of work on these subjects.
    pub(super) fn begin(&mut self, subjects: Vec<C::Subject>, is_suspect: bool) {
        (self.subjects, self.at_work, self.is_suspect) = (subjects, !is_suspect, is_suspect);
        self.serving = true;
    }

    pub(super) fn subjects(&self) -> Vec<C::Subject> {
        self.subjects.clone()
    }

    /// Marks the operations as answered, or as taking so long that other workers should not wait
    /// for them.
    pub(super) fn step_back(&mut self) {
        if std::mem::take(&mut self.at_work) {
            self.queue.step_back(self.subjects.len());
        }
    }

    fn hang(&mut self) {
        if !std::mem::replace(&mut self.hanging, true) {
            self.queue.hang(self.role);
        }
    }

    /// Waits for work of any length; after a while it lets other workers take part, and withdraws
    /// operations that have waited too long.
    pub(super) async fn watch<T>(&mut self, timer: &mut Pin<Box<Sleep>>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        timer.as_mut().reset(Instant::now() + LONG);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            while done.is_pending() && timer.as_mut().poll(context).is_ready() {
                self.step_back();
                self.hang();
                self.queue.withdraw();
                timer.as_mut().reset(Instant::now() + SWEEP);
            }
            done
        })
        .await
    }

    /// Marks the batch as lost, with an unknown result.
    pub(super) fn begin_recovery(&mut self) {
        self.recovering = true;
        self.queue.recovering(true);
    }

    /// Marks the operations as answered and settled: operations about their subjects can be sent
    /// again.
    pub(super) fn end(&mut self) {
        self.step_back();
        if std::mem::take(&mut self.is_suspect) {
            self.queue.suspect_over();
        }
        if std::mem::take(&mut self.recovering) {
            self.queue.recovering(false);
        }
        let subjects = std::mem::take(&mut self.subjects);
        if std::mem::take(&mut self.serving) {
            self.queue.release(self.role, std::mem::take(&mut self.hanging), &subjects);
        }
    }
}

impl<C: Committer> Drop for WorkerGuard<C> {
    fn drop(&mut self) {
        self.step_back();
        // The results are unknown, so the subjects are not released.
        let subjects = std::mem::take(&mut self.subjects);
        self.end();
        self.queue.leave(self.role, &subjects, self.is_ready);
    }
}
