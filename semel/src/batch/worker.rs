//! The task that empties the queue into a committer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::queue::{Job, Queue};
use super::{Committer, Failed};
use crate::error::StoreError;
use crate::fault;

/// After this long a committer does not count as at work any more: others take what waits, however little it is.
const LONG: Duration = Duration::from_millis(10);
/// How often a batch is sent, and for how long, before its callers hear that it failed.
pub(super) const MAX_TRIES: u32 = 6;
pub(super) const MAX_TRYING: Duration = Duration::from_secs(2);
/// The pause after a failure: it doubles up to the longest, and half of it is left to chance.
const MIN_PAUSE: Duration = Duration::from_millis(20);
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// What became of the questions of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    Settled,
    /// The connection was lost, and something may still be applied.
    PerhapsApplied,
}

/// What goes out together.
struct Part<C: Committer> {
    jobs: Vec<Job<C>>,
    /// Whether it was sent before and may have been applied then, by itself or as part of something larger.
    lost: bool,
}

pub(super) struct Worker<C: Committer> {
    queue: Arc<Queue<C>>,
    committer: C,
    /// How many tries in a row have failed.
    failures: u32,
    /// When the pause after the last failure is over.
    rested: Option<Instant>,
}

impl<C: Committer> Worker<C> {
    pub(super) fn new(queue: Arc<Queue<C>>, committer: C) -> Self {
        Self { queue, committer, failures: 0, rested: None }
    }

    /// Empties the queue until it is closed.
    pub(super) async fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        // Set anew for each batch: to put off a timer is cheaper than to make one.
        let mut long = Box::pin(sleep(LONG));
        while let Some(jobs) = queue.next().await {
            let subjects: Vec<C::Subject> = jobs.iter().map(|job| C::subject(&job.question)).collect();
            long.as_mut().reset(Instant::now() + LONG);
            let mut at_work = true;
            let served = {
                let mut serving = pin!(self.serve(jobs));
                poll_fn(|context| {
                    let served = serving.as_mut().poll(context);
                    if served.is_pending() && at_work && long.as_mut().poll(context).is_ready() {
                        at_work = false;
                        queue.step_back();
                    }
                    served
                })
                .await
            };
            if at_work {
                queue.step_back();
            }
            if served == Served::PerhapsApplied {
                self.recover(&subjects).await;
            }
            queue.release(&subjects);
            // Those who were answered may have the next question ready. Without this, the first of them would go by
            // itself, and all the others would wait for it. But those who came over a network take their time, and
            // whoever waits already should not wait for them.
            if subjects.len() > 1 && queue.is_short() {
                yield_now().await;
            }
        }
    }

    /// Answers these questions, in as many batches as it takes.
    async fn serve(&mut self, jobs: Vec<Job<C>>) -> Served {
        let mut served = Served::Settled;
        let is_apart = |job: &Job<C>| C::is_apart(&job.question);
        let (apart, together): (Vec<_>, Vec<_>) = match jobs.iter().any(is_apart) {
            true => jobs.into_iter().partition(is_apart),
            false => (Vec::new(), jobs),
        };
        let mut parts = vec![Part { jobs: apart, lost: false }, Part { jobs: together, lost: false }];
        while let Some(mut part) = parts.pop() {
            part.jobs.retain(|job| !job.is_idle());
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

    /// Goes on until nothing that was sent can be applied any more. Until then, whom it was about cannot be
    /// asked.
    async fn recover(&mut self, subjects: &[C::Subject]) {
        self.queue.recovering(true);
        loop {
            self.rest().await;
            let Err(error) = self.committer.connect().await else { break };
            self.pause();
            if self.queue.refuse(subjects, &error) {
                break;
            }
        }
        self.queue.recovering(false);
    }

    /// Sends a batch until it is answered or refused, or the patience ends. Once it may have been applied, only
    /// an answer can tell; without one the outcome is unknown.
    async fn send(&mut self, part: &mut Part<C>) -> Result<Vec<Result<C::Answer, StoreError>>, Failed> {
        let questions: Vec<&C::Question> = part.jobs.iter().map(|job| &job.question).collect();
        let began = Instant::now();
        // While the other side is down, a batch is not worth as many tries as the one that found out.
        let tries = if self.failures == 0 { MAX_TRIES } else { 1 };
        let mut tried = 0;
        loop {
            self.rest().await;
            fault::reach("before_commit");
            let failed = match self.committer.connect().await {
                Ok(()) => match self.committer.commit(&questions).await {
                    Ok(answers) => {
                        fault::reach("committed");
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
