//! What a store answers.
//!
//! Answers are expected, errors are not: a lost lease is an answer.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::words::intent::Intent;
use crate::words::lease::{Fence, Lease};
use crate::words::outcome::Outcome;
use crate::words::record::{Phase, Record};
use crate::words::time::Timestamp;

/// What a claim came to.
#[derive(Debug, Clone)]
#[must_use = "only a granted claim may run"]
#[non_exhaustive]
pub enum Claim {
    /// Run: here is the lease.
    Granted(Lease),
    /// There is an outcome: replay it.
    Done(Done),
    /// An attempt runs.
    Running {
        /// Since when the key is in use.
        since: Timestamp,
        /// How much of its lease is left.
        left: Duration,
    },
    /// The lease of the last attempt is over without an outcome, and this claim may not take over.
    Held(Held),
    /// The key was used for another intent.
    Mismatch(Mismatch),
    /// The claim came after its `not_after`, or its token was released or voided: a late copy, refused.
    Late,
}

impl Claim {
    /// One word for it, for metrics.
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

/// What the caller's own record shows about an earlier use of the key for another intent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mismatch {
    /// Since when the key is in use.
    pub since: Timestamp,
    /// The operation that it was used for.
    pub operation: Arc<str>,
    /// Where that one stands.
    pub phase: Phase,
}

/// A key with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Done {
    /// What is replayed.
    pub outcome: Outcome,
    /// The fence of the attempt that recorded it, or of the operator who did.
    pub fence: Fence,
    /// When retention is over, by the clock of the store that recorded it.
    pub expires_at: Timestamp,
}

/// What a hot store remembers of a key: what was asked under it, and what that came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// What was asked.
    pub intent: Intent,
    /// What it came to.
    pub done: Done,
}

/// A key whose last attempt has neither a lease nor an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Since when the key is in use.
    pub since: Timestamp,
    /// The fence of that attempt; a reconcile hook or an operator who settles it names this fence.
    pub fence: Fence,
    /// Which attempt it was.
    pub attempt: u32,
}

/// What became of an owner's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a lost lease is an answer, not an error"]
#[non_exhaustive]
pub enum Ack {
    /// It was written.
    Applied,
    /// The same write was applied before; the answer to it was lost.
    Repeated,
    /// There is an outcome already.
    Finished,
    /// Another token or fence has the key now.
    Superseded,
    /// There is no record.
    Missing,
}

impl Ack {
    /// Whether the write stands.
    pub fn stands(self) -> bool {
        matches!(self, Self::Applied | Self::Repeated)
    }

    /// Nothing if this very write was applied, so that `?` leaves a transaction before it commits an effect to which no
    /// outcome belongs: the lease was lost, or an earlier transaction has recorded the outcome with an effect of its own.
    ///
    /// # Errors
    /// [`LeaseLost`] if it was not, also if it was only repeated.
    pub fn applied(self) -> Result<(), LeaseLost> {
        if self == Self::Applied { Ok(()) } else { Err(LeaseLost(self)) }
    }
}

/// The write was not applied: its lease is no longer the one that counts, or has had its outcome before. Roll back what
/// belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the lease is lost, or has had its outcome before ({0:?})")]
pub struct LeaseLost(pub Ack);

/// What became of a void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a void that came too early must be sent again"]
#[non_exhaustive]
pub enum Void {
    /// The token can never run again.
    Settled,
    /// The claim's `not_after` has not passed by the store's clock: a late copy may still be granted. Send the
    /// void again after this long.
    Early(Duration),
}

/// What became of an operator's change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a refused change has changed nothing"]
#[non_exhaustive]
pub enum Change {
    /// It was made.
    Applied,
    /// The record has another fence than the operator saw; here it is.
    Moved(Box<Record>),
    /// An attempt runs under a live lease; settling its key now could run it twice.
    Running(Box<Record>),
    /// The change does not fit the state: there is an outcome already, or nothing is held.
    Unfit(Box<Record>),
    /// There is no record.
    Missing,
}
