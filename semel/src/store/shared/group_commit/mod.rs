//! Group commit: operations queued while a batch is in flight form the next batch.
//!
//! There is no timer. An operation (a [`Committer::Question`]) that finds a free connection is sent
//! at once, as a batch of one; while that is in flight, further operations queue up and become the
//! next batch. All operations of a batch share the cost of its commit. How many connections take
//! part depends on how much there is to do, see [`crew`].
//!
//! Operations on one key are applied in the order of the calls, over any connection: a key that is
//! part of a batch in flight waits for the end of the batch, even if the batch was lost and it is
//! not known yet whether it was applied.
//!
//! One operation never fails its neighbours: a batch that is refused, or fails as often as it is
//! tried, is halved until the operation at fault is alone. From then on the operations about its
//! subject go alone, see [`suspects`].
//!
//! The answers of a batch are bounded in bytes. An operation whose answer does not fit beside the
//! other answers of its batch is put back to the front of its lane, with the size of its answer,
//! which bounds its next batch. Answers that their callers have not taken yet delay the next batch
//! when they are large, see [`untaken`].
//!
//! Callers hold only the receiving end of an answer. A caller that is dropped before its operation
//! was sent withdraws it; a caller that is dropped later interrupts nothing. An operation that
//! could not be sent for long is withdrawn, and its caller learns that nothing was applied.
//!
//! - `queue`: the operations that wait, behind a lock.
//! - `lanes`: the order of the queue, and the choice of the next batch.
//! - [`crew`]: the number of workers, and how many of them should take part.
//! - [`suspects`]: the subjects whose operations are sent alone.
//! - `job`: one operation in the queue, with the place for its answer.
//! - [`untaken`]: the size of the answers that callers have not taken yet.
//! - `worker`: the task that sends batches to one committer.
//! - `guard`: the state of a worker at the queue, which is cleaned up however the worker ends.
//! - `part`: a part of a batch that is sent as one.
//! - `failure`: the reason why a part was not committed, and when it is halved.

mod job;
mod untaken;
mod part;
mod failure;
mod crew;
mod lanes;
mod suspects;
mod queue;
mod guard;
mod worker;

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::words::error::StoreError;
use crew::{Crew, Role};
use guard::WorkerGuard;
use job::Job;
use queue::Queue;
use untaken::Counted;
use worker::Worker;

/// A committer: the destination of batches, over a connection that may be lost and made again.
pub(crate) trait Committer: Send + 'static {
    /// One operation.
    type Question: Send + Sync + 'static;
    /// The answer to one operation.
    type Answer: Send + 'static;
    /// The subject of an operation, such as a key. Operations about the same subject are answered
    /// in order.
    type Subject: Hash + Eq + Copy + Send + Sync + 'static;

    /// The subject of an operation.
    fn subject(question: &Self::Question) -> Self::Subject;

    /// Makes sure that there is a connection. When it returns, everything that was sent before has
    /// either been applied or never will be, so that sending it again leaves no stray copy.
    fn connect(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns `true` if there is a connection that works, as far as can be told without asking.
    fn is_connected(&mut self) -> impl Future<Output = bool> + Send;

    /// Closes the connection, which is idle.
    fn disconnect(&mut self);

    /// The approximate size of an operation when it is sent.
    fn weight(question: &Self::Question) -> usize;

    /// The approximate size of its answer, if that is known to be large.
    fn answer_weight(question: &Self::Question) -> usize;

    /// The approximate size of an answer to it.
    fn size(question: &Self::Question, answer: &Self::Answer) -> usize;

    /// Returns `true` if this operation is better committed apart from its batch.
    fn is_apart(question: &Self::Question) -> bool;

    /// Applies a batch, all or nothing, and replies to each operation in their order. At least one
    /// reply is an answer.
    fn commit(
        &mut self,
        questions: &[&Self::Question],
    ) -> impl Future<Output = Result<Vec<Reply<Self::Answer>>, Failed>> + Send;
}

/// The largest size of the answers of all batches in flight, unless a single answer of a batch is
/// larger. It is also the largest size of the answers that callers have not taken when a batch is
/// sent.
pub(crate) const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The largest size of all answers of one batch, of as many batches in flight as there are
/// connections.
pub(crate) fn answer_room(connections: usize) -> usize {
    MAX_ANSWER_BYTES / connections.max(1)
}

