//! Batches over one connection at a time.

use std::sync::Arc;

use tokio::time::timeout;

use super::batch::Batch;
use super::errors;
use super::id::Id;
use super::options::PostgresOptions;
use super::session::{Peer, Session, within};
use super::statements::Statements;
use crate::ask::{Ask, Durability};
use crate::backend::{Opened, Replaced, Written};
use crate::batch::{self, Failed};
use crate::change::{Action, DraftState, Replace, Write};
use crate::error::StoreError;
use crate::key::Key;
use crate::record::Record;
use crate::time::Timestamp;

/// What is asked of one key.
pub(super) struct Question {
    pub(super) id: Id,
    pub(super) asked: Asked,
}

#[derive(Clone)]
pub(super) enum Asked {
    Open(Ask),
    Replace(Replace),
    Write(Write),
    Read(Key),
}

impl Asked {
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Open(ask) => &ask.key,
            Self::Replace(item) => &item.key,
            Self::Write(item) => &item.key,
            Self::Read(key) => key,
        }
    }

    /// Whether it was not applied only because somebody had locked the row.
    pub(super) fn met_a_lock(&self, what: &What) -> bool {
        match (self, what) {
            (Self::Replace(_), What::Replaced(replaced)) => *replaced == Replaced::Locked,
            (Self::Write(item), What::Written(Written::Unapplied(Some(record)))) => {
                record.is_owned_by(item.token, item.action.fence().unwrap_or(record.fence))
            }
            _ => false,
        }
    }
}

/// What became of it, with the clock of the server.
pub(super) struct Answer {
    pub(super) now: Timestamp,
    pub(super) what: What,
}

pub(super) enum What {
    Opened(Opened),
    Replaced(Replaced),
    Written(Written),
    Read(Option<Box<Record>>),
}

/// Commits batches over one connection at a time.
pub(super) struct Committer {
    options: Arc<PostgresOptions>,
    ready: Option<Ready>,
    /// The other end of a connection that was lost, until it is known to be gone.
    lost: Option<Peer>,
    /// Whether something may have been committed of which it is not known whether it is safe on the standby, too.
    unconfirmed: bool,
}

/// A connection with its statements.
pub(super) struct Ready {
    pub(super) session: Session,
    pub(super) statements: Statements,
}

impl Committer {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { options, ready: None, lost: None, unconfirmed: false }
    }

    /// Takes leave of the connection for good.
    fn give_up(&mut self) {
        if let Some(Ready { session, .. }) = self.ready.take() {
            self.lost = Some(session.peer());
            session.abort();
        }
    }
}

impl batch::Committer for Committer {
    type Question = Question;
    type Answer = Answer;

    async fn connect(&mut self) -> Result<(), StoreError> {
        if self.ready.as_ref().is_some_and(|ready| !ready.session.client.is_closed()) {
            return Ok(());
        }
        self.give_up();
        let session = Session::for_batches(&self.options).await?;
        within(self.options.timeout, async {
            if let Some(lost) = self.lost {
                session.lay_to_rest(lost, self.options.timeout / 2).await?;
                self.lost = None;
            }
            let statements = Statements::prepare(&session.client, &self.options.schema).await;
            let statements = statements.map_err(errors::of_question)?;
            self.ready = Some(Ready { session, statements });
            Ok(())
        })
        .await
    }

    fn weight(question: &Question) -> usize {
        let outcome = match &question.asked {
            Asked::Write(Write { action: Action::Complete { outcome, .. }, .. }) => outcome,
            Asked::Replace(Replace { draft, .. }) => match &draft.state {
                DraftState::Done(outcome) => outcome,
                DraftState::Running | DraftState::Released => return 0,
            },
            Asked::Write(_) | Asked::Open(_) | Asked::Read(_) => return 0,
        };
        outcome.body().map_or(0, |body| body.len())
    }

    /// Claims whose outcome will make them durable go by themselves: their commit need not wait for the disk.
    fn is_apart(question: &Question) -> bool {
        matches!(&question.asked, Asked::Open(ask) if ask.durability == Durability::WithOutcome)
    }

    async fn commit(&mut self, questions: &[&Question]) -> Result<Vec<Result<Answer, StoreError>>, Failed> {
        let Some(ready) = &self.ready else {
            return Err(Failed::Again(StoreError::unavailable("there is no connection to Postgres")));
        };
        let batch = Batch::of(questions);
        let failed = match timeout(self.options.timeout, batch.commit(ready, self.unconfirmed)).await {
            Ok(Ok(_)) if ready.session.take_warning() => {
                Failed::Lost(StoreError::unknown("Postgres did not wait for its standby"))
            }
            Ok(Ok(answers)) => {
                self.unconfirmed = false;
                return Ok(answers);
            }
            Ok(Err(error)) => {
                let over = error.code().is_some_and(errors::ends_session);
                let failed = errors::of_batch(error);
                if over {
                    self.give_up();
                }
                failed
            }
            Err(_) => Failed::Lost(StoreError::unknown(format!(
                "Postgres did not answer within {:?}",
                self.options.timeout
            ))),
        };
        if matches!(failed, Failed::Lost(_)) {
            self.unconfirmed = true;
            self.give_up();
        }
        Err(failed)
    }
}
