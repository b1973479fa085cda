//! The writes to a record.
//!
//! Times are durations here: the store adds them to its own clock and assigns the fence when it
//! writes.

use std::sync::Arc;
use std::time::Duration;

use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::record::Owner;
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// A write of a whole record, applied if the existing record still has the expected token and
/// version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replace {
    /// The key of the record.
    pub key: Key,
    /// The token that the record must still have.
    pub expected_token: Token,
    /// The version that the record must still have.
    pub expected_version: u64,
    /// The new record.
    pub draft: Draft,
    /// The moment by the store's clock after which the write is refused; `None` for operators,
    /// whose writes grant nothing.
    pub not_after: Option<Timestamp>,
}

/// The content of a new record. The store assigns the version, the fence and the times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The description of the request.
    pub intent: Intent,
    /// The new state.
    pub state: DraftState,
    /// The identity of the attempt, or of the operator's change.
    pub token: Token,
    /// The number of the attempt.
    pub attempt: u32,
    /// The name of the process.
    pub owner: Owner,
    /// The length of the lease, from the time of the write.
    pub lease: Duration,
    /// The time for which the record is kept once it is settled.
    pub retention: Duration,
    /// The policy if the attempt is lost.
    pub after_crash: AfterCrash,
    /// Set if the old record has expired: the new one has its own creation time, and drops the old
    /// note.
    pub fresh: bool,
    /// The new note; `None` keeps the existing one, unless the draft is fresh.
    pub note: Option<Arc<str>>,
}

/// The state of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftState {
    /// An attempt runs.
    Running,
    /// There is an outcome.
    Done(Outcome),
    /// The key can be claimed.
    Released,
}

/// A write by the owner of a running record: applied where token and fence match and the state is
/// running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key of the record.
    pub key: Key,
    /// The token that the record must have.
    pub token: Token,
    /// The change.
    pub action: Action,
}

impl Write {
    /// A write of this action by the owner of this lease.
    pub fn by(lease: &Lease, action: impl FnOnce(Fence) -> Action) -> Self {
        Self { key: lease.key().clone(), token: lease.token(), action: action(lease.fence()) }
    }
}

/// The change that an owner makes. All but [`Action::Void`] also name the fence that must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Restarts the lease.
    Renew {
        /// The fence that the record must have.
        fence: Fence,
        /// The length of the lease, from the time of the write.
        lease: Duration,
    },
    /// Records the outcome.
    Complete {
        /// The fence that the record must have.
        fence: Fence,
        /// The outcome that is replayed from now on.
        outcome: Outcome,
    },
    /// Releases the key because nothing happened; the key can be claimed again.
    Release {
        /// The fence that the record must have.
        fence: Fence,
    },
    /// Ends the lease now: the key is held or lost, as its policy says.
    Abandon {
        /// The fence that the record must have.
        fence: Fence,
        /// The reason, shown to operators.
        note: Arc<str>,
    },
    /// Ends the lease now and holds the key, whatever its policy was.
    Hold {
        /// The fence that the record must have.
        fence: Fence,
        /// The reason, shown to operators.
        note: Arc<str>,
    },
    /// Withdraws a claim that was never answered: the record becomes released, whatever its fence
    /// is.
    Void,
}

impl Action {
    /// The fence that must match; a void matches any.
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Self::Renew { fence, .. }
            | Self::Complete { fence, .. }
            | Self::Release { fence }
            | Self::Abandon { fence, .. }
            | Self::Hold { fence, .. } => Some(*fence),
            Self::Void => None,
        }
    }
}
