//! A store as one process sees it: through a network that delays, refuses, loses and repeats
//! messages.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use semel::StoreError;
use testkit::gates::Path;
use tokio::time::sleep;

use crate::locks::Locking;

/// A seeded random generator: the same seed gives the same history.
#[derive(Clone)]
pub(crate) struct Dice(Arc<Mutex<SmallRng>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// A number below `end`.
    pub(crate) fn roll(&self, end: u64) -> u64 {
        self.0.lock().unwrap().random_range(0..end)
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.roll(100) < chance
    }

    pub(crate) fn millis(&self, end: u64) -> Duration {
        Duration::from_millis(self.roll(end))
    }
}

/// One process: its way to the store, and whether it has crashed.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) store: Locking,
    dice: Dice,
    crashed: Arc<AtomicBool>,
    /// Shared by all processes: set once the network works again.
    healed: Arc<AtomicBool>,
}

/// The fate of one request to the store.
enum Fate {
    Answered,
    /// The request arrives late, possibly after its sender has given up.
    Delayed(Duration),
    /// The request is applied, and the answer takes so long that its lease may be over.
    AnsweredLate(Duration),
    /// The request is never sent.
    Refused,
    /// The request is lost on its way.
    Lost(Duration),
    /// The request is applied, and the connection breaks before the answer.
    AnswerLost(Duration),
    /// The request is applied, and never answered.
    Silence,
    /// The request is applied, and a copy of it arrives later. The contract of a store does not
    /// allow a claim to be answered then, so the sender gets an unknown error.
    Repeated(Duration),
}

impl Process {
    pub(crate) fn new(store: &Locking, dice: &Dice, healed: &Arc<AtomicBool>) -> Self {
        let crashed = Arc::default();
        Self { store: store.clone(), dice: dice.clone(), crashed, healed: Arc::clone(healed) }
    }

    pub(crate) fn crash(&self) {
        self.crashed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::Relaxed)
    }

    /// Never completes once the process has crashed.
    pub(crate) async fn alive(&self) {
        if self.has_crashed() {
            pending::<()>().await;
        }
    }

    fn fate(&self) -> Fate {
        if self.healed.load(Ordering::Relaxed) {
            return Fate::Answered;
        }
        match self.dice.roll(100) {
            0..66 => Fate::Answered,
            66..70 => Fate::AnsweredLate(self.dice.millis(4_000)),
            70..76 => Fate::Delayed(self.dice.millis(8_000)),
            76..80 => Fate::Refused,
            80..85 => Fate::Lost(self.dice.millis(300)),
            85..92 => Fate::AnswerLost(self.dice.millis(300)),
            92..94 => Fate::Silence,
            _ => Fate::Repeated(self.dice.millis(12_000)),
        }
    }
}

impl Path for Process {
    type End = Locking;

    async fn pass<T, F>(
        &self,
        _verb: &'static str,
        call: impl Fn(Locking) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.alive().await;
        let answer = match self.fate() {
            Fate::Answered => call(self.store.clone()).await,
            Fate::Delayed(time) => {
                // A request in flight arrives, even if its sender has stopped waiting or died.
                let (store, arrived) = (self.store.clone(), call);
                let sent = tokio::spawn(async move {
                    sleep(time).await;
                    arrived(store).await.map(|_| ())
                });
                let _applied = sent.await;
                Err(StoreError::unknown("answered too late"))
            }
            Fate::AnsweredLate(time) => {
                let answer = call(self.store.clone()).await;
                sleep(time).await;
                answer
            }
            Fate::Refused => Err(StoreError::unavailable("connection refused")),
            Fate::Lost(time) => {
                sleep(time).await;
                Err(StoreError::unknown("connection lost before it was applied"))
            }
            Fate::AnswerLost(time) => {
                let _applied = call(self.store.clone()).await;
                sleep(time).await;
                Err(StoreError::unknown("connection lost after it was applied"))
            }
            Fate::Silence => {
                let _applied = call(self.store.clone()).await;
                pending().await
            }
            Fate::Repeated(time) => {
                let _applied = call(self.store.clone()).await;
                let store = self.store.clone();
                tokio::spawn(async move {
                    sleep(time).await;
                    let _applied_again = call(store).await;
                });
                Err(StoreError::unknown("sent twice on the way"))
            }
        };
        self.alive().await;
        answer
    }
}
