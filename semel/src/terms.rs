//! The two durations of a claim.

use std::time::Duration;

use thiserror::Error;

/// For how long an attempt may run unheard of, and for how long its record is kept.
///
/// Two different things: a crash must not lock a key for as long as its outcome is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    lease: Duration,
    retention: Duration,
}

impl Terms {
    /// The shortest lease. Below, a scheduling hiccup looks like a crash.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease. A running attempt renews it, so it need not be as long as the work.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 3600);
    /// The longest retention.
    pub const MAX_RETENTION: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// A lease of 30 s and a retention of 24 h.
    pub const DEFAULT: Self =
        Self { lease: Duration::from_secs(30), retention: Duration::from_secs(24 * 3600) };

    /// Terms within the limits.
    ///
    /// # Errors
    /// [`TermsError`] if the lease is shorter than [`Terms::MIN_LEASE`] or longer than [`Terms::MAX_LEASE`], or
    /// the retention is shorter than the lease or longer than [`Terms::MAX_RETENTION`].
    pub fn new(lease: Duration, retention: Duration) -> Result<Self, TermsError> {
        within("lease", lease, Self::MIN_LEASE, Self::MAX_LEASE)?;
        if retention < lease {
            return Err(TermsError::RetentionUnderLease { retention, lease });
        }
        within("retention", retention, lease, Self::MAX_RETENTION)?;
        Ok(Self { lease, retention })
    }

    /// For how long an attempt may run without being heard of.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// For how long the record is kept, counted from the claim.
    pub fn retention(&self) -> Duration {
        self.retention
    }
}

/// Whether a duration is within its limits.
pub(crate) fn within(
    what: &'static str,
    found: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), TermsError> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(TermsError::Range { what, found, min, max }) }
}

/// A duration that breaks a limit; the message names it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TermsError {
    /// A duration is out of range.
    #[error("{what} of {found:?} is not within {min:?} to {max:?}")]
    Range {
        /// Which duration.
        what: &'static str,
        /// What was given.
        found: Duration,
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// The record would be forgotten while its attempt runs.
    #[error("retention of {retention:?} is shorter than the lease of {lease:?}; set the lease first")]
    RetentionUnderLease {
        /// The retention.
        retention: Duration,
        /// The lease.
        lease: Duration,
    },
}
