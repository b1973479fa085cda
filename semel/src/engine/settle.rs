//! The step *settle*: an attempt completes, releases, abandons or holds its key, and its caller gets
//! the answer.

use bytes::Bytes;
use tokio::time::Instant;

use super::admission::Unsettled;
use super::claim::Copies;
use super::error::{Failure, FailureKind, RunError};
use super::patience::{Patience, call};
use super::run::schedule::Renewal;
use super::run::{Attempt, Worked};
use super::settlement::Settlement;
use super::{Once, Ran};
use crate::fault;
use crate::protocol::answer::Ack;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::record::RecordState;
use crate::words::terms::AfterCrash;

/// Settles the key by the result of the work. Returns the recorded outcome: this attempt's, or
/// that of the attempt that has the key instead.
pub(super) async fn settle(
    once: &Once,
    attempt: &mut Attempt,
    intent: &Intent,
    Worked { result, held }: Worked,
) -> Result<Ran<Outcome>, RunError> {
    if result.is_ok() && once.engine.policy.after_crash() == AfterCrash::Transactional {
        return Box::pin(once.settle_by_work(attempt, intent)).await;
    }
    once.settle_result(attempt, intent, result, held).await
}

impl Once {
    /// Settles the key with the outcome of a lost attempt that a reconcile hook has reported.
    pub(super) async fn settle_reported(
        &self,
        mut attempt: Attempt,
        intent: &Intent,
        outcome: Outcome,
    ) -> Result<Ran<Outcome>, RunError> {
        let recorded = self.settle_result(&mut attempt, intent, Ok(outcome), None).await?;
        Ok(Ran { replayed: true, ..recorded })
    }

    /// Settles work that succeeded, and had to complete the key in its own transaction. If there is
    /// no outcome, the effect may have been committed without it, and the next attempt would repeat
    /// the effect: the key is held instead. A transaction that is still open locks the record, so
    /// the hold waits for its end.
    async fn settle_by_work(&self, attempt: &mut Attempt, intent: &Intent) -> Result<Ran<Outcome>, RunError> {
        let asked = Instant::now();
        let missing = Failure::completion_missing;
        let Attempt { lease, copies, renewal, .. } = &mut *attempt;
        match self.recorded(lease, intent).await {
            Ok(Some(ran)) => {
                let word = if ran.replayed { "superseded" } else { "completed" };
                self.engine.meter.settlement(word, asked.elapsed());
                self.settled(lease, false);
                self.void_later(lease.key(), copies);
                Ok(ran)
            }
            Err(error) if error.is_transient() => {
                self.engine.meter.settlement("pending", asked.elapsed());
                let hold = Settlement::Hold(missing().to_string());
                self.settle_later(lease, copies, renewal.take(), hold, None, None);
                Err(RunError::OutcomePending(error))
            }
            Ok(None) | Err(_) => self.settle_result(attempt, intent, Err(missing()), None).await,
        }
    }

    /// Writes the settlement for a result, and makes the answer to the caller of it.
    async fn settle_result(
        &self,
        Attempt { lease, copies, renewal, .. }: &mut Attempt,
        intent: &Intent,
        result: Result<Outcome, Failure>,
        held: Option<Bytes>,
    ) -> Result<Ran<Outcome>, RunError> {
        let settlement = Settlement::of(&result, self.engine.policy.max_body_bytes());
        if !matches!(settlement, Settlement::Complete(_))
            && let Some(renewal) = renewal.take()
        {
            Box::pin(renewal.stop()).await;
        }
        let asked = Instant::now();
        let mut patience = Patience::since(asked, self.engine.policy.patience(), lease.key());
        let mut unsettled = None;
        let written = self.write(lease, &settlement, &mut patience, &mut unsettled).await;
        self.engine.meter.settlement(settlement.word(&written), asked.elapsed());
        let ack = match written {
            Ok(ack) => ack,
            Err(error) if error.is_transient() => {
                self.engine.health.settlement_failed();
                self.settle_later(lease, copies, renewal.take(), settlement, unsettled, held);
                return Err(error_of(result, RunError::OutcomePending(error)));
            }
            Err(error) => {
                if let Some(renewal) = renewal.take() {
                    Box::pin(renewal.stop()).await;
                }
                let abandon = Settlement::Abandon(format!("the outcome was refused: {error}"));
                self.settle_later(lease, copies, None, abandon, unsettled, None);
                return Err(error_of(result, RunError::Unrecorded(error)));
            }
        };
        self.written(lease, copies, &settlement, ack);
        match result {
            Ok(outcome) if ack.stands() => Ok(Ran { value: outcome, replayed: false }),
            Err(failure) if ack.stands() => Err(failure.into()),
            // An earlier copy of the release was applied and the next attempt has the key already,
            // or the key was taken over. In both cases this attempt has had no effect.
            Err(failure) if failure.is_nothing_happened() => {
                Box::pin(self.winner(lease, intent)).await.map_err(|error| match error {
                    RunError::Superseded => failure.into(),
                    other => other,
                })
            }
            Ok(_) | Err(_) => Box::pin(self.winner(lease, intent)).await,
        }
    }

