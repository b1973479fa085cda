//! The row that a store keeps for each key.

use std::sync::Arc;
use std::time::Duration;

use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::terms::{AfterCrash, Terms};
use crate::words::text;
use crate::words::time::Timestamp;

/// The row of one key.
///
/// The fields are public so that a backend can build a record from what it has stored. A record
/// that cannot be built is an error; it never counts as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The key and its scope.
    pub key: Key,
    /// The description of the request.
    pub intent: Intent,
    /// The stored state.
    pub state: RecordState,
    /// A number raised by every write. It can repeat after a prune; the token and the version
    /// together cannot.
    pub version: u64,
    /// The identity of the attempt that runs, or ran last.
    pub token: Token,
    /// The number of the last grant.
    pub fence: Fence,
    /// The number of attempts so far, this one included.
    pub attempt: u32,
    /// The process of the attempt, for people only: no decision depends on it.
    pub owner: Owner,
    /// The end of the running attempt's lease.
    pub lease_until: Timestamp,
    /// The time of the owner's last sign of life.
    pub heartbeat_at: Timestamp,
    /// The time of the first claim.
    pub created_at: Timestamp,
    /// The time of the last write.
    pub updated_at: Timestamp,
    /// The time for which the record is kept once it is settled; [`Record::expires_at`] says until
    /// when. A release and a void shorten it to
    /// [`Terms::RELEASED_RETENTION`](crate::store::Terms::RELEASED_RETENTION).
    pub retention: Duration,
    /// The policy if the attempt is lost.
    pub after_crash: AfterCrash,
    /// The reason for the last abandon, or the last change of an operator.
    pub note: Option<Note>,
}

/// The stored state of a record. *Held* and *lost* are not stored: both are `Running` with the
/// lease over; see [`Record::phase`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordState {
    /// An attempt has the right to run.
    Running,
    /// There is an outcome; it never changes.
    Done {
        /// The outcome that is replayed.
        outcome: Outcome,
        /// The time at which it was recorded.
        finished_at: Timestamp,
    },
    /// Nothing happened, or an operator said so; the key can be claimed again.
    Released,
}

/// The state of a record at a given moment, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// An attempt runs under a lease that is not over.
    Running,
    /// The lease of an attempt under `hold` is over without an outcome: what happened is unknown,
    /// and an operator or a reconcile hook has to decide.
    Held,
    /// The lease of an attempt under `retry` or `transactional` is over without an outcome: the
    /// next attempt takes over.
    Lost,
    /// There is an outcome.
    Done,
    /// The key can be claimed again.
    Released,
}

impl Phase {
    /// The name of the phase, in lower case.
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
    /// The record of a first attempt as it was created at `now`, with [`Terms::DEFAULT`]. A backend
    /// sets the fields that it has stored otherwise.
    pub fn new(key: Key, intent: Intent, token: Token, fence: Fence, now: Timestamp) -> Self {
        let terms = Terms::DEFAULT;
        Self {
            key,
            intent,
            state: RecordState::Running,
            version: 1,
            token,
            fence,
            attempt: 1,
            owner: Owner::of_process(),
            lease_until: now.after(terms.lease()),
            heartbeat_at: now,
            created_at: now,
            updated_at: now,
            retention: terms.retention(),
            after_crash: terms.after_crash(),
            note: None,
        }
    }

    /// The phase of the record at this moment.
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self.state {
            RecordState::Running if now < self.lease_until => Phase::Running,
            RecordState::Running if self.after_crash == AfterCrash::Hold => Phase::Held,
            RecordState::Running => Phase::Lost,
            RecordState::Done { .. } => Phase::Done,
            RecordState::Released => Phase::Released,
        }
    }

    /// The moment from which the record counts as absent and may be pruned, unless it is written to
    /// before.
    ///
    /// Retention begins when the record is settled: by its outcome or by its release. For a lost
    /// attempt it begins at the end of its lease. An attempt under `hold` without an outcome never
    /// expires: time is no evidence that nothing happened.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let begins = match self.state {
            RecordState::Running if self.after_crash == AfterCrash::Hold => return None,
            RecordState::Running => self.lease_until,
            RecordState::Done { finished_at, .. } => finished_at,
            RecordState::Released => self.updated_at,
        };
        Some(begins.after(self.retention))
    }

    /// Returns `true` if the record counts as absent and may be pruned.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|end| now >= end)
    }

    /// The remaining time of the lease.
    pub fn lease_left(&self, now: Timestamp) -> Duration {
        self.lease_until.since(now)
    }

    /// The outcome, if there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            RecordState::Done { outcome, .. } => Some(outcome),
            RecordState::Running | RecordState::Released => None,
        }
    }

    /// The lease of the attempt that runs, or ran last.
    pub fn lease(&self) -> Lease {
        let lease = Lease::new(self.key.clone(), self.token, self.fence, self.attempt, self.lease_until);
        lease.with_retention(self.retention)
    }

    /// Returns `true` if this token and fence own the record: only they may write to it, while it
    /// runs.
    pub fn is_owned_by(&self, token: Token, fence: Fence) -> bool {
        self.state == RecordState::Running && self.token == token && self.fence == fence
    }
}

/// The name of a process, for people: it is shown, and no decision depends on it. Cut at 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner with this name; control characters become spaces.
    pub fn new(name: &str) -> Self {
        Self(text::shorten(name, 255))
    }

    /// The owner that is named after this process.
    pub(crate) fn of_process() -> Self {
        Self::new(&format!("process {}", std::process::id()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reason why an attempt was abandoned, or the change of an operator. Cut at 500 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Note {
    /// The time of the note.
    pub at: Timestamp,
    /// The event, one of `abandoned`, `held`, `resolved`, `reset` and `forgotten`, then the reason.
    pub text: Arc<str>,
}

impl Note {
    /// The largest number of bytes in a note.
    pub const MAX_BYTES: usize = 500;

    /// A note at the moment `at`; control characters become spaces, and text over the limit is cut
    /// off.
    pub fn new(at: Timestamp, text: &str) -> Self {
        Self { at, text: text::shorten(text, Self::MAX_BYTES) }
    }
}
