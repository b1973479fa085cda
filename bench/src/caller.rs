//! A caller of semel, over any store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use semel::store::{Ack, Ask, Claim, Owner};
use semel::{Intent, Key, Outcome, Store};

use crate::load::flat_out;

/// The size of a small JSON answer.
pub(crate) const BODY_BYTES: usize = 200;

/// A caller that claims keys of a store, records outcomes and repeats claims.
pub(crate) struct Caller<S> {
    pub(crate) store: S,
    intent: Intent,
    body: Bytes,
}

impl<S: Store + 'static> Caller<S> {
    pub(crate) fn new(store: S) -> Result<Self> {
        let body = Bytes::from(vec![b'x'; BODY_BYTES]);
        Ok(Self { store, intent: Intent::of("POST /charges", "", &1)?, body })
    }

    /// Sets the body of the outcomes.
    pub(crate) fn with_body(self, body: Vec<u8>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) async fn claim(&self, key: &str) -> Result<Claim> {
        let ask = Ask::new(
            Key::new("bench", key)?,
            self.intent.clone(),
            self.store.now().await?.after(Duration::from_secs(60)),
        )
        .with_owner(Owner::new("bench-1"));
        Ok(self.store.claim(&ask).await?)
    }

    /// Makes every connection of the store report its statistics. Postgres reports at the end of a
    /// statement, if the last report is more than a second old; a session that just goes idle
    /// delays it for ten more seconds.
    pub(crate) async fn report(self: &Arc<Self>) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let caller = Arc::clone(self);
        let look = move |n| {
            let caller = Arc::clone(&caller);
            async move {
                let key = Key::new("bench", &format!("not there {n}"))?;
                ensure!(caller.store.find(&key).await?.is_none(), "there is a record of {n}");
                Ok(())
            }
        };
        flat_out(64, Duration::from_millis(50), look).await.map(drop)
    }

    /// Claims a new key and records its outcome.
    pub(crate) async fn first(&self, key: &str) -> Result<()> {
        let Claim::Granted(lease) = self.claim(key).await? else { bail!("{key} was not granted") };
        let outcome = Outcome::new(200)?.with_body(self.body.clone())?;
        ensure!(self.store.complete(&lease, &outcome).await? == Ack::Applied, "{key} was not completed");
        Ok(())
    }

    /// Claims a key that has an outcome, and reads the outcome.
    pub(crate) async fn replay(&self, key: &str) -> Result<()> {
        let Claim::Done(done) = self.claim(key).await? else { bail!("{key} is not done") };
        ensure!(
            done.outcome.body().is_some_and(|body| body.len() == self.body.len()),
            "{key} has another body"
        );
        Ok(())
    }
}
