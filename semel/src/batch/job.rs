//! A question on its way.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::Committer;
use crate::error::StoreError;

/// For how long a question may wait until it is sent. It is withdrawn before the engine gives up on the answer after
/// 5 s: what was never sent is known not to be applied.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(4);

/// A question, and where the answer goes.
pub(super) struct Job<C: Committer> {
    pub(super) question: C::Question,
    pub(super) asked: Instant,
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

    /// Answers that it was not sent.
    pub(super) fn withdraw(self) {
        self.answer(Err(StoreError::unavailable(format!(
            "the question could not be sent within {MAX_WAIT:?}"
        ))));
    }

    pub(super) fn answer(self, answer: Result<C::Answer, StoreError>) {
        // Whoever went away does not want to know.
        let _ = self.reply.send(answer);
    }
}
