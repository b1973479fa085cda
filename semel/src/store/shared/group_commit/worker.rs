//! The task that takes batches from the queue and sends them to a committer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout, timeout_at};

use super::crew::Role;
use super::failure::{Blame, Failure, Halving};
use super::guard::{LONG, WorkerGuard};
use super::job::Job;
use super::part::{Origin, Part, parts};
use super::queue::{Queue, Taken};
use super::{Committer, Failed, Reply};
use crate::fault;
use crate::runtime::backoff::Backoff;
use crate::words::error::StoreError;

/// The limits on sending a batch: the number of tries and the time before it is halved or its
/// callers get the error, and the time for halving.
pub(super) const MAX_TRIES: u32 = 6;
pub(super) const MAX_TRYING: Duration = Duration::from_secs(2);
/// The pauses after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), MAX_PAUSE);
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The time after which an additional connection without work is closed.
const IDLE: Duration = Duration::from_secs(10);
/// The time for which no additional connection is tried after one was refused.
const REFUSED_REST: Duration = Duration::from_secs(10);

/// The result of serving a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    Settled,
    /// The connection was lost, and parts of the batch may still be applied.
    PerhapsApplied,
}

pub(super) struct Worker<C: Committer> {
    queue: Arc<Queue<C>>,
    committer: C,
    /// The number of failed tries in a row.
    failures: u32,
    /// The end of the pause after the last failure.
    rested: Option<Instant>,
}

impl<C: Committer> Worker<C> {
    pub(super) fn new(queue: Arc<Queue<C>>, committer: C) -> Self {
        Self { queue, committer, failures: 0, rested: None }
    }

    /// Sends batches until the queue is closed.
    pub(super) async fn run(mut self, mut guard: WorkerGuard<C>) {
        // The timer is reset for each batch, which is cheaper than creating one.
        let mut timer = Box::pin(sleep(LONG));
        let queue = Arc::clone(&self.queue);
        while let Some(taken) = queue.next(Role::Sharing).await {
            self.settle(taken, &mut guard, &mut timer).await;
        }
    }

    /// Sends batches until the queue is closed, over a connection that is opened when there is work
    /// for it, and closed when there is none. A connection that is refused is of no consequence:
    /// without one, no operations are taken.
    pub(super) async fn run_on_demand(mut self, mut guard: WorkerGuard<C>) {
        let mut timer = Box::pin(sleep(LONG));
        let queue = Arc::clone(&self.queue);
        while queue.wants_another().await {
            let connected = tokio::select! {
                connected = self.committer.connect() => connected,
                () = queue.closed() => return,
            };
            if let Err(error) = connected {
                tracing::debug!(%error, "an additional connection was refused, which is harmless");
                drop(timeout(REFUSED_REST, queue.closed()).await);
                continue;
            }
            guard.ready(true);
            loop {
                let taken = match timeout(IDLE, queue.next(Role::Additional)).await {
                    Ok(Some(taken)) => taken,
                    Ok(None) => return,
                    Err(_) => break,
                };
                if !self.committer.is_connected().await {
                    let Taken { jobs, is_suspect } = taken;
                    guard.begin(jobs.iter().map(Job::subject).collect(), is_suspect);
                    queue.put_back(jobs);
                    guard.end();
                    break;
                }
                self.settle(taken, &mut guard, &mut timer).await;
            }
            guard.ready(false);
            self.committer.disconnect();
        }
    }

    /// Answers the operations that were taken, and finds out what became of them.
    async fn settle(
        &mut self,
        Taken { jobs, is_suspect }: Taken<C>,
        guard: &mut WorkerGuard<C>,
        timer: &mut Pin<Box<Sleep>>,
    ) {
        let count = jobs.len();
        guard.begin(jobs.iter().map(Job::subject).collect(), is_suspect);
        let served = guard.watch(timer, self.serve(jobs, is_suspect)).await;
        guard.step_back();
        if served == Served::PerhapsApplied {
            guard.begin_recovery();
            let subjects = guard.subjects();
            guard.watch(timer, self.recover(&subjects)).await;
        }
        guard.end();
        // Callers that were just answered may have their next operation ready. Without this, the
        // first of those would go by itself, and all the rest would wait for it. But callers across
        // a network take their time, and operations that already wait should not wait for those.
        if count > 1 && self.queue.is_short() {
            yield_now().await;
        }
        self.queue.untaken.wait().await;
    }

