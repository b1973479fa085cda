//! Group commit: what is queued when the connection is free goes out together.
//!
//! There is no timer. A caller alone gets a batch of one at once; while that is under way others queue up, and become
//! the next batch. The cost of a commit is shared by all who wait for it. A second connection takes part only when there is
//! enough for two: two small batches cost more than a large one.
//!
//! What is asked of one key is done in the order it was asked, over whichever connection: a key that is part of a batch
//! under way waits for its end, even if the batch was lost and nobody knows yet whether it was applied.
//!
//! Callers hold nothing but the receiving end of an answer. One that goes away before its question was sent takes it
//! along; one that goes away later interrupts nothing.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use crate::error::StoreError;

/// How many questions go out together at most.
const MAX_BATCH: usize = 512;
/// How many bytes go out together, unless a single question has more.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// How many questions have to wait for another connection to take part.
const ENOUGH: usize = 16;
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
    /// Whom a question is about. Questions about the same are answered in order.
    type Subject: Hash + Eq + Copy + Send + Sync + 'static;

    /// Whom a question is about.
    fn subject(question: &Self::Question) -> Self::Subject;

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

/// A queue, and the tasks that empty it into committers.
pub(crate) struct Batcher<C: Committer> {
    queue: Arc<Queue<C>>,
    tasks: TaskTracker,
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
    /// Those whose questions are under way.
    busy: HashSet<C::Subject>,
    /// How many committers there are, how many of them are at work, and how many have lost a batch and not found back yet.
    committers: usize,
    at_work: usize,
    recovering: usize,
    closed: bool,
}

/// What became of the questions of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    Settled,
    /// The connection was lost, and something may still be applied.
    PerhapsApplied,
}

struct Job<C: Committer> {
    question: C::Question,
    reply: oneshot::Sender<Result<C::Answer, StoreError>>,
    _room: OwnedSemaphorePermit,
}

impl<C: Committer> Job<C> {
    fn answer(self, answer: Result<C::Answer, StoreError>) {
        // Whoever went away does not want to know.
        let _ = self.reply.send(answer);
    }
}

impl<C: Committer> Batcher<C> {
    /// Starts a task for each committer.
    pub(crate) fn start(committers: Vec<C>) -> Self {
        let queue = Arc::new(Queue {
            lanes: Mutex::new(Lanes {
                owners: VecDeque::new(),
                claims: VecDeque::new(),
                busy: HashSet::new(),
                committers: committers.len(),
                at_work: 0,
                recovering: 0,
                closed: false,
            }),
            filled: Notify::new(),
            owner_room: Arc::new(Semaphore::new(LANE_ROOM)),
            claim_room: Arc::new(Semaphore::new(LANE_ROOM)),
        });
        let tasks = TaskTracker::new();
        for committer in committers {
            let worker = Worker { queue: Arc::clone(&queue), committer, failures: 0, rested: None };
            tasks.spawn(worker.run());
        }
        tasks.close();
        Self { queue, tasks }
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
        let worth_it = lanes.is_worth_another();
        drop(lanes);
        if worth_it {
            self.queue.filled.notify_last();
        }
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
        self.filled.notify_waiters();
    }

