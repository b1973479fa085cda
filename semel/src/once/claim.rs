//! Asking for a key.

use crate::answer::{Claim, Void};
use crate::ask::{Ask, Takeover};
use crate::intent::Intent;
use crate::key::Key;
use crate::lease::Token;
use crate::time::Timestamp;

use super::Once;
use super::error::RunError;
use super::patience::{CALL_LIMIT, Patience, call};
use tokio::time::sleep;

/// The copies of one claim that were sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copies {
    token: Token,
    not_after: Timestamp,
    /// Whether one was not answered, so that it may still be on its way.
    astray: bool,
}

impl Once {
    /// Claims under a new token. A claim that is not answered is sent again as it is; if it is given up while it
    /// may have been applied, its token is voided in the background.
    pub(super) async fn ask(
        &self,
        key: &Key,
        intent: &Intent,
        takeover: Takeover,
    ) -> Result<(Claim, Copies), RunError> {
        let mut patience = Patience::of(self.policy.patience());
        let now = loop {
            match call(self.store.now()).await {
                Ok(now) => break now,
                Err(error) if patience.lasts(&error).await => {}
                Err(error) => return Err(RunError::Unavailable(error)),
            }
        };
        let ask = Ask {
            key: key.clone(),
            intent: intent.clone(),
            token: Token::random(),
            owner: self.owner.clone(),
            terms: self.policy.terms(),
            takeover,
            not_after: now.after(self.policy.patience() + CALL_LIMIT),
        };
        let mut copies = Copies { token: ask.token, not_after: ask.not_after, astray: false };
        loop {
            match call(self.store.claim(&ask)).await {
                Ok(claim @ Claim::Granted(_)) => return Ok((claim, copies)),
                Ok(refused) => {
                    self.void_later(key, copies);
                    return Ok((refused, copies));
                }
                Err(error) => {
                    copies.astray |= error.is_unknown();
                    if !patience.lasts(&error).await {
                        self.void_later(key, copies);
                        return Err(RunError::Unavailable(error));
                    }
                }
            }
        }
    }

    /// Takes back, in the background, what a copy of the claim may still do or have done. Only for a token under
    /// which nothing runs or ran.
    pub(super) fn void_later(&self, key: &Key, copies: Copies) {
        if !copies.astray {
            return;
        }
        let (once, key) = (self.clone(), key.clone());
        self.tasks.spawn(async move {
            let mut patience = Patience::endless();
            sleep(once.policy.patience() + CALL_LIMIT).await;
            loop {
                match call(once.store.void(&key, copies.token, copies.not_after)).await {
                    Ok(Void::Settled) => return,
                    Ok(Void::Early(left)) => sleep(left).await,
                    Err(error) if patience.lasts(&error).await => {}
                    Err(error) => {
                        tracing::error!(%error, ?key, "a claim could not be taken back; its key may stay held");
                        return;
                    }
                }
            }
        });
    }
}
