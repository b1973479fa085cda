//! The policy of an engine: the rule for a key after a crash, and the limits of an attempt.

use std::time::Duration;

use thiserror::Error;

use crate::protocol::ask::Takeover;
use crate::words::outcome::Outcome;
use crate::words::terms::{self, AfterCrash, Terms, TermsError};

/// The rule for a key after a crash, and the limits of an attempt.
///
/// ```
/// use std::time::Duration;
/// use semel::Policy;
///
/// let safe = Policy::hold();
/// let eager = Policy::retry().with_lease(Duration::from_secs(10)).with_wait(Duration::from_secs(2));
///
/// let refused = Policy::hold().with_lease(Duration::ZERO).check().unwrap_err();
/// assert_eq!(refused.to_string(), "lease of 0ns is not within 100ms to 86400s");
/// # assert!(safe.check().is_ok() && eager.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    lease: Duration,
    retention: Duration,
    after_crash: AfterCrash,
    patience: Duration,
    wait: Duration,
    max_body_bytes: usize,
}

impl Policy {
    /// The patience unless set.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);
    /// The largest body that is recorded, unless set.
    pub const DEFAULT_MAX_BODY_BYTES: usize = 1 << 20;
    /// The longest patience that can be set.
    pub const MAX_PATIENCE: Duration = Duration::from_secs(60);
    /// The longest wait of a repeat for the running attempt that can be set.
    pub const MAX_WAIT: Duration = Duration::from_secs(300);

    /// The policy under which the handler starts at most once. After a crash the key is held,
    /// because what the lost attempt did is not known.
    pub fn hold() -> Self {
        Self {
            lease: Terms::DEFAULT.lease(),
            retention: Terms::DEFAULT.retention(),
            after_crash: AfterCrash::Hold,
            patience: Self::DEFAULT_PATIENCE,
            wait: Duration::ZERO,
            max_body_bytes: Self::DEFAULT_MAX_BODY_BYTES,
        }
    }

    /// The policy under which the next attempt takes over when the lease is over. The handler may
    /// start once more for each lease that ran out, so its effects must bear a second run, or be
    /// deduplicated by key or fence.
    pub fn retry() -> Self {
        Self::hold().with_after_crash(AfterCrash::Retry)
    }

    /// The policy for handlers that record their outcome in the transaction of their effect. The
    /// next attempt takes over as under [`Policy::retry`], and the effect is committed exactly
    /// once.
    ///
    /// It needs a store that shares its transactions with the handler, which is Postgres; over any
    /// other store, [`Once::with_policy`](crate::Once::with_policy) refuses it. A handler that
    /// succeeds without recording its outcome is an error, and its key is held: a retry would
    /// repeat its effect.
    pub fn transactional() -> Self {
        Self::hold().with_after_crash(AfterCrash::Transactional)
    }

    fn with_after_crash(self, after_crash: AfterCrash) -> Self {
        Self { after_crash, ..self }
    }

    /// For how long an attempt may run without being heard of; 30 s unless set. It is within the
    /// limits of [`Terms::new`].
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// For how long an outcome is kept, counted from when it was recorded; 24 h unless set. It is
    /// at least the lease, and at most [`Terms::MAX_RETENTION`].
    #[must_use]
    pub fn with_retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// For how long a store that does not answer is asked again before the caller is told; 2 s
    /// unless set, at most [`Policy::MAX_PATIENCE`].
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// For how long a repeat waits for the running attempt instead of being refused; not at all
    /// unless set, at most [`Policy::MAX_WAIT`].
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The largest body that is recorded; 1 MiB unless set, at most [`Outcome::MAX_BODY_BYTES`]. An
    /// outcome with a larger one is recorded without it.
    #[must_use]
    pub fn with_max_body_bytes(self, max_body_bytes: usize) -> Self {
        Self { max_body_bytes, ..self }
    }

