//! Group commit: what is queued when the connection is free goes out together.
//!
//! There is no timer. A caller alone gets a batch of one at once; while that is under way others queue up, and become
//! the next batch. The cost of a commit is shared by all who wait for it.
//!
//! Callers hold nothing but the receiving end of an answer. One that goes away before its question was sent takes it
//! along; one that goes away later interrupts nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use crate::error::StoreError;

/// How many questions go out together at most.
const MAX_BATCH: usize = 512;
/// How many bytes go out together, unless a single question has more.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// How many questions may wait or be under way in each lane.
const LANE_ROOM: usize = 4_096;
/// For how long a question may wait for room.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// How often a batch is sent, and for how long, before its callers hear that it failed.
const MAX_TRIES: u32 = 6;
const MAX_TRYING: Duration = Duration::from_secs(2);
/// The pause after a failure: it doubles up to the longest, and half of it is left to chance.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Where batches go: a connection that comes and goes.
pub(crate) trait Committer: Send + 'static {
    /// What is asked.
    type Question: Send + Sync + 'static;
    /// What is answered.
    type Answer: Send + 'static;

    /// Makes sure that there is a connection. When it is there, nothing that was sent before can be applied any more
    /// unless it already is, so that sending it again leaves no stray copy.
    fn connect(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// About how many bytes a question takes up on its way.
    fn weight(question: &Self::Question) -> usize;

    /// Whether this question is better committed apart from the others of its batch.
    fn is_apart(question: &Self::Question) -> bool;

    /// Applies a batch, all or nothing, and answers each question in their order. A question whose answer is an error
    /// of its own had no part in it.
    fn commit(
        &mut self,
        questions: &[&Self::Question],
    ) -> impl Future<Output = Result<Vec<Result<Self::Answer, StoreError>>, Failed>> + Send;
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// One of the questions is at fault: nothing was applied, and the others should be sent without it.
    Refused(StoreError),
    /// Nothing was applied, and it can be sent again.
    Again(StoreError),
    /// It may have been applied or not.
    Lost(StoreError),
}

/// Which queue a question waits in. Each has room of its own, so that a flood of claims leaves the owners' way free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Owners who write: they go first.
    Owner,
    /// All the others.
    Claim,
}

/// A queue and the task that empties it into a committer.
pub(crate) struct Batcher<C: Committer> {
    queue: Arc<Queue<C>>,
    task: TaskTracker,
}

struct Queue<C: Committer> {
    lanes: Mutex<Lanes<C>>,
    filled: Notify,
    owner_room: Arc<Semaphore>,
    claim_room: Arc<Semaphore>,
}

struct Lanes<C: Committer> {
    owners: VecDeque<Job<C>>,
    claims: VecDeque<Job<C>>,
    closed: bool,
}

struct Job<C: Committer> {
    question: C::Question,
    reply: oneshot::Sender<Result<C::Answer, StoreError>>,
    _room: OwnedSemaphorePermit,
}

impl<C: Committer> Batcher<C> {
    /// Starts the task.
    pub(crate) fn start(committer: C) -> Self {
        let queue = Arc::new(Queue {
            lanes: Mutex::new(Lanes { owners: VecDeque::new(), claims: VecDeque::new(), closed: false }),
            filled: Notify::new(),
            owner_room: Arc::new(Semaphore::new(LANE_ROOM)),
            claim_room: Arc::new(Semaphore::new(LANE_ROOM)),
        });
        let task = TaskTracker::new();
        let worker = Worker { queue: Arc::clone(&queue), committer, failures: 0, rested: None };
        task.spawn(worker.run());
        task.close();
        Self { queue, task }
    }

    /// Puts a question into the queue; the answer comes later.
    ///
    /// # Errors
    /// Unavailable if there is no room, or the queue is closed.
    pub(crate) async fn ask(&self, lane: Lane, question: C::Question) -> Result<Pending<C>, StoreError> {
        let room = match lane {
            Lane::Owner => &self.queue.owner_room,
            Lane::Claim => &self.queue.claim_room,
        };
        let room = match Arc::clone(room).try_acquire_owned() {
            Ok(room) => room,
            Err(_) => timeout(ROOM_WAIT, Arc::clone(room).acquire_owned())
                .await
                .ok()
                .and_then(Result::ok)
                .ok_or_else(|| StoreError::unavailable(format!("the queue had no room for {ROOM_WAIT:?}")))?,
        };
        let (reply, answer) = oneshot::channel();
        let mut lanes = self.queue.lanes();
        if lanes.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        let waiting = match lane {
            Lane::Owner => &mut lanes.owners,
            Lane::Claim => &mut lanes.claims,
        };
        waiting.push_back(Job { question, reply, _room: room });
        drop(lanes);
        self.queue.filled.notify_one();
        Ok(Pending { answer })
    }

