//! Why a run came to nothing.

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

/// What the work returns when it fails.
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

/// What a failure says about what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    NothingHappened,
    Unknown,
    /// It went well, but its outcome was not recorded with its effect, as the policy says.
    CompletionMissing,
}

impl Failure {
    /// It failed before anything can have happened: the key is released and the next attempt runs.
    pub fn nothing_happened(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind: FailureKind::NothingHappened, error: error.into() }
    }

    /// It failed, and what happened is not known: the key is abandoned.
    pub fn unknown(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Unknown, error: error.into() }
    }

    /// It went well, and left no outcome where there must be one.
    pub(super) fn completion_missing() -> Self {
        let why = "the handler succeeded without recording its outcome in its transaction";
        Self { kind: FailureKind::CompletionMissing, error: why.into() }
    }

    /// Whether the work said that nothing happened.
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

/// Why a run has no value to give.
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
        /// Since when.
        since: Timestamp,
        /// When its lease is over, at the latest, if it is not renewed.
        retry_after: Duration,
    },
    /// An earlier attempt was lost and nobody knows what it did. A new key is not safe: it would
    /// run again.
    #[error("attempt {} under this key was lost, and its outcome is not known", .0.attempt)]
    Held(Held),
    /// The key was used for something else.
    #[error("the key was used for another request, {:?}, since {}", .0.operation, .0.since)]
    Mismatch(Mismatch),
    /// Another attempt took over, and there is no outcome yet.
    #[error("another attempt took over the key")]
    Superseded,
    /// The store did not answer, and nothing ran.
    #[error("the key could not be claimed")]
    Unavailable(#[source] StoreError),
    /// As many attempts run as [`Once::with_max_attempts`](crate::Once::with_max_attempts) allows.
    /// Nothing was claimed.
    #[error("too many attempts are running")]
    TooManyAttempts,
    /// The store has reached its [`Ceiling`](crate::admin::Ceiling), and the key is new. Nothing
    /// was claimed.
    #[error("the store keeps as much as it may")]
    StoreFull,
    /// The caller has too many unsettled keys, or has used too many new ones. Nothing was claimed.
    #[error("the caller has used up its quota of keys")]
    QuotaExceeded {
        /// When there may be room again.
        retry_after: Duration,
    },
    /// The work is done, but it is not known to be recorded yet. The engine goes on trying; ask
    /// again later.
    #[error("the outcome is not recorded yet")]
    OutcomePending(#[source] StoreError),
    /// The work is done, but the store refused to record it; the key is held.
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
    /// The runtime was shut down in the middle; whether the work ran is not known.
    #[error("the run was interrupted by a shutdown")]
    Interrupted,
    /// The work failed.
    #[error("the work failed{}", if *.nothing_happened { " before anything happened" } else { "" })]
    Failed {
        /// Whether it said that nothing happened, so that the key is free again.
        nothing_happened: bool,
        /// What it said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The recorded outcome cannot be read as the requested value.
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
