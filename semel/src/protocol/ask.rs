//! The claim that a caller sends.

use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Token};
use crate::words::record::Owner;
use crate::words::terms::{AfterCrash, Terms};
use crate::words::time::Timestamp;

/// A claim as it is sent to a store.
///
/// A claim whose answer was lost is sent again unchanged: the store recognises the token and gives
/// the same answer. Each attempt has a token of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The key to claim.
    pub key: Key,
    /// The description of the request.
    pub intent: Intent,
    /// The identity of the attempt.
    pub token: Token,
    /// The name of the process that runs the attempt, shown to operators.
    pub owner: Owner,
    /// The length of the lease, the retention, and the rule if the attempt is lost.
    pub terms: Terms,
    /// The permission to take over a lost attempt.
    pub takeover: Takeover,
    /// The moment by the store's clock after which the store refuses this claim, so that a delayed
    /// copy cannot run anything; derived from [`Store::now`](crate::Store::now).
    ///
    /// It is at most [`Terms::RELEASED_RETENTION`] after the claim is sent, and
    /// [`Store::claim`](crate::Store::claim) refuses a later moment: a released record is kept for
    /// that time, and a copy of its claim that arrived after it would find no record, and run.
    pub not_after: Timestamp,
}

/// The permission of a claim to take over an attempt whose lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// No takeover.
    Never,
    /// Takeover of a lost attempt. An attempt that ran under `hold` is held, not lost, and is not
    /// taken over.
    WhenOver,
    /// Takeover of the attempt with this fence under any policy, because an operator or a reconcile
    /// hook has found out what exactly this attempt did.
    Of(Fence),
}

impl Takeover {
    /// Returns `true` if an attempt with this fence and policy may be taken over once its lease is
    /// over.
    pub fn allows(self, fence: Fence, after_crash: AfterCrash) -> bool {
        match self {
            Self::Never => false,
            Self::WhenOver => after_crash != AfterCrash::Hold,
            Self::Of(expected) => expected == fence,
        }
    }
}