    /// Checks every limit. An engine does so when it gets the policy.
    ///
    /// # Errors
    /// [`PolicyError`] names the setting and its limits.
    pub fn check(&self) -> Result<(), PolicyError> {
        Terms::new(self.lease, self.retention)?;
        terms::within("patience", self.patience, Duration::ZERO, Self::MAX_PATIENCE)?;
        terms::within("wait", self.wait, Duration::ZERO, Self::MAX_WAIT)?;
        let (bytes, limit) = (self.max_body_bytes, Outcome::MAX_BODY_BYTES);
        if bytes > limit { Err(PolicyError::Body { bytes, limit }) } else { Ok(()) }
    }

    /// The rule for a key after a crash.
    pub fn after_crash(&self) -> AfterCrash {
        self.after_crash
    }

    /// Lease, retention, and what happens after a crash. A value that breaks a limit, which
    /// [`Policy::check`] reports, counts as the limit.
    pub fn terms(&self) -> Terms {
        Terms::clamped(self.lease, self.retention).with_after_crash(self.after_crash)
    }

    /// The time for which a store that does not answer is asked again.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The time for which a repeat waits for the running attempt.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// The largest body that is recorded.
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    /// The permission of a claim under this policy to take over a lost attempt.
    pub fn takeover(&self) -> Takeover {
        match self.after_crash() {
            AfterCrash::Hold => Takeover::Never,
            AfterCrash::Retry | AfterCrash::Transactional => Takeover::WhenOver,
        }
    }
}

/// The error of a policy that breaks a limit, or that its store cannot carry out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A duration is outside its limits.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The policy is [`Policy::transactional`], and the store has no transactions for handlers.
    #[error(
        "the policy `transactional` needs a store in whose transactions handlers can record their outcome, and `{store}` is \
         none: use a Postgres store, or the policy `hold` or `retry`"
    )]
    NotTransactional {
        /// The name of the store.
        store: &'static str,
    },
    /// The limit for bodies is larger than any store supports.
    #[error("a body limit of {bytes} bytes is over the highest, {limit}")]
    Body {
        /// The limit that was set.
        bytes: usize,
        /// The largest limit that can be set.
        limit: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn limits_are_named() {
        let refused = |policy: Policy| policy.check().unwrap_err().to_string();
        let lease = |d| refused(Policy::hold().with_lease(d));
        assert_eq!(lease(Duration::ZERO), "lease of 0ns is not within 100ms to 86400s");
        assert_eq!(lease(secs(86_401)), "lease of 86401s is not within 100ms to 86400s");
        assert_eq!(
            refused(Policy::hold().with_retention(secs(29))),
            "retention of 29s is shorter than the lease of 30s"
        );
        assert_eq!(
            refused(Policy::hold().with_retention(secs(u64::MAX))),
            format!("retention of {:?} is not within 30s to 315360000s", secs(u64::MAX))
        );
        assert_eq!(
            refused(Policy::hold().with_max_body_bytes(usize::MAX)),
            format!("a body limit of {} bytes is over the highest, 16777216", usize::MAX)
        );
        assert!(refused(Policy::hold().with_wait(secs(301))).starts_with("wait of 301s"));
        assert!(refused(Policy::hold().with_patience(secs(61))).starts_with("patience of 61s"));
    }

    #[test]
    fn settings_may_come_in_any_order() {
        let day = secs(48 * 3600);
        let lease_last = Policy::hold().with_retention(secs(1)).with_lease(secs(1));
        assert_eq!(lease_last, Policy::hold().with_lease(secs(1)).with_retention(secs(1)));
        assert!(lease_last.check().is_ok());
        assert_eq!(lease_last.with_retention(day).terms().retention(), day);
    }

    #[test]
    fn terms_are_within_their_limits_also_without_a_check() {
        let wild = Policy::retry().with_lease(Duration::MAX).with_retention(Duration::ZERO).terms();
        assert_eq!((wild.lease(), wild.retention()), (Terms::MAX_LEASE, Terms::MAX_LEASE));
        assert_eq!(wild.after_crash(), AfterCrash::Retry);
    }

    #[test]
    fn only_hold_never_takes_over() {
        assert_eq!(Policy::hold().takeover(), Takeover::Never);
        assert_eq!(Policy::retry().takeover(), Takeover::WhenOver);
        assert_eq!(Policy::transactional().takeover(), Takeover::WhenOver);
    }
}
