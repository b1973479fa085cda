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
/// let eager = Policy::retry().with_lease(Duration::from_secs(10))?.with_wait(Duration::from_secs(2))?;
///
/// let refused = Policy::hold().with_lease(Duration::ZERO).unwrap_err();
/// assert_eq!(refused.to_string(), "lease of 0ns is not within 100ms to 86400s");
/// # Ok::<(), semel::error::PolicyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    terms: Terms,
    patience: Duration,
    wait: Duration,
    max_body_bytes: usize,
}

impl Policy {
    /// The longest patience that can be set.
    pub const MAX_PATIENCE: Duration = Duration::from_secs(60);
    /// The longest wait of a repeat for the running attempt that can be set.
    pub const MAX_WAIT: Duration = Duration::from_secs(300);

    /// The policy under which the handler starts at most once. After a crash the key is held,
    /// because what the lost attempt did is not known.
    pub fn hold() -> Self {
        Self {
            terms: Terms::DEFAULT,
            patience: Duration::from_secs(2),
            wait: Duration::ZERO,
            max_body_bytes: 1 << 20,
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
        Self { terms: self.terms.with_after_crash(after_crash), ..self }
    }

    /// For how long an attempt may run without being heard of; 30 s unless set.
    ///
    /// # Errors
    /// [`PolicyError`] if it breaks a limit of [`Terms::new`].
    pub fn with_lease(self, lease: Duration) -> Result<Self, PolicyError> {
        let terms = Terms::new(lease, self.terms.retention())?;
        Ok(self.with_terms(terms))
    }

    /// For how long an outcome is kept, counted from when it was recorded; 24 h unless set.
    ///
    /// # Errors
    /// [`PolicyError`] if it is shorter than the lease or longer than [`Terms::MAX_RETENTION`].
    pub fn with_retention(self, retention: Duration) -> Result<Self, PolicyError> {
        let terms = Terms::new(self.terms.lease(), retention)?;
        Ok(self.with_terms(terms))
    }

    fn with_terms(self, terms: Terms) -> Self {
        Self { terms: terms.with_after_crash(self.terms.after_crash()), ..self }
    }

    /// For how long a store that does not answer is asked again before the caller is told; 2 s
    /// unless set.
    ///
    /// # Errors
    /// [`PolicyError::Terms`] if it is longer than [`Policy::MAX_PATIENCE`].
    pub fn with_patience(self, patience: Duration) -> Result<Self, PolicyError> {
        terms::within("patience", patience, Duration::ZERO, Self::MAX_PATIENCE)?;
        Ok(Self { patience, ..self })
    }

    /// For how long a repeat waits for the running attempt instead of being refused; not at all
    /// unless set.
    ///
    /// # Errors
    /// [`PolicyError::Terms`] if it is longer than [`Policy::MAX_WAIT`].
    pub fn with_wait(self, wait: Duration) -> Result<Self, PolicyError> {
        terms::within("wait", wait, Duration::ZERO, Self::MAX_WAIT)?;
        Ok(Self { wait, ..self })
    }

    /// The largest body that is recorded; 1 MiB unless set. An outcome with a larger one is
    /// recorded without it.
    ///
    /// # Errors
    /// [`PolicyError::Body`] if it is more than [`Outcome::MAX_BODY_BYTES`].
    pub fn with_max_body_bytes(self, max_body_bytes: usize) -> Result<Self, PolicyError> {
        if max_body_bytes > Outcome::MAX_BODY_BYTES {
            return Err(PolicyError::Body { bytes: max_body_bytes, limit: Outcome::MAX_BODY_BYTES });
        }
        Ok(Self { max_body_bytes, ..self })
    }

    /// The rule for a key after a crash.
    pub fn after_crash(&self) -> AfterCrash {
        self.terms.after_crash()
    }

    /// Lease, retention, and what happens after a crash.
    pub fn terms(&self) -> Terms {
        self.terms
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
        let lease = |d| Policy::hold().with_lease(d).unwrap_err().to_string();
        assert_eq!(lease(Duration::ZERO), "lease of 0ns is not within 100ms to 86400s");
        assert_eq!(lease(secs(86_401)), "lease of 86401s is not within 100ms to 86400s");
        assert_eq!(
            Policy::hold().with_retention(secs(29)).unwrap_err().to_string(),
            "retention of 29s is shorter than the lease of 30s; set the lease first"
        );
        assert_eq!(
            Policy::hold().with_retention(secs(u64::MAX)).unwrap_err().to_string(),
            format!("retention of {:?} is not within 30s to 315360000s", secs(u64::MAX))
        );
        assert_eq!(
            Policy::hold().with_max_body_bytes(usize::MAX).unwrap_err().to_string(),
            format!("a body limit of {} bytes is over the highest, 16777216", usize::MAX)
        );
        assert!(Policy::hold().with_wait(secs(301)).is_err());
        assert!(Policy::hold().with_patience(secs(61)).is_err());
    }

    #[test]
    fn only_hold_never_takes_over() {
        assert_eq!(Policy::hold().takeover(), Takeover::Never);
        assert_eq!(Policy::retry().takeover(), Takeover::WhenOver);
        assert_eq!(Policy::transactional().takeover(), Takeover::WhenOver);
    }
}
