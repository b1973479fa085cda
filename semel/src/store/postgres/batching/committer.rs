//! Batches over one connection at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::batch::{Batch, Fault, Manner};
use super::statements::Statements;
use crate::store::postgres::errors;
use crate::store::postgres::options::PostgresOptions;
use crate::store::postgres::session::{Line, Peer, Rest, within};
use crate::store::shared::group_commit::{self, Failed, MAX_ANSWER_BYTES, Reply};
use crate::store::shared::question::{Asked, Question, What};
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// What became of a question, with the clock of the server.
pub(crate) struct Answer {
    pub(crate) now: Timestamp,
    pub(crate) what: What,
    /// Whether it was not applied only because somebody had locked the row.
    pub(crate) met_a_lock: bool,
}

impl Answer {
    pub(crate) fn of(now: Timestamp, what: What) -> Self {
        Self { now, what, met_a_lock: false }
    }
}

/// Commits batches over one connection at a time.
pub(crate) struct Committer {
    options: Arc<PostgresOptions>,
    ready: Option<Ready>,
    /// The other end of a connection that was lost, until it is known to be gone.
    lost: Option<Peer>,
    doubts: Arc<Doubts>,
    /// Whether most claims of late were repeats.
    repeats: bool,
    /// Until when batches are careful from the start, as somebody holds on to a row.
    careful_until: Option<Instant>,
    /// How many bytes the outcomes that a batch reads may have together: less while the server does not answer in time.
    room: usize,
}

/// The least room for the outcomes that a batch reads.
const MIN_ROOM: usize = 64 << 10;

/// For how long batches are careful after a row could not be had. Each that is not waits for it first.
const CAREFUL: Duration = Duration::from_secs(1);

/// What may have been committed without being safe on the standby. Everyone can see it, so all connections of a
/// store have to know.
#[derive(Default)]
pub(crate) struct Doubts {
    raised: AtomicU64,
    settled: AtomicU64,
}

impl Doubts {
    fn raise(&self) {
        self.raised.fetch_add(1, Ordering::SeqCst);
    }

    /// The latest that is not settled.
    fn latest(&self) -> Option<u64> {
        let raised = self.raised.load(Ordering::SeqCst);
        (self.settled.load(Ordering::SeqCst) < raised).then_some(raised)
    }

    /// A commit that was begun after this one was raised is safe, and with it all that was committed before.
    fn settle(&self, doubt: u64) {
        self.settled.fetch_max(doubt, Ordering::SeqCst);
    }
}

/// A connection with its statements.
struct Ready {
    line: Line,
    statements: Statements,
}

impl Committer {
    pub(crate) fn new(options: Arc<PostgresOptions>, doubts: Arc<Doubts>) -> Self {
        Self {
            options,
            ready: None,
            lost: None,
            doubts,
            repeats: false,
            careful_until: None,
            room: MAX_ANSWER_BYTES,
        }
    }

    /// Takes leave of the connection for good.
    fn give_up(&mut self) {
        if let Some(Ready { line, .. }) = self.ready.take() {
            self.lost = Some(line.peer);
        }
    }

    async fn is_connected(&mut self) -> bool {
        match &mut self.ready {
            Some(ready) => ready.line.is_open().await,
            None => false,
        }
    }
}

impl group_commit::Committer for Committer {
    type Question = Question;
    type Answer = Answer;
    type Subject = Id;

    fn subject(question: &Question) -> Id {
        question.id
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        if self.is_connected().await {
            return Ok(());
        }
        self.give_up();
        let mut line = Line::open(&self.options).await?;
        within(self.options.timeout, async {
            if let Some(lost) = self.lost {
                let rest = line.lay_to_rest(lost, self.options.timeout / 2).await?;
                if rest == Rest::Elsewhere {
                    // Asking once more would lead to the same, and the old process, if there still is one, answers to
                    // nobody here: from now on the other system decides.
                    self.lost = None;
                    return Err(StoreError::refused(
                        "the address of Postgres leads to another database system than before: what became of a batch \
                         that was under way is not known",
                    ));
                }
                // Not before: until then it could commit after another connection has confirmed what is there.
                // Nor is it too late, as nobody is asked about its keys until then.
                self.doubts.raise();
                self.lost = None;
            }
            let statements = Statements::prepare(&line.client, &self.options.schema);
            let statements = line.wire.carry(statements).await.map_err(errors::of_question)?;
            self.ready = Some(Ready { line, statements });
            Ok(())
        })
        .await
    }

    fn weight(question: &Question) -> usize {
        question.asked.weight()
    }

    /// A batch finds out.
    fn answer_weight(_: &Question) -> usize {
        0
    }

    /// Claims under `transactional` go by themselves: their commit need not wait for the disk, as the commit of their
    /// outcome and effect, in the same database, makes them durable.
    fn is_apart(question: &Question) -> bool {
        matches!(&question.asked, Asked::Open(ask) if ask.terms.after_crash() == AfterCrash::Transactional)
    }

    async fn commit(&mut self, questions: &[&Question]) -> Result<Vec<Reply<Answer>>, Failed> {
        let Some(Ready { line: Line { client, wire, alarm, .. }, statements }) = &mut self.ready else {
            return Err(Failed::Again(StoreError::unavailable("there is no connection to Postgres")));
        };
        let batch = Batch::of(questions);
        let doubt = self.doubts.latest();
        let careful = self.careful_until.is_some_and(|end| Instant::now() < end);
        let manner = Manner { confirm: doubt.is_some(), careful, read_first: self.repeats, room: self.room };
        let commit = async {
            match batch.commit(client, statements, manner).await {
                // Somebody else is at work on one of the rows.
                Err(fault)
                    if !careful
                        && !fault.after_commit
                        && fault.error.code().is_some_and(errors::is_contention) =>
                {
                    batch.commit(client, statements, Manner { careful: true, ..manner }).await
                }
                other => other,
            }
        };
        alarm.as_mut().reset(Instant::now() + self.options.timeout);
        let failed = match wire.carry_until(alarm, commit).await {
            Some(Ok(_)) if wire.take_warning() => {
                Failed::Lost(StoreError::unknown("Postgres did not wait for its standby"))
            }
            Some(Ok(committed)) => {
                if let Some(doubt) = doubt {
                    self.doubts.settle(doubt);
                }
                self.repeats = committed.mostly_repeats.unwrap_or(self.repeats);
                if committed.is_full {
                    self.room = (self.room * 2).min(MAX_ANSWER_BYTES);
                }
                return Ok(committed.replies);
            }
            Some(Err(Fault { error, after_commit: true })) => Failed::Lost(
                StoreError::unknown("Postgres may have committed before it failed").with_source(error),
            ),
            Some(Err(Fault { error, after_commit: false })) => {
                let over = error.code().is_some_and(errors::ends_session);
                if error.code().is_some_and(errors::is_contention) {
                    self.careful_until = Some(Instant::now() + CAREFUL);
                }
                let failed = errors::of_batch(error);
                if over {
                    self.give_up();
                }
                failed
            }
            None => {
                self.room = (self.room / 2).max(MIN_ROOM);
                Failed::Slow(StoreError::unknown(format!(
                    "Postgres did not answer within {:?}",
                    self.options.timeout
                )))
            }
        };
        if matches!(failed, Failed::Lost(_) | Failed::Slow(_)) {
            self.give_up();
        }
        Err(failed)
    }
}