/// The reply to one operation of a committed batch.
#[derive(Debug)]
pub(crate) enum Reply<A> {
    /// The answer. An operation whose answer is an error of its own was not part of the batch.
    Answer(Result<A, StoreError>),
    /// The answer has about this many bytes, which do not fit into this batch. Nothing of the
    /// operation was applied, and it should be sent again.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "Redis reads large records by a second question")
    )]
    Later(usize),
}

/// The reason why a batch was not committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// One of the operations is at fault: nothing was applied, and the rest should be sent without
    /// it. The error may be transient.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "Redis answers each question by itself")
    )]
    Refused(StoreError),
    /// Nothing was applied, and the batch can be sent again.
    Again(StoreError),
    /// There was no answer in time. The batch may have been applied or not, and should not be sent
    /// again at this size.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        allow(dead_code, reason = "SQLite has no connection that could be slow")
    )]
    Slow(StoreError),
    /// The batch may have been applied or not.
    Lost(StoreError),
}

/// The lane of the queue in which an operation waits. Each lane has its own capacity, so that a
/// flood of claims does not delay the owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Writes by owners, which go first.
    Owner,
    /// All other operations.
    Claim,
}

/// A queue, and the tasks that send its operations to the committers.
pub(crate) struct Batcher<C: Committer> {
    queue: Arc<Queue<C>>,
    tasks: TaskTracker,
}

impl<C: Committer> Batcher<C> {
    /// Starts a task for each committer: those that share a load, and additional ones, which have a
    /// connection only while they are of use.
    pub(crate) fn start(sharing: Vec<C>, additional: Vec<C>) -> Self {
        let queue = Arc::new(Queue::new(Crew::new(sharing.len(), additional.len())));
        let tasks = TaskTracker::new();
        for committer in sharing {
            let guard = WorkerGuard::new(Arc::clone(&queue), Role::Sharing);
            tasks.spawn(Worker::new(Arc::clone(&queue), committer).run(guard));
        }
        for committer in additional {
            let guard = WorkerGuard::new(Arc::clone(&queue), Role::Additional);
            tasks.spawn(Worker::new(Arc::clone(&queue), committer).run_on_demand(guard));
        }
        tasks.close();
        Self { queue, tasks }
    }

    /// Puts an operation into the queue; the answer comes later. The operation is created once
    /// there is room for it, which keeps it out of the caller's future while that waits.
    ///
    /// # Errors
    /// Unavailable if there is no room, or the queue is closed; refused if no worker is left.
    pub(crate) async fn ask(
        &self,
        lane: Lane,
        question: impl FnOnce() -> C::Question,
    ) -> Result<Pending<C>, StoreError> {
        let asked = Instant::now();
        let room = match self.queue.room(lane) {
            Some(room) => room,
            None => Box::pin(self.queue.wait_for_room(lane)).await?,
        };
        let (reply, answer) = oneshot::channel();
        let question = question();
        let answer_bytes = C::answer_weight(&question);
        let untaken = Arc::clone(&self.queue.untaken);
        self.queue.push(Job { question, lane, asked, answer_bytes, lost: false, reply, untaken, room })?;
        Ok(Pending { answer })
    }

    /// Accepts no more operations, answers the waiting ones, and ends.
    pub(crate) async fn close(&self) {
        self.queue.close();
        self.tasks.wait().await;
    }
}

impl<C: Committer> Drop for Batcher<C> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// An answer that is still to come.
pub(crate) struct Pending<C: Committer> {
    answer: oneshot::Receiver<Counted<Result<C::Answer, StoreError>>>,
}

impl<C: Committer> Pending<C> {
    /// The answer. Dropping this future withdraws the operation if it was not sent yet, and does
    /// nothing otherwise.
    ///
    /// # Errors
    /// The committer's error, or unknown if its task is gone.
    pub(crate) async fn answer(self) -> Result<C::Answer, StoreError> {
        match self.answer.await {
            Ok(answer) => answer.value,
            Err(_) => Err(StoreError::unknown("the worker of the store ended before the answer came")),
        }
    }
}

#[cfg(test)]
mod tests;
