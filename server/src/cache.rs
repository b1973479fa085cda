//! Redis as a cache that may become available later.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use semel::store::{Hot, RedisOptions, Remembered};
use semel::{Fence, Key, RedisStore, StoreError};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// The pause before the next attempt to reach a Redis that is down.
const PAUSE: Duration = Duration::from_secs(1);

/// A Redis that is not connected yet. Until it is, the cache is empty: requests take longer and
/// nothing else changes.
pub(crate) struct LateRedis {
    found: Arc<OnceLock<RedisStore>>,
    _search: AbortOnDropHandle<()>,
}

impl LateRedis {
    /// Connects in the background, for as long as it takes.
    pub(crate) fn search(options: RedisOptions) -> Self {
        let found = Arc::new(OnceLock::new());
        let place = Arc::clone(&found);
        let search = async move {
            loop {
                sleep(PAUSE).await;
                match options.clone().connect().await {
                    Ok(store) => {
                        let _ = place.set(store);
                        return tracing::info!("the cache is there");
                    }
                    Err(error) => tracing::debug!(%error, "the cache is still away"),
                }
            }
        };
        Self { found, _search: AbortOnDropHandle::new(tokio::spawn(search)) }
    }

    fn store(&self) -> Result<&RedisStore, StoreError> {
        self.found.get().ok_or_else(|| StoreError::unavailable("the cache has not been reached yet"))
    }
}

#[async_trait]
impl Hot for LateRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError> {
        self.store()?.recall(key).await
    }

    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError> {
        self.store()?.plant(key, remembered, kept, within).await
    }

    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError> {
        self.store()?.bury(key, fence, kept).await
    }
}
