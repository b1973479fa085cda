//! The end of an attempt: complete, release, abandon or hold, and the answer to the caller.

use bytes::Bytes;
use tokio::time::Instant;

use super::admission::Unsettled;
use super::claim::Copies;
use super::error::{Failure, FailureKind, RunError};
use super::patience::{LONGEST_SETTLING_PAUSE, Patience, call};
use super::renew::Renewal;
use super::{Once, Ran};
use crate::fault;
use crate::protocol::answer::Ack;
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::record::RecordState;
use crate::words::terms::AfterCrash;

/// The write to the record that ends an attempt, chosen by the result of its work.
enum Ending {
    Complete(Outcome),
    Release,
    Abandon(String),
    Hold(String),
}

impl Ending {
    fn of(result: &Result<Outcome, Failure>, max_body_bytes: usize) -> Self {
        match result {
            Ok(outcome) if outcome.body().is_some_and(|body| body.len() > max_body_bytes) => {
                Self::Complete(outcome.clone().without_body())
            }
            Ok(outcome) => Self::Complete(outcome.clone()),
            Err(failure) => match failure.kind() {
                FailureKind::NothingHappened => Self::Release,
                FailureKind::Unknown => Self::Abandon(failure.to_string()),
                FailureKind::CompletionMissing => Self::Hold(failure.to_string()),
            },
        }
    }

    /// The failpoint before the write.
    fn point(&self) -> &'static str {
        match self {
            Self::Complete(_) => "before_complete",
            Self::Release => "before_release",
            Self::Abandon(_) | Self::Hold(_) => "before_abandon",
        }
    }

    /// Returns `true` if the record keeps this attempt's token without a lease: after an abandon or
    /// a hold that stands. A void of the token would release the key.
    fn holds_key(&self, ack: Ack) -> bool {
        matches!(self, Self::Abandon(_) | Self::Hold(_)) && ack.stands()
    }

    /// Returns `true` if an operator has to settle the key after an end that stands. An abandoned
    /// key is held only under `hold`; under other policies it is lost, and the next attempt takes
    /// it over.
    fn leaves_held(&self, ack: Ack, after_crash: AfterCrash) -> bool {
        self.holds_key(ack) && (after_crash == AfterCrash::Hold || matches!(self, Self::Hold(_)))
    }

    /// The result of the write as one word, for metrics.
    fn word(&self, written: &Result<Ack, StoreError>) -> &'static str {
        match (written, self) {
            (Ok(ack), _) if !ack.stands() => "superseded",
            (Ok(_), Self::Complete(_)) => "recorded",
            (Ok(_), Self::Release) => "released",
            (Ok(_), Self::Abandon(_)) => "abandoned",
            (Ok(_), Self::Hold(_)) => "held",
            (Err(error), _) if error.is_transient() => "pending",
            (Err(_), _) => "refused",
        }
    }
}

impl Once {
    /// Writes the end of an attempt. Returns the recorded outcome: this attempt's, or that of the
    /// attempt that has the key instead.
    pub(super) async fn settle(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: &Copies,
        renewal: &mut Option<Renewal>,
        result: Result<Outcome, Failure>,
        held: Option<Bytes>,
    ) -> Result<Ran<Outcome>, RunError> {
        let ending = Ending::of(&result, self.engine.policy.max_body_bytes());
        if !matches!(ending, Ending::Complete(_))
            && let Some(renewal) = renewal.take()
        {
            Box::pin(renewal.stop()).await;
        }
        let asked = Instant::now();
        let mut patience = Patience::since(asked, self.engine.policy.patience(), lease.key());
        let mut unsettled_yet = None;
        let written = self.write(lease, &ending, &mut patience, &mut unsettled_yet).await;
        self.engine.meter.settlement(ending.word(&written), asked.elapsed());
        let ack = match written {
            Ok(ack) => ack,
            Err(error) if error.is_transient() => {
                self.engine.health.end_failed();
                self.settle_later(lease, copies, renewal.take(), ending, unsettled_yet, held);
                return Err(unsettled(result, RunError::OutcomePending(error)));
            }
            Err(error) => {
                if let Some(renewal) = renewal.take() {
                    Box::pin(renewal.stop()).await;
                }
                let reason = Ending::Abandon(format!("the outcome was refused: {error}"));
                self.settle_later(lease, copies, None, reason, unsettled_yet, None);
                return Err(unsettled(result, RunError::Unrecorded(error)));
            }
        };
        self.settled(lease, copies, &ending, ack);
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
        ending: Ending,
        unsettled: Option<Unsettled>,
        held: Option<Bytes>,
    ) {
        let (once, lease, copies) = (self.clone(), lease.clone(), *copies);
        let unsettled = unsettled.unwrap_or_else(|| self.engine.admission.unsettled());
        let tried = self.engine.health.retried_end();
        self.engine.tasks.spawn(async move {
            let _until_settled = (renewal, tried, held);
            let mut unsettled = Some(unsettled);
            let mut patience = Patience::until_shutdown(
                &once.engine.shutdown,
                once.engine.policy.patience(),
                LONGEST_SETTLING_PAUSE,
                lease.key(),
            );
            match once.write(&lease, &ending, &mut patience, &mut unsettled).await {
                Ok(ack) => once.settled(&lease, &copies, &ending, ack),
                Err(error) => {
                    let is_lost = once.engine.policy.after_crash() != AfterCrash::Hold;
                    once.engine.admission.ended(lease.key(), is_lost);
                    tracing::error!(%error, key = ?lease.key(), "an attempt could not be settled; its key is held, or lost under another policy than `hold`");
                }
            }
        });
    }

