//! How many requests are passed on at a time without a key.
//!
//! They end with their clients, but a client can have many of them on one connection of HTTP/2. Attempts have a limit of
//! their own.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places for requests that are passed on.
#[derive(Clone)]
pub(in crate::gateway) struct Passing(Arc<Semaphore>);

/// The place of one request, until its answer has been passed on.
#[derive(Debug)]
pub(in crate::gateway) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Passing {
    pub(in crate::gateway) fn new(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit)))
    }

    pub(in crate::gateway) fn enter(&self) -> Option<Place> {
        Some(Place { _permit: Arc::clone(&self.0).try_acquire_owned().ok()? })
    }
}
