//! Moments of the store's clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment of the store's clock, in microseconds since the Unix epoch.
///
/// Only stores make timestamps. The application's clock takes no part in any decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A timestamp from microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The current time of this host's clock, for stores without a clock of their own.
    pub(crate) fn of_host() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }

    /// This moment plus a duration.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        let micros = u64::try_from(while_.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// This moment minus a duration; the epoch if that is earlier.
    #[must_use]
    pub fn before(self, while_: Duration) -> Self {
        let micros = u64::try_from(while_.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(at.0)
    }
}

/// The format of RFC 3339, in UTC, with microseconds: `2026-11-15T09:30:00.000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years are counted from March, so that the leap day is the last one; 400 of them have
        // 146,097 days.
        let from_march = days + 719_468;
        let (era, day) = (from_march / 146_097, from_march % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = era * 400 + year + carry;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_rfc_3339() {
        let shown = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000 + 5).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00.000005Z");
        assert_eq!(shown(951_782_399), "2000-02-28T23:59:59.000005Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00.000005Z");
        assert_eq!(shown(951_868_800), "2000-03-01T00:00:00.000005Z");
        assert_eq!(shown(1_763_198_123), "2025-11-15T09:15:23.000005Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00.000005Z");
    }
}
