//! Somebody who claims keys, records outcomes, and asks for them again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use semel::{
    Ack, Ask, Change, Claim, Fence, Inspect, Intent, Key, Lease, Outcome, Owner, Takeover, Terms, Token,
};

/// Whose keys they are; nobody else's are touched.
pub(super) const REALM: &str = "semel-bench";
/// How long a new key is kept. Long enough for a store that stalls, short enough to wait for at the end.
pub(super) const RETENTION: Duration = Duration::from_secs(5);
/// How many keys are asked for again and again.
const REPEATED: u64 = 1_000;
/// How much longer than the loads these are kept.
const SPARE: Duration = Duration::from_secs(120);
/// How late a claim may reach the store.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Caller {
    store: Arc<dyn Inspect>,
    /// In every key, so that two runs do not meet.
    run: String,
    intent: Intent,
    owner: Owner,
    outcome: Outcome,
    /// Keys that are done, with the fences by which they are forgotten.
    done: OnceLock<Vec<(Key, Fence)>>,
}

impl Caller {
    pub(super) fn new(store: Arc<dyn Inspect>, body_bytes: usize) -> Result<Self> {
        let token = Token::random().to_string();
        Ok(Self {
            store,
            run: token[..16].to_owned(),
            intent: Intent::of("bench", "", &1)?,
            owner: Owner::new("semel bench"),
            outcome: Outcome::new(200)?.with_body(vec![b'x'; body_bytes])?,
            done: OnceLock::new(),
        })
    }

    /// Makes the keys that are asked for again, which will be for this long.
    pub(super) async fn prepare(&self, length: Duration) -> Result<()> {
        let terms = Terms::new(RETENTION, length + SPARE)?;
        let done = (0..REPEATED).map(|number| async move {
            let key = self.key("repeated", number)?;
            let lease = self.complete(&key, terms).await?;
            anyhow::Ok((key, lease.fence()))
        });
        let done = try_join_all(done).await?;
        ensure!(self.done.set(done).is_ok(), "the keys to ask for again were made twice");
        Ok(())
    }

    /// Claims a new key and records its outcome.
    pub(super) async fn first(&self, load: &str, number: u64) -> Result<()> {
        let terms = Terms::new(RETENTION, RETENTION)?;
        self.complete(&self.key(load, number)?, terms).await.map(drop)
    }

    /// Asks for a key that is done, and reads its outcome.
    pub(super) async fn replay(&self, number: u64) -> Result<()> {
        let (key, _) = self
            .done
            .get()
            .and_then(|done| done.get((number % REPEATED) as usize))
            .context("no key is done")?;
        match self.claim(key, Terms::DEFAULT).await? {
            Claim::Done(done) if done.outcome == self.outcome => Ok(()),
            other => bail!("{key:?} is not done with its outcome: {other:?}"),
        }
    }

    /// Lets the keys that were asked for again be expired.
    pub(super) async fn forget(&self) -> Result<()> {
        let forgotten = self.done.get().into_iter().flatten().map(|(key, fence)| async move {
            let change = self.store.forget(key, *fence, "the bench is over").await?;
            ensure!(change == Change::Applied, "{key:?} was not forgotten: {change:?}");
            Ok(())
        });
        try_join_all(forgotten).await.map(drop)
    }

    async fn complete(&self, key: &Key, terms: Terms) -> Result<Lease> {
        let Claim::Granted(lease) = self.claim(key, terms).await? else { bail!("{key:?} was not granted") };
        let ack = self.store.complete(&lease, &self.outcome).await?;
        ensure!(ack == Ack::Applied, "{key:?} was not completed: {ack:?}");
        Ok(lease)
    }

    async fn claim(&self, key: &Key, terms: Terms) -> Result<Claim> {
        let ask = Ask {
            key: key.clone(),
            intent: self.intent.clone(),
            token: Token::random(),
            owner: self.owner.clone(),
            terms,
            takeover: Takeover::Never,
            not_after: self.store.now().await?.after(PATIENCE),
        };
        Ok(self.store.claim(&ask).await?)
    }

    fn key(&self, load: &str, number: u64) -> Result<Key> {
        Ok(Key::new(REALM, &format!("{}-{load}-{number}", self.run))?)
    }
}
