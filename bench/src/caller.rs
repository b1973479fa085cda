//! A caller of semel, over any store.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use semel::{Ack, Ask, Claim, Durability, Intent, Key, Outcome, Owner, Store, Takeover, Terms, Token};

/// As large as a small JSON answer.
pub(crate) const BODY_BYTES: usize = 200;

/// Somebody who claims keys of a store, records outcomes and asks for them again.
pub(crate) struct Caller<S> {
    pub(crate) store: S,
    intent: Intent,
}

impl<S: Store> Caller<S> {
    pub(crate) fn new(store: S) -> Result<Self> {
        Ok(Self { store, intent: Intent::of("POST /charges", "", &1)? })
    }

    pub(crate) async fn claim(&self, key: &str) -> Result<Claim> {
        let ask = Ask {
            key: Key::new("bench", key)?,
            intent: self.intent.clone(),
            token: Token::random(),
            owner: Owner::new("bench-1"),
            terms: Terms::DEFAULT,
            takeover: Takeover::Never,
            durability: Durability::Full,
            not_after: self.store.now().await?.after(Duration::from_secs(60)),
        };
        Ok(self.store.claim(&ask).await?)
    }

    /// Claims a new key and records its outcome.
    pub(crate) async fn first(&self, key: &str) -> Result<()> {
        let Claim::Granted(lease) = self.claim(key).await? else { bail!("{key} was not granted") };
        let outcome = Outcome::new(200)?.with_body(vec![b'x'; BODY_BYTES])?;
        ensure!(self.store.complete(&lease, &outcome).await? == Ack::Applied, "{key} was not completed");
        Ok(())
    }

    /// Asks for a key that has an outcome, and reads it.
    pub(crate) async fn replay(&self, key: &str) -> Result<()> {
        let Claim::Done(done) = self.claim(key).await? else { bail!("{key} is not done") };
        ensure!(done.outcome.body().is_some_and(|body| body.len() == BODY_BYTES), "{key} has another body");
        Ok(())
    }
}
