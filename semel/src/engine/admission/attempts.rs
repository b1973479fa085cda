//! The limit of concurrent attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counts of running and of unsettled attempts, each with the same limit.
///
/// An unsettled attempt has done its work, but the store has not taken its settlement yet. It keeps
/// its outcome in memory, so no attempt begins while the number of unsettled ones is at the limit.
///
/// This is not a semaphore: nothing waits for a permit, so taking and returning one is a single
/// atomic operation each.
pub(super) struct Attempts {
    limit: usize,
    running: AtomicUsize,
    unsettled: AtomicUsize,
}

/// A guard that counts an attempt as unsettled until it is dropped.
pub(in crate::engine) struct Unsettled(Arc<Attempts>);

/// A guard that counts an attempt as running until it is dropped.
pub(in crate::engine) struct Permit(Arc<Attempts>);

impl Attempts {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, running: AtomicUsize::new(0), unsettled: AtomicUsize::new(0) }
    }

    pub(super) fn enter(self: &Arc<Self>) -> Option<Permit> {
        if self.unsettled.load(Ordering::Relaxed) >= self.limit {
            return None;
        }
        let one_more = |running: usize| (running < self.limit).then_some(running + 1);
        self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Permit(Arc::clone(self)))
    }

    pub(super) fn unsettled(self: &Arc<Self>) -> Unsettled {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
        Unsettled(Arc::clone(self))
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.unsettled.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn no_attempt_begins_while_the_unsettled_ones_are_at_the_limit() {
        let attempts = Arc::new(Attempts::new(2));
        let unsettled = [attempts.unsettled(), attempts.unsettled()];
        assert!(attempts.enter().is_none());
        let [one, _other] = unsettled;
        drop(one);
        assert!(attempts.enter().is_some());
    }
}
