//! The settlement of an attempt: the write that is chosen by the result of its work.

use super::error::{Failure, FailureKind};
use crate::protocol::answer::Ack;
use crate::words::error::StoreError;
use crate::words::outcome::Outcome;
use crate::words::terms::AfterCrash;

/// The write to the record with which an attempt settles its key.
pub(super) enum Settlement {
    Complete(Outcome),
    Release,
    Abandon(String),
    Hold(String),
}

impl Settlement {
    /// The settlement for a result of the work.
    pub(super) fn of(result: &Result<Outcome, Failure>, max_body_bytes: usize) -> Self {
        match result {
            Ok(outcome) if outcome.body().is_some_and(|body| body.len() > max_body_bytes) => {
                Self::Complete(outcome.clone().without_body())
            }
            Ok(outcome) => Self::Complete(outcome.clone()),
            Err(failure) => match failure.kind() {
                FailureKind::NothingHappened => Self::Release,
                FailureKind::Unknown => Self::Abandon(failure.to_string()),
                FailureKind::CompletionMissing => Self::Hold(failure.to_string()),
            },
        }
    }

    /// The failpoint before the write.
    pub(super) fn point(&self) -> &'static str {
        match self {
            Self::Complete(_) => "before_complete",
            Self::Release => "before_release",
            Self::Abandon(_) | Self::Hold(_) => "before_abandon",
        }
    }

    /// Returns `true` if the record keeps this attempt's token without a lease: after an abandon or
    /// a hold that stands. A void of the token would release the key.
    pub(super) fn holds_key(&self, ack: Ack) -> bool {
        matches!(self, Self::Abandon(_) | Self::Hold(_)) && ack.stands()
    }

    /// Returns `true` if an operator has to settle the key after this settlement. An abandoned
    /// key is held only under `hold`; under other policies it is lost, and the next attempt takes
    /// it over.
    pub(super) fn leaves_held(&self, ack: Ack, after_crash: AfterCrash) -> bool {
        self.holds_key(ack) && (after_crash == AfterCrash::Hold || matches!(self, Self::Hold(_)))
    }

    /// The result of the write as one word, for metrics.
    pub(super) fn word(&self, written: &Result<Ack, StoreError>) -> &'static str {
        match (written, self) {
            (Ok(ack), _) if !ack.stands() => "superseded",
            (Ok(_), Self::Complete(_)) => "completed",
            (Ok(_), Self::Release) => "released",
            (Ok(_), Self::Abandon(_)) => "abandoned",
            (Ok(_), Self::Hold(_)) => "held",
            (Err(error), _) if error.is_transient() => "pending",
            (Err(_), _) => "refused",
        }
    }
}
