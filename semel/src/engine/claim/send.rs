//! One claim of a key, with its retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::voids::UnansweredClaim;
use crate::engine::Once;
use crate::engine::error::RunError;
use crate::engine::patience::{CALL_LIMIT, Patience, call};
use crate::engine::policy::Policy;
use crate::engine::settings::Engine;
use crate::fault;
use crate::protocol::answer::Claim;
use crate::protocol::ask::{Ask, Takeover};
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::Token;
use crate::words::terms::Terms;
use crate::words::time::Timestamp;

/// A released record is kept longer than any copy of its claim can take to arrive, with a margin
/// for the error of the extrapolated clock of the store.
const _: () = assert!(
    Policy::MAX_PATIENCE.as_secs() + CALL_LIMIT.as_secs() + 30 <= Terms::RELEASED_RETENTION.as_secs(),
    "a claim could arrive after the record of its release is gone"
);

/// The copies of one claim: it is sent again, unchanged, when it is not answered.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Copies {
    token: Token,
    not_after: Timestamp,
    /// The moment at which the first copy was sent. The lease that it may have got began then or
    /// later.
    pub(in crate::engine) sent: Instant,
    /// Set if a copy was not answered: it may still be in flight.
    unanswered: bool,
}

impl Copies {
    /// No copies: the claim was not sent.
    pub(in crate::engine) fn none(ask: &Ask) -> Self {
        Self { token: ask.token, not_after: ask.not_after, sent: Instant::now(), unanswered: false }
    }
}

impl Once {
    /// Claims a key under a new token. A claim that is not answered is sent again unchanged. If it
    /// is given up although a copy may have been applied, its token is voided in the background.
    pub(in crate::engine) async fn claim_once(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
    ) -> Result<(Claim, Copies), RunError> {
        let asked = Instant::now();
        let answer = self.send_claim(key, intent, takeover, asked).await;
        let word = match &answer {
            Ok((claim, _)) => claim.word(),
            Err(_) => "unavailable",
        };
        match &answer {
            Ok((Claim::Granted(_), _)) => self.engine.health.claimed(),
            Ok(_) => {}
            Err(_) => self.engine.health.claim_failed(),
        }
        self.engine.meter.claim(word, asked.elapsed());
        answer
    }

    async fn send_claim(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
        asked: Instant,
    ) -> Result<(Claim, Copies), RunError> {
        self.refuse_if_full()?;
        let mut patience = Patience::since(asked, self.engine.policy.patience(), key);
        let now = self.find_now(&mut patience).await?;
        let ask = Ask {
            key: key.clone(),
            intent: intent.clone(),
            token: Token::random(),
            owner: self.engine.owner.clone(),
            terms: self.engine.policy.terms(),
            takeover,
            not_after: now.after(self.claim_lifetime()),
        };
        let (token, not_after) = (ask.token, ask.not_after);
        let mut copies = Copies { token, not_after, sent: Instant::now(), unanswered: false };
        fault::reach("before_claim");
        loop {
            match call(self.engine.store.claim(&ask)).await {
                Ok(claim @ Claim::Granted(_)) => return Ok((claim, copies)),
                Ok(refused) => {
                    self.void_later(key, &copies);
                    return Ok((refused, copies));
                }
                Err(error) => {
                    copies.unanswered |= error.is_unknown();
                    if !patience.pause_after(&error).await {
                        self.void_later(key, &copies);
                        return Err(RunError::Unavailable(error));
                    }
                }
            }
        }
    }

    /// The time for which the store accepts a claim: as long as the engine waits for its answer,
    /// but no longer than the record of the claim is kept. A copy that arrived after that would
    /// find no record, and would run again.
    fn claim_lifetime(&self) -> Duration {
        let policy = &self.engine.policy;
        (policy.patience() + CALL_LIMIT).min(policy.terms().retention())
    }

    /// The time by the store's clock. The call is retried until the patience is over.
    pub(in crate::engine) async fn find_now(
        &self,
        patience: &mut Patience<'_>,
    ) -> Result<Timestamp, RunError> {
        loop {
            match call(self.engine.store.now()).await {
                Ok(now) => return Ok(now),
                Err(error) if patience.pause_after(&error).await => {}
                Err(error) => return Err(RunError::Unavailable(error)),
            }
        }
    }

    /// Voids the token in the background, if a copy of its claim is unanswered and may have been
    /// applied or may still be.
    ///
    /// It must be called only when no work runs under the token, and not after an abandon that
    /// stands: the held key has this token, and the void would release it.
    pub(in crate::engine) fn void_later(&self, key: &Key, copies: &Copies) {
        if !copies.unanswered {
            return;
        }
        let patience = self.engine.policy.patience();
        let due = Instant::now() + patience + CALL_LIMIT;
        let Copies { token, not_after, .. } = *copies;
        let key = key.clone();
        self.engine.voids.add(UnansweredClaim { key, token, not_after, due, patience, voided: false });
        self.start_voids_worker();
    }

    fn start_voids_worker(&self) {
        let Engine { voids, store, shutdown, tasks, .. } = &*self.engine;
        if let Some(worker) = voids.worker() {
            tasks.spawn(worker.run(Arc::clone(store), shutdown.clone()));
        }
    }

    /// Refuses to claim while too many claims are unanswered, because each claim may leave another
    /// token to be voided.
    fn refuse_if_full(&self) -> Result<(), RunError> {
        if !self.engine.voids.is_full() {
            return Ok(());
        }
        self.start_voids_worker();
        let full = "too many claims were not answered; they are taken back when the store answers";
        Err(RunError::Unavailable(StoreError::unavailable(full)))
    }
}
