//! Asking a store again, for a while.

use std::future::Future;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::runtime::timer::within;
use crate::words::error::StoreError;
use crate::words::key::Key;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// While somebody waits for the answer.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// In the background, for the end of an attempt: until it is written, its key stays running, though
/// the store is back.
pub(super) const LONGEST_SETTLING_PAUSE: Duration = Duration::from_secs(1);

/// How long one question may take before it counts as not answered. A store bounds its own calls;
/// this is for one that does not.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(5);

/// Pauses that grow, until the patience is over.
pub(super) struct Patience<'a> {
    length: Duration,
    until: Option<Instant>,
    shutdown: Option<CancellationToken>,
    pause: Duration,
    longest: Duration,
    key: &'a Key,
}

impl<'a> Patience<'a> {
    /// For this long, from then on.
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

    /// Until the shutdown, and this long after it, for background work that must get through.
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

    /// After an error: pauses and says whether to ask again. It is boxed, as most questions are
    /// answered at once.
    pub(super) fn lasts<'b>(&'b mut self, error: &StoreError) -> BoxFuture<'b, bool> {
        let is_transient = error.is_transient();
        Box::pin(async move { is_transient && self.pause().await })
    }

    /// Pauses, if the patience lasts as long.
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

    /// The shutdown has begun: from now on as if somebody waited.
    fn hurry(&mut self) {
        self.until = Some(Instant::now() + self.length);
        self.shutdown = None;
        (self.pause, self.longest) = (FIRST_PAUSE, LONGEST_PAUSE);
    }
}

/// Tasks of different keys that began together do not ask together for ever. It is made of the key
/// and not of chance, so that a history can be replayed.
fn spread_percent(key: &Key) -> u32 {
    let mix = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(byte.into());
    key.value().bytes().fold(7, mix) % 5 * 20
}

/// The answer to one question, or that there was none within the limit.
pub(super) async fn call<T>(
    question: impl Future<Output = Result<T, StoreError>> + Unpin,
) -> Result<T, StoreError> {
    let unanswered = || Err(StoreError::unknown(format!("no answer within {CALL_LIMIT:?}")));
    within(CALL_LIMIT, question).await.unwrap_or_else(unanswered)
}
