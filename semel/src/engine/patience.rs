//! Retries with backoff for calls of the store, within a limited time.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::words::error::StoreError;
use crate::words::key::Key;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause of a retry for which a caller waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause when a settlement is retried in the background. It is short because the key
/// stays running until the settlement is written, even if the store is up again.
pub(super) const LONGEST_SETTLING_PAUSE: Duration = Duration::from_secs(1);

/// The timeout of one call of the store. Stores have timeouts of their own; this one is for a store
/// without.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(5);

/// An exponential backoff that ends when the patience is over.
pub(super) struct Patience<'a> {
    length: Duration,
    /// The end; `None` before a shutdown.
    until: Option<Instant>,
    /// The shutdown that begins the patience; `None` if it has begun.
    shutdown: Option<CancellationToken>,
    pause: Duration,
    longest: Duration,
    key: &'a Key,
}

impl<'a> Patience<'a> {
    /// A patience of this length that began at this moment.
    pub(super) fn since(began: Instant, length: Duration, key: &'a Key) -> Self {
        Self {
            length,
            until: Some(began + length),
            shutdown: None,
            pause: FIRST_PAUSE,
            longest: LONGEST_PAUSE,
            key,
        }
    }

    /// A patience that lasts until the shutdown and for this length after it, for background work
    /// that must not be given up earlier.
    pub(super) fn until_shutdown(
        shutdown: &CancellationToken,
        length: Duration,
        longest: Duration,
        key: &'a Key,
    ) -> Self {
        Self {
            until: None,
            shutdown: Some(shutdown.clone()),
            longest,
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
        if self.until.is_some_and(|until| Instant::now() + self.pause > until) {
            return false;
        }
        let pause = self.pause + self.pause * spread_percent(self.key) / 100;
        self.pause = (self.pause * 2).min(self.longest);
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
        (self.pause, self.longest) = (FIRST_PAUSE, LONGEST_PAUSE);
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
