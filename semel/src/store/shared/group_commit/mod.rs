//! Group commit: what is queued when the connection is free goes out together.
//!
//! There is no timer. A caller alone gets a batch of one at once; while that is under way others queue up, and
//! become the next batch. The cost of a commit is shared by all who wait for it. A second connection takes part
//! only when there is enough for two: two small batches cost more than a large one.
//!
//! What is asked of one key is done in the order it was asked, over whichever connection: a key that is part of
//! a batch under way waits for its end, even if the batch was lost and nobody knows yet whether it was applied.
//!
//! One question never fails its neighbours: a batch that is refused, or fails as often as it is tried, is halved until
//! the question at fault is alone. From then on what is asked about its subject goes alone, see [`suspects`].
//!
//! The answers of a batch are bounded in bytes. A question whose answer has no room beside the others of its batch is put back
//! to the front of its lane, with the weight of its answer, which bounds the batch that it is part of next.
//!
//! Callers hold nothing but the receiving end of an answer. One that goes away before its question was sent
//! takes it along; one that goes away later interrupts nothing. A question that could not be sent for long is withdrawn,
//! and its caller told that nothing was applied.

mod job;
mod part;
mod failure;
mod lanes;
mod suspects;
mod queue;
mod shift;
mod worker;

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::words::error::StoreError;
use job::Job;
use queue::Queue;
use shift::Shift;
use worker::Worker;

/// Where batches go: a connection that comes and goes.
pub(crate) trait Committer: Send + 'static {
    /// What is asked.
    type Question: Send + Sync + 'static;
    /// What is answered.
    type Answer: Send + 'static;
    /// Whom a question is about. Questions about the same are answered in order.
    type Subject: Hash + Eq + Copy + Send + Sync + 'static;

    /// Whom a question is about.
    fn subject(question: &Self::Question) -> Self::Subject;

    /// Makes sure that there is a connection. When it is there, nothing that was sent before can be applied any
    /// more unless it already is, so that sending it again leaves no stray copy.
    fn connect(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// About how many bytes a question takes up on its way.
    fn weight(question: &Self::Question) -> usize;

    /// About how many bytes its answer has, if that is known to be much.
    fn answer_weight(question: &Self::Question) -> usize;

    /// Whether this question is better committed apart from the others of its batch.
    fn is_apart(question: &Self::Question) -> bool;

    /// Applies a batch, all or nothing, and replies to each question in their order. One reply at least is an answer.
    fn commit(
        &mut self,
        questions: &[&Self::Question],
    ) -> impl Future<Output = Result<Vec<Reply<Self::Answer>>, Failed>> + Send;
}

/// How many bytes the answers of a batch may have together, unless a single answer has more.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The reply to one question of a batch that was committed.
#[derive(Debug)]
pub(crate) enum Reply<A> {
    /// The answer. A question whose answer is an error of its own had no part in the batch.
    Answer(Result<A, StoreError>),
    /// The answer has about so many bytes, and no room in this batch. Nothing of the question was applied, and it is to be
    /// sent again.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "Redis reads large records by a second question")
    )]
    Later(usize),
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// One of the questions is at fault: nothing was applied, and the others should be sent without it. The error may
    /// be one that passes.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "sqlite")),
        allow(dead_code, reason = "Redis answers each question by itself")
    )]
    Refused(StoreError),
    /// Nothing was applied, and it can be sent again.
    Again(StoreError),
    /// There was no answer in time. It may have been applied or not, and should not be sent again as large.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "redis")),
        allow(dead_code, reason = "SQLite has no connection that could be slow")
    )]
    Slow(StoreError),
    /// It may have been applied or not.
    Lost(StoreError),
}

/// Which queue a question waits in. Each has room of its own, so that a flood of claims leaves the owners' way
/// free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Owners who write: they go first.
    Owner,
    /// All the others.
    Claim,
}

/// A queue, and the tasks that empty it into committers.
pub(crate) struct Batcher<C: Committer> {
    queue: Arc<Queue<C>>,
    tasks: TaskTracker,
}

impl<C: Committer> Batcher<C> {
    /// Starts a task for each committer.
    pub(crate) fn start(committers: Vec<C>) -> Self {
        let queue = Arc::new(Queue::new(committers.len()));
        let tasks = TaskTracker::new();
        for committer in committers {
            let shift = Shift::new(Arc::clone(&queue));
            tasks.spawn(Worker::new(Arc::clone(&queue), committer).run(shift));
        }
        tasks.close();
        Self { queue, tasks }
    }

    /// Puts a question into the queue; the answer comes later. It is made when there is room for it, so that nobody
    /// carries it along.
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
        self.queue.push(Job { question, lane, asked, answer_bytes, lost: false, reply, room })?;
        Ok(Pending { answer })
    }

    /// Takes no more questions, answers those that wait, and ends.
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

/// An answer to come.
pub(crate) struct Pending<C: Committer> {
    answer: oneshot::Receiver<Result<C::Answer, StoreError>>,
}

impl<C: Committer> Pending<C> {
    /// The answer. Dropping this future takes the question back if it was not sent yet, and does nothing if it
    /// was.
    ///
    /// # Errors
    /// What the committer said, or unknown if its task is gone.
    pub(crate) async fn answer(self) -> Result<C::Answer, StoreError> {
        self.answer.await.unwrap_or_else(|_| {
            Err(StoreError::unknown("the worker of the store ended before the answer came"))
        })
    }
}

#[cfg(test)]
mod tests;