    async fn write(
        &self,
        lease: &Lease,
        ending: &Ending,
        patience: &mut Patience<'_>,
        unsettled: &mut Option<Unsettled>,
    ) -> Result<Ack, StoreError> {
        fault::reach(ending.point());
        loop {
            let question = match ending {
                Ending::Complete(outcome) => self.engine.store.complete(lease, outcome),
                Ending::Release => self.engine.store.release(lease),
                Ending::Abandon(reason) => self.engine.store.abandon(lease, reason),
                Ending::Hold(reason) => self.engine.store.hold(lease, reason),
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

    /// Wakes the waiters after the end was written, and voids unanswered copies of the claim. The
    /// copies of a key that stays held are not voided, because a void would release it.
    fn settled(&self, lease: &Lease, copies: &Copies, ending: &Ending, ack: Ack) {
        self.ended(lease, !ending.leaves_held(ack, self.engine.policy.after_crash()));
        if !ending.holds_key(ack) {
            self.void_later(lease.key(), copies);
        }
    }

    fn ended(&self, lease: &Lease, is_settled: bool) {
        self.engine.health.ended();
        self.engine.admission.ended(lease.key(), is_settled);
        self.engine.waiters.wake(lease.key());
    }

    /// Releases, in the background, a key whose work was not started.
    pub(super) fn release_later(&self, lease: &Lease, copies: &Copies) {
        self.settle_later(lease, copies, None, Ending::Release, None, None);
    }

    /// Settles work that succeeded, and had to record its outcome in its own transaction. If there
    /// is no outcome, the effect may have been committed without it, and the next attempt would
    /// repeat the effect: the key is held instead. A transaction that is still open locks the
    /// record, so the hold waits for its end.
    pub(super) async fn settle_recorded(
        &self,
        lease: &Lease,
        intent: &Intent,
        copies: &Copies,
        renewal: &mut Option<Renewal>,
    ) -> Result<Ran<Outcome>, RunError> {
        let asked = Instant::now();
        let missing = Failure::completion_missing;
        match self.recorded(lease, intent).await {
            Ok(Some(ran)) => {
                let word = if ran.replayed { "superseded" } else { "recorded" };
                self.engine.meter.settlement(word, asked.elapsed());
                self.ended(lease, true);
                self.void_later(lease.key(), copies);
                Ok(ran)
            }
            Err(error) if error.is_transient() => {
                self.engine.meter.settlement("pending", asked.elapsed());
                let ending = Ending::Hold(missing().to_string());
                self.settle_later(lease, copies, renewal.take(), ending, None, None);
                Err(RunError::OutcomePending(error))
            }
            Ok(None) | Err(_) => self.settle(lease, intent, copies, renewal, Err(missing()), None).await,
        }
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

/// The error for an end that could not be written: the failure of the work, if there is one, else
/// that the outcome is not recorded.
///
/// A missing completion is not reported yet: until its hold is answered, the work may still have
/// recorded its outcome.
fn unsettled(result: Result<Outcome, Failure>, unrecorded: RunError) -> RunError {
    match result {
        Err(failure) if failure.kind() != FailureKind::CompletionMissing => failure.into(),
        _ => unrecorded,
    }
}
