//! Asking a store again, for a while.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::error::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long one question may take before it counts as not answered. A store bounds its own calls; this is for
/// one that does not.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(5);

/// Pauses that grow, until the patience is over.
pub(super) struct Patience {
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub(super) fn of(length: Duration) -> Self {
        Self { until: Some(Instant::now() + length), pause: FIRST_PAUSE }
    }

    /// Pauses without an end, for background work that must get through.
    pub(super) fn endless() -> Self {
        Self { until: None, pause: FIRST_PAUSE }
    }

    /// After an error: pauses and says whether to ask again.
    pub(super) async fn lasts(&mut self, error: &StoreError) -> bool {
        if !error.is_transient() {
            return false;
        }
        if self.until.is_some_and(|until| Instant::now() + self.pause > until) {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// The answer to one question, or that there was none within the limit.
pub(super) async fn call<T>(question: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match timeout(CALL_LIMIT, question).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::unknown(format!("no answer within {CALL_LIMIT:?}"))),
    }
}
