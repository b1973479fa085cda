//! What a store keeps about a key.

use std::sync::Arc;
use std::time::Duration;

use crate::fault;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::terms::AfterCrash;
use crate::words::text;
use crate::words::time::Timestamp;

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
    /// For how long the record is kept once it is settled; [`Record::expires_at`] says until when. A release and a
    /// void cut it to [`Terms::RELEASED_RETENTION`](crate::Terms::RELEASED_RETENTION).
    pub retention: Duration,
    /// What happens if the attempt is lost.
    pub after_crash: AfterCrash,
    /// Why the last attempt was abandoned, or what an operator did.
    pub note: Option<Note>,
}

/// The stored state of a record. *Held* and *lost* are not stored: both are `Running` with the lease over; see
/// [`Record::phase`].
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
    /// The lease of an attempt under `hold` is over and there is no outcome: it is not known what happened, and an
    /// operator or a reconcile hook has to decide.
    Held,
    /// The lease of an attempt under `retry` or `transactional` is over and there is no outcome: the next attempt takes
    /// over.
    Lost,
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
            Self::Lost => "lost",
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
            State::Running if self.after_crash == AfterCrash::Hold => Phase::Held,
            State::Running => Phase::Lost,
            State::Done { .. } => Phase::Done,
            State::Released => Phase::Released,
        }
    }

    /// When the record counts as absent and may be pruned, unless it is written to before.
    ///
    /// Retention begins with what settled the record: its outcome, or its release. A lost attempt counts from the end of
    /// its lease. An attempt under `hold` that has no outcome never expires: time is no evidence that nothing happened.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let begins = match self.state {
            State::Running if self.after_crash == AfterCrash::Hold => return None,
            State::Running => self.lease_until,
            State::Done { .. } if fault::makes("expiry_from_claim") => self.created_at,
            State::Done { finished_at, .. } => finished_at,
            State::Released => self.updated_at,
        };
        Some(begins.after(self.retention))
    }

    /// Whether the record counts as absent and may be pruned.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|end| now >= end)
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
        lease.with_retention(self.retention)
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
    /// What happened: `abandoned`, `held`, `resolved`, `reset` or `forgotten`, then the reason.
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
