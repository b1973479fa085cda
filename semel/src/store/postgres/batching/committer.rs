//! The committer of Postgres: it commits batches over one connection at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::batch::{Batch, Fault, Manner};
use super::statements::Statements;
use crate::store::postgres::errors;
use crate::store::postgres::options::PostgresOptions;
use crate::store::postgres::session::{Line, Peer, Rest, within};
use crate::store::shared::group_commit::{self, Failed, Reply, answer_room};
use crate::store::shared::question::{Asked, Question, What};
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// The answer to an operation, with the clock of the server.
pub(crate) struct Answer {
    pub(crate) now: Timestamp,
    pub(crate) what: What,
    /// Set if the operation was not applied only because another transaction had locked the row.
    pub(crate) met_a_lock: bool,
}

impl Answer {
    pub(crate) fn of(now: Timestamp, what: What) -> Self {
        Self { now, what, met_a_lock: false }
    }
}

/// A committer, with at most one connection at a time.
pub(crate) struct Committer {
    options: Arc<PostgresOptions>,
    ready: Option<Ready>,
    /// The server process of a lost connection, until it is known to be gone.
    lost: Option<Peer>,
    common: Arc<Common>,
    /// Set if most recent claims were repeats.
    repeats: bool,
    /// The moment until which batches are careful from the start, because a transaction holds on to
    /// a row.
    careful_until: Option<Instant>,
    /// The largest size of all outcomes that a batch reads: less while the server does not answer
    /// in time.
    room: usize,
}

/// The lower limit for the outcomes that a batch reads.
const MIN_ROOM: usize = 64 << 10;

/// The time for which batches are careful after a row could not be locked. Each batch that is not
/// careful waits for that row first.
const CAREFUL: Duration = Duration::from_secs(1);

/// The commits that may have happened without being safe on the standby. All connections can see
/// their results, so all connections of a store share this.
#[derive(Default)]
struct Doubts {
    raised: AtomicU64,
    cleared: AtomicU64,
}

impl Doubts {
    fn raise(&self) {
        self.raised.fetch_add(1, Ordering::SeqCst);
    }

    /// The latest doubt that is not cleared.
    fn latest(&self) -> Option<u64> {
        let raised = self.raised.load(Ordering::SeqCst);
        (self.cleared.load(Ordering::SeqCst) < raised).then_some(raised)
    }

    /// Clears a doubt: a commit that began after it was raised is safe, and with it everything
    /// that was committed before.
    fn clear(&self, doubt: u64) {
        self.cleared.fetch_max(doubt, Ordering::SeqCst);
    }
}

/// The state that the committers of a store share.
pub(crate) struct Common {
    doubts: Doubts,
    /// The permits to read outcomes that are larger than a batch has room for.
    large: Semaphore,
}

impl Common {
    pub(crate) fn of(options: &PostgresOptions) -> Self {
        Self { doubts: Doubts::default(), large: Semaphore::new(options.connections) }
    }
}

/// A connection with its prepared statements.
struct Ready {
    line: Line,
    statements: Statements,
}

impl Committer {
    pub(crate) fn new(options: Arc<PostgresOptions>, common: Arc<Common>) -> Self {
        let room = answer_room(options.connections);
        Self { options, ready: None, lost: None, common, repeats: false, careful_until: None, room }
    }

    /// Abandons the connection for good.
    fn give_up(&mut self) {
        if let Some(Ready { line, .. }) = self.ready.take() {
            self.lost = Some(line.peer);
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
                    // A retry would lead to the same system, and the old server process, if it
                    // still exists, cannot be reached from here: from now on the other system
                    // decides.
                    self.lost = None;
                    return Err(StoreError::refused(
                        "the address of Postgres leads to another database system than before: the result of a batch \
                         in flight is not known",
                    ));
                }
                // The doubt is not raised earlier: until then, the lost batch could commit after
                // another connection has confirmed the present state. It is not too late either,
                // because no operation about its keys is sent until then.
                self.common.doubts.raise();
                self.lost = None;
            }
            let statements = Statements::prepare(&line.client, &self.options.schema);
            let statements = line.wire.carry(statements).await.map_err(errors::of_question)?;
            self.ready = Some(Ready { line, statements });
            Ok(())
        })
        .await
    }

    async fn is_connected(&mut self) -> bool {
        match &mut self.ready {
            Some(ready) => ready.line.is_open().await,
            None => false,
        }
    }

    fn disconnect(&mut self) {
        self.ready = None;
    }

    fn weight(question: &Question) -> usize {
        question.asked.weight()
    }

    /// The size of answers is found out by the batch.
    fn answer_weight(_: &Question) -> usize {
        0
    }

    fn size(_: &Question, answer: &Answer) -> usize {
        answer.what.size()
    }

    /// Claims under `transactional` are committed apart: their commit need not wait for the disk,
    /// because the commit of their outcome and effect, in the same database, makes them durable.
    fn is_apart(question: &Question) -> bool {
        matches!(&question.asked, Asked::Open(ask) if ask.terms.after_crash() == AfterCrash::Transactional)
    }

    async fn commit(&mut self, questions: &[&Question]) -> Result<Vec<Reply<Answer>>, Failed> {
        let Some(Ready { line: Line { client, wire, alarm, .. }, statements }) = &mut self.ready else {
            return Err(Failed::Again(StoreError::unavailable("there is no connection to Postgres")));
        };
        let batch = Batch::of(questions);
        let doubt = self.common.doubts.latest();
        let careful = self.careful_until.is_some_and(|end| Instant::now() < end);
        let manner = Manner { confirm: doubt.is_some(), careful, read_first: self.repeats, room: self.room };
        let large = &self.common.large;
        let commit = async {
            match batch.commit(client, statements, manner, large).await {
                // A concurrent transaction works on one of the rows.
                Err(fault)
                    if !careful
                        && !fault.after_commit
                        && fault.error.code().is_some_and(errors::is_contention) =>
                {
                    batch.commit(client, statements, Manner { careful: true, ..manner }, large).await
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
                    self.common.doubts.clear(doubt);
                }
                self.repeats = committed.mostly_repeats.unwrap_or(self.repeats);
                if committed.is_full {
                    self.room = (self.room * 2).min(answer_room(self.options.connections));
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
