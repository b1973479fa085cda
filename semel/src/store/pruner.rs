//! Pruning of expired records in the background.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::store::{Prune, Store};
use crate::words::error::StoreError;

/// The time after which a call counts as unanswered. The stores of this crate usually
/// end theirs sooner.
const CALL_LIMIT: Duration = Duration::from_secs(600);

/// The longest wait for a call in progress at the end.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The settings of the background pruning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruning {
    /// The records to remove in one call.
    pub prune: Prune,
    /// The pause when nothing is left to remove.
    pub idle: Duration,
    /// The pause between two calls that removed as many records as they were allowed to.
    pub busy: Duration,
}

impl Default for Pruning {
    fn default() -> Self {
        let prune = Prune { paced: true, ..Prune::default() };
        Self { prune, idle: Duration::from_secs(60), busy: Duration::from_millis(50) }
    }
}

impl Pruning {
    /// The same settings for other records.
    #[must_use]
    pub fn with_prune(self, prune: Prune) -> Self {
        Self { prune, ..self }
    }

    /// The same settings with another pause when nothing is left to remove.
    #[must_use]
    pub fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// The same settings with another pause between two full calls.
    #[must_use]
    pub fn with_busy(self, busy: Duration) -> Self {
        Self { busy, ..self }
    }
}

/// The handle of background pruning, which ends when this is dropped or stopped.
#[must_use = "dropping it ends the pruning"]
pub struct Pruner {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Pruner {
    /// Ends the pruning, after waiting up to five seconds for a call in progress.
    pub async fn stop(self) {
        drop(self.stop);
        // The task ends by itself; a panic in it no longer matters.
        let _ = self.task.await;
    }
}

/// Removes expired records in the background until the returned handle is dropped. An
/// [engine](crate::Once::with_pruning) does so by itself; this is for programs without one.
///
/// A store that fails is tried again, after pauses that grow up to the idle one; each failure is
/// logged. Several processes may prune one store: by default they share the sweep, and read a large
/// store slowly unless there is much to remove; see [`Prune::paced`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use semel::MemoryStore;
/// use semel::admin::{Pruning, continuously_prune};
///
/// let store = MemoryStore::new();
/// let pruner = continuously_prune(store, Pruning::default());
/// // …
/// pruner.stop().await;
/// # }
/// ```
pub fn continuously_prune(store: impl Store, pruning: Pruning) -> Pruner {
    let stop = CancellationToken::new();
    let task = tokio::spawn(prune(store, pruning, stop.clone()));
    Pruner { task, stop: stop.drop_guard() }
}

/// Removes expired records until it is stopped.
pub(crate) async fn prune(store: impl Store, pruning: Pruning, stopped: CancellationToken) {
    let mut failures = 0_u32;
    while !stopped.is_cancelled() {
        let given_up = async {
            stopped.cancelled().await;
            sleep(STOP_LIMIT).await;
        };
        let answer = tokio::select! {
            biased;
            answer = timeout(CALL_LIMIT, store.prune(&pruning.prune)) => answer,
            () = given_up => return,
        };
        let unanswered = |_| Err(StoreError::unknown(format!("no answer within {CALL_LIMIT:?}")));
        let pause = match answer.unwrap_or_else(unanswered) {
            Ok(removed) => {
                failures = 0;
                if removed >= u64::from(pruning.prune.limit) { pruning.busy } else { pruning.idle }
            }
            Err(error) => {
                tracing::warn!(%error, store = store.name(), "pruning failed, and is tried again");
                failures = failures.saturating_add(1);
                pruning.busy.saturating_mul(1 << failures.min(16)).min(pruning.idle)
            }
        };
        let _ = stopped.run_until_cancelled(sleep(pause)).await;
    }
}
