//! The terms of a claim: the length of its lease and retention, and the policy after a crash.

use std::time::Duration;

use thiserror::Error;

/// The fate of a key whose attempt is lost: the lease is over, and there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AfterCrash {
    /// No attempt runs again: the key is held until an operator or a reconcile hook says what
    /// happened.
    Hold,
    /// The next attempt takes over and runs again; effects happen at least once.
    Retry,
    /// The next attempt takes over; outcome and effect commit in one transaction of the store's
    /// database, so the effect of the lost attempt was rolled back.
    Transactional,
}

impl AfterCrash {
    /// The policy as a word in lower case, as it is stored and configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Retry => "retry",
            Self::Transactional => "transactional",
        }
    }

    /// The policy with this name, if there is one.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Hold, Self::Retry, Self::Transactional].into_iter().find(|policy| policy.as_str() == word)
    }
}

/// The terms of a claim: how long its attempt may run without a sign of life, how long the record
/// is kept, and what happens if the attempt is lost. The record keeps the latter two.
///
/// Lease and retention are separate, so that a crash does not lock a key for as long as its outcome
/// is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    lease: Duration,
    retention: Duration,
    after_crash: AfterCrash,
}

impl Terms {
    /// The shortest lease. With a shorter one, a short pause of the scheduler would look like a
    /// crash.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease. A running attempt renews it, so it need not be as long as the work.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 3600);
    /// The longest retention.
    pub const MAX_RETENTION: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// The longest time for which a released record is kept: longer than any copy of its claim can
    /// take to arrive, with a margin. The record holds no outcome, so it has no other use.
    ///
    /// An engine sets a claim's `not_after` to at most 65 s after it is sent: the longest patience,
    /// and one call.
    pub const RELEASED_RETENTION: Duration = Duration::from_secs(120);

    /// A lease of 30 s, a retention of 24 h, and `hold`.
    pub const DEFAULT: Self = Self {
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(24 * 3600),
        after_crash: AfterCrash::Hold,
    };

    /// Terms within the limits, with `hold`.
    ///
    /// # Errors
    /// [`TermsError`] if the lease is shorter than [`Terms::MIN_LEASE`] or longer than
    /// [`Terms::MAX_LEASE`], or the retention is shorter than the lease or longer than
    /// [`Terms::MAX_RETENTION`].
    pub fn new(lease: Duration, retention: Duration) -> Result<Self, TermsError> {
        within("lease", lease, Self::MIN_LEASE, Self::MAX_LEASE)?;
        if retention < lease {
            return Err(TermsError::RetentionUnderLease { retention, lease });
        }
        within("retention", retention, lease, Self::MAX_RETENTION)?;
        Ok(Self { lease, retention, after_crash: AfterCrash::Hold })
    }

    /// Terms with the values that are nearest to these within the limits, with `hold`.
    pub(crate) fn clamped(lease: Duration, retention: Duration) -> Self {
        let lease = lease.clamp(Self::MIN_LEASE, Self::MAX_LEASE);
        let retention = retention.clamp(lease, Self::MAX_RETENTION);
        Self { lease, retention, after_crash: AfterCrash::Hold }
    }

    /// The time for which an attempt may run without a sign of life.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The time for which the record is kept once it is settled; for a lost attempt, from the end
    /// of its lease. A released record is kept for at most [`Terms::RELEASED_RETENTION`].
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// The same terms with another policy for a lost attempt.
    #[must_use]
    pub fn with_after_crash(self, after_crash: AfterCrash) -> Self {
        Self { after_crash, ..self }
    }

    /// The policy if the attempt is lost.
    pub fn after_crash(&self) -> AfterCrash {
        self.after_crash
    }
}

/// Checks that a duration is within its limits.
pub(crate) fn within(
    what: &'static str,
    found: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), TermsError> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(TermsError::Range { what, found, min, max }) }
}

/// The error for a duration that breaks a limit; the message names it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TermsError {
    /// A duration is out of range.
    #[error("{what} of {found:?} is not within {min:?} to {max:?}")]
    Range {
        /// The name of the duration.
        what: &'static str,
        /// The duration that was given.
        found: Duration,
        /// The lower limit.
        min: Duration,
        /// The upper limit.
        max: Duration,
    },
    /// The record would expire while its attempt runs.
    #[error("retention of {retention:?} is shorter than the lease of {lease:?}")]
    RetentionUnderLease {
        /// The retention.
        retention: Duration,
        /// The lease.
        lease: Duration,
    },
}