    /// What is queued, owners first; `None` when the queue is closed and empty.
    async fn next(&self) -> Option<Vec<Job<C>>> {
        loop {
            let filled = self.filled.notified();
            {
                let mut lanes = self.lanes();
                let jobs = lanes.take();
                if !jobs.is_empty() {
                    lanes.at_work += 1;
                    if lanes.waiting() >= ENOUGH {
                        self.filled.notify_one();
                    }
                    lanes.busy.extend(jobs.iter().map(|job| C::subject(&job.question)));
                    return Some(jobs);
                }
                if lanes.closed && lanes.waiting() == 0 {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// A batch is over: those it was about can be asked again.
    fn release(&self, subjects: &[C::Subject]) {
        let mut lanes = self.lanes();
        for subject in subjects {
            lanes.busy.remove(subject);
        }
        if lanes.closed {
            // Others may wait for just these.
            self.filled.notify_waiters();
        }
    }

    /// Refuses what waits for subjects of a lost batch; and everything if no committer has a connection. Says whether the queue
    /// is closed, so that there is no use in going on.
    fn refuse(&self, subjects: &[C::Subject], why: &StoreError) -> bool {
        let mut lanes = self.lanes();
        let everything = lanes.recovering == lanes.committers;
        let mut refused = Vec::new();
        let Lanes { owners, claims, .. } = &mut *lanes;
        for lane in [owners, claims] {
            let (out, kept) = std::mem::take(lane)
                .into_iter()
                .partition(|job| everything || subjects.contains(&C::subject(&job.question)));
            *lane = kept;
            refused.extend::<VecDeque<_>>(out);
        }
        let closed = lanes.closed;
        drop(lanes);
        let error =
            StoreError::unavailable("an earlier question is not settled yet").with_source(why.clone());
        refused.into_iter().for_each(|job| job.answer(Err(error.clone())));
        closed
    }
}

impl<C: Committer> Lanes<C> {
    fn waiting(&self) -> usize {
        self.owners.len() + self.claims.len()
    }

    /// Whether another committer should take part.
    fn is_worth_another(&self) -> bool {
        self.at_work == 0 || self.waiting() >= ENOUGH
    }

    /// As many questions as may go together, about nobody who is busy.
    fn take(&mut self) -> Vec<Job<C>> {
        if !self.is_worth_another() && !self.closed {
            return Vec::new();
        }
        // What is enough for all who are free is shared out: while one batch is on its way, another is answered.
        let free = self.committers.saturating_sub(self.at_work + self.recovering).max(1);
        let share =
            if self.waiting() >= ENOUGH * free { self.waiting().div_ceil(free) } else { self.waiting() };
        let limit = share.min(MAX_BATCH);
        let mut jobs = Vec::with_capacity(limit);
        let mut bytes = 0;
        let (mut owners, mut claims) = (VecDeque::new(), VecDeque::new());
        for (lane, left) in [(&mut self.owners, &mut owners), (&mut self.claims, &mut claims)] {
            while jobs.len() < limit {
                let Some(job) = lane.pop_front() else { break };
                if self.busy.contains(&C::subject(&job.question)) {
                    left.push_back(job);
                    continue;
                }
                bytes += C::weight(&job.question);
                if bytes > MAX_BATCH_BYTES && !jobs.is_empty() {
                    left.push_back(job);
                    break;
                }
                jobs.push(job);
            }
            while let Some(job) = left.pop_back() {
                lane.push_front(job);
            }
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
            let subjects: Vec<C::Subject> = jobs.iter().map(|job| C::subject(&job.question)).collect();
            let outcome = self.serve(jobs).await;
            self.queue.lanes().at_work -= 1;
            if outcome == Served::PerhapsApplied {
                self.recover(&subjects).await;
            }
            self.queue.release(&subjects);
            // Those who were answered may have the next question ready. Without this, the first of them would go by itself, and all
            // the others would wait for it.
            if subjects.len() > 1 {
                yield_now().await;
            }
        }
    }

    /// Answers these questions, in as many batches as it takes.
    async fn serve(&mut self, jobs: Vec<Job<C>>) -> Served {
        let mut served = Served::Settled;
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
                        job.answer(answer);
                    }
                }
                Err(Failed::Refused(_)) if jobs.len() > 1 => {
                    let rest = jobs.split_off(jobs.len() / 2);
                    parts.extend([rest, jobs].map(|jobs| Part { jobs, lost }));
                }
                Err(Failed::Refused(mut error) | Failed::Again(mut error) | Failed::Lost(mut error)) => {
                    if lost {
                        served = Served::PerhapsApplied;
                        error = StoreError::unknown(error.to_string()).with_source(error);
                    }
                    jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
                }
            }
        }
        served
    }

    /// Goes on until nothing that was sent can be applied any more. Until then, whom it was about cannot be asked.
    async fn recover(&mut self, subjects: &[C::Subject]) {
        self.queue.lanes().recovering += 1;
        loop {
            self.rest().await;
            let Err(error) = self.committer.connect().await else { break };
            self.pause();
            if self.queue.refuse(subjects, &error) {
                break;
            }
        }
        self.queue.lanes().recovering -= 1;
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
            self.rest().await;
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

    /// Waits until the pause after the last failure is over.
    async fn rest(&mut self) {
        if let Some(rested) = self.rested.take() {
            sleep_until(rested).await;
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
