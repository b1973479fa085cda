//! What may be written to a record.
//!
//! Times are durations here: the store adds them to its own clock when it writes, and assigns the fence then.

use std::sync::Arc;
use std::time::Duration;

use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::record::Owner;
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// Writes a whole record in the place of one that is still as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replace {
    /// Whose record.
    pub key: Key,
    /// The token it must still have.
    pub expected_token: Token,
    /// The version it must still have.
    pub expected_version: u64,
    /// What takes its place.
    pub draft: Draft,
    /// Refused after this moment by the store's clock; `None` for operators, whose writes grant nothing.
    pub not_after: Option<Timestamp>,
}

/// What a record becomes. The store assigns the version, the fence and the times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// What was asked.
    pub intent: Intent,
    /// Where it stands.
    pub state: DraftState,
    /// Who runs, or made the change.
    pub token: Token,
    /// Which attempt.
    pub attempt: u32,
    /// Which process.
    pub owner: Owner,
    /// How long the lease is, from now.
    pub lease: Duration,
    /// For how long the record is kept once it is settled.
    pub retention: Duration,
    /// What happens if the attempt is lost.
    pub after_crash: AfterCrash,
    /// Whether this is a new life of the key, with a new moment of creation and no note of the old one.
    pub fresh: bool,
    /// What to note; `None` keeps the note it has, unless it is fresh.
    pub note: Option<Arc<str>>,
}

/// Where a draft stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftState {
    /// An attempt runs.
    Running,
    /// There is an outcome.
    Done(Outcome),
    /// The key can be claimed.
    Released,
}

/// A write by the owner of a running record: applied where token and fence match and the state is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Whose record.
    pub key: Key,
    /// The token it must have.
    pub token: Token,
    /// What is written.
    pub action: Action,
}

impl Write {
    /// The owner of this lease does this.
    pub fn by(lease: &Lease, action: impl FnOnce(Fence) -> Action) -> Self {
        Self { key: lease.key().clone(), token: lease.token(), action: action(lease.fence()) }
    }
}

/// What an owner writes. All but [`Action::Void`] name the fence that must match, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The lease begins anew.
    Renew {
        /// The fence it must have.
        fence: Fence,
        /// How long the lease is, from now.
        lease: Duration,
    },
    /// The outcome is recorded.
    Complete {
        /// The fence it must have.
        fence: Fence,
        /// What is replayed from now on.
        outcome: Outcome,
    },
    /// Nothing happened; the key can be claimed again.
    Release {
        /// The fence it must have.
        fence: Fence,
    },
    /// The lease ends now: the key is held or lost, as its policy says.
    Abandon {
        /// The fence it must have.
        fence: Fence,
        /// Why, for people.
        note: Arc<str>,
    },
    /// The lease ends now and the key is held, whatever its policy was.
    Hold {
        /// The fence it must have.
        fence: Fence,
        /// Why, for people.
        note: Arc<str>,
    },
    /// A claim that nobody waits for any more is taken back: whatever fence it was granted, it becomes released.
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
