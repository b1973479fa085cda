//! The answer to a request that is not admitted: from the record of its key if there is an answer,
//! else a refusal.

use std::time::Duration;

use tokio::time::Instant;

use super::{Admitted, Refused};
use crate::engine::Once;
use crate::engine::claim::Copies;
use crate::engine::error::RunError;
use crate::engine::patience::{Patience, call};
use crate::protocol::answer::Claim;
use crate::protocol::ask::{Ask, Takeover};
use crate::protocol::decide;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::lease::Token;
use crate::words::record::Record;

/// The answer to a claim, or to a look at the record instead of a claim.
pub(in crate::engine) struct Answered {
    pub(in crate::engine) claim: Claim,
    pub(in crate::engine) copies: Copies,
    /// The admission, which a granted claim uses up; or the reason for the refusal.
    pub(in crate::engine) right: Result<Admitted, Refused>,
}

impl Once {
    /// Claims the key if the limits admit it, else only reads its record. A request that is not
    /// admitted and would run is refused, and nothing is claimed.
    pub(in crate::engine) async fn claim_within_limits(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
        kept: Option<Admitted>,
    ) -> Result<Answered, RunError> {
        match kept.map_or_else(|| self.engine.admission.admit(key), Ok) {
            Ok(admitted) => {
                let (claim, copies) = self.claim_once(key, intent, takeover).await?;
                Ok(Answered { claim, copies, right: Ok(admitted) })
            }
            Err(refused) => Box::pin(self.look(key, intent, takeover, refused)).await,
        }
    }

    async fn look(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
        refused: Refused,
    ) -> Result<Answered, RunError> {
        let asked = Instant::now();
        let mut patience = Patience::since(asked, self.engine.policy.patience(), key);
        let found = self.found(key, &mut patience).await;
        let now = self.find_now(&mut patience).await?;
        let ask = Ask {
            key: key.clone(),
            intent: intent.clone(),
            token: Token::random(),
            owner: self.engine.owner.clone(),
            terms: self.engine.policy.terms(),
            takeover,
            not_after: now.after(Duration::from_secs(1)),
        };
        let found = found.inspect_err(|_| self.engine.meter.claim("unavailable", asked.elapsed()))?;
        if let Some(claim) = decide::look(found.as_ref(), &ask, now) {
            self.engine.meter.claim(claim.word(), asked.elapsed());
            // A held key has a record, so the limits for new keys do not keep it from being
            // reconciled and run.
            let right = match &claim {
                Claim::Held(_) if refused.is_for_new_keys() => self.engine.admission.admit_known(key),
                _ => Err(refused),
            };
            return Ok(Answered { claim, copies: Copies::none(&ask), right });
        }
        let right = match found {
            Some(_) if refused.is_for_new_keys() => self.engine.admission.admit_known(key),
            _ => Err(refused),
        };
        match right {
            Ok(admitted) => {
                let (claim, copies) = self.claim_once(key, intent, takeover).await?;
                Ok(Answered { claim, copies, right: Ok(admitted) })
            }
            Err(refused) => {
                self.engine.meter.claim("refused", asked.elapsed());
                Err(refused.error())
            }
        }
    }

    async fn found(&self, key: &Key, patience: &mut Patience<'_>) -> Result<Option<Record>, RunError> {
        loop {
            match call(self.engine.store.find(key)).await {
                Ok(found) => return Ok(found),
                Err(error) if patience.pause_after(&error).await => {}
                Err(error) => return Err(RunError::Unavailable(error)),
            }
        }
    }
}