    /// Answers these operations, in as many batches as necessary.
    async fn serve(&mut self, jobs: Vec<Job<C>>, is_suspect: bool) -> Served {
        let mut served = Served::Settled;
        // While the server is down, no operation is at fault.
        let mut halving = if self.failures == 0 { Halving::NotYet } else { Halving::Never };
        let mut succeeded = false;
        let mut failed_alone: Vec<C::Subject> = Vec::new();
        let mut later = Vec::new();
        let mut parts = parts(jobs, if is_suspect { Origin::Suspect } else { Origin::Whole });
        while let Some(mut part) = parts.pop() {
            part.jobs.retain(|job| !job.is_idle());
            if part.jobs.is_empty() {
                if part.lost {
                    // The callers are gone, and what was sent for them may still be applied.
                    served = Served::PerhapsApplied;
                }
                continue;
            }
            let sent = self.send(&mut part).await;
            let Failure { mut error, blame } = match sent {
                Ok(replies) => {
                    succeeded = true;
                    later.extend(self.answer(part, replies));
                    continue;
                }
                Err(failure) => failure,
            };
            let halves = match blame {
                Blame::One => Some((Origin::Refused, None)),
                Blame::PerhapsOne => halving.lasts().then_some((Origin::Failed, None)),
                Blame::Size { until } => Some((Origin::Slow, Some(until))),
                Blame::None => None,
            };
            if let Some((origin, until)) = halves.filter(|_| part.jobs.len() > 1) {
                parts.extend(part.halved(origin, until).into_iter().rev());
                continue;
            }
            let Part { jobs, lost, .. } = part;
            if lost {
                served = Served::PerhapsApplied;
                error = StoreError::unknown(error.to_string()).with_source(error);
            }
            match (&*jobs, blame) {
                ([job], Blame::One) => self.queue.suspect(job.subject()),
                ([job], Blame::PerhapsOne) => failed_alone.push(job.subject()),
                _ => {}
            }
            jobs.into_iter().for_each(|job| job.fail(error.clone()));
        }
        if succeeded && matches!(halving, Halving::Until(_)) {
            // The server is up, so these operations were at fault.
            (self.failures, self.rested) = (0, None);
            failed_alone.into_iter().for_each(|subject| self.queue.suspect(subject));
        }
        self.queue.put_back(later);
        served
    }

    /// Answers a committed part, and returns the operations whose answers did not fit. An operation
    /// that failed nevertheless makes its subject a suspect; the answer to a suspect clears it.
    fn answer(&self, part: Part<C>, replies: Vec<Reply<C::Answer>>) -> Vec<Job<C>> {
        let mut later = Vec::new();
        for (mut job, reply) in part.jobs.into_iter().zip(replies) {
            let answer = match reply {
                Reply::Answer(answer) => answer,
                Reply::Later(bytes) => {
                    job.answer_bytes = bytes.max(1);
                    job.lost |= part.lost;
                    later.push(job);
                    continue;
                }
            };
            match &answer {
                Err(error) if !error.is_transient() => self.queue.suspect(job.subject()),
                Ok(_) if part.origin == Origin::Suspect => self.queue.clear(job.subject()),
                Ok(_) | Err(_) => {}
            }
            job.answer(answer);
        }
        later
    }

    /// Tries until everything that was sent is either applied or never will be. Until then, its
    /// subjects stay busy.
    async fn recover(&mut self, subjects: &[C::Subject]) {
        loop {
            self.rest().await;
            let Err(error) = self.committer.connect().await else { break };
            self.pause();
            if self.queue.refuse(subjects, &error) {
                break;
            }
        }
    }

