//! The answers of a store.
//!
//! An expected result, such as a lost lease, is an answer and not an error.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::words::intent::Intent;
use crate::words::lease::{Fence, Lease};
use crate::words::outcome::Outcome;
use crate::words::record::{Phase, Record};
use crate::words::time::Timestamp;

/// The answer to a claim.
#[derive(Debug, Clone)]
#[must_use = "only a granted claim may run"]
#[non_exhaustive]
pub enum Claim {
    /// The attempt may run under this lease.
    Granted(Lease),
    /// The key has an outcome, which is replayed.
    Done(Done),
    /// Another attempt runs.
    Running {
        /// The time since when the key is in use.
        since: Timestamp,
        /// The remaining time of its lease.
        left: Duration,
    },
    /// The lease of the last attempt is over without an outcome, and this claim may not take over.
    Held(Held),
    /// The key was used for another intent.
    Mismatch(Mismatch),
    /// The claim is a late copy: it arrived after its `not_after`, or its token was released or
    /// voided.
    Late,
}

impl Claim {
    /// The answer as one word, for metrics.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Done(_) => "done",
            Self::Running { .. } => "running",
            Self::Held(_) => "held",
            Self::Mismatch(_) => "mismatch",
            Self::Late => "late",
        }
    }
}

/// The facts about an earlier use of the key for another intent, from the caller's own record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Mismatch {
    /// The time since when the key is in use.
    pub since: Timestamp,
    /// The operation of the earlier use.
    pub operation: Arc<str>,
    /// The phase of the earlier use.
    pub phase: Phase,
}

impl Mismatch {
    /// The facts about an earlier use.
    pub fn new(since: Timestamp, operation: Arc<str>, phase: Phase) -> Self {
        Self { since, operation, phase }
    }
}

/// A key with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Done {
    /// The outcome that is replayed.
    pub outcome: Outcome,
    /// The fence of the attempt, or of the operator, that recorded it.
    pub fence: Fence,
    /// The end of retention, by the clock of the store that recorded it.
    pub expires_at: Timestamp,
}

impl Done {
    /// An outcome, as it was recorded.
    pub fn new(outcome: Outcome, fence: Fence, expires_at: Timestamp) -> Self {
        Self { outcome, fence, expires_at }
    }
}

/// The memory of a hot store about a key: the intent, and the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Remembered {
    /// The intent of the request.
    pub intent: Intent,
    /// The recorded outcome.
    pub done: Done,
}

impl Remembered {
    /// The memory of a recorded outcome.
    pub fn new(intent: Intent, done: Done) -> Self {
        Self { intent, done }
    }
}

/// A key whose last attempt has neither a live lease nor an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Held {
    /// The time since when the key is in use.
    pub since: Timestamp,
    /// The fence of that attempt; a reconcile hook or an operator settles the key by naming this
    /// fence.
    pub fence: Fence,
    /// The number of the attempt.
    pub attempt: u32,
}

impl Held {
    /// The facts about the lost attempt.
    pub fn new(since: Timestamp, fence: Fence, attempt: u32) -> Self {
        Self { since, fence, attempt }
    }
}

/// The answer to an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a lost lease is an answer, not an error"]
#[non_exhaustive]
pub enum Ack {
    /// The change was made.
    Applied,
    /// An earlier copy of the same write was applied, or a renewal found the row locked.
    Repeated,
    /// The key has an outcome already.
    Finished,
    /// Another token or fence owns the key now.
    Superseded,
    /// There is no record.
    Missing,
}

impl Ack {
    /// Returns `true` if the write is in effect, by this copy or by an earlier one.
    pub fn stands(self) -> bool {
        matches!(self, Self::Applied | Self::Repeated)
    }

    /// Converts the answer to a result that is an error unless this very write was applied.
    ///
    /// With `?`, a transaction ends before it commits an effect without an outcome: the lease was
    /// lost, or an earlier transaction has recorded the outcome with its own effect.
    ///
    /// # Errors
    /// [`LeaseLost`] if the write was not applied, or was only repeated.
    pub fn applied(self) -> Result<(), LeaseLost> {
        if self == Self::Applied { Ok(()) } else { Err(LeaseLost(self)) }
    }
}

/// The error of a write that was not applied, because its lease is lost or already has an outcome.
/// Roll back the effect of the same transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the lease is lost, or has had its outcome before ({0:?})")]
pub struct LeaseLost(pub Ack);

/// The answer to a void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a void that came too early must be sent again"]
#[non_exhaustive]
pub enum Void {
    /// The token can never run again.
    Final,
    /// The claim's `not_after` is still in the future by the store's clock, so a late copy may be
    /// granted. Send the void again after this time.
    Early(Duration),
}

/// The answer to an operator's change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused change has changed nothing"]
#[non_exhaustive]
pub enum OperatorAck {
    /// The change was made.
    Applied,
    /// The fence of the record differs from the fence that the operator named; the record is
    /// attached.
    Moved(Box<Record>),
    /// An attempt runs under a live lease; settling its key now could run it twice.
    Running(Box<Record>),
    /// The change does not fit the state: there is an outcome already, or the key is not held.
    Unfit(Box<Record>),
    /// There is no record.
    Missing,
}
