//! A question on its way.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Committer;
use crate::error::StoreError;

/// A question, and where the answer goes.
pub(super) struct Job<C: Committer> {
    pub(super) question: C::Question,
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

    pub(super) fn answer(self, answer: Result<C::Answer, StoreError>) {
        // Whoever went away does not want to know.
        let _ = self.reply.send(answer);
    }
}