    /// Repeats the write in the background until the store answers. The lease of an outcome is
    /// renewed meanwhile; if it ends all the same, the outcome still counts unless another attempt
    /// takes over. Until then the attempt counts as unsettled, and the bytes that carry the charge
    /// for the outcome are held.
    fn settle_later(
        &self,
        lease: &Lease,
        copies: &Copies,
        renewal: Option<Renewal>,
        settlement: Settlement,
        unsettled: Option<Unsettled>,
        held: Option<Bytes>,
    ) {
        let (once, lease, copies) = (self.clone(), lease.clone(), *copies);
        let unsettled = unsettled.unwrap_or_else(|| self.engine.admission.unsettled());
        let retried = self.engine.health.retried_settlement();
        self.engine.tasks.spawn(async move {
            let _until_settled = (renewal, retried, held);
            let mut unsettled = Some(unsettled);
            let mut patience = Patience::until_shutdown(
                &once.engine.shutdown,
                once.engine.policy.patience(),
                lease.key(),
            );
            match once.write(&lease, &settlement, &mut patience, &mut unsettled).await {
                Ok(ack) => once.written(&lease, &copies, &settlement, ack),
                Err(error) => {
                    let is_held = once.engine.policy.after_crash() == AfterCrash::Hold;
                    once.engine.admission.settled(lease.key(), is_held);
                    tracing::error!(%error, key = ?lease.key(), "an attempt could not be settled; its key is held, or lost under another policy than `hold`");
                }
            }
        });
    }

    /// Sends the settlement until the store answers, or the patience is over.
    async fn write(
        &self,
        lease: &Lease,
        settlement: &Settlement,
        patience: &mut Patience<'_>,
        unsettled: &mut Option<Unsettled>,
    ) -> Result<Ack, StoreError> {
        fault::reach(settlement.point());
        loop {
            let question = match settlement {
                Settlement::Complete(outcome) => self.engine.store.complete(lease, outcome),
                Settlement::Release => self.engine.store.release(lease),
                Settlement::Abandon(reason) => self.engine.store.abandon(lease, reason),
                Settlement::Hold(reason) => self.engine.store.hold(lease, reason),
            };
            match call(question).await {
                Ok(ack) => {
                    fault::reach("settled");
                    return Ok(ack);
                }
                Err(error) => {
                    unsettled.get_or_insert_with(|| self.engine.admission.unsettled());
                    if !patience.pause_after(&error).await {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Notes a settlement that the store has answered, and voids unanswered copies of the claim.
    /// The copies of a key that stays held are not voided, because a void would release it.
    fn written(&self, lease: &Lease, copies: &Copies, settlement: &Settlement, ack: Ack) {
        self.settled(lease, settlement.leaves_held(ack, self.engine.policy.after_crash()));
        if !settlement.holds_key(ack) {
            self.void_later(lease.key(), copies);
        }
    }

    /// Notes that the attempt is settled, and wakes the waiters of its key.
    fn settled(&self, lease: &Lease, is_held: bool) {
        self.engine.health.settled();
        self.engine.admission.settled(lease.key(), is_held);
        self.engine.waiters.wake(lease.key());
    }

    /// Releases, in the background, a key whose work was not started.
    pub(super) fn release_later(&self, lease: &Lease, copies: &Copies) {
        self.settle_later(lease, copies, None, Settlement::Release, None, None);
    }

    /// The outcome to return after the lease was lost: the recorded one, if it has this intent. The
    /// attempt's own outcome is not recorded, and never returned.
    pub(super) async fn winner(&self, lease: &Lease, intent: &Intent) -> Result<Ran<Outcome>, RunError> {
        match self.recorded(lease, intent).await {
            Ok(recorded) => recorded.ok_or(RunError::Superseded),
            Err(error) => {
                tracing::debug!(%error, key = ?lease.key(), "could not read the outcome of the attempt that took over");
                Err(RunError::Superseded)
            }
        }
    }

    /// The recorded outcome, if there is one with this intent. It counts as a replay unless the
    /// owner of this lease recorded it.
    async fn recorded(&self, lease: &Lease, intent: &Intent) -> Result<Option<Ran<Outcome>>, StoreError> {
        let mut patience = Patience::since(Instant::now(), self.engine.policy.patience(), lease.key());
        let found = loop {
            match call(self.engine.store.find(lease.key())).await {
                Ok(found) => break found,
                Err(error) if patience.pause_after(&error).await => {}
                Err(error) => return Err(error),
            }
        };
        Ok(found.filter(|record| record.intent == *intent).and_then(|record| match record.state {
            RecordState::Done { outcome, .. } => {
                Some(Ran { value: outcome, replayed: record.token != lease.token() })
            }
            RecordState::Running | RecordState::Released => None,
        }))
    }
}

/// The error for a settlement that was not written: the failure of the work, if there is one, else
/// that the outcome is not recorded.
///
/// A missing completion is not reported yet: until its hold is answered, the work may still have
/// recorded its outcome.
fn error_of(result: Result<Outcome, Failure>, unrecorded: RunError) -> RunError {
    match result {
        Err(failure) if failure.kind() != FailureKind::CompletionMissing => failure.into(),
        _ => unrecorded,
    }
}
