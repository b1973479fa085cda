//! Pruning by the engine: it begins with the first run, and ends with the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::store::Store;
use crate::store::pruner::{Pruning, prune};

/// The pruning of an engine and its clones. It ends when the last of them is dropped or drained.
pub(super) struct Upkeep {
    pruning: Pruning,
    stop: CancellationToken,
    runs: Arc<AtomicBool>,
    _ends: DropGuard,
}

impl Upkeep {
    /// Pruning with these settings, until the shutdown.
    pub(super) fn new(pruning: Pruning, shutdown: &CancellationToken) -> Self {
        let stop = shutdown.child_token();
        Self { pruning, runs: Arc::default(), _ends: stop.clone().drop_guard(), stop }
    }

    /// Starts the task, unless it runs: on the first call, or if the runtime of the task has ended.
    pub(super) fn begin(&self, store: &Arc<dyn Store>, tasks: &TaskTracker) {
        if self.runs.load(Ordering::Relaxed) || self.runs.swap(true, Ordering::Relaxed) {
            return;
        }
        if !store.needs_pruning() || self.stop.is_cancelled() {
            return;
        }
        let runs = Runs(Arc::clone(&self.runs));
        let pruned = prune(Arc::clone(store), self.pruning.clone(), self.stop.clone());
        tasks.spawn(async move {
            let _runs = runs;
            pruned.await;
        });
    }
}

/// The mark of a task that runs, taken away when the task ends or is dropped with its runtime.
struct Runs(Arc<AtomicBool>);

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
