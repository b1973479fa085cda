//! The committer of SQLite: it commits batches over one connection at a time.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::batch::{self as transaction, Answer};
use super::options::SqliteOptions;
use super::thread::Thread;
use crate::store::shared::group_commit::{self, Failed, Reply};
use crate::store::shared::question::Question;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;

/// A committer, with a connection on a thread of its own.
pub(super) struct Committer {
    options: SqliteOptions,
    running: TaskTracker,
    thread: Option<Thread>,
}

impl Committer {
    pub(super) fn new(options: SqliteOptions, running: TaskTracker) -> Self {
        Self { options, running, thread: None }
    }
}

impl group_commit::Committer for Committer {
    type Question = Arc<Question>;
    type Answer = Answer;
    type Subject = Id;

    fn subject(question: &Arc<Question>) -> Id {
        question.id
    }

    /// The work of an earlier thread is either committed or rolled back: the thread has answered,
    /// or it has panicked and no other thread continues its transaction.
    async fn connect(&mut self) -> Result<(), StoreError> {
        if self.thread.is_none() {
            self.thread = Some(Thread::start(self.options.clone(), &self.running).await?);
        }
        Ok(())
    }

    async fn is_connected(&mut self) -> bool {
        self.thread.is_some()
    }

    fn disconnect(&mut self) {
        self.thread = None;
    }

    fn weight(question: &Arc<Question>) -> usize {
        question.asked.weight()
    }

    /// The size of answers is found out by the batch.
    fn answer_weight(_: &Arc<Question>) -> usize {
        0
    }

    fn size(_: &Arc<Question>, answer: &Answer) -> usize {
        answer.what.size()
    }

    fn is_apart(_: &Arc<Question>) -> bool {
        false
    }

    async fn commit(&mut self, questions: &[&Arc<Question>]) -> Result<Vec<Reply<Answer>>, Failed> {
        let path = self.options.path.display();
        let Some(thread) = &self.thread else {
            return Err(Failed::Again(StoreError::unavailable(format!("{path} is not open"))));
        };
        let questions: Vec<Arc<Question>> = questions.iter().map(|question| Arc::clone(question)).collect();
        match thread.run(move |session| transaction::commit(session, &questions)).await {
            Some(Ok(answers)) => Ok(answers),
            Some(Err(fault)) => {
                if fault.ends_session {
                    self.thread = None;
                }
                Err(fault.failed)
            }
            None => {
                let message = format!("the thread that writes to {path} has panicked");
                self.thread = None;
                Err(Failed::Lost(StoreError::unknown(message)))
            }
        }
    }
}
