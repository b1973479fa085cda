//! Moments by the store's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment by the store's clock, in microseconds since the Unix epoch.
///
/// Only stores make these. The application's clock takes no part in any decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This moment and a while.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        let micros = u64::try_from(while_.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(at.0)
    }
}
