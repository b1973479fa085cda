//! What a caller asks of a key.

use crate::intent::Intent;
use crate::key::Key;
use crate::lease::{Fence, Token};
use crate::record::Owner;
use crate::terms::Terms;
use crate::time::Timestamp;

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
    /// Lease and retention.
    pub terms: Terms,
    /// What may be done about a lost attempt.
    pub takeover: Takeover,
    /// How durable a grant has to be when it is answered.
    pub durability: Durability,
    /// The moment by the store's clock after which the store refuses this claim, so that a copy which was late on
    /// its way cannot run anything; from [`Store::now`](crate::Store::now).
    pub not_after: Timestamp,
}

/// How durable a grant has to be when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// As durable as the store can make it.
    Full,
    /// It may be lost in a crash of the store as long as its outcome is: the outcome will be committed in a later
    /// transaction of the same database, with the effect. A store without such transactions takes it for `Full`.
    WithOutcome,
}

/// What a claim may do about an attempt whose lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// Nothing: the key is held.
    Never,
    /// Take its place.
    WhenOver,
    /// Take its place if it still has this fence: somebody found out what happened to *that* attempt, and to no
    /// other.
    Of(Fence),
}

impl Takeover {
    /// Whether an attempt with this fence may be taken over once its lease is over.
    pub fn allows(self, fence: Fence) -> bool {
        match self {
            Self::Never => false,
            Self::WhenOver => true,
            Self::Of(expected) => expected == fence,
        }
    }
}
