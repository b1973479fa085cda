//! Retries with backoff for calls of the store, within a limited time.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::runtime::backoff::Backoff;
use crate::words::error::StoreError;
use crate::words::key::Key;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The pauses of retries for which a caller waits.
const WAITED_FOR: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_millis(500));
/// The pauses when a call is retried in the background. The longest is short because a key stays
/// running until its settlement is written, even if the store is up again.
pub(super) const IN_BACKGROUND: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_secs(1));

/// The timeout of one call of the store. Stores have timeouts of their own; this one is for a store
/// without.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(5);

/// Retries that end when the patience is over.
pub(super) struct Patience<'a> {
    length: Duration,
    /// The end; `None` before a shutdown.
    until: Option<Instant>,
    /// The shutdown that begins the patience; `None` if it has begun.
    shutdown: Option<CancellationToken>,
    backoff: Backoff,
    failures: u32,
    key: &'a Key,
}

impl<'a> Patience<'a> {
    /// A patience of this length that began at this moment.
    pub(super) fn since(began: Instant, length: Duration, key: &'a Key) -> Self {
        Self { length, until: Some(began + length), shutdown: None, backoff: WAITED_FOR, failures: 0, key }
    }

    /// A patience that lasts until the shutdown and for this length after it, for background work
    /// that must not be given up earlier.
    pub(super) fn until_shutdown(shutdown: &CancellationToken, length: Duration, key: &'a Key) -> Self {
        Self {
            until: None,
            shutdown: Some(shutdown.clone()),
            backoff: IN_BACKGROUND,
            ..Self::since(Instant::now(), length, key)
        }
    }

    /// Pauses after an error. Returns `true` if the call should be retried.
    ///
    /// The future is boxed, which keeps the futures of the callers small: most calls need no retry.
    pub(super) fn pause_after<'b>(&'b mut self, error: &StoreError) -> BoxFuture<'b, bool> {
        let is_transient = error.is_transient();
        Box::pin(async move { is_transient && self.pause().await })
    }

    /// Pauses and returns `true`, unless the patience would be over before the end of the pause.
    async fn pause(&mut self) -> bool {
        let pause = self.backoff.pause(self.failures);
        if self.until.is_some_and(|until| Instant::now() + pause > until) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = pause + pause * spread_percent(self.key) / 100;
        match &self.shutdown {
            None => sleep(pause).await,
            Some(shutdown) => tokio::select! {
                biased;
                () = shutdown.cancelled() => self.hurry(),
                () = sleep(pause) => {}
            },
        }
        true
    }

    /// Begins the limited time after a shutdown, with pauses as short as for a waiting caller.
    fn hurry(&mut self) {
        self.until = Some(Instant::now() + self.length);
        self.shutdown = None;
        (self.backoff, self.failures) = (WAITED_FOR, 0);
    }
}

/// The share of a pause that is added to it, by key: retries of different keys that began together
/// spread out. It is not random, so a recorded history can be replayed.
fn spread_percent(key: &Key) -> u32 {
    let mix = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
    key.value().bytes().fold(7, mix) % 5 * 20
}

/// Waits for the answer to one call of the store, for [`CALL_LIMIT`] at most.
pub(super) async fn call<T>(question: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let unanswered = |_| Err(StoreError::unknown(format!("no answer within {CALL_LIMIT:?}")));
    timeout(CALL_LIMIT, question).await.unwrap_or_else(unanswered)
}
