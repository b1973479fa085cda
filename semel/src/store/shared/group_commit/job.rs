//! A job: an operation that waits in the queue, with the place for its answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::untaken::{Counted, Untaken};
use super::{Committer, Lane};
use crate::words::error::StoreError;

/// The time after which an operation that was not sent is withdrawn. It is shorter than the 5 s
/// after which the engine gives up on the answer, because an operation that was never sent is known
/// not to be applied.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(4);

/// An operation, and the sender of its answer.
pub(super) struct Job<C: Committer> {
    pub(super) question: C::Question,
    pub(super) lane: Lane,
    pub(super) asked: Instant,
    /// The approximate size of the answer; 0 unless it is known to be large, as when a batch had no
    /// room for it.
    pub(super) answer_bytes: usize,
    /// Set if an earlier transmission may have been applied.
    pub(super) lost: bool,
    pub(super) reply: oneshot::Sender<Counted<Result<C::Answer, StoreError>>>,
    pub(super) untaken: Arc<Untaken>,
    /// The permit for its place in the lane, returned when the operation is answered.
    #[expect(dead_code, reason = "it is held, and dropped")]
    pub(super) room: OwnedSemaphorePermit,
}

impl<C: Committer> Job<C> {
    pub(super) fn subject(&self) -> C::Subject {
        C::subject(&self.question)
    }

    /// Returns `true` if the caller no longer waits for the answer.
    pub(super) fn is_idle(&self) -> bool {
        self.reply.is_closed()
    }

    /// The moment at which the operation is withdrawn unless it was sent.
    pub(super) fn deadline(&self) -> Instant {
        self.asked + MAX_WAIT
    }

    /// Answers that the operation was not sent, or was sent and excluded from the batch.
    pub(super) fn withdraw(self) {
        let message = match self.answer_bytes {
            0 => format!("the question could not be sent within {MAX_WAIT:?}"),
            bytes => format!("the answer of about {bytes} bytes could not be loaded within {MAX_WAIT:?}"),
        };
        self.fail(StoreError::unavailable(message));
    }

    /// Answers that the operation failed; nothing of it was applied this time.
    pub(super) fn fail(self, error: StoreError) {
        let error = match self.lost && !error.is_unknown() {
            true => StoreError::unknown(error.to_string()).with_source(error),
            false => error,
        };
        self.answer(Err(error));
    }

    pub(super) fn answer(self, answer: Result<C::Answer, StoreError>) {
        let bytes = answer.as_ref().map_or(0, |answer| C::size(&self.question, answer));
        // A caller that was dropped does not need the answer.
        let _ = self.reply.send(self.untaken.count(answer, bytes));
    }
}
