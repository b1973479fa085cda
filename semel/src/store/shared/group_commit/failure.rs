//! The reason why a part of a batch was not committed, and whether the part is halved because of
//! it.

use tokio::time::Instant;

use super::worker::MAX_TRYING;
use crate::words::error::StoreError;

/// The failure of a part to be committed.
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) blame: Blame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// One of the operations is at fault.
    One,
    /// The part failed as often as it was tried, possibly because of one of its operations.
    PerhapsOne,
    /// The part may have been too large to be answered in time; until then there is time to send
    /// smaller parts.
    Size { until: Instant },
    /// There is no connection, or no time is left.
    None,
}

/// The rule whether a failing batch is halved: never, or for a limited time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Halving {
    Never,
    NotYet,
    Until(Instant),
}

impl Halving {
    /// Returns `true` if a part that has failed now is to be halved.
    pub(super) fn lasts(&mut self) -> bool {
        let now = Instant::now();
        if let Self::NotYet = self {
            *self = Self::Until(now + MAX_TRYING);
        }
        matches!(self, Self::Until(end) if now < *end)
    }
}
