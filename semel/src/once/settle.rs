//! Settling an attempt: record, release or abandon, and what to tell the caller.

use tokio::time::Instant;

use super::claim::Copies;
use super::error::{Failure, RunError};
use super::patience::{LONGEST_SETTLING_PAUSE, Patience, call};
use super::renew::Renewal;
use super::{Once, Ran};
use crate::answer::Ack;
use crate::error::StoreError;
use crate::fault;
use crate::intent::Intent;
use crate::lease::Lease;
use crate::outcome::Outcome;
use crate::record::State;

/// What the result of the work writes to the record.
enum Ending {
    Complete(Outcome),
    Release,
    Abandon(String),
}

impl Ending {
    fn of(result: &Result<Outcome, Failure>, max_body_bytes: usize) -> Self {
        match result {
            Ok(outcome) if outcome.body().is_some_and(|body| body.len() > max_body_bytes) => {
                Self::Complete(outcome.clone().without_body())
            }
            Ok(outcome) => Self::Complete(outcome.clone()),
            Err(failure) if failure.is_nothing_happened() => Self::Release,
            Err(failure) => Self::Abandon(failure.to_string()),
        }
    }

    /// Where a process may end before it is written.
    fn point(&self) -> &'static str {
        match self {
            Self::Complete(_) => "before_complete",
            Self::Release => "before_release",
            Self::Abandon(_) => "before_abandon",
        }
    }

    /// One word for what came of writing it, for metrics.
    fn word(&self, written: &Result<Ack, StoreError>) -> &'static str {
        match (written, self) {
            (Ok(ack), _) if !ack.stands() => "superseded",
            (Ok(_), Self::Complete(_)) => "recorded",
            (Ok(_), Self::Release) => "released",
            (Ok(_), Self::Abandon(_)) => "abandoned",
            (Err(error), _) if error.is_transient() => "pending",
            (Err(_), _) => "refused",
        }
    }
}

impl Once {
    /// Writes what the work came to, and tells the caller what is recorded: its own outcome, or the winner's.
    pub(super) async fn settle(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: &Copies,
        renewal: &mut Option<Renewal>,
        result: Result<Outcome, Failure>,
    ) -> Result<Ran<Outcome>, RunError> {
        let ending = Ending::of(&result, self.engine.policy.max_body_bytes());
        if !matches!(ending, Ending::Complete(_))
            && let Some(renewal) = renewal.take()
        {
            Box::pin(renewal.stop()).await;
        }
        if let Ok(outcome) = &result
            && fault::makes("answer_before_record")
        {
            let early = Ran { value: outcome.clone(), replayed: false };
            self.settle_later(lease, copies, renewal.take(), ending);
            return Ok(early);
        }
        let asked = Instant::now();
        let mut patience = Patience::since(asked, self.engine.policy.patience(), lease.key());
        let written = self.write(lease, &ending, &mut patience).await;
        self.engine.meter.settlement(ending.word(&written), asked.elapsed());
        let ack = match written {
            Ok(ack) => ack,
            Err(error) if error.is_transient() => {
                self.settle_later(lease, copies, renewal.take(), ending);
                return Err(result.map_or_else(RunError::from, |_| RunError::OutcomePending(error)));
            }
            Err(error) => {
                if let Some(renewal) = renewal.take() {
                    Box::pin(renewal.stop()).await;
                }
                let reason = Ending::Abandon(format!("the outcome was refused: {error}"));
                self.settle_later(lease, copies, None, reason);
                return Err(result.map_or_else(RunError::from, |_| RunError::Unrecorded(error)));
            }
        };
        self.settled(lease, copies, &ending, ack);
        match result {
            Ok(outcome) if ack.stands() => Ok(Ran { value: outcome, replayed: false }),
            Err(failure) if ack.stands() => Err(failure.into()),
            // The release was applied before, its answer was lost, and the next attempt has the key already. Or it
            // was taken over. Either way it is true that nothing happened here.
            Err(failure) if failure.is_nothing_happened() => {
                Box::pin(self.winner(lease, intent)).await.map_err(|error| match error {
                    RunError::Superseded => failure.into(),
                    other => other,
                })
            }
            Ok(_) | Err(_) => Box::pin(self.winner(lease, intent)).await,
        }
    }

    /// Goes on in the background until the store has answered. An outcome keeps its lease meanwhile; should that run
    /// out all the same, it still counts unless somebody takes over.
    fn settle_later(&self, lease: &Lease, copies: &Copies, renewal: Option<Renewal>, ending: Ending) {
        let (once, lease, copies) = (self.clone(), lease.clone(), *copies);
        self.engine.tasks.spawn(async move {
            let _until_settled = renewal;
            let mut patience = Patience::until_shutdown(
                &once.engine.shutdown,
                once.engine.policy.patience(),
                LONGEST_SETTLING_PAUSE,
                lease.key(),
            );
            match once.write(&lease, &ending, &mut patience).await {
                Ok(ack) => once.settled(&lease, &copies, &ending, ack),
                Err(error) => {
                    tracing::error!(%error, key = ?lease.key(), "an attempt could not be settled; its key stays held");
                }
            }
        });
    }

    async fn write(
        &self,
        lease: &Lease,
        ending: &Ending,
        patience: &mut Patience<'_>,
    ) -> Result<Ack, StoreError> {
        fault::reach(ending.point());
        loop {
            let question = match ending {
                Ending::Complete(outcome) => self.engine.store.complete(lease, outcome),
                Ending::Release => self.engine.store.release(lease),
                Ending::Abandon(reason) => self.engine.store.abandon(lease, reason),
            };
            match call(question).await {
                Ok(ack) => {
                    fault::reach("settled");
                    return Ok(ack);
                }
                Err(error) if patience.lasts(&error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The store has answered: waiters look again, and copies of the claim that may still be on their way are
    /// taken back. Not after an abandon that stands: the key is held by this very token, and must stay so.
    fn settled(&self, lease: &Lease, copies: &Copies, ending: &Ending, ack: Ack) {
        self.engine.waiters.wake(lease.key());
        let is_held_by_this = matches!(ending, Ending::Abandon(_)) && ack.stands();
        if !is_held_by_this {
            self.void_later(lease.key(), copies);
        }
    }

    /// Gives back a key whose work was not started.
    pub(super) fn release_later(&self, lease: &Lease, copies: &Copies) {
        self.settle_later(lease, copies, None, Ending::Release);
    }

    /// The lease was lost: the recorded outcome, if there is one of this intent; never the loser's own.
    pub(super) async fn winner(&self, lease: &Lease, intent: &Intent) -> Result<Ran<Outcome>, RunError> {
        let mut patience = Patience::since(Instant::now(), self.engine.policy.patience(), lease.key());
        let found = loop {
            match call(self.engine.store.find(lease.key())).await {
                Ok(found) => break found,
                Err(error) if patience.lasts(&error).await => {}
                Err(error) => {
                    tracing::debug!(%error, key = ?lease.key(), "could not look for the winner's outcome");
                    return Err(RunError::Superseded);
                }
            }
        };
        match found {
            Some(record) if record.intent == *intent => match record.state {
                // A transactional handler records its outcome itself; that is no replay.
                State::Done { outcome, .. } => {
                    Ok(Ran { value: outcome, replayed: record.token != lease.token() })
                }
                State::Running | State::Released => Err(RunError::Superseded),
            },
            _ => Err(RunError::Superseded),
        }
    }
}
