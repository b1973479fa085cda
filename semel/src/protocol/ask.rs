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
#[non_exhaustive]
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

impl Ask {
    /// A claim of a new attempt, with [`Terms::DEFAULT`], without a takeover, by an owner that is
    /// named after this process.
    pub fn new(key: Key, intent: Intent, not_after: Timestamp) -> Self {
        Self {
            key,
            intent,
            token: Token::random(),
            owner: Owner::of_process(),
            terms: Terms::DEFAULT,
            takeover: Takeover::Never,
            not_after,
        }
    }

    /// The same claim of another key.
    #[must_use]
    pub fn with_key(self, key: Key) -> Self {
        Self { key, ..self }
    }

    /// The same claim for another intent.
    #[must_use]
    pub fn with_intent(self, intent: Intent) -> Self {
        Self { intent, ..self }
    }

    /// The same claim by another attempt.
    #[must_use]
    pub fn with_token(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// The same claim by another process.
    #[must_use]
    pub fn with_owner(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// The same claim with other terms.
    #[must_use]
    pub fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// The same claim with another permission to take over.
    #[must_use]
    pub fn with_takeover(self, takeover: Takeover) -> Self {
        Self { takeover, ..self }
    }

    /// The same claim until another moment.
    #[must_use]
    pub fn with_not_after(self, not_after: Timestamp) -> Self {
        Self { not_after, ..self }
    }
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
