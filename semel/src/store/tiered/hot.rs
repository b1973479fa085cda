//! What a hot store has to do.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::protocol::answer::Remembered;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;

/// A store that remembers what is done, before one that decides.
///
/// # Contract
/// - It may forget anything at any time.
/// - It remembers nothing for longer than it was told to.
/// - Of two things about one key, the one with the higher [`Rank`] stays.
/// - What it cannot read is nothing.
#[async_trait]
pub trait Hot: Send + Sync + 'static {
    /// A short name for logs and metrics.
    fn name(&self) -> &'static str;

    /// What is remembered of a key; nothing if it was forgotten.
    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError>;

    /// Remembers this of a key for so long. If it gets there only after a while, by the hot store's clock, it is left
    /// alone.
    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError>;

    /// Forgets what has this fence or a lower one, and remembers for so long that it has.
    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError>;
}

/// What is newer of two things that are remembered of one key: what has the higher fence, and of two with the same fence
/// the one that says that the key was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The fence of the attempt; or one that is as high as any that was forgotten.
    pub fence: Fence,
    /// Whether it was forgotten, or is done.
    pub forgotten: bool,
}

/// A shared hot store is one.
#[async_trait]
impl<H: Hot + ?Sized> Hot for Arc<H> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError> {
        (**self).recall(key).await
    }

    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError> {
        (**self).plant(key, remembered, kept, within).await
    }

    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError> {
        (**self).bury(key, fence, kept).await
    }
}
