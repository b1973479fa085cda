//! How many attempts run at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the attempts that run, up to a limit.
///
/// It is no semaphore: nothing waits for a permit, so taking and returning one is one atomic step each.
pub(super) struct Attempts {
    limit: usize,
    running: AtomicUsize,
}

/// The right to run an attempt, until it is dropped.
pub(in crate::engine) struct Permit(Arc<Attempts>);

impl Attempts {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, running: AtomicUsize::new(0) }
    }

    pub(super) fn enter(self: &Arc<Self>) -> Option<Permit> {
        let one_more = |running: usize| (running < self.limit).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Permit(Arc::clone(self)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_dropped_can_be_taken_again() {
        let attempts = Arc::new(Attempts::new(2));
        let (first, second) = (attempts.enter(), attempts.enter());
        assert!(first.is_some() && second.is_some() && attempts.enter().is_none());
        drop(first);
        assert!(attempts.enter().is_some());
    }
}
