//! The hot store as a tier meets it: it may be slow or dead, and nobody is to notice.

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

/// For how long after a question to the durable store its answer may be planted. Later it may not: the key may have been
/// forgotten since.
const PLANT_WITHIN: Duration = Duration::from_secs(5);
/// For how long it is remembered that a key was forgotten: for longer than anything older can be planted.
const BURIED_FOR: Duration = Duration::from_secs(30);
/// For how long a burial is waited for; an operator waits for it.
const BURY_LIMIT: Duration = Duration::from_secs(5);
/// How many outcomes may be on their way; the hot store goes without the others.
const MAX_PLANTING: usize = 1_024;

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
    /// For how long something is remembered at most.
    pub(super) retention: Duration,
    /// For how long an answer is waited for.
    pub(super) timeout: Duration,
}

impl<H: Hot> Front<H> {
    pub(super) fn new(hot: Arc<H>, limits: Limits) -> Self {
        let (breaker, meter) = (Breaker::new(), HotMeter::new(hot.name()));
        let (planting, tasks) = (Arc::new(Semaphore::new(MAX_PLANTING)), TaskTracker::new());
        // It is never opened, so that it can be waited for more than once; a closed one takes tasks all the same.
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

    /// What is remembered of a key; nothing if there is no answer.
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

    /// Plants in the background what was asked of the durable store at `began`, and is kept there for so long.
    pub(super) fn plant(self: &Arc<Self>, key: &Key, remembered: Remembered, left: Duration, began: Instant) {
        let turn = self.breaker.turn();
        if turn == Turn::Aside {
            return;
        }
        let until = Instant::now() + left;
        let Ok(room) = Arc::clone(&self.planting).try_acquire_owned() else { return };
        let (front, key) = (Arc::clone(self), key.clone());
        self.tasks.spawn(async move {
            let within = PLANT_WITHIN.saturating_sub(began.elapsed());
            // It may get there that much later.
            let left = until.saturating_duration_since(Instant::now());
            let kept = left.min(front.limits.retention).saturating_sub(within);
            if !within.is_zero() && !kept.is_zero() {
                let _planted = front.judged(turn, front.hot.plant(&key, &remembered, kept, within)).await;
            }
            drop(room);
        });
    }

    /// Forgets a key, however the hot store has fared of late.
    ///
    /// # Errors
    /// Unknown if the hot store does not say that it has: the durable store may have made its change.
    pub(super) async fn bury(&self, key: &Key, fence: Fence) -> Result<(), StoreError> {
        let late = |_| Err(StoreError::unavailable(format!("no answer within {BURY_LIMIT:?}")));
        let buried = timeout(BURY_LIMIT, self.hot.bury(key, fence, BURIED_FOR)).await.unwrap_or_else(late);
        buried.map_err(|e| {
            StoreError::unknown(format!(
                "the durable store was asked, but the hot one ({}) did not hear of it, and may replay what it remembers \
                 for up to {:?}; try again",
                self.hot.name(),
                self.limits.retention
            ))
            .with_source(e)
        })
    }

    /// Waits until nothing is on its way.
    pub(super) async fn drain(&self) {
        self.tasks.wait().await;
    }

    /// The answer of the hot store, if it comes in time; what it came to is remembered.
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
                    tracing::warn!(store = self.hot.name(), %error, "the hot store is put aside, and tried again");
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
        // A store that knows the answer needs no timer.
        if let Poll::Ready(answer) = poll_fn(|context| Poll::Ready(question.as_mut().poll(context))).await {
            return answer;
        }
        let late = |_| Err(StoreError::unavailable(format!("no answer within {:?}", self.limits.timeout)));
        timeout(self.limits.timeout, question).await.unwrap_or_else(late)
    }
}