    /// Takes no more questions, answers those that wait, and ends.
    pub(crate) async fn close(&self) {
        self.queue.close();
        self.task.wait().await;
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
    /// The answer. Dropping this future takes the question back if it was not sent yet, and does nothing if it was.
    ///
    /// # Errors
    /// What the committer said, or unknown if its task is gone.
    pub(crate) async fn answer(self) -> Result<C::Answer, StoreError> {
        self.answer
            .await
            .unwrap_or_else(|_| Err(StoreError::unknown("the runtime ended before the answer came")))
    }
}

impl<C: Committer> Queue<C> {
    fn lanes(&self) -> MutexGuard<'_, Lanes<C>> {
        // Nothing panics while the lock is held.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lanes().closed = true;
        self.filled.notify_one();
    }

    /// What is queued, owners first; `None` when the queue is closed and empty.
    async fn next(&self) -> Option<Vec<Job<C>>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut lanes = self.lanes();
                let jobs = lanes.take();
                if !jobs.is_empty() {
                    return Some(jobs);
                }
                if lanes.closed {
                    return None;
                }
            }
            filled.await;
        }
    }
}

impl<C: Committer> Lanes<C> {
    fn take(&mut self) -> Vec<Job<C>> {
        let mut jobs = Vec::with_capacity((self.owners.len() + self.claims.len()).min(MAX_BATCH));
        let mut bytes = 0;
        while jobs.len() < MAX_BATCH {
            let lane = if self.owners.is_empty() { &mut self.claims } else { &mut self.owners };
            let Some(next) = lane.front() else { break };
            bytes += C::weight(&next.question);
            if bytes > MAX_BATCH_BYTES && !jobs.is_empty() {
                break;
            }
            jobs.extend(lane.pop_front());
        }
        jobs
    }
}

/// What goes out together.
struct Part<C: Committer> {
    jobs: Vec<Job<C>>,
    /// Whether it was sent before and may have been applied then, by itself or as part of something larger.
    lost: bool,
}

struct Worker<C: Committer> {
    queue: Arc<Queue<C>>,
    committer: C,
    /// How many tries in a row have failed.
    failures: u32,
    /// When the pause after the last failure is over.
    rested: Option<Instant>,
}

impl<C: Committer> Worker<C> {
    async fn run(mut self) {
        while let Some(jobs) = self.queue.next().await {
            let (apart, together): (Vec<_>, Vec<_>) =
                jobs.into_iter().partition(|job| C::is_apart(&job.question));
            let mut parts = vec![Part { jobs: apart, lost: false }, Part { jobs: together, lost: false }];
            while let Some(mut part) = parts.pop() {
                part.jobs.retain(|job| !job.reply.is_closed());
                if part.jobs.is_empty() {
                    continue;
                }
                let sent = self.send(&mut part).await;
                let Part { mut jobs, lost } = part;
                match sent {
                    Ok(answers) => {
                        for (job, answer) in jobs.into_iter().zip(answers) {
                            let _gone = job.reply.send(answer);
                        }
                    }
                    Err(Failed::Refused(_)) if jobs.len() > 1 => {
                        let rest = jobs.split_off(jobs.len() / 2);
                        parts.extend([rest, jobs].map(|jobs| Part { jobs, lost }));
                    }
                    Err(Failed::Refused(error) | Failed::Again(error) | Failed::Lost(error)) => {
                        let error = if lost && !error.is_unknown() {
                            StoreError::unknown(error.to_string()).with_source(error)
                        } else {
                            error
                        };
                        for job in jobs {
                            let _gone = job.reply.send(Err(error.clone()));
                        }
                    }
                }
            }
        }
    }

    /// Sends a batch until it is answered or refused, or the patience ends. Once it may have been applied, only an
    /// answer can tell; without one the outcome is unknown.
    async fn send(&mut self, part: &mut Part<C>) -> Result<Vec<Result<C::Answer, StoreError>>, Failed> {
        let questions: Vec<&C::Question> = part.jobs.iter().map(|job| &job.question).collect();
        let began = Instant::now();
        // While the other side is down, a batch is not worth as many tries as the one that found out.
        let tries = if self.failures == 0 { MAX_TRIES } else { 1 };
        let mut tried = 0;
        loop {
            if let Some(rested) = self.rested.take() {
                sleep_until(rested).await;
            }
            let failed = match self.committer.connect().await {
                Ok(()) => match self.committer.commit(&questions).await {
                    Ok(answers) => {
                        self.failures = 0;
                        return Ok(answers);
                    }
                    Err(failed) => failed,
                },
                Err(error) => Failed::Again(error),
            };
            let error = match failed {
                Failed::Refused(error) => {
                    self.failures = 0;
                    return Err(Failed::Refused(error));
                }
                Failed::Again(error) => error,
                Failed::Lost(error) => {
                    part.lost = true;
                    error
                }
            };
            self.pause();
            tried += 1;
            if tried >= tries || began.elapsed() >= MAX_TRYING || !error.is_transient() {
                return Err(Failed::Again(error));
            }
        }
    }

    fn pause(&mut self) {
        let pause = MIN_PAUSE.saturating_mul(1 << self.failures.min(10)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.rested = Some(Instant::now() + pause.mul_f64(rand::random_range(0.5..1.0)));
    }
}

#[cfg(test)]
mod tests;
