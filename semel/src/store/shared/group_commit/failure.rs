//! Why a part of a batch was not committed, and whether it is halved for that.

use tokio::time::Instant;

use super::worker::MAX_TRYING;
use crate::words::error::StoreError;

/// Why a part was not committed.
pub(super) struct Failure {
    pub(super) error: StoreError,
    pub(super) blame: Blame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// One of the questions is at fault.
    One,
    /// It failed as often as it was tried, and perhaps because of one of the questions.
    PerhapsOne,
    /// It was too large to be answered in time, perhaps, and until then there is time to send less.
    Size { until: Instant },
    /// There is no connection, or no time is left.
    None,
}

/// Whether a batch that fails is halved: if so, for a limited time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Halving {
    Never,
    NotYet,
    Until(Instant),
}

impl Halving {
    /// Whether what has failed now is to be halved.
    pub(super) fn lasts(&mut self) -> bool {
        let now = Instant::now();
        if let Self::NotYet = self {
            *self = Self::Until(now + MAX_TRYING);
        }
        matches!(self, Self::Until(end) if now < *end)
    }
}
