//! A hot store that may be slow or down, without an effect on the callers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::breaker::{Breaker, Turn};
use super::hot::Hot;
use crate::observe::HotMeter;
use crate::protocol::answer::Remembered;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;

/// The time after a question to the durable store within which its answer may be planted. Later it
/// may not: the key may have been forgotten since.
const PLANT_WITHIN: Duration = Duration::from_secs(5);
/// The time for which a forgotten key is remembered as such: longer than anything older can be
/// planted.
const BURIED_FOR: Duration = Duration::from_secs(30);
/// The time limit for a burial, for which an operator waits.
const BURY_LIMIT: Duration = Duration::from_secs(5);
/// The room for outcomes in flight to the hot store, in units of 1 KiB; an outcome for which there
/// is none is not planted.
const PLANTING_UNITS: u32 = 1_024;
const UNIT_BYTES: usize = 1 << 10;

pub(super) struct Front<H> {
    hot: Arc<H>,
    limits: Limits,
    breaker: Breaker,
    meter: HotMeter,
    planting: Arc<Semaphore>,
    tasks: TaskTracker,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The longest time for which an outcome is remembered.
    pub(super) retention: Duration,
    /// The time limit for an answer.
    pub(super) timeout: Duration,
}

impl<H: Hot> Front<H> {
    pub(super) fn new(hot: Arc<H>, limits: Limits) -> Self {
        let (breaker, meter) = (Breaker::new(), HotMeter::new(hot.name()));
        let (planting, tasks) = (Arc::new(Semaphore::new(PLANTING_UNITS as usize)), TaskTracker::new());
        // The tracker stays closed, so that it can be waited for more than once; a closed tracker
        // still accepts tasks.
        tasks.close();
        Self { hot, limits, breaker, meter, planting, tasks }
    }

    /// The same hot store with other limits.
    pub(super) fn with(&self, change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = self.limits;
        change(&mut limits);
        Self::new(Arc::clone(&self.hot), limits)
    }

    pub(super) fn hot(&self) -> &H {
        &self.hot
    }

    /// The outcome that is remembered of a key; `None` if there is no answer.
    pub(super) async fn recall(self: &Arc<Self>, key: &Key) -> Option<Remembered> {
        match self.breaker.turn() {
            Turn::Ask => {
                let answer = self.judged(Turn::Ask, self.hot.recall(key)).await;
                self.meter.recall(match &answer {
                    Ok(Some(_)) => "hit",
                    Ok(None) => "miss",
                    Err(_) => "failed",
                });
                answer.ok().flatten()
            }
            turn => {
                self.meter.recall("aside");
                if turn == Turn::Try {
                    let (front, key) = (Arc::clone(self), key.clone());
                    self.tasks.spawn(async move {
                        let _tried = front.judged(Turn::Try, front.hot.recall(&key)).await;
                    });
                }
                None
            }
        }
    }

    /// Plants in the background the answer to a question that the durable store was asked at
    /// `began`, and that it keeps for the time `left`.
    pub(super) fn plant(self: &Arc<Self>, key: &Key, remembered: Remembered, left: Duration, began: Instant) {
        let turn = self.breaker.turn();
        if turn == Turn::Aside {
            return;
        }
        let until = Instant::now() + left;
        let bytes = remembered.done.outcome.body().map_or(0, |body| body.len());
        let units = u32::try_from(bytes / UNIT_BYTES + 1).unwrap_or(u32::MAX).min(PLANTING_UNITS);
        let Ok(room) = Arc::clone(&self.planting).try_acquire_many_owned(units) else { return };
        let (front, key) = (Arc::clone(self), key.clone());
        self.tasks.spawn(async move {
            let within = PLANT_WITHIN.saturating_sub(began.elapsed());
            // The hot store may receive it that much later.
            let left = until.saturating_duration_since(Instant::now());
            let kept = left.min(front.limits.retention).saturating_sub(within);
            if !within.is_zero() && !kept.is_zero() {
                let _planted = front.judged(turn, front.hot.plant(&key, &remembered, kept, within)).await;
            }
            drop(room);
        });
    }

    /// Forgets a key, whether or not the circuit breaker is open.
    ///
    /// # Errors
    /// Unknown if the hot store does not confirm it: the durable store may have made its change.
    pub(super) async fn bury(&self, key: &Key, fence: Fence) -> Result<(), StoreError> {
        let late = |_| Err(StoreError::unavailable(format!("no answer within {BURY_LIMIT:?}")));
        let buried = timeout(BURY_LIMIT, self.hot.bury(key, fence, BURIED_FOR)).await.unwrap_or_else(late);
        buried.map_err(|e| {
            StoreError::unknown(format!(
                "the durable store was asked, but the hot one ({}) was not reached, and may replay an outcome \
                 for up to {:?}; try again",
                self.hot.name(),
                self.limits.retention
            ))
            .with_source(e)
        })
    }

    /// Waits until nothing is in flight to the hot store.
    pub(super) async fn drain(&self) {
        self.tasks.wait().await;
    }

    /// The answer of the hot store, if it comes in time; the circuit breaker records success or
    /// failure.
    async fn judged<T>(
        &self,
        turn: Turn,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = self.in_time(question).await;
        match &answer {
            Ok(_) => {
                if self.breaker.succeeded() {
                    tracing::info!(store = self.hot.name(), "the hot store answers again");
                }
            }
            Err(error) => {
                if self.breaker.failed(turn) {
                    tracing::warn!(store = self.hot.name(), %error, "the hot store fails: it is skipped, and tried again");
                }
            }
        }
        answer
    }

    async fn in_time<T>(
        &self,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut question = pin!(question);
        // A store that answers at once needs no timer.
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(question.as_mut().poll(context))).await {
            return answer;
        }
        let late = |_| Err(StoreError::unavailable(format!("no answer within {:?}", self.limits.timeout)));
        timeout(self.limits.timeout, question).await.unwrap_or_else(late)
    }
}
