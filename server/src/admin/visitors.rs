//! The connections to the admin listener.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The largest number of connections at a time.
const MOST: usize = 64;

/// The connections, oldest first. When there is one too many, the oldest one without a request in
/// progress is closed, so that a client that opens idle connections cannot keep probes out.
#[derive(Default)]
pub(super) struct Visitors(Mutex<VecDeque<(Visit, AbortHandle)>>);

/// A connection.
#[derive(Clone, Default)]
pub(super) struct Visit(Arc<AtomicUsize>);

impl Visit {
    /// Marks the connection as busy until the guard is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.0.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A request in progress.
pub(super) struct Busy(Visit);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Visitors {
    /// Serves a connection on a task of its own.
    pub(super) fn admit<F>(&self, serve: impl FnOnce(Visit) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let visit = Visit::default();
        let task = tokio::spawn(serve(visit.clone())).abort_handle();
        let mut all = self.0.lock();
        all.retain(|(_, task)| !task.is_finished());
        if all.len() >= MOST {
            let at = all.iter().position(|(visit, _)| !visit.is_busy()).unwrap_or(0);
            if let Some((_, oldest)) = all.remove(at) {
                oldest.abort();
            }
        }
        all.push_back((visit, task));
    }
}
