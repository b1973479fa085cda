//! The interface of a hot store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::protocol::answer::Remembered;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;

/// A store that remembers outcomes, in front of a store that decides.
///
/// # Contract
/// - It may forget anything at any time.
/// - It remembers nothing for longer than the given time.
/// - Of two entries for one key, the one with the higher [`Rank`] stays.
/// - An entry that it cannot read counts as absent.
#[async_trait]
pub trait Hot: Send + Sync + 'static {
    /// The short name of the hot store for logs and metrics.
    fn name(&self) -> &'static str;

    /// The outcome that is remembered of a key; `None` if it was forgotten.
    async fn recall(&self, key: &Key) -> Result<Option<Remembered>, StoreError>;

    /// Remembers this of a key for the given time. An entry that arrives too late, by the hot
    /// store's clock, is ignored.
    async fn plant(
        &self,
        key: &Key,
        remembered: &Remembered,
        kept: Duration,
        within: Duration,
    ) -> Result<(), StoreError>;

    /// Forgets an outcome with this fence or a lower one, and remembers for the given time that it
    /// is forgotten.
    async fn bury(&self, key: &Key, fence: Fence, kept: Duration) -> Result<(), StoreError>;
}

/// The order of two entries for one key: the one with the higher fence is newer, and of two with
/// the same fence the one that marks the key as forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The fence of the attempt; or a fence at least as high as any that was forgotten.
    pub fence: Fence,
    /// Set if the key was forgotten; not set if it is done.
    pub forgotten: bool,
}

/// A shared hot store is a hot store.
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
