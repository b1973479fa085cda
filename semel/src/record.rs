//! What a store keeps about a key.

use std::sync::Arc;
use std::time::Duration;

use crate::intent::Intent;
use crate::key::Key;
use crate::lease::{Fence, Lease, Token};
use crate::outcome::Outcome;
use crate::text;
use crate::time::Timestamp;

/// One record per key.
///
/// The fields are open so that a backend can build one from what it has stored. A record that cannot be built is
/// an error, never "absent".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose key, and which.
    pub key: Key,
    /// What was asked under it.
    pub intent: Intent,
    /// Where it stands.
    pub state: State,
    /// Raised by every write. It can come back after a prune; the token and the version together cannot.
    pub version: u64,
    /// Who runs, or ran last.
    pub token: Token,
    /// The number of the last grant.
    pub fence: Fence,
    /// How many attempts there have been, this one included.
    pub attempt: u32,
    /// Which process asked, for people only: it decides nothing.
    pub owner: Owner,
    /// When the lease of a running attempt is over.
    pub lease_until: Timestamp,
    /// When the owner was last heard of.
    pub heartbeat_at: Timestamp,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// When the record was last written.
    pub updated_at: Timestamp,
    /// When retention is over; set by a claim, not by completion.
    pub expires_at: Timestamp,
    /// Why the last attempt was abandoned, or what an operator did.
    pub note: Option<Note>,
}

/// Where a record stands. *Held* is not stored: it is `Running` with the lease over; see [`Record::phase`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An attempt has the right to run.
    Running,
    /// There is an outcome; it never changes.
    Done {
        /// What is replayed.
        outcome: Outcome,
        /// When it was recorded.
        finished_at: Timestamp,
    },
    /// Nothing happened, or an operator said so; the key can be claimed again.
    Released,
}

/// Where a record stands at a given moment, in the words that people use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// An attempt runs under a lease that is not over.
    Running,
    /// The lease is over and there is no outcome: it is not known what happened.
    Held,
    /// There is an outcome.
    Done,
    /// The key can be claimed again.
    Released,
}

impl Phase {
    /// The word, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Held => "held",
            Self::Done => "done",
            Self::Released => "released",
        }
    }
}

impl Record {
    /// Where the record stands at this moment.
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self.state {
            State::Running if now < self.lease_until => Phase::Running,
            State::Running => Phase::Held,
            State::Done { .. } => Phase::Done,
            State::Released => Phase::Released,
        }
    }

    /// Whether retention is over, so that the record counts as absent and may be pruned. A live lease keeps it.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at && self.phase(now) != Phase::Running
    }

    /// How much of the lease is left.
    pub fn lease_left(&self, now: Timestamp) -> Duration {
        self.lease_until.since(now)
    }

    /// The outcome, if there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Done { outcome, .. } => Some(outcome),
            State::Running | State::Released => None,
        }
    }

    /// The lease of the attempt that runs, or ran last.
    pub fn lease(&self) -> Lease {
        let lease = Lease::new(self.key.clone(), self.token, self.fence, self.attempt, self.lease_until);
        lease.with_expiry(self.expires_at)
    }

    /// Whether this token and fence own the record: the only ones that may write to it, while it runs.
    pub fn is_owned_by(&self, token: Token, fence: Fence) -> bool {
        self.state == State::Running && self.token == token && self.fence == fence
    }
}

/// The name of a process, for people: it is shown, and decides nothing. Cut at 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// A name; control characters become spaces.
    pub fn new(name: &str) -> Self {
        Self(text::shorten(name, 255))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an attempt was abandoned, or an operator changed the record. Cut at 500 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// What happened: `abandoned`, `resolved`, `reset` or `forgotten`, then the reason.
    pub text: Arc<str>,
}

impl Note {
    /// How many bytes a note may have.
    pub const MAX_BYTES: usize = 500;

    /// A note of this moment; control characters become spaces, what is too long is cut off.
    pub fn new(at: Timestamp, text: &str) -> Self {
        Self { at, text: text::shorten(text, Self::MAX_BYTES) }
    }
}
