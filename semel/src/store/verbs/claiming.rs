//! A claim as a state machine.

use crate::protocol::answer::Claim;
use crate::protocol::ask::Ask;
use crate::protocol::decide::{self, Decision};
use crate::protocol::draft::Replace;
use crate::store::backend::{Opened, Replaced};
use crate::words::lease::{Fence, Lease};
use crate::words::record::Record;
use crate::words::time::Timestamp;

/// The state machine of a claim, without any I/O: the next request, and the meaning of the answers.
///
/// A new key and a replay take one question; a released, expired or lost record takes two.
#[derive(Debug)]
pub struct Claiming<'a> {
    ask: &'a Ask,
    /// The remaining number of times that the record may be replaced or looked up again.
    tries_left: u32,
    /// The attempt number of the replace in progress.
    attempt: u32,
    seen: Option<Seen>,
}

/// The record that a claim has tried to replace.
#[derive(Debug)]
struct Seen {
    record: Box<Record>,
    now: Timestamp,
}

/// The next step of a claim.
#[derive(Debug)]
pub enum Step {
    /// Send [`Backend::open`](crate::store::backend::Backend::open).
    Open,
    /// Send [`Backend::replace`](crate::store::backend::Backend::replace).
    Replace(Box<Replace>),
    /// Finish: this is the answer.
    Answer(Claim),
    /// Finish without an answer: the store never showed the record. Nothing was applied.
    Unseen,
}

impl<'a> Claiming<'a> {
    /// A claim that begins with an open and sends at most this many replaces.
    pub fn new(ask: &'a Ask, tries: u32) -> Self {
        Self { ask, tries_left: tries, attempt: 1, seen: None }
    }

    /// Handles the answer to the open.
    pub fn opened(&mut self, opened: Opened, now: Timestamp) -> Step {
        match opened {
            Opened::Created { fence, lease_until } => Step::Answer(self.granted(fence, 1, lease_until)),
            Opened::Late => Step::Answer(Claim::Late),
            Opened::Unseen => match (self.tries_left, &self.seen) {
                (0, Some(seen)) => Step::Answer(decide::contended(&seen.record, seen.now)),
                (0, None) => Step::Unseen,
                _ => {
                    self.tries_left -= 1;
                    Step::Open
                }
            },
            Opened::Found(record) => match decide::claim(&record, self.ask, now) {
                Decision::Answer(claim) => Step::Answer(claim),
                Decision::Replace(_) if self.tries_left == 0 => Step::Answer(decide::contended(&record, now)),
                Decision::Replace(draft) => {
                    self.tries_left -= 1;
                    self.attempt = draft.attempt;
                    let replace = Replace {
                        key: self.ask.key.clone(),
                        expected_token: record.token,
                        expected_version: record.version,
                        not_after: Some(self.ask.not_after),
                        draft,
                    };
                    self.seen = Some(Seen { record, now });
                    Step::Replace(Box::new(replace))
                }
            },
        }
    }

    /// Handles the answer to the replace. If the record has changed, the claim looks again, even
    /// after the last replace: the change may be an earlier copy of this same replace, and then the
    /// key is granted.
    pub fn replaced(&mut self, replaced: Replaced) -> Step {
        match (replaced, &self.seen) {
            (Replaced::Applied { fence, lease_until }, _) => {
                Step::Answer(self.granted(fence, self.attempt, lease_until))
            }
            (Replaced::Late, _) => Step::Answer(Claim::Late),
            (Replaced::Locked, Some(seen)) => Step::Answer(decide::contended(&seen.record, seen.now)),
            (Replaced::Changed | Replaced::Locked, _) => Step::Open,
        }
    }

    fn granted(&self, fence: Fence, attempt: u32, deadline: Timestamp) -> Claim {
        let lease = Lease::new(self.ask.key.clone(), self.ask.token, fence, attempt, deadline);
        Claim::Granted(lease.with_retention(self.ask.terms.retention()))
    }
}
