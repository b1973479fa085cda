//! The clock of a server, told from the last time it was heard.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreError;
use crate::time::Timestamp;

/// For how long the time is told without asking.
const KEPT: Duration = Duration::from_secs(10);

/// When a server was last heard, and what its clock said then.
#[derive(Default)]
pub(crate) struct HeardClock(Mutex<Option<(Timestamp, Instant)>>);

impl HeardClock {
    /// The server has told its time just now.
    pub(crate) fn hear(&self, now: Timestamp) {
        *self.heard() = Some((now, Instant::now()));
    }

    /// The server's time; it is asked if it has not been heard for long.
    pub(crate) async fn or_ask(
        &self,
        ask: impl Future<Output = Result<Timestamp, StoreError>>,
    ) -> Result<Timestamp, StoreError> {
        let heard = *self.heard();
        if let Some((now, at)) = heard.filter(|(_, at)| at.elapsed() < KEPT) {
            return Ok(now.after(at.elapsed()));
        }
        let now = ask.await?;
        self.hear(now);
        Ok(now)
    }

    fn heard(&self) -> MutexGuard<'_, Option<(Timestamp, Instant)>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
