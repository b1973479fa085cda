//! Whether a gateway is ready for requests: its store answers, and takes what is written.
//!
//! A store with a full disk can still be read, so an answer to a read says nothing about the next claim. The writes of
//! requests are the first evidence. Where there is none, because there was no traffic or because claims have failed, the
//! store is given something to write: one small record of this process, which is released at once and expires soon.

use std::sync::Arc;
use std::time::Duration;

use semel::http::IdempotencyLayer;
use semel::{AfterCrash, Ask, Claim, Intent, Key, Owner, Store, StoreError, Takeover, Terms, Token};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::stores::Opened;

/// How long the store may take to answer before it counts as down.
const PROBE: Duration = Duration::from_secs(2);
/// How many writes have to fail in a row until they are evidence.
const FAILURES: u32 = 3;
/// For how long a write that succeeded is evidence.
const EVIDENCE: Duration = Duration::from_secs(30);
/// For how long a write of our own that failed is.
const FAILED: Duration = Duration::from_secs(1);

pub(crate) struct Readiness {
    store: Opened,
    layer: IdempotencyLayer,
    stopping: CancellationToken,
    key: Key,
    /// What the last write of our own came to. Held while the next one is under way: one at a time.
    last: Mutex<Option<Probe>>,
}

struct Probe {
    at: Instant,
    /// How many writes of requests had failed by then.
    failed_writes: u32,
    result: Result<(), String>,
}

impl Readiness {
    /// # Errors
    /// If the key of its own record breaks a limit, which it does not.
    pub(crate) fn new(
        store: Opened,
        layer: IdempotencyLayer,
        stopping: CancellationToken,
    ) -> anyhow::Result<Self> {
        let key = Key::new("semel", &format!("is-it-writable-{}", Token::random()))?;
        Ok(Self { store, layer, stopping, key, last: Mutex::new(None) })
    }

    /// Whether requests can be served, or why not.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err("stopping".to_owned());
        }
        in_time(self.store.probe()).await?;
        let health = self.layer.store_health();
        if health.failed_ends >= FAILURES {
            // They are tried again until they are written, so this ends by itself. A write of our own would say less.
            let failed = health.failed_ends;
            return Err(format!(
                "the store takes no writes: the ends of {failed} attempts are not recorded yet"
            ));
        }
        if health.failed_writes < FAILURES && health.since_write < EVIDENCE {
            return Ok(());
        }
        let mut last = self.last.lock().await;
        if let Some(probe) = &*last {
            let more_failed = health.failed_writes.saturating_sub(probe.failed_writes) >= FAILURES;
            let lasts = if probe.result.is_ok() { EVIDENCE } else { FAILED };
            if !more_failed && probe.at.elapsed() < lasts {
                return probe.result.clone();
            }
        }
        let result =
            in_time(self.write()).await.map_err(|error| format!("the store takes no writes: {error}"));
        let failed_writes = health.failed_writes;
        *last = Some(Probe { at: Instant::now(), failed_writes, result: result.clone() });
        result
    }

    /// Has the store write something, and give it back.
    async fn write(&self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store.store);
        let refused = |error: &dyn std::fmt::Display| StoreError::refused(error.to_string());
        let terms = Terms::new(Duration::from_secs(1), Duration::from_secs(1)).map_err(|e| refused(&e))?;
        let ask = Ask {
            key: self.key.clone(),
            intent: Intent::of("probe", "", &()).map_err(|e| refused(&e))?,
            token: Token::random(),
            owner: Owner::new("readiness"),
            terms: terms.with_after_crash(AfterCrash::Retry),
            takeover: Takeover::WhenOver,
            not_after: store.now().await?.after(Duration::from_secs(1)),
        };
        match store.claim(&ask).await? {
            Claim::Granted(lease) => store.release(&lease).await.map(drop),
            _ => {
                Err(StoreError::unavailable("the record that is written to see whether that works is in use"))
            }
        }
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
    match timeout(PROBE, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the store did not answer within {PROBE:?}")),
    }
}
