//! The charge of a body on the budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::overdraft::Loan;
use super::{Held, STEP, Shares};

pub(super) enum Share {
    Requests,
    Replies,
    /// The part of the share of responses that replays may use.
    Replays,
}

/// The steps that a body has been charged. They are returned when this is dropped.
pub(in crate::http) struct Charge {
    shares: Arc<Shares>,
    share: Share,
    steps: usize,
    /// Set for a response that was allowed to exceed the share, or a replay that was allowed to
    /// exceed its part.
    pub(super) overdrawn: bool,
    /// The part of it that exceeds the share, once it is known.
    loan: Option<Arc<Loan>>,
}

impl Charge {
    /// A charge of nothing yet.
    pub(super) fn new(shares: &Arc<Shares>, share: Share) -> Self {
        Self { shares: Arc::clone(shares), share, steps: 0, overdrawn: false, loan: None }
    }

    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The number of steps that are missing for this many bytes.
    fn missing(&self, bytes: usize) -> u32 {
        let missing = bytes.div_ceil(STEP).saturating_sub(self.steps);
        // Bodies are far smaller than the numbers that do not fit.
        u32::try_from(missing).unwrap_or(u32::MAX)
    }

    /// Charges this many bytes in all; if there is no room, returns `false` and charges nothing
    /// more.
    pub(in crate::http) fn try_for(&mut self, bytes: usize) -> bool {
        let missing = self.missing(bytes);
        if missing == 0 || self.overdrawn {
            return true;
        }
        let taken = match self.share {
            Share::Requests => self.shares.take(missing as usize),
            Share::Replies => self.shares.take_reply(missing),
            Share::Replays => self.shares.take_replay(missing),
        };
        if taken {
            self.steps += missing as usize;
        }
        taken
    }

    /// Charges this many bytes in all and the same again while pieces are joined, or, if that is
    /// too much for any share, all that there is.
    pub(in crate::http) fn try_for_joining(&mut self, bytes: usize, joined: usize) -> bool {
        let all = match self.share {
            Share::Requests => self.shares.request_steps,
            Share::Replies | Share::Replays => self.shares.reply_steps,
        };
        self.try_for((bytes + joined).min(all * STEP).max(bytes))
    }

    /// Returns the charge beyond this many bytes.
    pub(in crate::http) fn keep(&mut self, bytes: usize) {
        let extra = self.steps.saturating_sub(bytes.div_ceil(STEP));
        self.steps -= extra;
        self.give_back(extra);
    }

    /// Returns `true` if the share never has room for this many bytes of a response.
    fn is_over_all(&self, bytes: usize) -> bool {
        bytes.div_ceil(STEP) > self.shares.reply_steps
    }

    /// Allows a replay that is larger than the whole part for replays to exceed it now. Such a
    /// replay takes nothing from the share, and responses of attempts do not wait for it.
    pub(super) fn try_over(&mut self, bytes: usize) -> bool {
        self.overdrawn = bytes.div_ceil(STEP) > self.shares.replay_steps
            && self.shares.large_replay.try_acquire().map(|permit| permit.forget()).is_ok();
        self.overdrawn
    }

    /// Charges this many bytes of a response in all, as soon as there is room.
    pub(in crate::http) async fn wait_for(&mut self, bytes: usize) {
        if self.try_for(bytes) {
            return;
        }
        let missing = self.missing(bytes);
        let Shares { replies, overdraft, .. } = &*self.shares;
        tokio::select! {
            biased;
            // The semaphore is never closed. A response that waits for more than the whole share
            // would keep all steps from the other responses.
            permit = replies.acquire_many(missing), if !self.is_over_all(bytes) => {
                permit.into_iter().for_each(|permit| permit.forget());
                self.steps += missing as usize;
            }
            () = overdraft.enter() => self.overdrawn = true,
        }
    }

    /// Records the size of the response: if it exceeds the share, it is moved into the share as
    /// soon as there is room.
    pub(super) fn known(&mut self, bytes: usize) {
        if self.overdrawn && matches!(self.share, Share::Replies) {
            self.loan = Some(self.shares.overdraft.lend(self.missing(bytes)));
            self.shares.overdraft.repay(&self.shares.replies);
        }
    }

    /// The bytes with their charge.
    pub(in crate::http) fn hold(mut self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() && self.steps == 0 {
            return bytes;
        }
        self.known(bytes.len());
        Bytes::from_owner(Held { bytes, charge: self, key: None })
    }

    fn give_back(&self, steps: usize) {
        match self.share {
            _ if steps == 0 => {}
            Share::Requests => {
                self.shares.requests.fetch_sub(steps, Ordering::Relaxed);
            }
            Share::Replies => self.shares.give_back_reply(steps),
            Share::Replays => self.shares.give_back_replay(steps),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        match self.share {
            _ if !self.overdrawn => {}
            Share::Replays => self.shares.large_replay.add_permits(1),
            Share::Requests | Share::Replies => {
                self.steps += self.shares.overdraft.leave(self.loan.as_deref());
            }
        }
        self.give_back(self.steps);
    }
}
