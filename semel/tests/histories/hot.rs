//! A hot store that all processes share: it loses its content, is silent, slow or down, and
//! receives entries late.

use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use semel::store::{Hot, MemoryCache, Remembered};
use semel::{Fence, Key, StoreError};
use tokio::time::sleep;

use crate::chaos::{Dice, Process};

/// The hot store, as one process sees it.
#[derive(Clone)]
pub(crate) struct Forgetful {
    cache: MemoryCache,
    dice: Dice,
    process: Option<Process>,
}

impl Forgetful {
    pub(crate) fn new(dice: &Dice) -> Self {
        Self { cache: MemoryCache::new(1 << 20), dice: dice.clone(), process: None }
    }

    pub(crate) fn seen_by(&self, process: &Process) -> Self {
        Self { process: Some(process.clone()), ..self.clone() }
    }

    /// Applies a fault on the way, and returns the delay of the answer.
    async fn pass(&self, key: &Key) -> Result<Duration, StoreError> {
        if let Some(process) = &self.process {
            process.alive().await;
        }
        match self.dice.roll(100) {
            0..60 => Ok(Duration::ZERO),
            60..75 => {
                // A flush, an eviction or a restart loses the entry.
                self.cache.bury(key, Fence::new(u64::MAX), Duration::ZERO).await?;
                Ok(Duration::ZERO)
            }
            75..85 => Ok(self.dice.millis(8_000)),
            85..95 => Err(StoreError::unavailable("connection refused")),
            _ => pending().await,
        }
    }
}

#[async_trait]
impl Hot for Forgetful {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError> {
        let late = self.pass(key).await?;
        let found = self.cache.recall(key).await?;
        // The answer is outdated when it arrives.
        sleep(late).await;
        Ok(found)
    }

    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError> {
        let late = self.pass(key).await?;
        let (cache, key, remembered) = (self.cache.clone(), key.clone(), remembered.clone());
        // A request in flight arrives, even if its sender has stopped waiting or died.
        let arrives = tokio::spawn(async move {
            sleep(late).await;
            if late <= within { cache.plant(&key, &remembered, kept, within).await } else { Ok(()) }
        });
        arrives.await.map_err(|e| StoreError::unknown("the history is over").with_source(e))?
    }

    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError> {
        self.pass(key).await?;
        self.cache.bury(key, fence, kept).await
    }
}
