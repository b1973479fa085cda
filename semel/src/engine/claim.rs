//! Asking for a key.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::RunError;
use super::patience::{CALL_LIMIT, Patience, call};
use super::voids::Stray;
use super::{Engine, Once};
use crate::engine::policy::Policy;
use crate::fault;
use crate::protocol::answer::Claim;
use crate::protocol::ask::{Ask, Takeover};
use crate::words::error::StoreError;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::Token;
use crate::words::terms::Terms;
use crate::words::time::Timestamp;

/// A released record outlasts every copy of its claim, with a margin for the store's clock as it is
/// known here.
const _: () = assert!(
    Policy::MAX_PATIENCE.as_secs() + CALL_LIMIT.as_secs() + 30 <= Terms::RELEASED_RETENTION.as_secs(),
    "a claim could arrive after the record of its release is gone"
);

/// The copies of one claim that were sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copies {
    token: Token,
    not_after: Timestamp,
    /// When the first was sent: if it was granted, the lease began no earlier.
    pub(super) sent: Instant,
    /// Whether one was not answered, so that it may still be on its way.
    astray: bool,
}

impl Copies {
    /// Of a claim that was never sent.
    pub(super) fn none(ask: &Ask) -> Self {
        Self { token: ask.token, not_after: ask.not_after, sent: Instant::now(), astray: false }
    }
}

impl Once {
    /// Claims under a new token. A claim that is not answered is sent again as it is; if it is
    /// given up while it may have been applied, its token is voided in the background.
    pub(super) async fn ask(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
    ) -> Result<(Claim, Copies), RunError> {
        let asked = Instant::now();
        let answer = self.send(key, intent, takeover, asked).await;
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

    async fn send(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
        asked: Instant,
    ) -> Result<(Claim, Copies), RunError> {
        self.refuse_if_astray()?;
        let mut patience = Patience::since(asked, self.engine.policy.patience(), key);
        let now = self.find_now(&mut patience).await?;
        let ask = Ask {
            key: key.clone(),
            intent: intent.clone(),
            token: Token::random(),
            owner: self.engine.owner.clone(),
            terms: self.engine.policy.terms(),
            takeover,
            not_after: now.after(self.claims_last()),
        };
        let (token, not_after) = (ask.token, ask.not_after);
        let mut copies = Copies { token, not_after, sent: Instant::now(), astray: false };
        fault::reach("before_claim");
        loop {
            match call(self.engine.store.claim(&ask)).await {
                Ok(claim @ Claim::Granted(_)) => return Ok((claim, copies)),
                Ok(refused) => {
                    self.void_later(key, &copies);
                    return Ok((refused, copies));
                }
                Err(error) => {
                    copies.astray |= error.is_unknown();
                    if !patience.lasts(&error).await {
                        self.void_later(key, &copies);
                        return Err(RunError::Unavailable(error));
                    }
                }
            }
        }
    }

    /// For how long a claim may still arrive: while somebody waits for its answer, but not longer
    /// than the record that it makes is kept. A copy would find nothing then, and begin anew.
    fn claims_last(&self) -> Duration {
        let policy = &self.engine.policy;
        (policy.patience() + CALL_LIMIT).min(policy.terms().retention())
    }

    /// The store's clock, asked until it answers or the patience is over.
    pub(super) async fn find_now(&self, patience: &mut Patience<'_>) -> Result<Timestamp, RunError> {
        loop {
            match call(self.engine.store.now()).await {
                Ok(now) => return Ok(now),
                Err(error) if patience.lasts(&error).await => {}
                Err(error) => return Err(RunError::Unavailable(error)),
            }
        }
    }

    /// Takes back, in the background, what a copy of the claim may still do or have done. Only for
    /// a token under which nothing runs any more, and not after an abandon that stands: the key is
    /// held by its very token.
    pub(super) fn void_later(&self, key: &Key, copies: &Copies) {
        if !copies.astray {
            return;
        }
        let patience = self.engine.policy.patience();
        let due = Instant::now() + patience + CALL_LIMIT;
        let Copies { token, not_after, .. } = *copies;
        self.engine.voids.enter(Stray { key: key.clone(), token, not_after, due, patience });
        self.work_on_voids();
    }

    fn work_on_voids(&self) {
        let Engine { voids, store, shutdown, tasks, .. } = &*self.engine;
        if let Some(worker) = voids.worker() {
            tasks.spawn(worker.work(Arc::clone(store), shutdown.clone()));
        }
    }

    /// Sends no claim while too many were not answered: each may leave a token to be voided.
    fn refuse_if_astray(&self) -> Result<(), RunError> {
        if !self.engine.voids.is_full() {
            return Ok(());
        }
        self.work_on_voids();
        let full = "too many claims were not answered; they are taken back when the store answers";
        Err(RunError::Unavailable(StoreError::unavailable(full)))
    }
}
