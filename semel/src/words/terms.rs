//! What a claim agrees to: how long its lease and its record last, and what becomes of it after a crash.

use std::time::Duration;

use thiserror::Error;

/// What happens to a key when its attempt is lost: the lease is over, and there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AfterCrash {
    /// Nothing runs again: the key is held until an operator or a reconcile hook says what happened.
    Hold,
    /// The next attempt takes over and runs again; effects happen at least once.
    Retry,
    /// The next attempt takes over; outcome and effect commit in one transaction of the store's database, so the
    /// lost attempt was rolled back.
    Transactional,
}

impl AfterCrash {
    /// The word in lower case, as it is stored and configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Retry => "retry",
            Self::Transactional => "transactional",
        }
    }

    /// The policy of this word, if it is one.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Hold, Self::Retry, Self::Transactional].into_iter().find(|policy| policy.as_str() == word)
    }
}

/// The terms of a claim: how long its attempt may run without a sign of life, how long the record is kept, and what
/// happens if the attempt is lost. The record keeps the latter two.
///
/// Lease and retention are two things: a crash must not lock a key for as long as its outcome is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    lease: Duration,
    retention: Duration,
    after_crash: AfterCrash,
}

impl Terms {
    /// The shortest lease. Below, a scheduling hiccup looks like a crash.
    pub const MIN_LEASE: Duration = Duration::from_millis(100);
    /// The longest lease. A running attempt renews it, so it need not be as long as the work.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 3600);
    /// The longest retention.
    pub const MAX_RETENTION: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// The longest time that a released record is kept: longer than any copy of its claim can take to arrive, with a
    /// margin. It holds no outcome, so nothing else needs it.
    ///
    /// An engine sets a claim's `not_after` to at most 65 s after it is sent: the longest patience, and one call.
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
    /// [`TermsError`] if the lease is shorter than [`Terms::MIN_LEASE`] or longer than [`Terms::MAX_LEASE`], or
    /// the retention is shorter than the lease or longer than [`Terms::MAX_RETENTION`].
    pub fn new(lease: Duration, retention: Duration) -> Result<Self, TermsError> {
        within("lease", lease, Self::MIN_LEASE, Self::MAX_LEASE)?;
        if retention < lease {
            return Err(TermsError::RetentionUnderLease { retention, lease });
        }
        within("retention", retention, lease, Self::MAX_RETENTION)?;
        Ok(Self { lease, retention, after_crash: AfterCrash::Hold })
    }

    /// For how long an attempt may run without being heard of.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// For how long the record is kept once it is settled; for a lost attempt, from the end of its lease. A released
    /// record is kept for [`Terms::RELEASED_RETENTION`] at most.
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// The same terms with another policy for a lost attempt.
    #[must_use]
    pub fn with_after_crash(self, after_crash: AfterCrash) -> Self {
        Self { after_crash, ..self }
    }

    /// What happens if the attempt is lost.
    pub fn after_crash(&self) -> AfterCrash {
        self.after_crash
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
