//! The errors of a run, and of the work in it.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::protocol::answer::{Held, Mismatch};
use crate::words::error::StoreError;
use crate::words::intent::IntentError;
use crate::words::key::KeyError;
use crate::words::outcome::OutcomeError;
use crate::words::time::Timestamp;

/// The error of work that failed.
///
/// A failure is taken to be *unknown* unless it says that nothing happened: the key is then
/// abandoned, not released. The `?` operator makes an unknown failure of any error, also of
/// `anyhow::Error` and of a text.
///
/// ```
/// use semel::Failure;
///
/// fn parse(text: &str) -> Result<u32, Failure> {
///     text.parse().map_err(Failure::nothing_happened)
/// }
/// # assert!(parse("x").is_err());
/// ```
pub struct Failure {
    kind: FailureKind,
    error: Box<dyn StdError + Send + Sync>,
}

/// The statement of a failure about the effect of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    NothingHappened,
    Unknown,
    /// The work succeeded, but did not record its outcome in the transaction of its effect.
    CompletionMissing,
}

impl Failure {
    /// A failure before any effect: the key is released and the next attempt runs.
    pub fn nothing_happened(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind: FailureKind::NothingHappened, error: error.into() }
    }

    /// A failure after which the effect is not known: the key is abandoned.
    pub fn unknown(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Unknown, error: error.into() }
    }

    /// A success without the outcome that the work had to record.
    pub(super) fn completion_missing() -> Self {
        let why = "the handler succeeded without recording its outcome in its transaction";
        Self { kind: FailureKind::CompletionMissing, error: why.into() }
    }

    /// Returns `true` if the work said that nothing happened.
    pub fn is_nothing_happened(&self) -> bool {
        self.kind == FailureKind::NothingHappened
    }

    pub(super) fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::NothingHappened => "nothing happened",
            FailureKind::Unknown => "unknown",
            FailureKind::CompletionMissing => "completion missing",
        };
        write!(f, "Failure({kind}: {:?})", self.error)
    }
}

/// The error of a run that returns no value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The key breaks a limit. Nothing was claimed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The intent breaks a limit, or the payload has no JSON form. Nothing was claimed.
    #[error(transparent)]
    Intent(#[from] IntentError),
    /// An attempt is running; ask again later.
    #[error("the key is in use by a running attempt")]
    Pending {
        /// The time since when the key is in use.
        since: Timestamp,
        /// The longest time until its lease is over, if it is not renewed.
        retry_after: Duration,
    },
    /// An earlier attempt was lost, and what it did is not known. Do not retry with a new key: the
    /// work would run again.
    #[error("attempt {} under this key was lost, and its outcome is not known", .0.attempt)]
    Held(Held),
    /// The key was used for another intent.
    #[error("the key was used for another request, {:?}, since {}", .0.operation, .0.since)]
    Mismatch(Mismatch),
    /// Another attempt took over the key, and there is no outcome yet.
    #[error("another attempt took over the key")]
    Superseded,
    /// The store did not answer, and nothing ran.
    #[error("the key could not be claimed")]
    Unavailable(#[source] StoreError),
    /// The number of running attempts has reached the limit of
    /// [`Once::with_max_attempts`](crate::Once::with_max_attempts). Nothing was claimed.
    #[error("too many attempts are running")]
    TooManyAttempts,
    /// The store has reached its [`Ceiling`](crate::admin::Ceiling), and the key is new. Nothing
    /// was claimed.
    #[error("the store has reached its ceiling, and takes no new keys")]
    StoreFull,
    /// The caller has too many unsettled keys, or has used too many new ones. Nothing was claimed.
    #[error("the caller has used up its quota of keys")]
    QuotaExceeded {
        /// The time after which the caller may use another key.
        retry_after: Duration,
    },
    /// The work is done, but the store has not confirmed its outcome. The engine retries in the
    /// background; ask again later.
    #[error("the outcome is not recorded yet")]
    OutcomePending(#[source] StoreError),
    /// The work is done, but the store refused to record it. The key is held under
    /// `hold`; under other policies the next attempt repeats the work.
    #[error("the outcome could not be recorded")]
    Unrecorded(#[source] StoreError),
    /// The work succeeded under [`Policy::transactional`](crate::Policy::transactional), but did
    /// not record its outcome in the transaction of its effect. The key is held: a retry would
    /// repeat the effect.
    #[error(
        "the work succeeded without recording its outcome in its transaction, as the policy `transactional` needs: call \
         `complete_in` or `semel.complete` before the commit; the key is held"
    )]
    CompletionMissing,
    /// The runtime was shut down during the run; the work may have run.
    #[error("the run was interrupted by a shutdown")]
    Interrupted,
    /// The work failed.
    #[error("the work failed{}", if *.nothing_happened { " before anything happened" } else { "" })]
    Failed {
        /// Set if the work said that nothing happened; the key can be claimed again.
        nothing_happened: bool,
        /// The error of the work.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The recorded outcome cannot be converted to the requested type.
    #[error("the recorded outcome is not usable")]
    Outcome(#[source] OutcomeError),
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            FailureKind::CompletionMissing => Self::CompletionMissing,
            FailureKind::NothingHappened => Self::Failed { nothing_happened: true, source: failure.error },
            FailureKind::Unknown => Self::Failed { nothing_happened: false, source: failure.error },
        }
    }
}
