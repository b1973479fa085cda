//! The options for requests: the parts that make two of them the same, and the limits of bodies.

use std::sync::Arc;
use std::time::Duration;

use super::IdempotencyLayer;
use crate::http::request::fingerprint::RequestFingerprint;
use crate::http::request::memory::Memory;
use crate::http::request::pace::LeastRate;

impl IdempotencyLayer {
    /// Sets the parts of a request that make it the same request; every byte of it unless set.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: RequestFingerprint) -> Self {
        self.with(|options| options.fingerprint = fingerprint)
    }

    /// Sets the path under which requests are compared, for services that treat several paths as
    /// one: `/charges` for `/charges/`, for example. `None` stands for the path as it was sent. The
    /// handler always gets the path as it was sent.
    #[must_use]
    pub fn with_path(self, path: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|options| options.path = Some(Arc::new(path)))
    }

    /// Sets the largest body of a request with a key; 1 MiB unless set. The body is held in memory
    /// while the request is served.
    #[must_use]
    pub fn with_max_request_bytes(self, bytes: usize) -> Self {
        self.with(|options| options.max_request_bytes = bytes)
    }

    /// Sets the time limit for the arrival of a request's body; 30 s unless set.
    #[must_use]
    pub fn with_request_timeout(self, timeout: Duration) -> Self {
        self.with(|options| options.request_timeout = timeout)
    }

    /// Sets the lowest rate at which the body of a request with a key may arrive, in bytes a second
    /// on average over each five seconds. A slower body is refused with 408, long before its
    /// timeout, and its memory is freed. No rate is required unless this is set.
    #[must_use]
    pub fn with_least_rate(self, bytes_per_second: u32) -> Self {
        self.with(|options| options.least_rate = LeastRate::of(bytes_per_second))
    }

    /// Sets a budget for all bodies in memory, of requests and responses; clones of the layer share
    /// it, and so do other layers that get a clone of it. [`Memory`] describes the treatment of a
    /// request for which there is no room. Without a budget, each body is bounded by its own limit,
    /// and their number by the layers around this one.
    ///
    /// A budget should be at least two times the largest request and the largest response that is
    /// recorded.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Self {
        self.with(|options| options.memory = Some(memory))
    }
}
