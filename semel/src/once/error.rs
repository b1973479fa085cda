//! Why a run came to nothing.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::answer::{Held, Mismatch};
use crate::error::StoreError;
use crate::outcome::OutcomeError;
use crate::time::Timestamp;

/// What the work returns when it fails.
///
/// A failure is taken to be *unknown* unless it says that nothing happened: the key is then abandoned, not
/// released. The `?` operator makes an unknown failure of any error.
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
    nothing_happened: bool,
    error: Box<dyn StdError + Send + Sync>,
}

impl Failure {
    /// It failed before anything can have happened: the key is released and the next attempt runs.
    pub fn nothing_happened(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { nothing_happened: true, error: error.into() }
    }

    /// It failed, and what happened is not known: the key is abandoned.
    pub fn unknown(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { nothing_happened: false, error: error.into() }
    }

    /// Whether the work said that nothing happened.
    pub fn is_nothing_happened(&self) -> bool {
        self.nothing_happened
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Failure {
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
        let kind = if self.nothing_happened { "nothing happened" } else { "unknown" };
        write!(f, "Failure({kind}: {:?})", self.error)
    }
}

/// Why a run has no value to give.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// An attempt is running; ask again later.
    #[error("the key is in use by a running attempt")]
    Pending {
        /// Since when.
        since: Timestamp,
        /// When its lease is over, at the latest, if it is not renewed.
        retry_after: Duration,
    },
    /// An earlier attempt was lost and nobody knows what it did. A new key is not safe: it would run again.
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
    /// The work is done, but it is not known to be recorded yet. The engine goes on trying; ask again later.
    #[error("the outcome is not recorded yet")]
    OutcomePending(#[source] StoreError),
    /// The work is done, but the store refused to record it; the key is held.
    #[error("the outcome could not be recorded")]
    Unrecorded(#[source] StoreError),
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
    /// The recorded outcome cannot be read as the value that was asked for.
    #[error("the recorded outcome is not usable")]
    Outcome(#[source] OutcomeError),
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        Self::Failed { nothing_happened: failure.nothing_happened, source: failure.error }
    }
}
