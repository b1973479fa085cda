//! The limit of requests that are passed through outside of the limit of attempts.
//!
//! These are the requests without a key, the WebSockets, and the answers to requests with a key
//! that are still streamed after their attempt has ended. They end with their clients, but one
//! HTTP/2 connection can carry many of them. Running attempts have a limit of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of answers to requests with a key that may be streamed while all places are taken.
pub(in crate::gateway) const RESERVE: usize = 64;

/// The places for requests that are passed through.
#[derive(Clone)]
pub(in crate::gateway) struct Passing(Arc<Places>);

#[derive(Debug)]
struct Places {
    limit: usize,
    taken: AtomicUsize,
}

/// The place of one request, until its answer has been passed on.
#[derive(Debug)]
pub(in crate::gateway) struct Place(Arc<Places>);

impl Passing {
    pub(in crate::gateway) fn new(limit: usize) -> Self {
        Self(Arc::new(Places { limit, taken: AtomicUsize::new(0) }))
    }

    /// A place, unless all are taken.
    pub(in crate::gateway) fn enter(&self) -> Option<Place> {
        let next = |taken| (taken < self.0.limit).then_some(taken + 1);
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Place(Arc::clone(&self.0)))
    }

    /// A place for the answer to an attempt, which can no longer be refused. It counts towards the
    /// limit.
    pub(in crate::gateway) fn enter_anyway(&self) -> Place {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(&self.0))
    }

    /// Returns `true` if the reserve is used up, too, so that no further attempt should begin: its
    /// answer could be one more stream.
    pub(in crate::gateway) fn is_exhausted(&self) -> bool {
        self.0.taken.load(Ordering::Relaxed) >= self.0.limit + RESERVE
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_attempts_count_and_are_never_refused() {
        let passing = Passing::new(2);
        let streams: Vec<_> = (0..1 + RESERVE).map(|_| passing.enter_anyway()).collect();
        assert!(passing.enter().is_none() && !passing.is_exhausted());
        let last = passing.enter_anyway();
        assert!(passing.is_exhausted());
        drop((streams, last));
        let places = [passing.enter(), passing.enter()];
        assert!(places.iter().all(Option::is_some) && passing.enter().is_none());
        drop(places);
        assert!(passing.enter().is_some());
    }
}