    /// Sends a part until it is answered or refused, or the limits are reached. Once the part may
    /// have been applied, only an answer can tell; without one the outcome is unknown.
    async fn send(&mut self, part: &mut Part<C>) -> Result<Vec<Reply<C::Answer>>, Failure> {
        let now = Instant::now();
        let until = part.until.unwrap_or(now + MAX_TRYING);
        if part.origin == Origin::Failed {
            // The part has been tried often enough, so the next pause need not be long.
            self.failures = 0;
        }
        let tries = match part.origin {
            // While the server is down, later batches are not worth as many tries as the one that
            // found out.
            Origin::Whole | Origin::Refused if self.failures == 0 => MAX_TRIES,
            Origin::Slow if now < until => MAX_TRIES,
            _ => 1,
        };
        let mut tried = 0;
        loop {
            self.rest().await;
            fault::reach("before_commit");
            let connected = self.connect(part).await;
            let questions: Vec<&C::Question> = part.jobs.iter().map(|job| &job.question).collect();
            if questions.is_empty() {
                return Ok(Vec::new());
            }
            let sent = Instant::now();
            let (failed, mut blame) = match connected {
                Ok(()) => match self.committer.commit(&questions).await {
                    Ok(replies) => {
                        let sizes = questions.iter().zip(&replies).map(|(question, reply)| match reply {
                            Reply::Answer(Ok(answer)) => C::size(question, answer),
                            Reply::Answer(Err(_)) => 0,
                            Reply::Later(bytes) => *bytes,
                        });
                        self.queue.took(questions.len(), sizes.sum(), sent.elapsed());
                        fault::reach("committed");
                        self.failures = 0;
                        return Ok(replies);
                    }
                    Err(failed) => (failed, Blame::PerhapsOne),
                },
                Err(error) => (Failed::Again(error), Blame::None),
            };
            let error = match failed {
                // An operation that is alone from the start disturbs no neighbour.
                Failed::Refused(error)
                    if part.origin == Origin::Whole && questions.len() == 1 && error.is_transient() =>
                {
                    blame = Blame::One;
                    error
                }
                Failed::Refused(error) => {
                    self.failures = 0;
                    return Err(Failure { error, blame: Blame::One });
                }
                Failed::Again(error) => error,
                Failed::Lost(error) => {
                    part.lost = true;
                    error
                }
                Failed::Slow(error) => {
                    part.lost = true;
                    if questions.len() > 1 {
                        blame = Blame::Size { until };
                    }
                    error
                }
            };
            if part.origin == Origin::Suspect && blame == Blame::PerhapsOne && !part.lost {
                // The failure means nothing for other operations, which need not pause for it.
                return Err(Failure { error, blame });
            }
            self.pause();
            tried += 1;
            let has_time = Instant::now() < until;
            if tried >= tries || matches!(blame, Blame::Size { .. }) && has_time {
                return Err(Failure { error, blame });
            }
            if !has_time || !error.is_transient() {
                return Err(Failure { error, blame: Blame::None });
            }
        }
    }

    /// Makes sure that there is a connection. If that takes too long, the part is withdrawn, unless
    /// it was sent before.
    async fn connect(&mut self, part: &mut Part<C>) -> Result<(), StoreError> {
        let mut connecting = pin!(self.committer.connect());
        let deadline = part.jobs.iter().map(Job::deadline).min();
        if let Some(deadline) = deadline.filter(|_| !part.lost) {
            // An existing connection needs no timer.
            match timeout_at(deadline, &mut connecting).await {
                Ok(connected) => return connected,
                Err(_) => part.jobs.drain(..).for_each(Job::withdraw),
            }
        }
        connecting.await
    }

    /// Waits until the pause after the last failure is over.
    async fn rest(&mut self) {
        if let Some(rested) = self.rested.take() {
            sleep_until(rested).await;
        }
    }

    fn pause(&mut self) {
        self.rested = Some(Instant::now() + BACKOFF.jittered(self.failures));
        self.failures = self.failures.saturating_add(1);
    }
}
