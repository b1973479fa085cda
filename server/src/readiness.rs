//! The readiness of a gateway: its store answers, and accepts writes.
//!
//! A store with a full disk can still be read, so an answer to a read proves nothing about the next
//! claim. The writes of requests are the first evidence. Without such evidence, because there was
//! no traffic or because claims have failed, the gateway writes one small record of this process,
//! which is released at once and expires soon.

use std::sync::Arc;
use std::time::Duration;

use semel::http::IdempotencyLayer;
use semel::store::{Ask, Claim, Owner, Takeover, Terms, Token};
use semel::{AfterCrash, Intent, Key, Store, StoreError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::stores::Opened;

/// The time limit for the store's answer, after which it counts as down.
const PROBE: Duration = Duration::from_secs(2);
/// The number of consecutive failed writes that are evidence of a failure.
const FAILURES: u32 = 3;
/// The time for which a successful write is evidence.
const EVIDENCE: Duration = Duration::from_secs(30);
/// The time for which a failed probe is evidence.
const FAILED: Duration = Duration::from_secs(1);

pub(crate) struct Readiness {
    store: Opened,
    layer: IdempotencyLayer,
    stopping: CancellationToken,
    key: Key,
    /// The result of the last probe. The lock is held during a probe, so that only one runs at a
    /// time.
    last: Mutex<Option<Probe>>,
}

struct Probe {
    at: Instant,
    /// The number of failed writes of requests at that time.
    failed_writes: u32,
    result: Result<(), String>,
}

impl Readiness {
    /// # Errors
    /// If the key of the probe record breaks a limit, which it does not.
    pub(crate) fn new(
        store: Opened,
        layer: IdempotencyLayer,
        stopping: CancellationToken,
    ) -> anyhow::Result<Self> {
        let key = Key::new("semel", &format!("is-it-writable-{}", Token::random()))?;
        Ok(Self { store, layer, stopping, key, last: Mutex::new(None) })
    }

    /// Succeeds if requests can be served, and otherwise returns the reason.
    pub(crate) async fn check(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err("stopping".to_owned());
        }
        in_time(self.store.probe()).await?;
        let health = self.layer.store_health();
        if health.failed_settlements >= FAILURES {
            // These writes are repeated until they succeed, so the failure ends by itself. A probe
            // would prove less.
            let failed = health.failed_settlements;
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

    /// Writes a record to the store, and releases it.
    async fn write(&self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store.store);
        let refused = |error: &dyn std::fmt::Display| StoreError::refused(error.to_string());
        let terms = Terms::new(Duration::from_secs(1), Duration::from_secs(1)).map_err(|e| refused(&e))?;
        let ask = Ask::new(
            self.key.clone(),
            Intent::of("probe", "", &()).map_err(|e| refused(&e))?,
            store.now().await?.after(Duration::from_secs(1)),
        )
        .with_owner(Owner::new("readiness"))
        .with_terms(terms.with_after_crash(AfterCrash::Retry))
        .with_takeover(Takeover::WhenOver);
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
