//! A question on its way.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::{Committer, Lane};
use crate::words::error::StoreError;

/// For how long a question may wait until it is sent. It is withdrawn before the engine gives up on the answer after
/// 5 s: what was never sent is known not to be applied.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(4);

/// A question, and where the answer goes.
pub(super) struct Job<C: Committer> {
    pub(super) question: C::Question,
    pub(super) lane: Lane,
    pub(super) asked: Instant,
    /// About how many bytes the answer has; 0 unless it is known to have many, as when a batch had no room for it.
    pub(super) answer_bytes: usize,
    /// Whether it may have been applied when it was sent before.
    pub(super) lost: bool,
    pub(super) reply: oneshot::Sender<Result<C::Answer, StoreError>>,
    /// Its place in the lane, given back when it is answered.
    #[expect(dead_code, reason = "it is held, and dropped")]
    pub(super) room: OwnedSemaphorePermit,
}

impl<C: Committer> Job<C> {
    pub(super) fn subject(&self) -> C::Subject {
        C::subject(&self.question)
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_idle(&self) -> bool {
        self.reply.is_closed()
    }

    /// When it is withdrawn unless it was sent.
    pub(super) fn deadline(&self) -> Instant {
        self.asked + MAX_WAIT
    }

    /// Answers that it was not sent, or was sent and had no part in the batch.
    pub(super) fn withdraw(self) {
        let message = match self.answer_bytes {
            0 => format!("the question could not be sent within {MAX_WAIT:?}"),
            bytes => format!("the answer of about {bytes} bytes could not be loaded within {MAX_WAIT:?}"),
        };
        self.fail(StoreError::unavailable(message));
    }

    /// Answers that it failed; nothing of it was applied this time.
    pub(super) fn fail(self, error: StoreError) {
        let error = match self.lost && !error.is_unknown() {
            true => StoreError::unknown(error.to_string()).with_source(error),
            false => error,
        };
        self.answer(Err(error));
    }

    pub(super) fn answer(self, answer: Result<C::Answer, StoreError>) {
        // Whoever went away does not want to know.
        let _ = self.reply.send(answer);
    }
}
