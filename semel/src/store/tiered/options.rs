//! The options of a hot store in front of a durable one.

use std::time::Duration;

use super::front::Limits;
use super::{Hot, Tiered};
use crate::store::{Store, limits};
use crate::words::error::StoreError;
use crate::words::terms::Terms;

/// The options of a [`Tiered`]: the use and the limits of its hot store.
///
/// ```
/// use std::time::Duration;
///
/// use semel::MemoryStore;
/// use semel::store::{MemoryCache, TieredOptions};
///
/// let options = TieredOptions::new().with_retention(Duration::from_secs(60));
/// let tier = options.open(MemoryCache::new(1 << 20), MemoryStore::new())?;
/// # Ok::<(), semel::StoreError>(())
/// ```
///
/// The setters take any value in any order. [`open`](Self::open) checks all values, and its error
/// names the setter and the values that it accepts.
#[derive(Debug, Clone)]
pub struct TieredOptions {
    pub(super) limits: Limits,
    pub(super) hot_first: bool,
}

impl TieredOptions {
    /// The time for which the hot store remembers an outcome, unless set.
    pub const DEFAULT_RETENTION: Duration = Duration::from_secs(3_600);
    /// The time limit for an answer of the hot store, unless set.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

    /// The default options.
    pub fn new() -> Self {
        let limits = Limits { retention: Self::DEFAULT_RETENTION, timeout: Self::DEFAULT_TIMEOUT };
        Self { limits, hot_first: false }
    }

    /// Sets the longest time for which the hot store remembers an outcome, from 10 seconds to 10
    /// years. With a [`MemoryCache`](crate::store::MemoryCache), another process may replay a
    /// forgotten outcome for as long.
    #[must_use]
    pub fn with_retention(self, retention: Duration) -> Self {
        Self { limits: Limits { retention, ..self.limits }, ..self }
    }

    /// Sets the time limit for an answer of the hot store, from 1 ms to 10 seconds.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { limits: Limits { timeout, ..self.limits }, ..self }
    }

    /// Plants every outcome in the hot store as soon as it is recorded, and asks the hot store first
    /// for every claim. This is for callers that repeat most of their keys, or where a repeat must
    /// not reach the durable store even once; new keys cost more.
    #[must_use]
    pub fn with_hot_first(self) -> Self {
        Self { hot_first: true, ..self }
    }

    /// Puts the hot store in front of the durable one.
    ///
    /// # Errors
    /// Refused if a value is out of its limits.
    pub fn open<H: Hot, D: Store>(self, hot: H, durable: D) -> Result<Tiered<H, D>, StoreError> {
        let Limits { retention, timeout } = self.limits;
        limits::time("with_retention", retention, Duration::from_secs(10), Terms::MAX_RETENTION)?;
        limits::time("with_timeout", timeout, Duration::from_millis(1), Duration::from_secs(10))?;
        Ok(Tiered::with_options(hot, durable, &self))
    }
}

impl Default for TieredOptions {
    fn default() -> Self {
        Self::new()
    }
}
