//! What a caller asks of a key.

use crate::fault;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::{Fence, Token};
use crate::words::record::Owner;
use crate::words::terms::{AfterCrash, Terms};
use crate::words::time::Timestamp;

/// A claim as it is sent to a store.
///
/// A claim whose answer was lost is sent again as it is: the token makes that harmless. Another attempt makes
/// another token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The key to claim.
    pub key: Key,
    /// What is to be done under it.
    pub intent: Intent,
    /// Who asks: a new one for each attempt.
    pub token: Token,
    /// Which process asks, for people.
    pub owner: Owner,
    /// Lease, retention, and what happens if the attempt is lost.
    pub terms: Terms,
    /// What may be done about a lost attempt.
    pub takeover: Takeover,
    /// The moment by the store's clock after which the store refuses this claim, so that a copy which was late on
    /// its way cannot run anything; from [`Store::now`](crate::Store::now).
    ///
    /// At most [`Terms::RELEASED_RETENTION`] after the claim is sent: a released record is kept for no longer, and a copy of
    /// its claim that arrived later would find the key free. [`Store::claim`](crate::Store::claim) refuses a later moment.
    pub not_after: Timestamp,
}

/// What a claim may do about an attempt whose lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// Nothing.
    Never,
    /// Take the place of a lost attempt. One that ran under `hold` is not lost but held, and stays so.
    WhenOver,
    /// Take the place of the attempt with this fence, whatever its policy is: an operator or a reconcile hook found out
    /// what happened to *that* attempt, and to no other.
    Of(Fence),
}

impl Takeover {
    /// Whether an attempt that ran under this fence and policy may be taken over once its lease is over.
    pub fn allows(self, fence: Fence, after_crash: AfterCrash) -> bool {
        match self {
            Self::Never => false,
            Self::WhenOver => after_crash != AfterCrash::Hold || fault::makes("takeover_under_hold"),
            Self::Of(expected) => expected == fence,
        }
    }
}
